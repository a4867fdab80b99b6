"""Late recording rules: the recorded window misses its end."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.recording_rules import MAX_AGE_SECONDS
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.tables import ACTIVITIES, UsageTable
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity
from tests.analyzer.engines import RunningEngine, Sample, running_prometheus
from tests.analyzer.scraped_history import AT, scrape_times, steady
from tests.analyzer.sources.faulty_engine import fails, faulty
from tests.constants import make_settings

WHO = {"UUID": "GPU-A", "Hostname": "n0", "pod": "p", "namespace": "ml", "container": "main", "job": "dcgm", "gpu": "0"}
BEGINS = AT - 200
STOPPED = AT - 240
"""The last rule evaluation."""


def history() -> Iterator[Sample]:
    times = scrape_times(1800)
    for name, busy in (("GPU_UTIL", 95.0), ("MEM_COPY_UTIL", 50.0), ("FB_USED", 30_000.0)):
        before = busy if name == "FB_USED" else 0.0
        yield from steady(f"DCGM_FI_DEV_{name}", before, [at for at in times if at < BEGINS], **WHO)
        yield from steady(f"DCGM_FI_DEV_{name}", busy, [at for at in times if at >= BEGINS], **WHO)
        for function in ("avg_over_time", "max_over_time", "stddev_over_time", "count_over_time"):
            value = 20.0 if function == "count_over_time" else before
            yield from steady(f"gpusteward:DCGM_FI_DEV_{name}:{function}_10m", value, [STOPPED - 60, STOPPED], **WHO)
    yield from steady("up", 1, times, job="dcgm", instance="n0")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    with running_prometheus(tmp_path_factory.mktemp("late"), history()) as one:
        yield one


def activity(table: UsageTable) -> Activity:
    verdicts, _ = judge(table, Rules(), VerdictHistory(), now=table.at)
    return ACTIVITIES[verdicts.activity[0]]


def test_work_after_the_last_rule_evaluation_is_seen(engine: RunningEngine, caplog: pytest.LogCaptureFixture):
    with faulty(engine.url) as proxy, closing(PrometheusSource(PrometheusSettings(url=proxy.url))) as source:
        in_time = source.read(STOPPED + 30)
        assert activity(in_time) is Activity.IDLE
        assert not source.describe()["failures"]
        assert not [query for query in proxy.queries if "_over_time(DCGM" in query], "read, not computed"
        late = source.read(AT)
        assert activity(late) is Activity.ACTIVE
        assert late.usage(0).stats[Measure.CORE, Stat.PEAK] == pytest.approx(0.95)
        assert "240 s ago" in source.describe()["failures"]["recording rules"]
        source.read(AT)
        source.read(STOPPED + MAX_AGE_SECONDS - 1)
        assert not source.describe()["failures"], "in time again"
    assert [one.message for one in caplog.records] == ["recording_rules_late"], "once, not in every cycle"


def test_one_query_per_cycle_reads_the_age_of_rules_in_use(engine: RunningEngine):
    for settings, times in (({}, 1), ({"use_recording_rules": False}, 0)):
        with (
            faulty(engine.url) as proxy,
            closing(PrometheusSource(make_settings(PrometheusSettings, url=proxy.url, **settings))) as source,
        ):
            source.read(STOPPED + 30)
            proxy.queries.clear()
            source.read(STOPPED + 30)
        assert len([query for query in proxy.queries if "timestamp(gpusteward:" in query]) == times


def test_rules_of_unknown_age_are_not_used(engine: RunningEngine):
    with (
        faulty(engine.url) as proxy,
        closing(PrometheusSource(make_settings(PrometheusSettings, url=proxy.url, retries=0))) as source,
    ):
        proxy.fault = fails("timestamp(")
        source.read(STOPPED + 30)
        assert [query for query in proxy.queries if "_over_time(DCGM" in query]
        assert "could not be read" in source.describe()["failures"]["recording rules"]


def test_rules_with_the_shipped_interval_are_fresh():
    assert MAX_AGE_SECONDS >= 2 * 60
    assert MAX_AGE_SECONDS < 200, "a GPU that began to work three minutes ago is seen to"
