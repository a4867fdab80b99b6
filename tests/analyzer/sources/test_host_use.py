"""What pods use of their hosts: from counters of cAdvisor and of gpusteward's agent in real engines."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.live_readings import HostUse
from gpusteward.analyzer.sources.promql import host_use
from gpusteward.analyzer.sources.promql.several_engines import SeveralEngines
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.core.errors import SourceError
from gpusteward.simulate.fleets import fleet
from tests.analyzer.engines import Sample, running_prometheus, running_victoria
from tests.analyzer.scraped_history import AT, rename_labels, scrape_history, scrape_times

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
        closing(SeveralEngines(PrometheusSettings(urls=(first.url, second.url), retries=0))) as source,
    ):
        assert rounded(source.read_host_use([WEB], AT, seconds=SECONDS)) == {WEB: (2.0, None, 1e6)}
        second.stop()
        with pytest.raises(SourceError):
            source.read_host_use([WEB], AT, seconds=SECONDS)


def test_the_embedded_source_knows_nothing_of_hosts():
    settings = ScrapeSettings(targets=["127.0.0.1:1"], kubernetes="never")
    with closing(ScrapeSource(settings, window_seconds=60)) as source:
        assert source.read_host_use([WEB], AT, seconds=SECONDS) == {}
