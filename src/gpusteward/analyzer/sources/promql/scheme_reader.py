"""Reads one metric scheme of the site: its queries, their results, and the partial table made of them. Queries
that would select more series than one query may are divided into groups of nodes."""

import time
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from gpusteward.analyzer.sources.engine.client import Engine, LimitError
from gpusteward.analyzer.sources.engine.decode import decode_names
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.expressions import Window
from gpusteward.analyzer.sources.promql.query_plan import (
    DetectedScheme,
    QueryPlan,
    list_missing_video,
    plan_devices,
    plan_holders,
    reports_unheld_devices,
)
from gpusteward.analyzer.sources.promql.query_runner import (
    DeviceIndex,
    HolderIndex,
    QueryTask,
    ResultCollector,
    RowLimit,
    run_tasks,
    write_tasks,
)
from gpusteward.analyzer.sources.promql.unlisted_holders import (
    MAX_ENDED,
    MAX_SELECTED,
    UUIDS_PER_QUERY,
    can_have_unlisted,
    find_exporters,
    select_all,
    select_by_uuid,
    select_ended,
)
from gpusteward.analyzer.sources.usage.absent_holders import SchemeState, list_rows_to_ask
from gpusteward.analyzer.sources.usage.coverage import ExpectedSamples
from gpusteward.analyzer.sources.usage.partial_tables import PartialTable
from gpusteward.analyzer.sources.usage.presence import list_stale_rows, list_unlisted_rows
from gpusteward.analyzer.sources.usage.quantities import Aggregation, Level, Quantity, QueryKey
from gpusteward.analyzer.sources.usage.query_results import DeviceKey, HolderKey, QueryResults
from gpusteward.analyzer.sources.usage.selectors import Matchers, match_any, write_selector
from gpusteward.analyzer.tables import Column
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message, same_text
from gpusteward.logs import Log
from gpusteward.messages.errors import source_errors

log = Log(__name__)

UNSHARDED: Sequence[Matchers] = ((),)
_MARGIN = 2
"""A site does not double in size between two counts."""
SMALLEST_SHARD = 500
_SHRINK = 4
_GROW = 2
_USUAL_GPUS = 8.0
"""Of a node that could not be counted."""
_INDEX_SECONDS = 3600.0


