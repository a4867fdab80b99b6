"""Allocations that stop reporting are unknown, not gone: beyond the window, after a restart, and with sharding."""

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.scheme_reader import MAX_ENDED_ROWS
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.sources.usage.absent_holders import MAX_STALE_SECONDS, keep_latest
from gpusteward.analyzer.sources.usage.partial_tables import PartialTable, choose_rows
from gpusteward.analyzer.tables import ACTIVITIES, UsageTable
from gpusteward.core.node.containers import Container
from gpusteward.core.usages import AllocationKey
from gpusteward.core.verdicts import Activity
from gpusteward.messages.unknown_reasons import NO_CURRENT_SAMPLE
from gpusteward.simulate.fleets import default_node, fleet
from tests.analyzer.engines import RunningEngine, Sample, running_prometheus
from tests.analyzer.scraped_history import AT, scrape_history, scrape_times, steady
from tests.analyzer.sources.faulty_engine import fails, faulty
from tests.analyzer.sources.scrape.page_server import fed_source
from tests.analyzer.tables import index_rows, of_pod
from tests.constants import make_settings

pytestmark = pytest.mark.slow

STALE = NO_CURRENT_SAMPLE.en
NODES = [default_node(1, name="showcase"), *fleet(10)]
QUIET = [at for at in scrape_times() if at < AT - 360]
EVER = scrape_times(6000, at=AT + 4800)


def gpu(number: int, pod: str, core: float, times: Iterable[float], **labels: str) -> Iterator[Sample]:
    own = {"UUID": f"GPU-{number}", "Hostname": f"n{number}", "gpu": "0", "modelName": "A100", "job": "dcgm"} | labels
    own |= {"pod": pod, "namespace": own.get("namespace", "ml"), "container": "main"} if pod else {}
    own = {name: value for name, value in own.items() if value}
    times = list(times)
    for name, value in (("GPU_UTIL", core), ("MEM_COPY_UTIL", 0.0), ("FB_USED", 30_000.0), ("POWER_USAGE", 70.0)):
        yield from steady(f"DCGM_FI_DEV_{name}", value, times, **own)


def until(end: float, start: float = 0.0) -> list[float]:
    return [at for at in EVER if start <= at < end]


def life() -> Iterator[Sample]:
    yield from gpu(0, "stays", 0.0, EVER)
    yield from gpu(1, "dies", 90.0, until(AT))
    yield from gpu(2, "moves", 90.0, until(AT))
    yield from gpu(3, "moves", 90.0, until(AT + 9999, AT + 300))
    yield from gpu(4, "ends", 90.0, until(AT))
    yield from gpu(4, "", 0.0, until(AT + 9999, AT))
    yield from gpu(5, "ended-before", 90.0, until(AT - 400))
    yield from gpu(5, "", 0.0, until(AT - 60, AT - 400))
    yield from gpu(6, "returns", 90.0, [*until(AT), *until(AT + 9999, AT + 1500)])
    yield from steady("up", 1, EVER, job="dcgm", instance="n0:9400")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    with running_prometheus(tmp_path_factory.mktemp("stale"), life()) as one:
        yield one


@contextmanager
def reading(
    url: str, *, limit: int | None = None, max_ended_rows: int = MAX_ENDED_ROWS, **settings: object
) -> Iterator[PrometheusSource]:
    few = {"series_limit": limit} if limit else {}  # fewer than a site has: a larger one takes minutes
    chosen = make_settings(PrometheusSettings, url=url, **settings | few)
    with closing(PrometheusSource(chosen, max_ended_rows=max_ended_rows)) as source:
        yield source


def pods(table: UsageTable) -> dict[str, str]:
    """Pod -> the reason why it is unknown."""
    return {
        f"{one.container.pod}@{one.node}": reason.en if (reason := table.unknown.get(row)) else ""
        for row, one in enumerate(table.allocations)
    }


@pytest.mark.parametrize("limit", [None, 2])
def test_stale_allocations_are_unknown_for_an_hour_unless_they_are_known_to_have_ended(
    engine: RunningEngine, limit: int | None
):
    with reading(engine.url, limit=limit) as source:
        first = source.read(AT - 450)  # the last cycle that sees all of them
        assert set(pods(first).values()) == {""}
        seen = {after: pods(source.read(AT + after)) for after in (-90, 210, 420, 720, 1020)}
        assert seen[1020] == {
            "stays@n0": "",
            "moves@n3": "",
            "dies@n1": STALE,
            "returns@n6": STALE,
        }
        assert pods(source.read(AT + 1620))["returns@n6"] == ""
        assert pods(source.read(AT + 1620))["dies@n1"] == STALE
        assert pods(source.read(AT + 420 + MAX_STALE_SECONDS))["dies@n1"] == STALE, "at least an hour"
        assert set(pods(source.read(AT + 430 + MAX_STALE_SECONDS))) == {"stays@n0", "moves@n3", "returns@n6"}


