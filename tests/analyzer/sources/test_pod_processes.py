"""Processes of pods: the same from an engine and from the agents' pages, and unknown without an agent."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.live_readings import (
    NATIVE_LABELS,
    LiveSample,
    PodProcesses,
    RunningProcess,
    collect_processes,
)
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.core.errors import SourceError
from gpusteward.simulate.fleets import default_node, fleet
from gpusteward.simulate.nodes import SimulatedNode
from tests.analyzer.engines import Sample, running_prometheus, running_victoria
from tests.analyzer.scraped_history import AT, rename_labels, scrape_history, scrape_times
from tests.analyzer.sources.scrape.page_server import PageServer, pages_of, serving_pages

pytestmark = pytest.mark.slow

NODES = [default_node(1, name="showcase"), *fleet(10)]
LAST = scrape_times()[-1]
TIMES = scrape_times(seconds=60)
RENAMED = rename_labels(namespace="exported_namespace", pod="exported_pod", container="exported_container")
ALL = "dcgm,native,all-series"
POD = PodKey("team", "trainer-0")
Known = dict[PodKey, set[RunningProcess]]


def run_truly(nodes: Sequence[SimulatedNode]) -> Known:
    """The simulated processes of every pod with a GPU."""
    found: Known = {}
    for node in nodes:
        snapshot = node.snapshot(LAST)
        gpus = {reading.gpu.uuid: reading.gpu for reading in snapshot.readings}
        for claim in snapshot.allocations:
            found.setdefault(PodKey(claim.container.namespace, claim.container.pod), set())
        for each in snapshot.processes:
            if each.container is None:
                continue
            pod, gpu = PodKey(each.container.namespace, each.container.pod), gpus[each.gpu_uuid]
            found.setdefault(pod, set()).add(
                RunningProcess(
                    pod,
                    each.container.name,
                    node=node.name,
                    gpu_index=str(gpu.index),
                    gpu_uuid=gpu.uuid,
                    gpu_instance=str(gpu.mig.gpu_instance_id) if gpu.mig else "",
                    mig_profile=gpu.mig.profile if gpu.mig else "",
                    pid=each.pid,
                    name=each.name,
                    memory_bytes=each.memory_bytes,
                    sm_ratio=each.sm_ratio,
                    outside_allocation=each.outside_allocation,
                )
            )
    return found


def by_pod(running: PodProcesses) -> Known:
    found: Known = {pod: set() for pod in running.reported}
    for each in running.processes:
        found.setdefault(each.pod, set()).add(each)
    return found


@contextmanager
def scraping(samples: Sequence[Sample]) -> Iterator[tuple[PageServer, ScrapeSource]]:
    """A scrape source over the last page of these targets."""
    pages: dict[str, bytes | None] = {f"/{target}": page for target, page, _ in pages_of(samples)}
    with serving_pages(pages) as server:
        targets = [server.address(path) for path in pages]
        settings = ScrapeSettings(targets=targets, selector="", interval=60, timeout=2)
        with closing(ScrapeSource(settings, window_seconds=60)) as source:
            source.read(time.time())
            yield server, source


def test_the_pages_of_the_agents_give_the_processes_of_every_pod():
    truth = run_truly(NODES)
    assert sum(map(len, truth.values())) > 20
    assert any(not running for running in truth.values()), "a pod without a process is needed"
    with scraping(tuple(scrape_history(NODES, [LAST], dialects=ALL))) as (_, source):
        running = source.read_processes(set(truth), time.time())
    assert by_pod(running) == truth
    assert running.reported == truth.keys()


@pytest.mark.parametrize("engine", [running_prometheus, running_victoria])
def test_an_engine_gives_the_same_processes_also_with_renamed_labels(tmp_path: Path, engine):
    truth = run_truly(NODES)
    for name, change in (("plain", str), ("renamed", RENAMED)):
        (folder := tmp_path / name).mkdir()
        samples = tuple(scrape_history(NODES, TIMES, change=change, dialects=ALL))
        with (
            engine(folder, samples) as running,
            closing(PrometheusSource(PrometheusSettings(url=running.url, time_window_min=1))) as source,
        ):
            assert by_pod(source.read_processes(set(truth), AT)) == truth


def test_by_default_an_agent_gives_every_process_with_its_memory_and_without_its_utilization():
    truth = {pod: {replace(each, sm_ratio=None) for each in own} for pod, own in run_truly(NODES).items()}
    with scraping(tuple(scrape_history(NODES, [LAST]))) as (_, source):
        assert by_pod(source.read_processes(set(truth), time.time())) == truth


def test_only_the_requested_pods_are_returned(tmp_path: Path):
    truth = run_truly(NODES)
    pod = next(pod for pod, running in truth.items() if running)
    namesake = PodKey("another-namespace", pod.name)
    with (
        running_prometheus(tmp_path, tuple(scrape_history(NODES, TIMES, dialects=ALL))) as engine,
        closing(PrometheusSource(PrometheusSettings(url=engine.url))) as queried,
        scraping(tuple(scrape_history(NODES, [LAST], dialects=ALL))) as (server, scraped),
    ):
        for source, at in ((queried, AT), (scraped, time.time())):
            assert by_pod(source.read_processes({pod, namesake}, at)) == {pod: truth[pod]}
        before = len(server.requests)
        scraped.read_processes({pod}, time.time())
        (path,) = {path for path, _ in server.requests[before:]}
        assert path == f"/{next(iter(truth[pod])).node}:9400", "only its own node is scraped"


def test_without_an_agent_processes_are_unknown(tmp_path: Path):
    pods = set(run_truly(NODES))
    samples = tuple(scrape_history(NODES, TIMES, dialects="dcgm"))
    with (
        running_prometheus(tmp_path, samples) as engine,
        closing(PrometheusSource(PrometheusSettings(url=engine.url))) as queried,
        scraping(samples) as (_, scraped),
    ):
        assert queried.read_processes(pods, AT) == PodProcesses()
        assert scraped.read_processes(pods, time.time()) == PodProcesses()


def test_an_unreachable_agent_affects_only_its_pods_and_if_all_are_it_is_an_error():
    here, there = NODES[0], NODES[1]
    truth = run_truly([here, there])
    with scraping(tuple(scrape_history([here, there], [LAST], dialects=ALL))) as (server, source):
        server.pages[f"/{there.name}:9400"] = None  # hangs
        assert by_pod(source.read_processes(set(truth), time.time())) == run_truly([here])
        del server.pages[f"/{here.name}:9400"]
        with pytest.raises(SourceError, match="none of 2 agents responded"):
            source.read_processes(set(truth), time.time())


def test_a_closed_source_fails_at_once():
    pods = set(run_truly(NODES[:1]))
    with scraping(tuple(scrape_history(NODES[:1], [LAST]))) as (_, source):
        source.close()
        began = time.monotonic()
        with pytest.raises(SourceError):
            source.read_processes(pods, time.time())
        assert time.monotonic() - began < 5


def sample(family: str, value: float = 1.0, **labels: str) -> LiveSample:
    who = {"namespace": POD.namespace, "pod": POD.name, "node": "n1", "gpu": "0", "uuid": "GPU-a"}
    return LiveSample(f"gpusteward_{family}", {**who, **labels}, value)


@pytest.mark.parametrize("pid", ["", "-1", "x", "٣", "9" * 400, "1.0"])
def test_an_invalid_pid_is_left_out(pid: str):
    assert collect_processes([sample("process_memory_bytes", pid=pid)], {POD}, NATIVE_LABELS) == PodProcesses()


def test_a_value_that_is_not_a_number_is_unknown():
    samples = [
        sample("process_memory_bytes", 5.0, pid="7", process="python"),
        sample("process_utilization_ratio", float("nan"), pid="7", engine="sm"),
        sample("process_utilization_ratio", 0.5, pid="7", engine="memory"),
    ]
    (found,) = collect_processes(samples, {POD}, NATIVE_LABELS).processes
    assert (found.memory_bytes, found.sm_ratio, found.name) == (5.0, None, "python")


def test_a_process_whose_memory_the_driver_hides_is_listed():
    (found,) = collect_processes([sample("process_memory_unknown", 1.0, pid="7")], {POD}, NATIVE_LABELS).processes
    assert (found.pid, found.memory_bytes, found.sm_ratio) == (7, None, None)


def test_processes_are_sorted_by_gpu():
    samples = [sample("process_memory_bytes", pid="7", gpu=gpu, uuid=f"GPU-{gpu}") for gpu in ("10", "2", "1")]
    assert [each.gpu_index for each in collect_processes(samples, {POD}, NATIVE_LABELS).processes] == ["1", "2", "10"]
