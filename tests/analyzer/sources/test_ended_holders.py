"""Holders that ended within the window: the same from an engine and from the embedded source; they have no rows."""

import math
import re
import struct
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.several_engines import join_tables
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.sources.usage_source import UsageSource
from gpusteward.analyzer.tables import EndedHolder, UsageTable
from tests.analyzer.engines import Sample, running_prometheus, running_victoria
from tests.analyzer.scraped_history import AT, STEP, scrape_times, steady
from tests.analyzer.sources.faulty_engine import FaultyEngine, fails, faulty
from tests.analyzer.sources.scrape.page_server import fed_source
from tests.constants import make_settings

pytestmark = pytest.mark.slow

EVER = scrape_times(3600)
(STALE,) = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))
"""What Prometheus writes for a series that is no longer on the page."""


def between(begin: float, end: float) -> list[float]:
    """Scrapes from so many seconds before the end of the window to so many."""
    return [at for at in EVER if AT - begin <= at < AT - end]


def ending(name: str, value: float, times: Iterable[float], **labels: str) -> Iterator[Sample]:
    times = list(times)
    yield from steady(name, value, times, **labels)
    if times and times[-1] < EVER[-1]:
        yield from steady(name, STALE, [times[-1] + STEP], **labels)


def dcgm(gpu: int, pod: str, core: float, times: Iterable[float], *, uses_memory: bool = True) -> Iterator[Sample]:
    own = {"UUID": f"GPU-{gpu}", "Hostname": "n0", "gpu": str(gpu), "modelName": "H100"}
    own |= {"job": "dcgm", "instance": "n0:9400"}
    own |= {"pod": pod, "namespace": "ml", "container": "main"} if pod else {}
    for name, value in (("GPU_UTIL", core), ("FB_USED", 30_000.0)):
        if name == "GPU_UTIL" or uses_memory:
            yield from ending(f"DCGM_FI_DEV_{name}", value, times, **own)


def native(
    gpu: int, pod: str, core: float, times: Iterable[float], *, is_holder: bool = True, uid: str = ""
) -> Iterator[Sample]:
    own = {"node": "n0", "gpu": str(gpu), "uuid": f"GPU-{gpu}", "job": "agent", "instance": "n0:9500"}
    if not pod:
        yield from ending("gpusteward_gpu_info", 1, times, **own, model="H100")
        return
    own |= {"pod": pod, "namespace": "ml", "container": "main", "pod_uid": uid or f"uid-{pod}"}
    yield from ending("gpusteward_use_utilization_ratio", core, times, **own, by="container")
    if is_holder:
        yield from ending("gpusteward_allocation_info", 1, times, **own, workload_kind="Job", workload="job")


def of_dcgm() -> Iterator[Sample]:
    yield from dcgm(0, "stays", 90.0, EVER)
    yield from dcgm(1, "worked", 90.0, between(520, 300))
    yield from dcgm(1, "rested", 0.0, between(300, 120))
    yield from dcgm(1, "now", 50.0, between(120, 0))
    yield from dcgm(2, "long", 90.0, between(3600, 60))
    yield from dcgm(2, "", 0.0, between(60, 0))
    yield from dcgm(3, "before", 90.0, between(3600, 700))
    yield from dcgm(3, "", 0.0, between(700, 0))
    yield from dcgm(4, "lost", 90.0, between(3600, 200))  # its GPU does not report either
    yield from dcgm(5, "no-memory", 90.0, between(400, 200), uses_memory=False)
    yield from dcgm(5, "", 0.0, between(200, 0), uses_memory=False)
    yield from dcgm(6, "again", 90.0, [*between(520, 400), *between(300, 150)])
    yield from dcgm(6, "", 0.0, [*between(400, 300), *between(150, 0)])
    yield from dcgm(7, "back", 90.0, [*between(3600, 400), *between(250, 0)])
    yield from dcgm(7, "", 0.0, between(400, 250))
    yield from dcgm(8, "unscraped", 90.0, [*between(3600, 400), *between(250, 60)])  # its GPU has no samples either
    yield from dcgm(8, "", 0.0, between(60, 0))
    yield from steady("up", 1, EVER, job="dcgm", instance="n0:9400")


def of_agent() -> Iterator[Sample]:
    for gpu in range(5):
        yield from native(gpu, "", 0.0, EVER)
    yield from native(0, "stays", 0.9, EVER)
    yield from native(1, "worked", 0.9, between(520, 300))
    yield from native(1, "rested", 0.0, between(300, 120))
    yield from native(1, "now", 0.5, between(120, 0))
    yield from native(2, "outside", 0.9, between(400, 100), is_holder=False)
    yield from native(3, "again", 0.9, between(520, 300), uid="uid-1")
    yield from native(3, "again", 0.9, between(300, 150), uid="uid-2")
    yield from native(4, "back", 0.9, between(3600, 400), uid="uid-3")
    yield from native(4, "back", 0.9, between(250, 0), uid="uid-4")
    yield from steady("up", 1, EVER, job="agent", instance="n0:9500")


SITES = {"dcgm": tuple(of_dcgm()), "agent": tuple(of_agent())}
EXPECTED = {
    "dcgm": {
        ("worked", 0): (300, 210, True, None),
        ("rested", 0): (120, 180, False, None),
        ("long", 0): (60, 540, True, None),
        ("no-memory", 0): (200, 210, True, None),
        ("again", 0): (400, 120, True, 300),
        ("again", 1): (150, 150, True, None),
        ("back", 0): (400, 210, True, 250),
        ("unscraped", 0): (60, 540, True, None),
    },
    "agent": {
        ("worked", 0): (300, 210, True, None),
        ("rested", 0): (120, 180, False, None),
        ("again", 0): (300, 210, True, 300),
        ("again", 1): (150, 150, True, None),
        ("back", 0): (400, 210, True, 250),
    },
}
"""Until how many seconds before the end of the window a holder was scraped, for how long, whether it worked, and when
the next one of its name began. Those of one name are numbered."""
PRESENT = {"dcgm": {"stays", "now", "lost", "back"}, "agent": {"stays", "now", "back"}}


