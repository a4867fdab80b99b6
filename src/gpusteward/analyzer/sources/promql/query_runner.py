"""Runs the queries of a plan: a few at once, each result read as it arrives and merged when it is complete.

A row is found by its label text. A text is parsed when it is new; every later result finds its row by the text's hash.
The texts themselves are not kept: at 50,000 GPUs they would take 20 MB. Python hashes bytes to 64 bits with a random
seed per process, so collisions cannot be provoked; by chance, two of a hundred thousand texts collide in one of four
billion clusters. Keys are found in the same way.
"""

import threading
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.sources.engine.client import Engine, LimitError
from gpusteward.analyzer.sources.engine.decode import MatrixSeries, Vector, decode_labels, decode_matrix, decode_pieces
from gpusteward.analyzer.sources.memory_limits import DEFAULT_LIMITS, MemoryLimits
from gpusteward.analyzer.sources.promql.expressions import Window, write_query
from gpusteward.analyzer.sources.promql.query_plan import Query
from gpusteward.analyzer.sources.usage.quantities import COUNTS, PRESENCE_TIMES, Level
from gpusteward.analyzer.sources.usage.query_results import (
    DeviceDetails,
    DeviceKey,
    HolderDetails,
    HolderKey,
    K,
    QueryResults,
    ResultChunk,
    RowIndex,
    Rows,
    ScrapeTarget,
    find_label,
)
from gpusteward.analyzer.sources.usage.schemes import MetricScheme
from gpusteward.analyzer.sources.usage.selectors import Matchers
from gpusteward.core.errors import SourceError
from gpusteward.logs import Log
from gpusteward.messages.errors import source_errors

log = Log(__name__)

Details = HolderDetails | DeviceDetails | ScrapeTarget
Hashes = NDArray[np.int64]


