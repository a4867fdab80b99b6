"""What is discovered once and kept for some cycles: metric schemes, static values, the fleet, the series limit."""

import re
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.scheme_reader import SMALLEST_SHARD, SeriesLimit
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.tables import ACTIVITIES, NodeModel
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity
from gpusteward.messages import unknown_reasons
from gpusteward.simulate.fleets import fleet
from tests.analyzer.engines import Sample, import_samples, running_prometheus, running_victoria
from tests.analyzer.scraped_history import AT, scrape_history, scrape_times, steady
from tests.analyzer.sources.faulty_engine import FaultyEngine, fails, faulty
from tests.analyzer.tables import assert_alike, of_pod
from tests.constants import make_settings

pytestmark = pytest.mark.slow

TIMES = scrape_times()
LATER = AT + 30
FREE, LIMIT = "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_ENFORCED_POWER_LIMIT"
SIGNALS = {
    "DCGM_FI_DEV_GPU_UTIL": 50.0,
    "DCGM_FI_DEV_MEM_COPY_UTIL": 10.0,
    "DCGM_FI_DEV_FB_USED": 30_000.0,
    FREE: 10_000.0,
    "DCGM_FI_DEV_POWER_USAGE": 300.0,
    "DCGM_FI_DEV_SM_CLOCK": 1400.0,
    LIMIT: 400.0,
}


def gpu(number: int, times: Iterable[float] = TIMES, pod: str | None = None, **values: float) -> Iterator[Sample]:
    labels = {"UUID": f"GPU-{number:05}", "Hostname": f"n{number // 8:04}", "gpu": str(number % 8), "job": "dcgm"}
    labels |= {"namespace": "ml", "container": "main", "pod": pod or f"p{number}"} if pod != "" else {}
    for name, value in (SIGNALS | values).items():
        yield from steady(name, value, times, **labels, modelName="NVIDIA A100-SXM4-40GB")


def up(times: Iterable[float] = TIMES) -> Iterator[Sample]:
    yield from steady("up", 1, times, job="dcgm", instance="n1:9400")


@contextmanager
def site(
    folder: Path, samples: Iterable[Sample], **settings: object
) -> Iterator[tuple[PrometheusSource, FaultyEngine]]:
    """An engine that receives more samples later, behind a proxy, and a source that reads it."""
    with (
        running_victoria(folder, samples) as engine,
        faulty(engine.url) as proxy,
        closing(PrometheusSource(make_settings(PrometheusSettings, url=proxy.url, **settings))) as source,
    ):
        yield source, proxy


def queries_with(proxy: FaultyEngine, *words: str) -> list[str]:
    return [query for query in proxy.queries if any(word in query for word in words)]


def test_static_values_of_a_device_are_queried_once_and_kept(tmp_path: Path):
    with site(tmp_path, [*gpu(0), *gpu(1), *up()]) as (source, proxy):
        first = source.read(AT)
        assert queries_with(proxy, FREE, LIMIT)
        proxy.queries.clear()
        assert_alike(source.read(AT), first)
    assert queries_with(proxy, FREE, LIMIT) == []
    assert len(proxy.queries) == 16
    assert set(first.column(Measure.MEMORY_TOTAL, Stat.LAST).tolist()) == {40_000 * 2.0**20}
    assert set(first.column(Measure.POWER_LIMIT, Stat.LAST).tolist()) == {400.0}


def test_static_values_are_queried_for_a_new_device_but_not_for_a_new_pod(tmp_path: Path):
    with site(tmp_path, [*gpu(0), *gpu(1, pod=""), *up()]) as (source, proxy):
        source.read(AT)
        import_samples(proxy.upstream, gpu(1, [LATER - 15], pod="takes-over"))
        proxy.queries.clear()
        table = source.read(LATER)
        assert queries_with(proxy, FREE, LIMIT) == []
        assert of_pod(table, "takes-over").stats[Measure.MEMORY_TOTAL, Stat.LAST] == 40_000 * 2**20
        import_samples(proxy.upstream, gpu(2, [LATER], pod="brings-its-own", **{FREE: 50_000.0}))
        table = source.read(LATER + 1)
        assert len(queries_with(proxy, FREE)) == 1
        assert of_pod(table, "brings-its-own").stats[Measure.MEMORY_TOTAL, Stat.LAST] == 80_000 * 2**20
        source.read(LATER + 2)
        assert len(queries_with(proxy, FREE)) == 1


def test_static_values_are_queried_again_after_a_failure_and_after_a_discovery(tmp_path: Path):
    with site(tmp_path, [*gpu(0), *up()], relearn_cycles=3, retries=0) as (source, proxy):
        proxy.fault = fails(FREE)
        assert (Measure.MEMORY_TOTAL, Stat.LAST) not in source.read(AT).usage(0).stats
        proxy.fault = fails("", times=0)
        assert source.read(AT).usage(0).stats[Measure.MEMORY_TOTAL, Stat.LAST] == 40_000 * 2**20
        proxy.queries.clear()
        source.read(AT)
        assert queries_with(proxy, FREE) == []
        proxy.fault = fails(FREE)
        table = source.read(AT)
        assert queries_with(proxy, FREE)
        assert table.usage(0).stats[Measure.MEMORY_TOTAL, Stat.LAST] == 40_000 * 2**20, "it was known before"


