"""Samples that arrive late by the same all the time, as by remote write: from the engine to verdicts and the ledger."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpusteward.analyzer.explain.explainer import Explainer
from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.reasons import explain_row
from gpusteward.analyzer.judge.resumption import NO_HISTORY, SpellHistory
from gpusteward.analyzer.ledger.ledger import Ledger
from gpusteward.analyzer.pipeline import Components, Pipeline
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import SchedulerSettings, Settings
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.owners.cluster_owners import ClusterOwners
from gpusteward.analyzer.sources.promql.several_engines import SeveralEngines
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.tables import ACTIVITIES, UsageTable
from tests.analyzer.engines import Sample, import_samples, running_victoria
from tests.analyzer.ledger.cycles import hourly, open_ledger, sqlite_url
from tests.analyzer.pipeline_fakes import FakePublisher
from tests.analyzer.scraped_history import AT, STEP, steady

pytestmark = pytest.mark.slow

SIGNALS = {"GPU_UTIL": 0.0, "MEM_COPY_UTIL": 0.0, "FB_USED": 30_000.0, "FB_FREE": 10_000.0, "POWER_USAGE": 60.0}
POD = {"namespace": "ml", "container": "main", "pod": "pod-0", "instance": "n1:9400", "job": "dcgm"}


def make_samples(begin: float, end: float) -> list[Sample]:
    """Of every scrape after `begin`, up to `end`."""
    first = int(begin // STEP) + 1
    times = [STEP * number for number in range(first, int(end // STEP) + 1)]
    device = {"UUID": "GPU-1", "Hostname": "n1", "gpu": "0", "modelName": "NVIDIA A100-SXM4-40GB"}
    of_gpu = [
        one for name, value in SIGNALS.items() for one in steady(f"DCGM_FI_DEV_{name}", value, times, **device, **POD)
    ]
    return [*of_gpu, *steady("up", 1, times, instance="n1:9400", job="dcgm")]


@dataclass
class RealLedger:
    """What the pipeline needs of a ledger."""

    ledger: Ledger
    spell_history: SpellHistory = NO_HISTORY

    def restore(self, table: UsageTable) -> VerdictHistory:
        return VerdictHistory()

    def record(self, result: Result) -> None:
        self.ledger.record(result)

    def update_spell_history(self, result: Result) -> None: ...


@dataclass
class Run:
    results: list[Result]
    allocated_ms: int
    parts_ms: int  # active, idle and unknown
    lag_seconds: list[float | None]

    @property
    def ends(self) -> list[float]:
        """The end of each window, counted from the cycle."""
        return [round(result.at - result.read_at) for result in self.results]

    @property
    def activities(self) -> list[str]:
        return [ACTIVITIES[result.verdicts.activity[0]].value for result in self.results]


def run_cycles(folder: Path, lags: Sequence[float], *, every: int) -> Run:
    """One cycle for each lag: the newest sample that has arrived is that old, up to a scrape interval more."""
    folder.mkdir()
    settings = Settings(scheduler=SchedulerSettings(interval=every))
    arrived = AT - 1800
    ledger = open_ledger(sqlite_url(folder))
    results, seen = [], []
    with (
        running_victoria(folder, make_samples(arrived, AT - lags[0])) as engine,
        closing(PrometheusSource(PrometheusSettings(url=engine.url))) as source,
    ):
        arrived = AT - lags[0]
        components = Components(
            source, ClusterOwners(None), Explainer(settings.ai), FakePublisher(), RealLedger(ledger)
        )
        pipeline = Pipeline(components)
        for number, lag in enumerate(lags):
            at = AT + number * every
            if at - lag > arrived:
                import_samples(engine.url, make_samples(arrived, at - lag))
                arrived = at - lag
            result = pipeline.run(settings, at=at, use_ai=False)
            assert result is not None, pipeline.stats.last_error
            results.append(result)
            seen.append(source.describe()["lag_seconds"])
    rows = hourly(ledger.engine)
    ledger.close()
    total = sum(row["allocated_ms"] for row in rows)
    return Run(results, total, sum(row[f"{part}_ms"] for row in rows for part in ("active", "idle", "unknown")), seen)


def test_with_a_constant_lag_windows_verdicts_and_the_ledger_end_at_the_newest_sample(tmp_path: Path):
    late = run_cycles(tmp_path / "late", [0, 0, 120, 120, 120, 120, 0, 0], every=300)
    assert late.ends == [0, 0, 0, -125, -125, -125, 0, 0]
    assert late.activities == ["idle", "idle", "unknown", "idle", "idle", "idle", "idle", "idle"]
    assert late.lag_seconds == [5, 5, 125, 125, 125, 125, 5, 5]
    shifted = late.results[4]
    assert shifted.verdicts.usage.at == shifted.at
    assert shifted.verdicts.usage.coverage.tolist() == [1.0]
    reasons = explain_row(shifted.verdicts, 0, rules=Settings().rules)
    assert "All samples arrive 125 s late: everything here ends at the newest one." in reasons
    on_time = run_cycles(tmp_path / "on-time", [0] * 8, every=300)
    assert late.allocated_ms == late.parts_ms == on_time.allocated_ms, "no time is recorded twice, and none is lost"


def test_where_the_lag_is_longer_than_a_cycle_the_ledger_waits_and_its_sums_stay_exact(tmp_path: Path):
    late = run_cycles(tmp_path / "late", [0, 0, *[180] * 9, 0, 0], every=60)
    assert late.ends == [0] * 5 + [-185] * 6 + [0, 0]
    on_time = run_cycles(tmp_path / "on-time", [0] * 13, every=60)
    assert late.allocated_ms == late.parts_ms == on_time.allocated_ms


def test_a_lag_that_grows_is_an_outage_and_moves_no_window(tmp_path: Path):
    outage = run_cycles(tmp_path / "outage", [0, 0, *(60 * number for number in range(1, 5))], every=60)
    assert outage.ends == [0] * 6
    after_a_lag = run_cycles(tmp_path / "after-a-lag", [120, 120, 120, 180, 240], every=60)
    assert after_a_lag.ends[-2:] == [0, 0]


def test_several_engines_have_one_window_which_ends_with_the_latest_of_them(tmp_path: Path):
    def move(samples: list[Sample], pod: str) -> list[Sample]:
        return [
            (name, text.replace("pod-0", pod).replace("GPU-1", f"GPU-{pod}"), *rest) for name, text, *rest in samples
        ]

    folders = [tmp_path / name for name in ("fresh", "late")]
    for folder in folders:
        folder.mkdir()
    with (
        running_victoria(folders[0], move(make_samples(AT - 1800, AT + 300), "fresh")) as fresh,
        running_victoria(folders[1], move(make_samples(AT - 1800, AT - 120), "late")) as late,
        closing(SeveralEngines(PrometheusSettings(url=[fresh.url, late.url]))) as source,
    ):
        source.read(AT)
        import_samples(late.url, move(make_samples(AT - 120, AT + 180), "late"))
        table = source.read(AT + 300)
        described = source.describe()
    assert (table.at, table.lag_seconds) == (AT + 300 - 125, 125)
    assert table.coverage.tolist() == [1.0, 1.0]
    assert described["lag_seconds"] == 125
    assert [engine["lag_seconds"] for engine in described["engines"]] == [5, 125]
