"""Targets of one job with different scrape intervals. A gap must never look like a longer interval."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.tables import ACTIVITIES, UsageTable
from gpusteward.core.verdicts import Activity
from tests.analyzer.engines import Sample, running_prometheus, running_victoria
from tests.analyzer.scraped_history import AT, scrape_times, steady
from tests.analyzer.tables import of_pod

pytestmark = pytest.mark.slow

PAST_SECONDS = 1500
IDLE = {"GPU_UTIL": 0.0, "MEM_COPY_UTIL": 0.0, "POWER_USAGE": 60.0, "FB_USED": 30_000.0, "FB_FREE": 10_000.0}
SOURCES = ("prometheus", "victoria")


def target(
    name: str,
    step: float,
    *,
    since: float = PAST_SECONDS,
    gap: bool = False,
    lost: bool = False,
    relabelled: str = "",
    **more: str,
) -> Iterator[Sample]:
    """A node with one idle GPU. `gap`: it is not scraped in every other minute. `lost`: half of its pages are empty.
    `relabelled`: the instance as its metrics are relabelled."""
    times = [at for at in scrape_times(since, step=step) if not gap or at % 120 < 60]
    labels = {"UUID": f"GPU-{name}", "Hostname": name, "gpu": "0", "pod": name, "namespace": "ml", "container": "main"}
    for signal, value in IDLE.items():
        metric_times = [at for number, at in enumerate(times) if not lost or number % 2]
        where = {"job": "dcgm", "instance": relabelled or f"{name}:9400"}
        yield from steady(f"DCGM_FI_DEV_{signal}", value, metric_times, **labels, **where | more)
    yield from steady("up", 1, times, **{"job": "dcgm", "instance": f"{name}:9400"} | more)


def site() -> Iterator[Sample]:
    yield from target("fast", 5)
    yield from target("slow", 15)
    yield from target("slower", 60)
    yield from target("fast-with-gaps", 5, gap=True)
    yield from target("slow-with-gaps", 15, gap=True)
    yield from target("slow-and-lost", 15, lost=True)
    yield from target("fast-and-new", 5, since=300)
    yield from target("slow-and-new", 15, since=300)
    yield from target("relabelled", 15, relabelled="elsewhere")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, PrometheusSource]]:
    samples = tuple(site())
    with ExitStack() as stack:
        prometheus = stack.enter_context(running_prometheus(tmp_path_factory.mktemp("prometheus"), samples))
        victoria = stack.enter_context(running_victoria(tmp_path_factory.mktemp("victoria"), samples))
        settings = (
            PrometheusSettings(url=prometheus.url),
            PrometheusSettings(url=victoria.url),
        )
        made = [stack.enter_context(closing(PrometheusSource(one))) for one in settings]
        yield dict(zip(SOURCES, made, strict=True))


def list_idle(table: UsageTable) -> set[str]:
    verdicts, _ = judge(table, Rules(), VerdictHistory(), now=AT)
    activities = [ACTIVITIES[code] for code in verdicts.activity]
    rows = [row for row, activity in enumerate(activities) if activity is Activity.IDLE]
    return {table.allocations[row].node for row in rows}


@pytest.mark.parametrize("name", SOURCES)
def test_every_target_is_covered_by_its_own_interval_and_gaps_are_gaps(sources: dict[str, PrometheusSource], name: str):
    table = sources[name].read(AT)
    coverage = {one: of_pod(table, one).coverage for one in ("fast", "slow", "slower")}
    assert coverage == {"fast": 1.0, "slow": 1.0, "slower": 1.0}
    assert of_pod(table, "slow-and-lost").coverage == pytest.approx(0.5)
    for one in ("fast-with-gaps", "slow-with-gaps", "fast-and-new", "slow-and-new", "relabelled"):
        assert of_pod(table, one).coverage < 0.6
    assert list_idle(table) == {"fast", "slow", "slower"}


def test_slower_targets_are_shown_by_job_and_interval(sources: dict[str, PrometheusSource]):
    source = sources["prometheus"]
    source.read(AT)
    described = source.describe()
    assert described["scrape_intervals_seconds"] == {"dcgm": 5.0}
    assert described["slower_targets"] == [
        {"job": "dcgm", "seconds": 15.0, "targets": 3},
        {"job": "dcgm", "seconds": 60.0, "targets": 1},
    ]


def test_targets_of_two_clusters_with_the_same_address_have_their_own_intervals(tmp_path: Path):
    here, there = {"cluster": "here", "instance": "10.0.0.1:9400"}, {"cluster": "there", "instance": "10.0.0.1:9400"}
    samples = [*target("fast", 5, **here), *target("slow", 15, **there)]
    with (
        running_prometheus(tmp_path, samples) as engine,
        closing(PrometheusSource(PrometheusSettings(url=engine.url))) as source,
    ):
        table = source.read(AT)
    assert table.coverage.tolist() == [1.0, 1.0]
    assert {one.container.cluster for one in table.allocations} == {"here", "there"}