def test_present_core_values_are_queried_while_a_holder_is_missing_in_the_presence_series(tmp_path: Path):
    """Presence is read from used memory; where every holder has it, the present core values are not queried."""
    alone = [sample for sample in gpu(1) if sample[0] != "DCGM_FI_DEV_FB_USED"]
    with site(tmp_path / "a", [*gpu(0), *alone, *up()]) as (source, _):
        table = source.read(AT)
    assert {one.container.pod for one in table.allocations} == {"p0", "p1"}
    assert not table.unknown


def test_every_gpu_is_counted_once_held_or_not_with_mig_or_not(tmp_path: Path):
    nodes = fleet(6)
    for number, dialects in enumerate(("native", "dcgm", "native dcgm")):
        folder = tmp_path / str(number)
        folder.mkdir()
        with (
            running_prometheus(folder, scrape_history(nodes, TIMES, dialects=dialects)) as engine,
            closing(PrometheusSource(PrometheusSettings(url=engine.url))) as source,
        ):
            reported = source.read(AT).fleet
        true: dict[NodeModel, int] = {}
        for reading in (reading for node in nodes for reading in node.snapshot(TIMES[-1]).readings):
            if reading.gpu.mig is None:
                key = NodeModel(reading.gpu.node, reading.gpu.model)
                true[key] = true.get(key, 0) + 1
        assert reported == true


def test_unheld_gpus_are_counted_and_the_count_survives_a_failure(tmp_path: Path):
    with site(tmp_path, [*gpu(0), *gpu(1, pod=""), *up()], relearn_cycles=1, retries=0) as (source, proxy):
        assert source.read(AT).fleet == {NodeModel("n0000", "NVIDIA A100-SXM4-40GB"): 2}
        proxy.fault = fails("group by")
        assert source.read(AT).fleet == {NodeModel("n0000", "NVIDIA A100-SXM4-40GB"): 2}