def by_pod(table: UsageTable) -> dict[tuple[str, int], EndedHolder]:
    found: dict[tuple[str, int], EndedHolder] = {}
    for one in sorted(table.ended, key=lambda one: one.last_at):
        pod = one.allocation.container.pod
        found[pod, sum(name == pod for name, _ in found)] = one
    return found


def check(table: UsageTable, kind: str) -> None:
    found = by_pod(table)
    assert found.keys() == EXPECTED[kind].keys()
    for pod, (until, seconds, works, returned) in EXPECTED[kind].items():
        assert found[pod].last_at == pytest.approx(between(3600, until)[-1], abs=0.002), pod
        assert (found[pod].seconds, found[pod].has_worked) == (pytest.approx(seconds, abs=STEP), works), pod
        returned_at = math.nan if returned is None else between(returned, 0)[0] - STEP / 2
        assert found[pod].returned_at == pytest.approx(returned_at, abs=0.002, nan_ok=True), pod
    assert all(one.interval == pytest.approx(STEP) for one in table.ended)
    assert {one.container.pod for one in table.allocations} == PRESENT[kind], "ended ones have no row"
    uids = [one.allocation.container.pod_uid for (pod, _), one in found.items() if pod in ("again", "back")]
    assert uids == (["", "", ""] if kind == "dcgm" else ["uid-3", "uid-1", "uid-2"])


@pytest.fixture(scope="module", params=SITES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def prometheus(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusSource]:
    with (
        running_prometheus(tmp_path_factory.mktemp("prometheus"), SITES[kind]) as engine,
        closing(PrometheusSource(PrometheusSettings(url=engine.url))) as source,
    ):
        yield source


def read_embedded(kind: str) -> UsageTable:
    with closing(fed_source([sample for sample in SITES[kind] if not math.isnan(sample[2])])) as source:
        return source.read(AT)


def test_an_engine_knows_when_holders_ended_and_how_long_they_were_there(prometheus: UsageSource, kind: str):
    check(prometheus.read(AT), kind)


def test_the_embedded_source_knows_the_same(prometheus: UsageSource, kind: str):
    mine, theirs = read_embedded(kind), prometheus.read(AT)
    check(mine, kind)
    for pod, one in by_pod(mine).items():
        other = by_pod(theirs)[pod]
        assert one.allocation == other.allocation
        assert (one.last_at, one.seconds, one.has_worked) == (
            pytest.approx(other.last_at, abs=0.002),
            pytest.approx(other.seconds),
            other.has_worked,
        )


def test_victoriametrics_knows_the_same(kind: str, tmp_path: Path):
    with (
        running_victoria(tmp_path, SITES[kind]) as engine,
        closing(PrometheusSource(PrometheusSettings(url=engine.url))) as source,
    ):
        check(source.read(AT), kind)


def test_two_engines_with_the_same_gpus_name_an_ended_holder_once(prometheus: UsageSource, kind: str):
    table = prometheus.read(AT)
    assert by_pod(join_tables([table, table])).keys() == EXPECTED[kind].keys()
    elsewhere = replace(table, ended=(), allocations=[one.allocation for one in table.ended], stats={}, unknown={})
    elsewhere = replace(elsewhere, coverage=table.coverage[:1].repeat(len(elsewhere.allocations)))
    left = by_pod(join_tables([table, elsewhere]))
    assert left.keys() == {("again", 0), ("back", 0)}, "another engine still has the others"


def test_a_failing_query_about_ended_holders_costs_only_their_time(tmp_path: Path):
    with running_prometheus(tmp_path, SITES["dcgm"]) as engine, faulty(engine.url) as between_them:
        fail = fails("")
        between_them.fault = lambda request, query: query.endswith("}[599999ms]") and fail(request, query)
        with closing(PrometheusSource(make_settings(PrometheusSettings, url=between_them.url, retries=0))) as source:
            table = source.read(AT)
    assert table.ended == ()
    assert {one.container.pod for one in table.allocations} == PRESENT["dcgm"]
    assert {table.allocations[row].container.pod for row in table.unknown} == {"lost"}


def test_ended_holders_are_found_where_relabeling_has_dropped_the_uuid(tmp_path: Path):
    samples = [(name, re.sub(r'UUID="[^"]*",?', "", labels), *rest) for name, labels, *rest in SITES["dcgm"]]
    with (
        running_prometheus(tmp_path, samples) as engine,
        closing(PrometheusSource(PrometheusSettings(url=engine.url))) as source,
    ):
        check(source.read(AT), "dcgm")


def test_queries_about_ended_holders_are_sent_only_where_there_are_some(tmp_path: Path):
    def count(proxy: FaultyEngine) -> int:
        return len([query for query in proxy.queries if query.endswith("}[599999ms]")])

    with (
        running_prometheus(tmp_path, SITES["dcgm"]) as engine,
        faulty(engine.url) as proxy,
        closing(PrometheusSource(PrometheusSettings(url=proxy.url))) as source,
    ):
        assert source.read(AT).ended
        assert count(proxy) == 2, "one for those with a presence series, one for the other"
        proxy.queries.clear()
        assert source.read(AT - 1500).ended == ()
        assert count(proxy) == 0