def test_a_stale_row_is_never_idle_and_keeps_its_details(engine: RunningEngine):
    with reading(engine.url) as source:
        alive = of_pod(source.read(AT - 60), "dies").allocation
        table = source.read(AT + 400)
        table = source.read(AT + 1000)
    verdicts, _ = judge(table, Rules(), VerdictHistory(), now=table.at)
    activity = dict(zip((one.container.pod for one in table.allocations), verdicts.activity, strict=True))
    assert ACTIVITIES[activity["dies"]] is Activity.UNKNOWN
    assert ACTIVITIES[activity["stays"]] is Activity.IDLE
    assert of_pod(table, "dies").allocation == alive
    assert of_pod(table, "dies").coverage == 0


def test_stale_rows_survive_a_new_row_index(engine: RunningEngine):
    with reading(engine.url, max_ended_rows=-1000) as source:  # a new index in every cycle
        source.read(AT - 60)
        source.read(AT + 400)
        assert pods(source.read(AT + 1000))["dies@n1"] == STALE


def test_a_discovery_keeps_schemes_with_stale_rows(tmp_path: Path):
    """The only node without the agent fails: the agent seems to run everywhere now."""
    agents = scrape_history(NODES[:2], scrape_times(1800, at=AT + 1020))
    with (
        running_prometheus(tmp_path, [*agents, *gpu(9, "dies", 90.0, until(AT))]) as engine,
        reading(engine.url, relearn_cycles=1) as source,
    ):
        assert [pods(source.read(AT + after)).get("dies@n9") for after in (-60, 400, 700, 1000)] == ["", *[STALE] * 3]
        source.read(AT + 5000)
        source.read(AT + 5001)
        assert [one["name"] for one in source.describe()["dialects"]] == ["native"]


@pytest.fixture(scope="module", params=["native", "dcgm"])
def quiet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    """Five of eleven nodes do not report for six minutes."""
    dialects = "native dcgm" if request.param == "native" else "dcgm"
    samples = [
        *scrape_history(NODES[:6], scrape_times(), dialects=dialects),
        *scrape_history(NODES[6:], QUIET, dialects=dialects),
    ]
    with running_prometheus(tmp_path_factory.mktemp(request.param), samples) as one:
        yield one


def test_after_a_restart_stale_rows_have_their_node_and_workload(quiet: RunningEngine):
    with reading(quiet.url) as source:
        source.read(AT - 390)
        known = source.read(AT)
    with faulty(quiet.url) as proxy, reading(proxy.url) as restarted:
        table = restarted.read(AT)
        assert [query for query in proxy.queries if ") unless " in query and "max_over_time(" in query]
        proxy.queries.clear()
        again = restarted.read(AT)
        assert not [query for query in proxy.queries if ") unless " in query], "once is enough"
    assert {one.node for one in table.allocations} <= {node.name for node in NODES}
    assert {NO_CURRENT_SAMPLE} <= set(table.unknown.values())
    assert set(map(_who, table.allocations)) == set(map(_who, known.allocations)) == set(map(_who, again.allocations))


def _who(allocation: AllocationKey) -> tuple[object, ...]:
    who = allocation.container
    return allocation.gpu_instance, allocation.node, allocation.share, who.namespace, who.pod, who.workload


def test_missing_details_of_stale_rows_are_queried_again(quiet: RunningEngine):
    with faulty(quiet.url) as proxy, reading(proxy.url, retries=0) as source:
        proxy.fault = fails(") unless ")
        assert "" in {one.node for one in source.read(AT).allocations}
        proxy.fault = fails("", times=0)
        assert "" not in {one.node for one in source.read(AT).allocations}


def test_without_stale_rows_no_further_query_is_sent(tmp_path: Path):
    with (
        running_prometheus(tmp_path, scrape_history(NODES[:4], scrape_times())) as engine,
        faulty(engine.url) as proxy,
        reading(proxy.url) as source,
    ):
        source.read(AT)
        proxy.queries.clear()
        source.read(AT)
    assert not [query for query in proxy.queries if ") unless " in query]