def test_gpus_are_counted_again_when_a_node_disappears_or_appears(tmp_path: Path):
    """Long before the next discovery."""
    gone, new = [at for at in TIMES if at < AT - 600], [at for at in TIMES if at >= AT - 200]
    samples = [*gpu(0), *gpu(8, gone, pod=""), *gpu(16, new, pod=""), *up()]
    with site(tmp_path, samples, relearn_cycles=1000) as (source, proxy):
        found = [{key.node for key in source.read(at).fleet} for at in (AT - 600, AT - 250, AT - 100)]
        assert found == [{"n0000", "n0001"}, {"n0000"}, {"n0000", "n0002"}]
        proxy.queries.clear()
        source.read(AT)
        assert queries_with(proxy, "count by (Hostname") == [], "while no node does"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """2,400 GPUs on an engine that allows 2,000 samples per query, even for counting."""
    few = {name: value for name, value in SIGNALS.items() if name in ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED")}
    samples = [sample for number in range(2400) for sample in gpu(number) if sample[0] in few]
    with running_prometheus(
        tmp_path_factory.mktemp("large"), [*samples, *up()], flags=["--query.max-samples=2000"]
    ) as engine:
        yield engine.url


def test_an_engine_that_refuses_large_queries_gets_smaller_ones_and_later_larger_ones_again(large: str):
    with (
        faulty(large) as proxy,
        closing(PrometheusSource(make_settings(PrometheusSettings, url=proxy.url, relearn_cycles=2))) as source,
    ):
        table = source.read(AT)
        assert len(table) == 2400
        assert not table.unknown
        np.testing.assert_allclose(table.column(Measure.CORE, Stat.MEAN), 0.5)
        assert source.series_limit == SMALLEST_SHARD
        refused = source.request_counts["failed"]
        assert refused
        proxy.queries.clear()
        assert not source.read(AT).unknown
        assert source.request_counts["failed"] == refused + 3, "counting series and GPUs, the age of the newest sample"
        assert all("Hostname=~" in query for query in queries_with(proxy, "_over_time(DCGM"))
        proxy.queries.clear()
        assert not source.read(AT).unknown
        queries = queries_with(proxy, "max_over_time(DCGM_FI_DEV_GPU_UTIL")
        tried = {len(re.findall(r"n\d{4}", one)) for one in queries}
        assert max(tried) == 2 * SMALLEST_SHARD // 8, "learned again: twice as much is tried"
        assert source.series_limit == SMALLEST_SHARD


def test_the_series_limit_is_lowered_stepwise_and_raised_to_the_configured_value():
    limit = SeriesLimit(100_000)
    seen = []
    while limit.lower(2400):
        seen.append(limit.now)
    assert seen == [6250, 600, SMALLEST_SHARD]
    for _ in range(20):
        limit.raise_again()
    assert limit.now == 100_000
    assert not SeriesLimit(SMALLEST_SHARD).lower(10)


def test_discovery_of_a_prometheus_has_no_failed_request(tmp_path: Path):
    with (
        running_prometheus(tmp_path, [*gpu(0), *up()]) as engine,
        closing(PrometheusSource(make_settings(PrometheusSettings, url=engine.url, relearn_cycles=1))) as source,
    ):
        source.read(AT)
        source.read(AT)
        assert source.request_counts["failed"] == 0
        assert source.describe()["engine"] == "Prometheus"
        assert source.describe()["version"]


def test_a_new_node_without_the_agent_is_seen_at_once(tmp_path: Path):
    nodes = fleet(5)
    with site(tmp_path, scrape_history(nodes[:2], TIMES)) as (source, proxy):
        source.read(AT)
        assert [one["name"] for one in source.describe()["dialects"]] == ["native"]
        import_samples(proxy.upstream, scrape_history(nodes[2:3], TIMES, dialects="dcgm", job="dcgm"))
        table = source.read(AT)
    assert {one.node for one in table.allocations} == {node.name for node in nodes[:3]}


def test_failures_of_every_scheme_are_reported(tmp_path: Path):
    nodes = fleet(5)
    samples = [*scrape_history(nodes[:2], TIMES), *scrape_history(nodes[2:], TIMES, dialects="dcgm", job="dcgm")]
    with site(tmp_path, samples, retries=0) as (source, proxy):
        source.read(AT)
        proxy.fault = fails("max_over_time(")
        source.read(AT)
        reported = source.describe()["failures"]
    assert {name.split()[0] for name in reported} == {"native", "dcgm"}
    with site(tmp_path, samples, retries=0) as (source, _):
        source.read(AT)
        assert source.describe()["failures"] == {}


@pytest.mark.parametrize("has_up", [True, False])
@pytest.mark.parametrize("age", [75, 130, 310, 420, 580])
def test_nothing_is_idle_on_a_site_younger_than_the_window(tmp_path: Path, age: int, has_up: bool):
    times = [AT - age + 5 * number for number in range(age // 5 + 1)]
    idle = {"DCGM_FI_DEV_GPU_UTIL": 0.0, "DCGM_FI_DEV_MEM_COPY_UTIL": 0.0, "DCGM_FI_DEV_POWER_USAGE": 60.0}
    samples = [*gpu(0, times, **idle), *(up(times) if has_up else ())]
    with site(tmp_path, samples) as (source, proxy):
        table = source.read(AT)
        assert list(table.unknown.values()) == [unknown_reasons.NEW_EXPORTER]
        later = [AT + 5 * number for number in range(1, 121)]
        grown = [*gpu(0, later, **idle), *(up(later) if has_up else ())]
        import_samples(proxy.upstream, grown)
        table = source.read(AT + 600)
    assert not table.unknown, "it is learned as soon as it has grown, not an hour later"
    assert table.coverage.tolist() == [1.0]
    verdicts, _ = judge(table, Rules(), VerdictHistory(), now=AT + 600)
    assert ACTIVITIES[verdicts.activity[0]] is Activity.IDLE


@pytest.mark.parametrize("has_up", [True, False])
def test_work_in_the_first_sample_of_a_new_site_is_active_while_a_zero_is_unknown(tmp_path: Path, has_up: bool):
    signals = {"DCGM_FI_DEV_MEM_COPY_UTIL": 0.0, "DCGM_FI_DEV_POWER_USAGE": 60.0}
    busy, quiet, encoding, copying = (
        {"DCGM_FI_DEV_GPU_UTIL": 90.0},
        {"DCGM_FI_DEV_GPU_UTIL": 0.0},
        {"DCGM_FI_DEV_ENC_UTIL": 50.0},
        {"DCGM_FI_DEV_MEM_COPY_UTIL": 30.0},
    )
    samples = [
        *gpu(0, [AT - 5], **signals, **busy),
        *gpu(1, [AT - 5], **signals, **quiet),
        *gpu(2, [AT - 5], **signals, **quiet, **encoding),
        *gpu(3, [AT - 5], **{**signals, **quiet, **copying}),
        *(up([AT - 5]) if has_up else ()),
    ]
    with site(tmp_path, samples) as (source, _):
        table = source.read(AT)
    verdicts, _ = judge(table, Rules(), VerdictHistory(), now=AT)
    found = {
        one.container.pod: ACTIVITIES[code] for one, code in zip(table.allocations, verdicts.activity, strict=True)
    }
    assert found.pop("p1") is Activity.UNKNOWN
    assert found == dict.fromkeys(("p0", "p2", "p3"), Activity.ACTIVE)


def test_a_pod_with_few_samples_of_a_new_job_is_not_covered(tmp_path: Path):
    """Eleven minutes old: the last whole five minutes cover only a part of it."""
    times = [AT - 660 + 5 * number for number in range(133)]
    samples = [*gpu(0, times), *gpu(1, times[-60:]), *up(times)]
    with site(tmp_path, samples) as (source, _):
        table = source.read(AT)
        assert source.describe()["scrape_intervals_seconds"] == {"dcgm": 5.0}
    assert of_pod(table, "p0").coverage == 1.0
    assert of_pod(table, "p1").coverage == 0.5
