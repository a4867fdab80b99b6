"""What pods use of their hosts: from counters of cAdvisor and of gpusteward's agent in real engines."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.live_readings import HostUse
from gpusteward.analyzer.sources.promql import host_use
from gpusteward.analyzer.sources.promql.several_engines import SeveralEngines
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.sources.scrape import host_counters
from gpusteward.analyzer.sources.scrape.host_counters import HostCounters
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.core.errors import SourceError
from gpusteward.local.simulated_fleet import SimulatedFleet
from gpusteward.simulate.fleets import fleet
from tests.analyzer.engines import Sample, running_prometheus, running_victoria
from tests.analyzer.scraped_history import AT, rename_labels, scrape_history, scrape_times
from tests.constants import make_settings

pytestmark = pytest.mark.slow

SECONDS = 600.0
STEP = 15.0
TIMES = [AT - SECONDS - 60 + STEP * number for number in range(45)]
WEB, DATA, HOST, NEW = (PodKey("team", name) for name in ("web-0", "data-0", "host-0", "new-0"))
CPU = "container_cpu_usage_seconds_total"
READ, WRITTEN = "container_fs_reads_bytes_total", "container_fs_writes_bytes_total"
RECEIVED, SENT = "container_network_receive_bytes_total", "container_network_transmit_bytes_total"


def counter(name: str, pod: PodKey, per_second: float, *, first: float = 1e6, **labels: str) -> Iterator[Sample]:
    named = {"namespace": pod.namespace, "pod": pod.name, **labels}
    text = "{" + ",".join(f'{key}="{value}"' for key, value in named.items()) + "}"
    return ((name, text, first + per_second * (time - TIMES[0]), time) for time in TIMES)


def cadvisor(pod: PodKey, *, cores: float, **more: str) -> Iterator[Sample]:
    """Two containers, the empty one, and the pod itself."""
    for container, share in (("main", 0.75), ("side", 0.25)):
        yield from counter(CPU, pod, cores * share, container=container, id=f"/pod/{container}", cpu="total", **more)
    yield from counter(CPU, pod, 0.0, container="", id="/pod/pause", cpu="total", **more)
    yield from counter(CPU, pod, cores * 1.01, container="", id="/pod", cpu="total", **more)


def rounded(found: dict[PodKey, HostUse]) -> dict[PodKey, tuple[float | None, ...]]:
    return {pod: tuple(None if value is None else float(f"{value:.2g}") for value in use) for pod, use in found.items()}


@pytest.mark.parametrize("engine", [running_prometheus, running_victoria])
def test_the_counters_of_cadvisor_give_the_means_of_a_pod(tmp_path: Path, engine):
    samples = [
        *cadvisor(WEB, cores=2.0),
        *counter(READ, WEB, 3e6, container="main", id="/pod/main", device="/dev/sda"),
        *counter(READ, WEB, 1e6, container="main", id="/pod/main", device="/dev/sdb"),
        *counter(WRITTEN, WEB, 2e6, container="side", id="/pod/side", device="/dev/sda"),
        *counter(RECEIVED, WEB, 1e5, interface="eth0", id="/pod/pause"),
        *counter(RECEIVED, WEB, 2e5, interface="net1", id="/pod/pause"),
        *counter(SENT, WEB, 3e5, interface="eth0", id="/pod/pause"),
        *counter(SENT, WEB, 9e9, interface="lo", id="/pod/pause"),
        # Only the row of the pod itself, whose bytes go to a network file system.
        *counter(CPU, DATA, 0.5, container="", id="/data", cpu="total"),
        *counter(READ, DATA, 0.0, first=0.0, container="", id="/data", device="/dev/sda"),
        *counter(WRITTEN, DATA, 0.0, first=0.0, container="", id="/data", device="/dev/sda"),
        # It has once written: what it does not write now is known.
        *counter(WRITTEN, HOST, 0.0, first=4096.0, container="", id="/host", device="/dev/sda"),
        *counter(CPU, WEB._replace(namespace="other"), 64.0, container="main", id="/other"),
    ]
    with engine(tmp_path, samples) as running, closing(PrometheusSource(PrometheusSettings(url=running.url))) as source:
        found = source.read_host_use([WEB, DATA, HOST, NEW], AT, seconds=SECONDS)
    assert rounded(found) == {WEB: (2.0, 6e6, 6e5), DATA: (0.5, None, None), HOST: (None, 0.0, None)}


def test_rows_that_are_there_twice_count_once(tmp_path: Path):
    samples = [
        sample
        for replica in ("a", "b")
        for sample in (
            *cadvisor(WEB, cores=1.0, prometheus_replica=replica),
            *counter(SENT, WEB, 1e6, interface="eth0", prometheus_replica=replica, job=f"kubelet-{replica}"),
        )
    ]
    with (
        running_prometheus(tmp_path, samples) as engine,
        closing(PrometheusSource(PrometheusSettings(url=engine.url))) as source,
    ):
        assert rounded(source.read_host_use([WEB], AT, seconds=SECONDS)) == {WEB: (1.0, None, 1e6)}


def test_the_labels_may_be_renamed_and_names_are_no_patterns(tmp_path: Path, monkeypatch):
    """A pod whose name is a regular expression, or has quotes, selects no other one."""
    monkeypatch.setattr(host_use, "PODS_PER_QUERY", 1)
    odd = [PodKey("team", name) for name in (".*", 'a"} or vector(1) #', "web.0", "web-\\d")]
    labels = {"exported_namespace": "team", "exported_pod": "web-0", "namespace": "monitoring", "pod": "kubelet-x"}
    text = "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + ',container="main"}'
    samples = [(CPU, text, 2.0 * (time - TIMES[0]), time) for time in TIMES]
    with (
        running_prometheus(tmp_path, samples) as engine,
        closing(PrometheusSource(PrometheusSettings(url=engine.url))) as source,
    ):
        assert rounded(source.read_host_use([WEB, *odd], AT, seconds=SECONDS)) == {WEB: (2.0, None, None)}


@pytest.mark.parametrize("prefix", ["", "exported_"])
def test_the_counters_of_the_agent_come_first_and_cadvisor_has_what_they_lack(tmp_path: Path, prefix: str):
    change = rename_labels(namespace=f"{prefix}namespace", pod=f"{prefix}pod") if prefix else str
    gpus = scrape_history(fleet(1), scrape_times(seconds=120), change=change)
    own = {f"{prefix}namespace": "team", f"{prefix}pod": "web-0", "node": "n1", "pod_uid": "u"}
    text = "{" + ",".join(f'{key}="{value}"' for key, value in own.items()) + "}"
    agent = [
        (f"gpusteward_pod_{name}", text, first + per_second * (time - TIMES[0]), time)
        for name, first, per_second in (("cpu_seconds_total", 5.0, 0.5), ("disk_bytes_total", 0.0, 0.0))
        for time in TIMES
    ]
    kubelet = [
        *cadvisor(WEB, cores=3.0),
        *counter(WRITTEN, WEB, 2e6, container="main", device="/dev/sda"),
        *counter(SENT, WEB, 1e3, interface="eth0"),
    ]
    with (
        running_prometheus(tmp_path, [*gpus, *agent, *kubelet]) as engine,
        closing(PrometheusSource(PrometheusSettings(url=engine.url))) as source,
    ):
        assert rounded(source.read_host_use([WEB], AT, seconds=SECONDS)) == {WEB: (0.5, 2e6, 1e3)}


def test_of_several_engines_the_largest_counts_and_one_that_cannot_be_read_is_an_error(tmp_path: Path):
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
    with (
        running_prometheus(folders[0], list(cadvisor(WEB, cores=1.0))) as first,
        running_prometheus(folders[1], [*cadvisor(WEB, cores=2.0), *counter(SENT, WEB, 1e6, interface="e")]) as second,
        closing(SeveralEngines(make_settings(PrometheusSettings, url=(first.url, second.url), retries=0))) as source,
    ):
        assert rounded(source.read_host_use([WEB], AT, seconds=SECONDS)) == {WEB: (2.0, None, 1e6)}
        second.stop()
        with pytest.raises(SourceError):
            source.read_host_use([WEB], AT, seconds=SECONDS)


def test_the_embedded_source_and_an_engine_say_the_same_of_the_pods_of_an_agent(tmp_path: Path):
    nodes, times = fleet(2), scrape_times(seconds=1800)
    samples = list(scrape_history(nodes, times, dialects="native"))
    pods = {PodKey(use.pod.namespace, use.pod.pod) for node in nodes for use in node.snapshot(AT).pod_host_use}
    with (
        running_prometheus(tmp_path, samples) as engine,
        closing(PrometheusSource(PrometheusSettings(url=engine.url))) as source,
    ):
        expected = source.read_host_use(pods, AT, seconds=SECONDS)
    simulated = SimulatedFleet(nodes, ready_timeout_seconds=1)
    with closing(ScrapeSource(ScrapeSettings(interval=30, selector=""), window_seconds=600)) as source:
        for at in times:
            for node in nodes:
                source.ingest(node.name, simulated.render_metrics(node.name, at), at, node=node.name)
        found = source.read_host_use([*pods, WEB], AT, seconds=SECONDS)
    assert len(found) == len(expected) == len(pods)
    for pod, use in expected.items():
        # Not the same seconds: of an hour the embedded source keeps a value every five minutes.
        assert found[pod] == pytest.approx(use, rel=0.25), pod


def agent_page(at: float, pods: Mapping[PodKey, tuple[float | None, ...]], *, node: str = "n1") -> bytes:
    """`pods`: what each has used up to then."""
    names = (
        "gpusteward_pod_cpu_seconds_total",
        "gpusteward_pod_disk_bytes_total",
        "gpusteward_pod_network_bytes_total",
    )
    lines = [
        f'{name}{{node="{node}",namespace="{pod.namespace}",pod="{pod.name}",pod_uid="u"}} {values[number]}'
        for number, name in enumerate(names)
        for pod, values in pods.items()
        if values[number] is not None
    ]
    return "\n".join(["# HELP x y", *lines, ""]).encode()


def everybody(_node: str) -> bool:
    return True


@pytest.mark.parametrize("seconds", [600.0, 1800.0, 90_000.0])
def test_the_counters_that_are_scraped_are_kept_for_minutes_and_for_a_day(seconds: float):
    hosts, begin = HostCounters(), AT - 30 * 3600
    for at in np.arange(begin, AT, 60.0).tolist():
        into = at - begin
        hosts.add("one", agent_page(at, {WEB: (2.0 * into, 5e9 + 3e6 * into, 1e3 * into)}), at, admits=everybody)
    assert hosts.read(["one"], ("team", "web-0"), AT, seconds=seconds) == pytest.approx((2.0, 3e6, 1e3))
    [values] = hosts._targets["one"].values()
    assert len(values) < 50, "however often it is scraped"


@pytest.mark.parametrize("offset", [0.0, 100.0, 299.0])
def test_half_an_hour_that_was_still_has_nothing_of_the_work_before_it(offset: float):
    """Else a job that stands still would be called so half an hour late. Ten minutes are read in full."""
    hosts, stopped = HostCounters(), AT - 1800
    for at in np.arange(AT - 7200 - offset, AT + 1, 30.0).tolist():
        written = 1e9 + 5e6 * min(at, stopped) - 5e6 * (AT - 8000)
        hosts.add("one", agent_page(at, {WEB: (at - AT + 1e6, written, 1e6)}), at, admits=everybody)
    assert hosts.read(["one"], ("team", "web-0"), AT, seconds=1800)[1] == 0
    assert hosts.read(["one"], ("team", "web-0"), stopped + 560, seconds=600)[1] > 0


def test_of_a_day_as_much_counts_as_was_seen_and_work_of_the_last_hour_is_not_lost():
    hosts = HostCounters()
    for at in np.arange(AT - 13 * 3600, AT + 1, 60.0).tolist():
        written = 1e9 if at < AT - 1800 else 2e9
        hosts.add("one", agent_page(at, {WEB: (at - AT + 1e6, written, 1e6)}), at, admits=everybody)
    assert hosts.read(["one"], ("team", "web-0"), AT, seconds=90_000) == pytest.approx((1.0, 1e9 / 46_800, 0.0))
    assert hosts.read(["one"], ("team", "web-0"), AT, seconds=600)[1] == 0


def test_what_is_not_known_of_a_pod_that_is_scraped_is_unknown():
    hosts = HostCounters()
    for number, at in enumerate(np.arange(AT - 1200, AT + 1, 60.0).tolist()):
        page = {WEB: (10.0 + number, 0.0, None), DATA: (5.0 if number < 9 else 0.1 * (number - 8), 7.0, 9.0)}
        page |= {HOST: (1.0, 1.0, 1.0)} if at < AT - 400 else {}
        page |= {NEW: (1.0, 1.0, 1.0)} if at == AT else {}
        hosts.add("one", agent_page(at, page), at, admits=everybody)
    read = {pod: hosts.read(["one"], (pod.namespace, pod.name), AT, seconds=1200) for pod in (WEB, DATA, HOST, NEW)}
    assert read[WEB] == HostUse(pytest.approx(1 / 60)), "bytes that never grew may go elsewhere"
    assert read[DATA] == HostUse(pytest.approx(1.2 / 1200), 0.0, 0.0), "a counter that began again"
    assert read[HOST] == HostUse(), "its pod has ended"
    assert read[NEW] == HostUse(), "one value is no growth"


def test_a_target_says_nothing_about_other_nodes_and_of_two_targets_the_largest_counts():
    hosts = HostCounters()
    for at in np.arange(AT - 900, AT + 1, 60.0).tolist():
        used = 2.0 * (at - AT + 1e6)
        hosts.add("one", agent_page(at, {WEB: (used, None, None)}), at, admits=everybody)
        hosts.add("two", agent_page(at, {WEB: (3 * used, None, None)}), at, admits=everybody)
        hosts.add("rogue", agent_page(at, {WEB: (9 * used, None, None)}), at, admits=lambda node: node == "n2")
    assert hosts.read(["one", "two", "rogue"], ("team", "web-0"), AT, seconds=600) == HostUse(pytest.approx(6.0))
    hosts.drop("two")
    assert hosts.read(["one", "two", "rogue"], ("team", "web-0"), AT, seconds=600) == HostUse(pytest.approx(2.0))


def test_hosts_are_kept_of_a_limited_number_of_pods(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(host_counters, "MOST_PODS", 12)
    monkeypatch.setattr(host_counters, "MOST_PODS_OF_TARGET", 8)
    hosts, pods = HostCounters(), [PodKey("team", f"web-{number}") for number in range(20)]
    for target in ("one", "two"):
        hosts.add(target, agent_page(AT, dict.fromkeys(pods, (1.0, 1.0, 1.0))), AT, admits=everybody)
    assert [len(hosts._targets[target]) for target in ("one", "two")] == [8, 4]
    hosts.drop("one")
    hosts.add("two", agent_page(AT + 60, dict.fromkeys(pods, (1.0, 1.0, 1.0))), AT + 60, admits=everybody)
    assert len(hosts._targets["two"]) == 8
