"""Back-fills the ledger with idle spells and minutes of pools of the time before its first record, from the engine's
history.

Runs the cycles that the analyzer would have run then: read, judge, follow the spells. Nothing else of them is recorded,
and no owner is looked up: the API server does not know the past. A cycle that fails is time without data, which ends
spells as lost.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import ceil
from time import monotonic

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from gpusteward.analyzer.active_source import ActiveSource
from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.analyzer.ledger.database.db_engine import describe_error, make_folder, open_engine
from gpusteward.analyzer.ledger.database.schema_version import create_tables
from gpusteward.analyzer.ledger.identities import PodLabels
from gpusteward.analyzer.ledger.spells.spell_backfill import SpellBackfill, UnfilledTime, count_spells, find_unfilled
from gpusteward.analyzer.pool_watch import PoolWatch
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.usage.inference_servers import join_servers
from gpusteward.analyzer.sources.usage_source import UsageSource
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.logs import Log
from gpusteward.messages.errors import api_errors, ledger_errors, source_errors

log = Log(__name__)

CYCLES_PER_WRITE = 48
"""Four hours of cycles every five minutes: what a killed run loses, and a transaction of less than a second."""
MOST_FAILURES = 10
"""In a row. An engine that is down now would make all the past look lost."""

Advance = Callable[[int, int], None]
"""Called with the number of cycles done, and of all."""


@dataclass(frozen=True)
class Estimate:
    """What a back-fill will cost, from one cycle at the end of its time."""

    spans: Sequence[UnfilledTime]
    step_seconds: int
    cycles: int
    queries: int
    seconds: float


@dataclass
class Filled:
    """What a back-fill did."""

    cycles: int = 0
    failed: int = 0  # of them
    spells: int = 0  # of this time, in the ledger


class Backfill:
    """One run. Nothing is read or written before `estimate`."""

    def __init__(self, settings: Settings, *, since_ms: int, now_ms: int, step_seconds: float | None = None) -> None:
        """`step_seconds`: between two cycles; by default as the analyzer runs them, at most the window. A longer step
        costs less, but of a counter the work between the last sample of one window and the first of the next is then
        seen by neither.

        Raises ConfigurationError, also without an engine, and SourceError without a ledger.
        """
        window = settings.prometheus.window_seconds
        step = min(settings.scheduler.interval, window) if step_seconds is None else step_seconds
        if not 1 <= step <= window:
            raise ConfigurationError(ledger_errors.FILL_STEP, window=window)
        if not settings.prometheus.addresses and not settings.prometheus.finds_service:
            raise ConfigurationError(ledger_errors.FILL_WITHOUT_ENGINE)
        if not settings.ledger.enabled:
            raise SourceError(api_errors.LEDGER_DISABLED)
        self._settings, self._step, self._window_ms = settings, int(step), int(window * 1000)
        self._since_ms, self._now_ms = since_ms, now_ms
        self._engine: Engine = open_engine(settings.ledger.locate())

    def close(self) -> None:
        self._engine.dispose()

    def estimate(self) -> Estimate:
        """Reads two cycles at the end of the time. Raises SourceError, also if the engine does not respond."""
        spans = self._find_spans()
        cycles = sum(len(self._list_times(span)) for span in spans)
        if not cycles:
            return Estimate(spans, self._step, 0, 0, 0.0)
        at = spans[-1].end_ms / 1000
        with closing(ActiveSource(self._settings)) as source:
            first = _count_queries(source, at)  # with a discovery
            started = monotonic()
            later = _count_queries(source, at)
            seconds = monotonic() - started
        discoveries = ceil(cycles / self._settings.prometheus.relearn_cycles)
        queries = cycles * later + discoveries * max(0, first - later)
        return Estimate(spans, self._step, cycles, queries, seconds * queries / max(1, later))

    def fill(self, estimate: Estimate, advance: Advance = lambda _done, _total: None) -> Filled:
        """Raises SourceError; what was written until then stays, and the next run continues there."""
        filled = Filled()
        try:
            for span in estimate.spans:
                self._fill_span(span, filled, lambda: advance(filled.cycles, estimate.cycles))
                filled.spells += count_spells(self._engine, begin_ms=span.begin_ms, end_ms=span.end_ms)
        except SQLAlchemyError as error:
            raise SourceError(ledger_errors.NOT_WRITABLE, reason=describe_error(error)) from error
        return filled

    def _find_spans(self) -> list[UnfilledTime]:
        try:
            make_folder(self._engine)
            create_tables(self._engine)
            return find_unfilled(self._engine, since_ms=self._since_ms, now_ms=self._now_ms, window_ms=self._window_ms)
        except (SQLAlchemyError, OSError) as error:
            raise SourceError(ledger_errors.NOT_WRITABLE, reason=describe_error(error)) from error

    def _list_times(self, span: UnfilledTime) -> list[int]:
        """The ends of the windows, in seconds. The first window begins with the span, unless this continues an earlier
        run; the last one ends with it."""
        begin, end = span.begin_ms // 1000, span.end_ms // 1000
        first = begin + (self._step if span.continues else ceil(self._window_ms / 1000))
        return [*range(first, end, self._step), end] if first <= end or span.continues else []

    def _fill_span(self, span: UnfilledTime, filled: Filled, advance: Callable[[], None]) -> None:
        labels = PodLabels(self._settings.ledger.user_labels, self._settings.ledger.labels)
        writer = SpellBackfill(self._engine, span, window_ms=self._window_ms, pod_labels=labels)
        is_complete = False
        try:
            with closing(ActiveSource(self._settings)) as source:
                for result in self._run_cycles(source, span, filled):
                    if result is not None:
                        writer.add(result)
                    if filled.cycles % CYCLES_PER_WRITE == 0:
                        writer.write()
                    advance()
            is_complete = True
        finally:
            writer.write(is_complete=is_complete)

    def _run_cycles(self, source: UsageSource, span: UnfilledTime, filled: Filled) -> Iterator[Result | None]:
        """The result of each cycle; None: it failed. Raises SourceError after too many failures in a row."""
        history, failures, watch = VerdictHistory(), 0, PoolWatch(source)
        for at in self._list_times(span):
            filled.cycles += 1
            try:
                usage = source.read(float(at))
            except SourceError as error:
                log.debug("past_cycle_failed", at=at, reason=error)
                filled.failed += 1
                failures = 0 if _is_without_data(error) else failures + 1
                if failures >= MOST_FAILURES:
                    raise SourceError(ledger_errors.FILL_STOPPED, count=failures, error=error, at=_show(at)) from error
                yield None
                continue
            failures = 0
            verdicts, history = judge(join_servers(usage), self._settings.rules, history, now=usage.at)
            workloads = judge_workloads(verdicts, self._settings.rules)
            result = Result(filled.cycles, usage.at, 0.0, self._settings, verdicts, workloads)
            try:
                result = replace(result, pools=watch.update(result))
            except SourceError as error:  # these minutes of the pools stay unknown
                log.debug("past_pools_failed", at=at, reason=error)
            yield result


def _show(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def _count_queries(source: ActiveSource, at: float) -> int:
    before = sum(source.request_counts.values())
    try:
        source.read(at)
    except SourceError as error:
        if not _is_without_data(error):
            raise
    return sum(source.request_counts.values()) - before


def _is_without_data(error: BaseException | None) -> bool:
    """Whether the engine responds and has nothing of that time."""
    while error is not None:
        if isinstance(error, SourceError) and error.message is source_errors.ENGINE_WITHOUT_DATA:
            return True
        error = error.__cause__
    return False