def test_sharding_loses_no_stale_rows(quiet: RunningEngine):
    with reading(quiet.url) as whole, reading(quiet.url, limit=20) as cut:
        expected = whole.read(AT)
        table = cut.read(AT)
        assert index_rows(table).keys() == index_rows(expected).keys()
        assert len(table.unknown) == len(expected.unknown)
        assert len(cut.read(AT)) == len(expected)


def test_sharding_loses_no_series_without_a_node_label(tmp_path: Path):
    times = scrape_times()
    nameless = [*gpu(7, "no-node", 50.0, times, Hostname=""), *gpu(8, "no-node-quiet", 50.0, QUIET, Hostname="")]
    samples = [*(one for number in range(6) for one in gpu(number, f"p{number}", 50.0, times)), *nameless]
    with running_prometheus(tmp_path, samples) as engine, reading(engine.url, limit=2) as source:
        table = source.read(AT)
    assert {one.container.pod for one in table.allocations} == {
        *(f"p{n}" for n in range(6)),
        "no-node",
        "no-node-quiet",
    }


def test_without_a_node_label_queries_are_sharded_by_namespace(tmp_path: Path):
    samples = [
        *(
            one
            for n in range(6)
            for one in gpu(n, f"p{n}", 50.0, scrape_times(), Hostname="", namespace=f"team-{n % 3}")
        ),
        *gpu(7, "quiet", 50.0, QUIET, Hostname="", namespace="quiet-team"),
        *steady("up", 1, scrape_times(), job="dcgm"),
    ]
    with (
        running_prometheus(tmp_path, samples) as engine,
        faulty(engine.url) as proxy,
        reading(proxy.url, limit=2) as source,
    ):
        table = source.read(AT)
    means = [query for query in proxy.queries if 'avg_over_time(DCGM_FI_DEV_GPU_UTIL{namespace!=""' in query]
    assert len(means) == 4
    assert all('namespace=~"' in query for query in means)
    assert {one.container.pod for one in table.allocations} == {*(f"p{n}" for n in range(6)), "quiet"}
    assert table.unknown == {6: NO_CURRENT_SAMPLE}
    np.testing.assert_allclose(table.coverage[:6], 1.0)


def test_the_scrape_source_keeps_stale_allocations_too():
    times = scrape_times(1800, at=AT + 900)
    dead = [at for at in times if at < AT]
    samples = [*scrape_history(NODES[:2], times), *scrape_history(NODES[2:4], dead)]
    with closing(fed_source(samples)) as source:
        alive = source.read(AT - 1)
        for target in (f"{node.name}:9400" for node in NODES[2:4]):
            source.store.add_failed_scrape(target, AT)
        for after in (120, 420, 720, 890):
            table = source.read(AT + after)
            assert index_rows(table).keys() == index_rows(alive).keys()
    stale = {one.node for row, one in enumerate(table.allocations) if table.unknown.get(row) == NO_CURRENT_SAMPLE}
    assert stale == {node.name for node in NODES[2:4] if any(one.node == node.name for one in alive.allocations)}
    assert stale


def test_stale_rows_yield_to_any_scheme_that_reports_their_gpu():
    def table_of(*devices: str) -> PartialTable:
        allocations = [AllocationKey(device, "", Container("ml", device, "", "main")) for device in devices]
        return PartialTable(allocations, {}, np.zeros(len(devices)), {}, [*range(len(devices))])

    def rows_of(blocks: list[PartialTable], *unseen: set[int]) -> list[list[int]]:
        return [list(rows) for rows in choose_rows(blocks, unseen)]

    native, dcgm, third = table_of("a", "b"), table_of("b", "c"), table_of("b", "d")
    assert rows_of([native, dcgm, third], {1}, set(), set()) == [[0], [0, 1], [1]]
    assert rows_of([native, dcgm, third], {1}, {0}, {0}) == [[0, 1], [1], [1]], "if none reports, the first is used"
    assert rows_of([native, dcgm, third], set(), {0}, set()) == [[0, 1], [1], [1]]
    assert rows_of([native], {1}) == [[0, 1]]


def test_the_number_of_stale_allocations_is_bounded():
    since = {(str(number),): float(number) for number in range(10)}
    assert keep_latest(since, 10) is since
    assert keep_latest(since, 3) == {("7",): 7.0, ("8",): 8.0, ("9",): 9.0}