class SeriesLimit:
    """How many series one query may select: as configured, or fewer if the engine refuses that many."""

    def __init__(self, configured: int) -> None:
        self._configured = configured
        self.now = configured

    def lower(self, selected: int) -> bool:
        """Lower the limit after the engine refused a query over `selected` series. False if it cannot be lowered."""
        if self.now <= SMALLEST_SHARD:
            return False
        self.now = max(min(self.now, max(selected, self.now // _SHRINK)) // _SHRINK, SMALLEST_SHARD)
        log.warning("series_limit_lowered", limit=self.now, reason="the engine refused larger queries")
        return True

    def raise_again(self) -> None:
        """An engine that was short of memory may have more by now."""
        self.now = min(self._configured, self.now * _GROW)


class Shards:
    """The shards of each set of series, by its selector. Sets far below the limit are counted once, until `expire`."""

    def __init__(self, window_seconds: float) -> None:
        self._look_back_seconds = max(window_seconds, _INDEX_SECONDS)
        self._unsharded: set[str] = set()
        self._with_unlabelled: set[str] = set()  # sets with series that have no node label

    def expire(self) -> None:
        self._unsharded.clear()

    def divide(
        self, engine: Engine, series: str, label: str, *, at: float, limit: int, known_rows: int
    ) -> Sequence[Matchers]:
        """Matchers on `label` that divide the series; one empty condition if all fit. `known_rows`: rows seen so far.
        Raises SourceError."""
        if series in self._unsharded and known_rows <= limit / _MARGIN:
            return UNSHARDED
        shards = self._count_and_divide(engine, series, label, at=at, limit=limit)
        if shards is UNSHARDED:
            self._unsharded.add(series)
        return shards

    def _count_and_divide(
        self, engine: Engine, series: str, label: str, *, at: float, limit: int
    ) -> Sequence[Matchers]:
        try:
            counted = engine.query_vector(f"count({series})", at)
            if not len(counted) or not counted.values[0] > limit:
                return UNSHARDED
            sizes: dict[str, float] = {}
            if label:
                counts = engine.query_vector(f"count by ({label}) ({series})", at)
                sizes = {labels.get(label, ""): count for labels, count in counts.rows()}
            if "" in sizes:
                self._with_unlabelled.add(series)
        except LimitError:
            sizes = {"": 0.0}  # whether there are series without the label is unknown, so they are queried
        sizes = {**self._list_nodes(engine, series, label, at), **sizes} if label else {}
        if not any(sizes):
            log.warning("series_not_divided", limit=limit, reason=f"no {label or 'node label'} to divide them by")
            return UNSHARDED
        return [(match_any(label, names),) for names in group(sorted(sizes.items()), limit)]

    def _list_nodes(self, engine: Engine, series: str, label: str, at: float) -> dict[str, float]:
        """All nodes in the engine's index, also those that report nothing now or could not be counted: left out of all
        shards, their rows would vanish."""
        span = (("start", f"{at - self._look_back_seconds:.3f}"), ("end", f"{at:.3f}"))
        fields = (("match[]", series), *span)
        names = decode_names(engine.fetch(f"/api/v1/label/{label}/values", fields, use_get=True))
        unlabelled = [""] if series in self._with_unlabelled else []
        return dict.fromkeys((*names, *unlabelled), _USUAL_GPUS)


def group(sizes: Sequence[tuple[str, float]], limit: int) -> Iterator[list[str]]:
    """Groups of consecutive names within the limit; a name that exceeds it alone is its own group."""
    names: list[str] = []
    total = 0.0
    for name, size in sizes:
        if total and total + size > limit:
            yield names
            names, total = [], 0.0
        names.append(name)
        total += size
    if names:
        yield names


PARTIAL_RESPONSES = "partial responses"
"""Key among the failures of a cycle: stores of a distributed engine that did not respond."""
MAX_ENDED_ROWS = 10_000
_ROW_FACTOR = 2
"""The index is built anew when it has `MAX_ENDED_ROWS` more than this many times the rows of the table."""


@dataclass(frozen=True, slots=True)
class ReadCycle:
    """What all schemes of one read have in common."""

    at: float
    window: Window
    failures: dict[str, Message] = field(default_factory=dict)  # filled by the reader: query -> reason


class StaticValues:
    """Memory size and power limit of devices. Queried after a discovery and when a new device appears; in between, the
    results of the last query are used. By rows of the same index."""

    def __init__(self) -> None:
        self._columns: dict[QueryKey, Column] = {}
        self._holder_count = 0  # rows at the time of the last query
        self._device_count = 0
        self.is_due = True

    def expire(self) -> None:
        """Query again; where that fails, the old values are still used."""
        self.is_due = True

    def has_new_devices(self, results: QueryResults) -> bool:
        """Whether there is a device that was not queried yet. Devices without a result are not queried again."""
        devices, new = results.devices, results.holders.keys[self._holder_count :]
        return len(devices) > self._device_count or bool((devices.find([key.device for key in new]) < 0).any())

    def fill_gaps(self, results: QueryResults) -> None:
        """Use the last known values where there are no new ones."""
        for key, column in self._columns.items():
            results.fill_gaps(key, column)

    def update(self, results: QueryResults, devices: DeviceIndex, plans: Iterable[QueryPlan]) -> None:
        """Keep the new values; queries that failed are due again."""
        queries = [query for plan in plans for query in plan.queries]
        static = {query.key for query in queries if query.is_static}
        self._columns = {key: results.column(*key) for key in static if results.has(*key)}
        self._holder_count, self._device_count = len(results.holders), len(results.devices)
        if all(query.is_static for query in queries if query.key.level is Level.DEVICE):
            devices.release_memory(results.holders)
        self.is_due = not static.isdisjoint(results.failures)


@dataclass
class _Indexes:
    """Row numbers and static values, kept from cycle to cycle as long as the labels are the same."""

    holders: HolderIndex
    devices: DeviceIndex
    static: StaticValues = field(default_factory=StaticValues)


class SchemeReader:
    """Reads metric schemes from an engine. Not thread-safe."""

    def __init__(
        self, engine: Engine, settings: PrometheusSettings, condition: Matchers, *, max_ended_rows: int = MAX_ENDED_ROWS
    ) -> None:
        self._engine = engine
        self._max_ended_rows = max_ended_rows
        self._condition = condition
        self.expected = ExpectedSamples(
            window_seconds=settings.window_seconds, fixed_interval=settings.scrape_interval_seconds
        )
        self._limit = SeriesLimit(settings.series_limit)
        self._shards = Shards(settings.window_seconds)
        self._indexes: dict[tuple[HolderKey, DeviceKey], _Indexes] = {}
        self._forget_rows()
        self._states: defaultdict[Hashable, SchemeState] = defaultdict(SchemeState)
        self._table_rows = 0

    def read(self, detected: DetectedScheme, cycle: ReadCycle) -> PartialTable:
        """The usage of every holder of this scheme. Raises SourceError if all queries failed."""
        started = time.monotonic()
        results = self._query(detected, cycle)
        while results.hit_limit and self._limit.lower(len(results.holders)):
            self._shards.expire()
            results = self._query(detected, cycle)
        cycle.failures.update({f"{detected.scheme} {key}": reason for key, reason in results.failures.items()})
        if stores := frozenset[str]().union(*results.missing_stores.values()):
            cycle.failures[PARTIAL_RESPONSES] = same_text(", ".join(sorted(stores)))
        if results.is_empty and results.failures:
            self.finish_cycle(self._table_rows)  # rows that were too many must not fail the next cycle too
            raise SourceError(next(iter(results.failures.values())))
        table = self._states[detected.key].build_table(results, expected=self.expected, at=cycle.at)
        seconds = time.monotonic() - started
        log.debug("scheme_read", scheme=detected.scheme, rows=len(table.allocations), seconds=seconds)
        return table

    @property
    def series_limit(self) -> int:
        """How many series one query may select now."""
        return self._limit.now

    def state_of(self, detected: DetectedScheme) -> SchemeState:
        """What the last read of this scheme has left."""
        return self._states[detected.key]

    def finish_cycle(self, table_rows: int) -> None:
        """Note the size of the merged table. After an empty one the row indexes are built anew, and where they are
        full: many of their rows may have ended."""
        self._table_rows = table_rows
        if not table_rows or self._holder_limit.is_exceeded or self._device_limit.is_exceeded:
            self._forget_rows()

    def expire(self) -> None:
        """After a discovery: query static values and count series again, and allow larger queries again."""
        self._limit.raise_again()
        self._shards.expire()
        for indexes in self._indexes.values():
            indexes.static.expire()

    def _query(self, detected: DetectedScheme, cycle: ReadCycle) -> QueryResults:
        plans = [plan_holders(detected, self._condition)]
        if detected.device:
            plans.append(plan_devices(detected.device, self._condition))
        if self.expected.depends_on_target:
            plans[0] = plans[0].with_targets()
        indexes = self._find_indexes(plans)
        static, stale = indexes.static, self._states[detected.key].stale
        collector = ResultCollector(detected.scheme, indexes.holders, indexes.devices)
        results = collector.results
        results.previous_rows = stale.list_previous_rows(indexes.holders, cycle.at)
        results.lacks_video = bool(list_missing_video(detected))
        results.reports_unheld_devices = reports_unheld_devices(detected.scheme, self._condition)
        queries_static = static.is_due
        at_first = [
            plan.choose(lambda query: not query.is_for_idle and (queries_static or not query.is_static))
            for plan in plans
        ]
        self._run(at_first, collector, cycle)
        if not queries_static and static.has_new_devices(results):
            self._run([plan.choose(lambda query: query.is_static) for plan in plans], collector, cycle)
            queries_static = True
        self._read_idle(plans[0].choose(lambda query: query.is_for_idle), collector, cycle)
        results.exporter_rows = find_exporters(self._engine, detected, results, cycle.at)
        if can_have_unlisted(detected, results):
            self._find_unlisted(detected, plans[0], collector, cycle)
        if stale.find_without_details(list_stale_rows(results)):
            self._run([plans[0].only_presence_in_window()], collector, cycle)
        if rows := list_rows_to_ask(results, expected=self.expected, at=cycle.at):
            self._find_ended(detected, rows, collector, cycle)
        if not results.is_empty:
            static.fill_gaps(results)
            if queries_static:
                static.update(results, indexes.devices, plans)
        return results

    def _read_idle(self, plan: QueryPlan, collector: ResultCollector, cycle: ReadCycle) -> None:
        """What only verdicts of idle need is read of the holders whose core shows no work: comparing energy minute by
        minute is the most expensive of all queries."""
        results, label = collector.results, plan.mapping.uuid
        core, keys = results.column(Level.HOLDER, Quantity.CORE, Aggregation.PEAK), results.holders.keys
        held = [row for row in results.present if keys[row].pod]
        quiet = [row for row in held if not core[row] > 0]
        if not plan.queries or not quiet:
            return
        uuids = sorted({keys[row].uuid for row in quiet})
        if plan.mapping.lacks_uuid or not label or len(quiet) > len(held) / 2:
            self._run([plan], collector, cycle)
            return
        starts = range(0, len(uuids), UUIDS_PER_QUERY)
        shards = [(match_any(label, uuids[start : start + UUIDS_PER_QUERY]),) for start in starts]
        tasks = [task for shard in shards for task in write_tasks(plan.queries, cycle.window, shard)]
        run_tasks(self._engine, tasks, collector, cycle.at)

    def _find_unlisted(
        self, detected: DetectedScheme, plan: QueryPlan, collector: ResultCollector, cycle: ReadCycle
    ) -> None:
        """Ask the other metrics for holders that the presence series do not name."""
        results, ended = collector.results, self._states[detected.key].stale.ended_rows
        rows, tried = list_unlisted_rows(results, ended), set[Quantity]()
        while len(rows) > MAX_SELECTED:
            queries = tuple(select_all(detected, self._condition, results, rows, tried))
            self._run([replace(plan, queries=queries)], collector, cycle)
            before, rows = len(rows), list_unlisted_rows(results, ended)
            if len(rows) == before:
                return  # nothing reports them
        if rows:
            uuids = [results.holders.keys[row].uuid for row in rows]
            few = select_by_uuid(detected, self._condition, uuids)
            run_tasks(self._engine, write_tasks(few, cycle.window), collector, cycle.at)

    def _find_ended(
        self, detected: DetectedScheme, rows: Sequence[int], collector: ResultCollector, cycle: ReadCycle
    ) -> None:
        """Ask when these holders were seen. Queries that fail cost only their time in the ledger."""
        if len(rows) > MAX_ENDED:
            left_out = len(rows) - MAX_ENDED
            cycle.failures["ended holders"] = source_errors.ENDED_NOT_READ.fill(left_out=left_out, count=len(rows))
        left, keys = rows[:MAX_ENDED], collector.results.holders.keys
        for by_core in (False, True):
            queries = select_ended(detected, self._condition, {keys[row].uuid for row in left}, by_core=by_core)
            run_tasks(self._engine, write_tasks(queries, cycle.window), collector, cycle.at)
            left = [row for row in left if row not in collector.results.seen.holders]
        collector.results.seen.keep(rows)  # their devices had other holders in the window

    def _find_indexes(self, plans: Sequence[QueryPlan]) -> _Indexes:
        """Those of the last cycle, unless the labels have changed or most of the rows have ended."""
        labels = (plans[0].mapping.holder, plans[-1].mapping.device)
        known = self._indexes.get(labels)
        if known is not None and len(known.holders) > _ROW_FACTOR * self._table_rows + self._max_ended_rows:
            self._forget_rows()
        if labels not in self._indexes:
            holders, devices = HolderIndex(labels[0], self._holder_limit), DeviceIndex(labels[1], self._device_limit)
            self._indexes[labels] = _Indexes(holders, devices)
        return self._indexes[labels]

    def _forget_rows(self) -> None:
        self._indexes.clear()
        self._holder_limit, self._device_limit = RowLimit(self._engine.limits), RowLimit(self._engine.limits)

    def _run(self, plans: Iterable[QueryPlan], collector: ResultCollector, cycle: ReadCycle) -> None:
        """The queries of these plans, in shards where they would select too much."""
        tasks: list[QueryTask] = []
        for plan in plans:
            if plan.queries:
                shards = self._shards.divide(
                    self._engine,
                    write_selector(plan.metric, plan.matchers),
                    plan.mapping.node or plan.mapping.namespace,
                    at=cycle.at,
                    limit=self._limit.now,
                    known_rows=max(len(collector.results.holders), len(collector.results.devices)),
                )
                tasks += (task for shard in shards for task in write_tasks(plan.queries, cycle.window, shard))
        run_tasks(self._engine, tasks, collector, cycle.at)
