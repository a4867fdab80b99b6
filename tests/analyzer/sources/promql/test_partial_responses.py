"""A Thanos querier of which a store does not respond, in front of a real Prometheus: what a replica has completely is
judged, the rest is unknown, and nothing ends or becomes idle because of it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.usages import Measure, Stat
from tests.analyzer.engines import RunningEngine, Sample, running_prometheus
from tests.analyzer.scraped_history import AT, scrape_times, steady
from tests.analyzer.sources.faulty_engine import FaultyEngine, fails, faulty, stores_down
from tests.analyzer.tables import assert_alike
from tests.constants import make_settings

pytestmark = pytest.mark.slow

TIMES = scrape_times(4800)
REPLICA = "replica-b:10901"
COUNT = "count_over_time(DCGM_FI_DEV_GPU_UTIL"
SIGNALS = {"GPU_UTIL": 0.0, "MEM_COPY_UTIL": 0.0, "POWER_USAGE": 60.0, "FB_USED": 30_000.0, "FB_FREE": 10_000.0}


def gpu(name: str, times: list[float]) -> Iterator[Sample]:
    labels = {"UUID": f"{name}-gpu", "Hostname": name, "gpu": "0", "modelName": "A100", "job": "dcgm"}
    labels |= {"pod": name, "namespace": "ml", "container": "main", "instance": f"{name}:9400"}
    for signal, value in SIGNALS.items():
        yield from steady(f"DCGM_FI_DEV_{signal}", value, times, **labels)
    yield from steady("up", 1, TIMES, job="dcgm", instance=f"{name}:9400")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    """Of `half`, the remaining replica has every other sample."""
    samples = [*gpu("whole", TIMES), *gpu("half", TIMES[::2]), *gpu("lost", TIMES)]
    with running_prometheus(tmp_path_factory.mktemp("thanos"), samples) as one:
        yield one


@contextmanager
def reading(engine: RunningEngine) -> Iterator[tuple[PrometheusSource, FaultyEngine]]:
    settings = {"timeout_seconds": 5, "retries": 0, "relearn_cycles": 2}
    with (
        faulty(engine.url) as proxy,
        closing(PrometheusSource(make_settings(PrometheusSettings, url=proxy.url, **settings))) as source,
    ):
        yield source, proxy


def unknown_pods(table: UsageTable) -> dict[str, str]:
    return {table.allocations[row].container.pod: reason.en for row, reason in table.unknown.items()}


def test_what_the_other_replica_has_completely_is_judged_as_usual(engine: RunningEngine):
    with reading(engine) as (source, proxy):
        whole = source.read(AT)
        proxy.fault = stores_down(REPLICA)
        for _ in range(4):  # also while the site is discovered again
            table = source.read(AT)
            assert unknown_pods(table).keys() == {"half"}
            assert "replica-b:10901" in unknown_pods(table)["half"]
            assert table.fleet == whole.fleet
        assert source.describe()["failures"] == {"partial responses": REPLICA}
        proxy.fault = fails("", times=0)
        assert_alike(source.read(AT), whole)
        assert source.describe()["failures"] == {}


def test_a_first_read_succeeds_while_a_replica_is_down(engine: RunningEngine):
    with reading(engine) as (source, proxy):
        proxy.fault = stores_down(REPLICA)
        table = source.read(AT)
    assert {one.container.pod for one in table.allocations} == {"whole", "half", "lost"}
    assert unknown_pods(table).keys() == {"half"}


def test_what_no_other_store_has_stays_unknown_and_never_ends(engine: RunningEngine):
    with reading(engine) as (source, proxy):
        whole = source.read(AT - 4000)
        assert "lost" not in unknown_pods(whole)
        proxy.fault = stores_down(REPLICA, lost="lost")
        for at in (AT - 3900, AT - 2400, AT - 300, AT):  # longer than stale allocations are kept
            table = source.read(at)
            assert {one.container.pod for one in table.allocations} == {"whole", "half", "lost"}
            assert unknown_pods(table).keys() == {"half", "lost"}
            assert "replica-b:10901" in unknown_pods(table)["lost"]


def test_results_that_lack_another_store_than_the_counts_prove_nothing(engine: RunningEngine):
    """It stopped between two queries: the count of samples is complete, the other results are not."""
    with reading(engine) as (source, proxy):
        source.read(AT)
        for word in ("avg_over_time(DCGM_FI_DEV_GPU_UTIL", "max_over_time(DCGM_FI_DEV_MEM_COPY_UTIL"):
            proxy.fault = stores_down(REPLICA, only=word)
            assert unknown_pods(source.read(AT)).keys() == {"whole", "half", "lost"}
        proxy.fault = stores_down(REPLICA, only=COUNT)
        assert unknown_pods(source.read(AT)).keys() == {"half"}


def test_a_zero_of_a_partly_covered_series_is_unknown(engine: RunningEngine):
    with reading(engine) as (source, proxy):
        proxy.fault = stores_down(REPLICA)
        table = source.read(AT)
    (row,) = [row for row, one in enumerate(table.allocations) if one.container.pod == "half"]
    assert table.column(Measure.CORE, Stat.PEAK)[row] == 0
    assert row in table.unknown
