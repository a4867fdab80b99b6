"""VictoriaMetrics' raw export as another way to the same answers: each metric is read once, and folded here."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.sources.engine.client import Engine
from gpusteward.analyzer.sources.engine.decode import Vector, paused_collector
from gpusteward.analyzer.sources.promql.expressions import Query, Window
from gpusteward.analyzer.sources.promql.matchers import Matchers, write_selector
from gpusteward.analyzer.sources.promql.plan import SidePlan
from gpusteward.analyzer.sources.promql.query_runner import Desk, Errand, Located, ask
from gpusteward.analyzer.sources.usage.quantities import LAST_WORDS, Fold
from gpusteward.analyzer.tables import Column
from gpusteward.core.errors import SourceError


class Line(msgspec.Struct, gc=False):
    """A series, or a piece of one, as it is exported; null is a sample without a number."""

    metric: msgspec.Raw
    values: list[float | None]


_LINES = msgspec.json.Decoder(Line)
_BATCH_BYTES = 1 << 20
_STAY_QUERIES = (Fold.LAST, Fold.INCREASE)


def plan_exports(engine: Engine, plan: SidePlan, *, shard: Matchers, window: Window, at: float) -> Iterator[Errand]:
    """One export for all windows of a metric. What asks for the last value stays a query: the engine knows who is gone;
    and so does what asks for growth: it knows the sample before the window."""
    for query in plan.queries:
        if _stays_query(query):
            yield Errand((query,), partial(ask, engine, query, query.write(window, shard), at))
    windows = [query for query in plan.queries if not _stays_query(query)]
    for (metric, matchers), queries in groupby(windows, key=lambda query: (query.metric, query.matchers)):
        together = tuple(queries)
        selector = write_selector(metric, (*matchers, *shard))
        yield Errand(together, partial(_export, engine, together, selector, window=window, at=at))


def _stays_query(query: Query) -> bool:
    return query.fold in _STAY_QUERIES or query.asked == LAST_WORDS


def _export(
    engine: Engine, queries: Sequence[Query], selector: str, desk: Desk, *, window: Window, at: float
) -> list[Located]:
    """Folded as it arrives: raw samples are never all in memory. Raises SourceError.

    Without `reduce_mem_usage`: with it VictoriaMetrics 1.79 gave samples of one series under the labels of another.
    """
    fields = (
        ("match[]", selector),
        ("start", f"{at - window.seconds + 0.001:.3f}"),
        ("end", f"{at:.3f}"),
    )
    samples = Samples(queries[0].metric)
    for batch in _batches(engine.stream("/api/v1/export", fields)):
        with paused_collector():
            samples.add(_decode(batch))
    folded = samples.fold(*(query.fold for query in queries))
    return [desk.locate(query, vector) for query, vector in zip(queries, folded, strict=True)]


def _batches(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines, about a megabyte at once."""
    kept: list[bytes] = []
    size = 0
    for piece in pieces:
        kept.append(piece)
        size += len(piece)
        if size >= _BATCH_BYTES:
            whole, newline, rest = b"".join(kept).rpartition(b"\n")
            if newline:
                yield whole
            kept, size = [rest if newline else whole + rest], len(rest)
    if rest := b"".join(kept).strip():
        yield rest


def _decode(batch: bytes) -> list[Line]:
    try:
        return _LINES.decode_lines(batch)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SourceError(f"the export cannot be read: {error}") from error


class Samples:
    """The samples of one metric, folded line by line so that memory follows the series, not their length.

    A series may come in several lines; `_join` puts its pieces together.
    """

    def __init__(self, metric: str) -> None:
        # Every metric of one exporter has the same labels but for its own name: without it, their texts are equal.
        self._name = b'"__name__":"%s",' % metric.encode()
        self._rows: dict[bytes, int] = {}
        self._pieces: list[_Piece] = []

    def add(self, lines: Sequence[Line]) -> None:
        lines = [line for line in lines if line.values]
        if not lines:
            return
        rows, name = self._rows, self._name
        texts = [bytes(line.metric).replace(name, b"", 1) for line in lines]
        numbers = np.array([rows.setdefault(text, len(rows)) for text in texts], dtype=np.int64)
        values = np.array([value for line in lines for value in line.values], dtype=np.float64)
        sizes = np.array([len(line.values) for line in lines])
        self._pieces.append(_fold_lines(numbers, values, sizes))

    def fold(self, *folds: Fold) -> Iterator[Vector]:
        """One number a series, for each of these."""
        texts = list(self._rows)
        joined = _join(self._pieces, len(texts))
        return (Vector(texts, joined[fold]) for fold in folds)


@dataclass(frozen=True, slots=True)
class _Piece:
    rows: NDArray[np.int64]
    counts: Column
    means: Column
    squares: Column  # summed squares of the distances from the mean
    peaks: Column


def _fold_lines(rows: NDArray[np.int64], values: Column, sizes: NDArray[np.int64]) -> _Piece:
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    is_number = np.isfinite(values)
    counts = np.add.reduceat(is_number.astype(np.float64), starts)
    with np.errstate(invalid="ignore"):
        means = np.add.reduceat(np.where(is_number, values, 0.0), starts) / counts
    away = np.where(is_number, values - np.repeat(means, sizes), 0.0)
    peaks = np.maximum.reduceat(np.where(is_number, values, -np.inf), starts)
    return _Piece(rows, counts, means, np.add.reduceat(away * away, starts), peaks)


def _join(pieces: Sequence[_Piece], size: int) -> Mapping[Fold, Column]:
    if not pieces:
        return dict.fromkeys(Fold, np.empty(0))
    rows, counts, means, squares, peaks = (
        np.concatenate([getattr(piece, name) for piece in pieces])
        for name in ("rows", "counts", "means", "squares", "peaks")
    )
    there = counts > 0
    rows, counts, means, squares, peaks = (part[there] for part in (rows, counts, means, squares, peaks))
    total = np.bincount(rows, counts, size).astype(np.float64)  # of no rows at all it would count in whole numbers
    total[total == 0] = np.nan
    mean = np.bincount(rows, counts * means, size) / total
    square = np.bincount(rows, squares + counts * (means - mean[rows]) ** 2, size)
    peak = np.full(size, np.nan)
    np.fmax.at(peak, rows, peaks)
    return {Fold.MEAN: mean, Fold.PEAK: peak, Fold.SPREAD: np.sqrt(square / total), Fold.COUNT: total}