class RowLimit:
    """Counts the rows, with their details, and the texts of all indexes of one kind. Not thread-safe."""

    def __init__(self, limits: MemoryLimits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self.rows = 0
        self.label_bytes = 0

    @property
    def is_exceeded(self) -> bool:
        return self.rows > self._limits.rows or self.label_bytes > self._limits.row_label_bytes

    def add(self, rows: int, texts: Iterable[bytes]) -> None:
        """Raises SourceError if that is too much."""
        self.rows += rows
        self.label_bytes += sum(map(len, texts))
        if self.is_exceeded:
            budget = self._limits.budget
            raise SourceError(source_errors.TOO_MANY_ROWS, rows=self.rows, before=budget, budget=2 * budget)


class TextRowIndex(RowIndex[K]):
    """Rows by label texts, many at once."""

    def __init__(self, labels: K, limit: RowLimit | None = None) -> None:
        super().__init__(labels)
        self._limit = limit or RowLimit()
        self._by_text, self._by_key = _HashIndex(), _HashIndex()
        self._details: dict[type[Details], _DetailCache] = {}

    def find(self, keys: Sequence[K]) -> Rows:
        return self._by_key.find(_hash(keys))

    def add(self, keys: Sequence[K]) -> Rows:
        rows, before = self.find(keys), len(self.keys)
        new: dict[K, int] = {}
        for position in np.flatnonzero(rows < 0).tolist():
            rows[position] = new.setdefault(keys[position], before + len(new))
        self._limit.add(len(new), ())
        self.keys += new
        self._by_key.add(_hash(new), np.arange(before, len(self.keys)))
        return rows

    def add_texts(self, texts: Sequence[bytes]) -> Rows:
        """The row of each label text; unknown ones get new rows. Raises SourceError for labels that cannot be read."""
        hashes = _hash(texts)
        rows = self._by_text.find(hashes)
        new = np.flatnonzero(rows < 0)
        if len(new):
            rows[new] = self._add_labels([texts[position] for position in new.tolist()])[0]
            self._by_text.add(hashes[new], rows[new])
        return rows

    def read_details(self, texts: Sequence[bytes], *labels: Details) -> tuple[Rows, list[Any]]:
        """The row and the details of each label text. `labels`: the name of the label that holds each detail, and
        others for series without the first. Raises SourceError for labels that cannot be read."""
        cache = self._details.setdefault(type(labels[0]), _DetailCache())
        hashes = _hash(texts)
        positions = cache.by_text.find(hashes)
        new = np.flatnonzero(positions < 0)
        if len(new):
            self._limit.add(len(new), ())  # details take about as much as a row
            rows, parsed = self._add_labels([texts[position] for position in new.tolist()])
            positions[new] = np.arange(len(new)) + len(cache.details)
            cache.rows = np.concatenate((cache.rows, rows))
            names = list(zip(*labels, strict=True))  # of each detail
            make = type(labels[0])._make
            cache.details += [make([self._share(find_label(each, detail)) for detail in names]) for each in parsed]
            cache.by_text.add(hashes[new], positions[new])
        return cache.rows[positions], list(map(cache.details.__getitem__, positions.tolist()))

    def release_memory(self, holders: RowIndex[HolderKey]) -> None:
        """For rows that are rarely queried again: forget their texts, and use the uuid strings of `holders`. Saves 6 MB
        at 50,000 GPUs."""
        uuids = {key.uuid: key.uuid for key in holders.keys}
        self.keys = [self._make((uuids.get(key.uuid, key.uuid), *key[1:])) for key in self.keys]
        self._by_text = _HashIndex()

    def _add_labels(self, texts: Sequence[bytes]) -> tuple[Rows, list[dict[str, str]]]:
        """The rows of new texts, and their labels."""
        self._limit.add(0, texts)
        labels = [decode_labels(text) for text in texts]
        return self.add([self._read_key(each) for each in labels]), labels


class _DetailCache:
    """Rows and details by label text."""

    def __init__(self) -> None:
        self.by_text = _HashIndex()  # text -> position in the next two
        self.rows: Rows = np.empty(0, np.int64)
        self.details: list[Details] = []


HolderIndex = TextRowIndex[HolderKey]
DeviceIndex = TextRowIndex[DeviceKey]


class _HashIndex:
    """Hashes -> numbers, 12 bytes each; a dict takes ten times as much."""

    def __init__(self) -> None:
        self._hashes: Hashes = np.empty(0, np.int64)  # sorted
        self._numbers: NDArray[np.int32] = np.empty(0, np.int32)

    def find(self, hashes: Hashes) -> Rows:
        """The number of each hash, -1 for an unknown one."""
        if not len(self._hashes):
            return np.full(len(hashes), -1, np.int64)
        positions = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        return np.where(self._hashes[positions] == hashes, self._numbers[positions], np.int64(-1))

    def add(self, hashes: Hashes, numbers: Rows) -> None:
        """Add hashes that are not in the index yet."""
        joined = np.concatenate((self._hashes, hashes))
        order = np.argsort(joined, kind="stable")
        self._hashes = joined[order]
        self._numbers = np.concatenate((self._numbers, numbers.astype(np.int32)))[order]


def _hash(values: Collection[bytes] | Collection[K]) -> Hashes:
    return np.fromiter(map(hash, values), np.int64, len(values))


class ResultCollector:
    """Converts results to rows and merges them, one thread at a time."""

    def __init__(self, scheme: MetricScheme, holders: HolderIndex, devices: DeviceIndex) -> None:
        self.results = QueryResults(scheme, holders, devices)
        self._holders, self._devices = holders, devices
        self._lock = threading.Lock()

    def read_chunk(self, query: Query, vector: Vector) -> ResultChunk:
        """A part of a query result by rows. Raises SourceError for labels that cannot be read."""
        labels, values, details = query.detail_labels, None, list[Any]()
        index = self._holders if query.key.level is Level.HOLDER else self._devices
        with self._lock:
            if labels is None:
                rows = index.add_texts(vector.labels)
            else:
                rows, details = index.read_details(vector.labels, labels, *query.fallbacks)
        if labels is None or isinstance(labels, ScrapeTarget):
            scale = 1.0 if query.key.aggregation in COUNTS else query.scale
            values = vector.values if scale == 1.0 else vector.values * scale
        return ResultChunk(query.key, rows, values, details, vector.missing_stores)

    def read_times(self, query: Query, found: Sequence[MatrixSeries]) -> ResultChunk:
        """The times of the samples of a range selector. Raises SourceError for labels that cannot be read."""
        names = sorted(query.list_labels())
        texts = [
            msgspec.json.encode({name: series.labels[name] for name in names if name in series.labels})
            for series in found
        ]
        times = [np.array([time for time, _ in series.points]) for series in found]
        assert query.detail_labels is not None
        with self._lock:
            rows, details = self._holders.read_details(texts, query.detail_labels, *query.fallbacks)
        return ResultChunk(query.key, rows, details=details, times=times)

    def merge(self, chunks: Iterable[ResultChunk]) -> None:
        """Merge the chunks of a complete result."""
        with self._lock:
            for chunk in chunks:
                self.results.add(chunk)

    def fail(self, query: Query, error: SourceError) -> None:
        with self._lock:
            self.results.failures[query.key] = error.as_message()
            self.results.hit_limit |= isinstance(error, LimitError)


@dataclass(frozen=True, slots=True)
class QueryTask:
    """One instant query: its text, and what it is about."""

    query: Query
    expression: str


def write_tasks(queries: Iterable[Query], window: Window, shard: Matchers = ()) -> list[QueryTask]:
    """One for each of these queries. `shard`: which series they select."""
    return [QueryTask(query, write_query(query, window, shard)) for query in queries]


def run_tasks(engine: Engine, tasks: Iterable[QueryTask], collector: ResultCollector, at: float) -> None:
    """Run all tasks and collect their results and failures. Raises nothing.

    The engine computes as many queries at once as it may, while one more result is being read.
    """

    def run(task: QueryTask) -> None:
        query = task.query

        def read(pieces: Iterable[bytes]) -> list[ResultChunk]:
            """As they arrive: the whole text is never in memory."""
            return [collector.read_chunk(query, vector) for vector in decode_pieces(pieces)]

        try:
            if query.key == PRESENCE_TIMES:  # of a few devices
                found = [collector.read_times(query, decode_matrix(engine.query(task.expression, at)))]
            else:
                found = engine.read_query(task.expression, at, read)
            collector.merge(found)
        except SourceError as error:
            log.warning("query_failed", queries=f"{query.key.quantity} {query.key.aggregation}", reason=error)
            collector.fail(query, error)

    with ThreadPoolExecutor(engine.max_concurrent_queries + 1, thread_name_prefix="engine") as pool:
        for future in [pool.submit(run, task) for task in tasks]:
            future.result()
