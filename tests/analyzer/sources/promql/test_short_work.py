"""Work that begins and ends between two samples: invisible in a gauge, visible in the agent's counter."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from gpusteward.analyzer.judge.activity import ActivityRule, find_work
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core import metrics
from gpusteward.core.usages import Measure, Stat
from tests.analyzer.engines import RunningEngine, Sample, running_prometheus, running_victoria
from tests.analyzer.scraped_history import AT, WINDOW, scrape_times, steady
from tests.analyzer.sources.faulty_engine import fails, faulty
from tests.analyzer.tables import of_pod
from tests.constants import make_settings

TIMES = scrape_times()
MIDDLE = next(number for number, at in enumerate(TIMES) if at > AT - WINDOW / 2)
COPY = metrics.DEVICE_SIGNALS["memory_copy_ratio"].name
COURSES: dict[str, list[float]] = {
    "brief": [100.0] * MIDDLE + [102.0] * (len(TIMES) - MIDDLE),  # two seconds of work, between two samples
    "idle": [100.0] * len(TIMES),
    "idle-restarted": [100.0] * MIDDLE + [0.0] * (len(TIMES) - MIDDLE),
    "brief-restarted": [100.0] * MIDDLE + [0.0, 3.0] + [3.0] * (len(TIMES) - MIDDLE - 2),
    "always": [30.0 * number for number in range(len(TIMES))],
    "just-started": [0.0],
    "young-always": [30.0 * number for number in range(4)],  # works from the start
    "nearly-always": [30.0 * number for number in range(19)],
}
ENGINES = ("prometheus", "victoria")


def pod_samples(number: int, pod: str, busy: list[float]) -> Iterator[Sample]:
    """A pod whose utilization reads 0 at every sample, or always 1."""
    times = TIMES[-len(busy) :]
    gpu = {"node": "n1", "gpu": str(number), "uuid": f"GPU-{number}", "job": "gpusteward", "instance": "n1:9400"}
    holder = gpu | {"namespace": "ml", "pod": pod, "container": "main", "pod_uid": f"uid-{number}"}
    use = holder | {"by": "container"}
    yield from steady(metrics.GPU_INFO.name, 1, times, **gpu, model="H100")
    yield from steady(metrics.ALLOCATION_INFO.name, 1, times, **holder, share="exclusive")
    core = 1.0 if pod.endswith("always") else 0.0
    yield from steady(metrics.USE_UTILIZATION.name, core, times, **use)
    yield from steady(metrics.GPU_UTILIZATION.name, core, times, **gpu)
    yield from steady(COPY, 0.1 if pod.startswith("brief") else 0.0, times, **gpu)
    for at, seconds in zip(times, busy, strict=True):
        yield from steady(metrics.USE_BUSY_SECONDS.name, seconds, [at], **use)
        yield from steady(metrics.GPU_BUSY_SECONDS.name, seconds, [at], **gpu)


def history() -> Iterator[Sample]:
    yield from steady("up", 1, TIMES, job="gpusteward", instance="n1:9400")
    for number, (pod, busy) in enumerate(COURSES.items()):
        yield from pod_samples(number, pod, busy)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RunningEngine]]:
    with ExitStack() as stack:
        one = stack.enter_context(running_prometheus(tmp_path_factory.mktemp("brief"), history()))
        other = stack.enter_context(running_victoria(tmp_path_factory.mktemp("brief"), history()))
        yield {"prometheus": one, "victoria": other}


def read(running: dict[str, RunningEngine], name: str) -> UsageTable:
    with closing(PrometheusSource(PrometheusSettings(url=running[name].url))) as source:
        return source.read(AT)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("pod", ["always", "young-always", "nearly-always"])
def test_the_time_before_the_start_of_a_pod_does_not_lower_the_mean(
    running: dict[str, RunningEngine], name: str, pod: str
):
    usage = of_pod(read(running, name), pod)
    assert usage.stats[Measure.CORE, Stat.MEAN] == pytest.approx(1.0, abs=0.06)  # one step of twenty at its start


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize(("pod", "seconds"), [("brief", 2.0), ("brief-restarted", 3.0)])
def test_work_between_two_samples_is_in_the_mean_and_prevents_idle(
    running: dict[str, RunningEngine], name: str, pod: str, seconds: float
):
    table = read(running, name)
    usage = of_pod(table, pod)
    assert usage.stats[Measure.CORE, Stat.MEAN] == pytest.approx(seconds / WINDOW, rel=0.06)
    assert usage.stats[Measure.CORE, Stat.PEAK] >= usage.stats[Measure.CORE, Stat.MEAN]
    assert not usage.unknown_reason, "what the device copied is explained by the work that was counted"
    worked = find_work(table, ActivityRule())
    assert worked[[one.container.pod for one in table.allocations].index(pod)]


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("pod", ["idle", "idle-restarted"])
def test_a_constant_counter_is_zero_also_after_a_reset(running: dict[str, RunningEngine], name: str, pod: str):
    table = read(running, name)
    usage = of_pod(table, pod)
    assert usage.stats[Measure.CORE, Stat.MEAN] == 0
    assert usage.stats[Measure.CORE, Stat.PEAK] == 0
    assert usage.coverage == 1
    assert not usage.unknown_reason
    assert not find_work(table, ActivityRule())[[one.container.pod for one in table.allocations].index(pod)]


@pytest.mark.parametrize("name", ENGINES)
def test_the_mean_is_at_most_one(running: dict[str, RunningEngine], name: str):
    usage = of_pod(read(running, name), "always")
    assert usage.stats[Measure.CORE, Stat.MEAN] == pytest.approx(1, abs=1e-4)
    assert usage.stats[Measure.CORE, Stat.MEAN] <= 1
    assert not usage.unknown_reason


@pytest.mark.parametrize("name", ENGINES)
def test_a_counter_with_one_sample_is_ignored_for_the_gauge(running: dict[str, RunningEngine], name: str):
    usage = of_pod(read(running, name), "just-started")
    assert usage.stats[Measure.CORE, Stat.MEAN] == 0
    assert usage.coverage == pytest.approx(0.05)


def test_rows_are_unknown_if_the_counter_cannot_be_read(running: dict[str, RunningEngine]):
    with faulty(running["prometheus"].url) as proxy:
        proxy.fault = fails(f"increase({metrics.USE_BUSY_SECONDS.name}", status=400)
        with closing(PrometheusSource(make_settings(PrometheusSettings, url=proxy.url, retries=0))) as source:
            table = source.read(AT)
    assert len(table.unknown) == len(table) == len(COURSES)
    assert all("busy time could not be read" in reason.en for reason in table.unknown.values())


def test_the_rules_record_the_increase_too():
    rules = (Path(__file__).parents[4] / "deploy/chart/gpusteward/files/rules/recording.yaml").read_text()
    for metric in (metrics.USE_BUSY_SECONDS, metrics.GPU_BUSY_SECONDS):
        assert f"record: gpusteward:{metric.name}:increase_10m\n        expr: increase({metric.name}[" in rules
