"""VictoriaMetrics' raw export: the samples of a metric are read once, and all windows over it are computed here."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.sources.engine.client import Engine
from gpusteward.analyzer.sources.engine.decode import Vector, paused_collector
from gpusteward.analyzer.sources.memory_limits import DEFAULT_LIMITS
from gpusteward.analyzer.sources.usage.quantities import Aggregation
from gpusteward.analyzer.tables import Column
from gpusteward.core.errors import SourceError
from gpusteward.messages.errors import engine_errors


class ExportLine(msgspec.Struct, gc=False):
    """A series, or a part of one, as it is exported; null is a sample without a number."""

    metric: msgspec.Raw
    values: list[float | None]


_LINES = msgspec.json.Decoder(ExportLine)
_VALUES = re.compile(rb'"values":\[[^\]]*')
_NO_NUMBER = re.compile(rb'NaN|"?[+-]?Inf(?:inity)?"?')
"""VictoriaMetrics writes NaN where a line begins with the end of a series, and infinite values by name: no JSON."""
_BATCH_BYTES = 1 << 20
_LINE_LIMIT_BYTES = 2 << 20
"""Seven days of samples every 15 s have 1 MB. A number of two bytes becomes one of 32, in each of three threads."""
_SERIES_BYTES = 240
"""A text in a dict, apart from its length; with the labels as they are parsed."""
_LINE_BYTES = 40
"""Five numbers."""
EXPORTED_AGGREGATIONS = frozenset({Aggregation.MEAN, Aggregation.PEAK, Aggregation.SPREAD, Aggregation.COUNT})
"""What can be computed from exported samples. The last value cannot: only the engine knows which series are stale; nor
can the increase of a counter, which needs the sample before the window."""


def read_export(engine: Engine, metric: str, selector: str, *, start: float, end: float) -> "ExportedSamples":
    """The samples after `start`, up to `end`. They are aggregated as they arrive, so that raw samples are never all in
    memory. Raises SourceError.

    Without `reduce_mem_usage`: with it VictoriaMetrics 1.79 returned samples of one series under the labels of another.
    """
    fields = (("match[]", selector), ("start", f"{start + 0.001:.3f}"), ("end", f"{end:.3f}"))
    samples = ExportedSamples(metric, limit_bytes=engine.limits.response)
    for batch in _batches(engine.stream("/api/v1/export", fields)):
        with paused_collector():
            samples.add(_decode(batch))
    return samples


def _batches(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Complete lines, about a megabyte at once."""
    pending: list[bytes] = []
    size = 0
    for chunk in chunks:
        pending.append(chunk)
        size += len(chunk)
        if size >= _BATCH_BYTES:
            complete, newline, rest = b"".join(pending).rpartition(b"\n")
            if newline:
                yield complete
            if len(rest if newline else complete) > _LINE_LIMIT_BYTES:
                raise SourceError(engine_errors.ROW_TOO_LARGE, limit_bytes=_LINE_LIMIT_BYTES)
            pending, size = [rest if newline else complete + rest], len(rest)
    if rest := b"".join(pending).strip():
        yield rest


def _decode(batch: bytes) -> list[ExportLine]:
    try:
        try:
            return _LINES.decode_lines(batch)
        except msgspec.MsgspecError:
            return _LINES.decode_lines(_VALUES.sub(lambda values: _NO_NUMBER.sub(b"null", values[0]), batch))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SourceError(engine_errors.UNREADABLE_EXPORT, reason=error) from error


class ExportedSamples:
    """The samples of one metric, aggregated line by line: memory grows with the series, not with their samples.

    A series may come in several lines; `_merge` combines its parts.
    """

    def __init__(self, metric: str, *, limit_bytes: int = DEFAULT_LIMITS.response) -> None:
        self._limit_bytes = limit_bytes
        self._size = 0
        # The metrics of one exporter differ in labels by the metric name only: without it, their label texts are equal.
        self._name = b'"__name__":"%s",' % metric.encode()
        self._rows: dict[bytes, int] = {}
        self._parts: list[_Part] = []

    def add(self, lines: Sequence[ExportLine]) -> None:
        lines = [line for line in lines if line.values]
        if not lines:
            return
        rows, name = self._rows, self._name
        texts = [bytes(line.metric).replace(name, b"", 1) for line in lines]
        before = len(rows)
        numbers = np.array([rows.setdefault(text, len(rows)) for text in texts], dtype=np.int64)
        self._take(len(lines) * _LINE_BYTES + sum(map(len, islice(reversed(rows), len(rows) - before))))
        self._take((len(rows) - before) * _SERIES_BYTES)
        values = np.array([value for line in lines for value in line.values], dtype=np.float64)
        sizes = np.array([len(line.values) for line in lines])
        self._parts.append(_aggregate_lines(numbers, values, sizes))

    def _take(self, size: int) -> None:
        """Raises SourceError."""
        self._size += size
        if self._size > self._limit_bytes:
            raise SourceError(engine_errors.EXPORT_TOO_LARGE, limit_bytes=self._limit_bytes)

    def aggregate(self, *aggregations: Aggregation) -> Iterator[Vector]:
        """For each aggregation one value per series."""
        texts = list(self._rows)
        merged = _merge(self._parts, len(texts))
        return (Vector(texts, merged[aggregation]) for aggregation in aggregations)


@dataclass(frozen=True, slots=True)
class _Part:
    rows: NDArray[np.int64]
    counts: Column
    means: Column
    squares: Column  # sums of squared distances from the mean
    peaks: Column


def _aggregate_lines(rows: NDArray[np.int64], values: Column, sizes: NDArray[np.int64]) -> _Part:
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    is_number = np.isfinite(values)
    counts = np.add.reduceat(is_number.astype(np.float64), starts)
    with np.errstate(invalid="ignore"):
        means = np.add.reduceat(np.where(is_number, values, 0.0), starts) / counts
    distances = np.where(is_number, values - np.repeat(means, sizes), 0.0)
    peaks = np.maximum.reduceat(np.where(is_number, values, -np.inf), starts)
    return _Part(rows, counts, means, np.add.reduceat(distances * distances, starts), peaks)


def _merge(parts: Sequence[_Part], size: int) -> Mapping[Aggregation, Column]:
    if not parts:
        return dict.fromkeys(Aggregation, np.empty(0))
    rows, counts, means, squares, peaks = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("rows", "counts", "means", "squares", "peaks")
    )
    has_samples = counts > 0
    rows, counts, means, squares, peaks = (column[has_samples] for column in (rows, counts, means, squares, peaks))
    total = np.bincount(rows, counts, size).astype(np.float64)  # bincount of nothing returns integers
    total[total == 0] = np.nan
    mean = np.bincount(rows, counts * means, size) / total
    square = np.bincount(rows, squares + counts * (means - mean[rows]) ** 2, size)
    peak = np.full(size, np.nan)
    np.fmax.at(peak, rows, peaks)
    return {
        Aggregation.MEAN: mean,
        Aggregation.PEAK: peak,
        Aggregation.SPREAD: np.sqrt(square / total),
        Aggregation.COUNT: total,
    }
