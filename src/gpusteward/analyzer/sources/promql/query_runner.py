"""Runs the queries of a plan: a few at once, each result merged as soon as it is complete."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import cast

import msgspec
import numpy as np

from gpusteward.analyzer.sources.engine.client import Engine, LimitError
from gpusteward.analyzer.sources.engine.decode import Series, Vector, decode_matrix, decode_pieces
from gpusteward.analyzer.sources.engine.label_text_index import DeviceIndex, HolderIndex
from gpusteward.analyzer.sources.promql.expressions import Query, Window
from gpusteward.analyzer.sources.usage.quantities import COUNTS, PRESENCE_TIMES, Level
from gpusteward.analyzer.sources.usage.query_results import QueryResults, ResultChunk
from gpusteward.analyzer.sources.usage.row_index import DeviceDetails, HolderDetails, ScrapeTarget
from gpusteward.analyzer.sources.usage.selectors import Matchers
from gpusteward.core.errors import SourceError
from gpusteward.logs import Log

log = Log(__name__)


@dataclass(frozen=True, slots=True)
class QueryTask:
    """The request of one query."""

    query: Query
    fetch: Callable[["ResultCollector"], list[ResultChunk]]


class ResultCollector:
    """Converts results to rows and merges them, one thread at a time."""

    def __init__(self, holders: HolderIndex, devices: DeviceIndex, *, previous_rows: Sequence[int] = ()) -> None:
        """`previous_rows`: holder rows of earlier cycles that are not known to have ended."""
        self.results = QueryResults(holders, devices, previous_rows=previous_rows)
        self._holders, self._devices = holders, devices
        self._lock = threading.Lock()

    def read_chunk(self, query: Query, vector: Vector) -> ResultChunk:
        """A part of a query result by rows. Raises SourceError for labels that cannot be read."""
        labels, missing = query.detail_labels, vector.missing_stores
        with self._lock:
            if isinstance(labels, HolderDetails):
                rows, holder_details = self._holders.read_details(vector.labels, labels, *query.fallbacks)
                return ResultChunk(query.key, rows, holder_details=holder_details, missing_stores=missing)
            if isinstance(labels, DeviceDetails):
                rows, device_details = self._devices.read_details(vector.labels, labels)
                return ResultChunk(query.key, rows, device_details=device_details, missing_stores=missing)
            targets: Sequence[ScrapeTarget] = ()
            if isinstance(labels, ScrapeTarget):
                rows, targets = self._holders.read_targets(vector.labels, labels)
            else:
                index = self._holders if query.level is Level.HOLDER else self._devices
                rows = index.add_texts(vector.labels)
        scale = 1.0 if query.aggregation in COUNTS else query.scale
        values = vector.values if scale == 1.0 else vector.values * scale
        return ResultChunk(query.key, rows, values, missing_stores=missing, targets=targets)

    def read_times(self, query: Query, found: Sequence[Series]) -> ResultChunk:
        """The times of the samples of a range selector. Raises SourceError for labels that cannot be read."""
        names = sorted(query.list_labels())
        texts = [
            msgspec.json.encode({name: series.labels[name] for name in names if name in series.labels})
            for series in found
        ]
        times = [np.array([time for time, _ in series.points]) for series in found]
        labels = cast(HolderDetails, query.detail_labels)
        with self._lock:
            rows, details = self._holders.read_details(texts, labels, *query.fallbacks)
        return ResultChunk(query.key, rows, holder_details=details, times=times)

    def merge(self, chunks: Iterable[ResultChunk]) -> None:
        """Merge the chunks of a complete result."""
        with self._lock:
            for chunk in chunks:
                self.results.add(chunk)

    def fail(self, query: Query, error: SourceError) -> None:
        with self._lock:
            self.results.failures[query.key] = error.as_message()
            self.results.hit_limit |= isinstance(error, LimitError)


def run_tasks(tasks: Sequence[QueryTask], collector: ResultCollector, *, concurrency: int) -> None:
    """Run all tasks and collect their results and failures. Raises nothing.

    The engine computes `concurrency` queries at once, while one more result is being read.
    """
    with ThreadPoolExecutor(max_workers=concurrency + 1, thread_name_prefix="engine") as pool:
        for future in [pool.submit(_run, task, collector) for task in tasks]:
            future.result()


def _run(task: QueryTask, collector: ResultCollector) -> None:
    try:
        collector.merge(task.fetch(collector))
    except SourceError as error:
        log.warning("query_failed", queries=f"{task.query.quantity} {task.query.aggregation}", reason=error)
        collector.fail(task.query, error)


def plan_queries(
    engine: Engine, queries: Iterable[Query], *, window: Window, shard: Matchers, at: float
) -> Iterator[QueryTask]:
    """One instant query each."""
    for query in queries:
        yield QueryTask(query, partial(_fetch_query, engine, query, query.write(window, shard), at))


def _fetch_query(
    engine: Engine, query: Query, expression: str, at: float, collector: ResultCollector
) -> list[ResultChunk]:
    """The result of one query, read as it arrives: its whole text is never in memory. Raises SourceError."""
    if query.key == PRESENCE_TIMES:  # of a few devices
        return [collector.read_times(query, decode_matrix(engine.query(expression, at)))]

    def read(pieces: Iterable[bytes]) -> list[ResultChunk]:
        return [collector.read_chunk(query, vector) for vector in decode_pieces(pieces)]

    return engine.read_query(expression, at, read)
