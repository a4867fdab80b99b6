"""Scrape jobs with different labels for the holder in one table."""

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.core.usages import Measure, Stat
from gpusteward.simulate.fleets import fleet
from tests.analyzer.engines import Sample, running_prometheus
from tests.analyzer.scraped_history import AT, rename_labels, scrape_history, scrape_times, steady
from tests.analyzer.sources.faulty_engine import FaultyEngine, faulty
from tests.analyzer.tables import index_rows, of_pod

pytestmark = pytest.mark.slow

TIMES = scrape_times()
QUIET = [at for at in TIMES if at < AT - 360]
EXPORTER = {"pod": "dcgm-exporter-x", "namespace": "gpu-operator", "container": "exporter"}


def honoured(number: int, pod: str, times: Iterable[float] = TIMES) -> Iterator[Sample]:
    yield from gpu(number, "honours", times, pod=pod, namespace="ml", container="main")


def renamed(number: int, pod: str, job: str = "renames", times: Iterable[float] = TIMES) -> Iterator[Sample]:
    held = {"exported_pod": pod, "exported_namespace": "ml", "exported_container": "main"} if pod else {}
    yield from gpu(number, job, times, **EXPORTER, **held)


def gpu(number: int, job: str, times: Iterable[float], **who: str) -> Iterator[Sample]:
    labels = {"UUID": f"GPU-{number}", "Hostname": f"n{number}", "gpu": "0", "modelName": "A100", "job": job}
    times = list(times)
    for name, value in (("GPU_UTIL", 50.0 + number), ("MEM_COPY_UTIL", 9.0), ("FB_USED", 30_000.0), ("FB_FREE", 1e4)):
        yield from steady(f"DCGM_FI_DEV_{name}", value, times, **labels, **who)


def up() -> Iterator[Sample]:
    for job, target in (("honours", {}), ("renames", EXPORTER), ("empty", EXPORTER)):
        yield from steady("up", 1, TIMES, job=job, instance="n", **target)


@contextmanager
def site(folder: Path, samples: Iterable[Sample]) -> Iterator[tuple[PrometheusSource, FaultyEngine]]:
    with (
        running_prometheus(folder, samples) as engine,
        faulty(engine.url) as proxy,
        closing(PrometheusSource(PrometheusSettings(url=proxy.url))) as source,
    ):
        yield source, proxy


def test_the_holders_of_every_job_have_a_row_whatever_their_label(tmp_path: Path):
    samples = [*honoured(1, "train-a"), *renamed(2, "train-b"), *renamed(3, ""), *renamed(4, "", job="empty"), *up()]
    with site(tmp_path, samples) as (source, _):
        for _ in range(2):
            table = source.read(AT)
            assert {one.container.pod for one in table.allocations} == {"train-a", "train-b"}, "and not the exporter"
            assert not table.unknown
            assert set(table.coverage.tolist()) == {1.0}
        for pod, core in (("train-a", 0.51), ("train-b", 0.52)):
            assert of_pod(table, pod).stats[Measure.CORE, Stat.MEAN] == pytest.approx(core)
            assert of_pod(table, pod).allocation.container.namespace == "ml"
        assert sum(table.fleet.values()) == 4
        dialects = source.describe()["dialects"]
        assert [one["labels"]["pod"] for one in dialects] == ["exported_pod", "pod"]
        assert [one.get("only") for one in dialects] == [None, '{job=~"honours"}']
        chart = source.read_series(of_pod(table, "train-a").allocation, AT, seconds=300)
        assert max(value for _, value in chart.lines[Measure.CORE]) == pytest.approx(0.51)


def test_each_label_mapping_keeps_its_own_stale_rows(tmp_path: Path):
    samples = [
        *honoured(1, "train-a"),
        *renamed(2, "train-b"),
        *honoured(3, "quiet-a", QUIET),
        *renamed(4, "quiet-b", times=QUIET),
        *up(),
    ]
    with site(tmp_path, samples) as (source, _):
        source.read(AT - 390)
        source.read(AT)
        table = source.read(AT + 240)
    assert {one.container.pod for one in table.allocations} == {"train-a", "train-b", "quiet-a", "quiet-b"}
    assert {table.allocations[row].container.pod for row in table.unknown} == {"quiet-a", "quiet-b"}


def test_agents_scraped_with_and_without_honor_labels_are_in_one_table(tmp_path: Path):
    nodes = fleet(6)
    names = rename_labels(pod="exported_pod", namespace="exported_namespace", container="exported_container")

    def rename(labels: str) -> str:
        return names(labels)[:-1] + ',pod="agent-x",namespace="gpusteward"}' if labels else labels

    one_way = [*scrape_history(nodes[:3], TIMES, job="a")]
    other_way = [*scrape_history(nodes[3:], TIMES, job="b", change=rename)]
    (tmp_path / "plain").mkdir()
    with site(tmp_path / "plain", scrape_history(nodes, TIMES)) as (source, _):
        expected = source.read(AT)
    with site(tmp_path, [*one_way, *other_way, *steady("up", 1, TIMES, job="b", pod="agent-x")]) as (source, _):
        table = source.read(AT)
        assert [one["name"] for one in source.describe()["dialects"]] == ["native", "native"]
        pods = {PodKey(one.container.namespace, one.container.pod) for one in table.allocations}
        assert source.read_processes(pods, AT).reported == pods
    assert index_rows(table).keys() == index_rows(expected).keys()
    assert len(table.unknown) == len(expected.unknown)


def test_with_one_candidate_label_no_further_query_is_sent(tmp_path: Path):
    with site(tmp_path, [*honoured(1, "train-a"), *up()]) as (source, proxy):
        source.read(AT)
        assert not [query for query in proxy.queries if "unless on (job" in query]


def test_with_two_candidate_labels_jobs_are_compared_at_discovery_only(tmp_path: Path):
    with site(tmp_path, [*renamed(1, "train-a"), *renamed(2, ""), *up()]) as (source, proxy):
        source.read(AT)
        assert len([query for query in proxy.queries if "unless on (job" in query]) == 1
        assert len(source.describe()["dialects"]) == 1
        proxy.queries.clear()
        source.read(AT)
        known = ("timestamp(up{", "group by (exported_namespace, exported_pod)", 'up{job=~"renames"} == 0')
        # How late samples are; which pods are exporters; which targets are down.
        queries = [query for query in proxy.queries if not any(each in query for each in known)]
        assert not [query for query in queries if "job" in query.replace("job)", "")]
