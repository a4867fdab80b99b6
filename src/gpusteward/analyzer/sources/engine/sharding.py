"""Splits queries that would select more series than one query may: into groups of nodes."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpusteward.analyzer.sources.engine.client import Engine, LimitError
from gpusteward.analyzer.sources.engine.decode import decode_labels, decode_names, decode_vector
from gpusteward.analyzer.sources.usage.selectors import Matchers, match_any, write_selector
from gpusteward.logs import Log

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


class SeriesSet(NamedTuple):
    """The series that queries select."""

    metric: str
    matchers: Matchers

    @property
    def selector(self) -> str:
        return write_selector(self.metric, self.matchers)


class Shards:
    """The shards of each set of series. Sets far below the limit are counted once, until `expire`."""

    def __init__(self, window_seconds: float) -> None:
        self._look_back_seconds = max(window_seconds, _INDEX_SECONDS)
        self._unsharded: set[SeriesSet] = set()
        self._with_unlabelled: set[SeriesSet] = set()  # sets with series that have no node label

    def expire(self) -> None:
        self._unsharded.clear()

    def divide(
        self, engine: Engine, series: SeriesSet, label: str, *, at: float, limit: int, known_rows: int
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
        self, engine: Engine, series: SeriesSet, label: str, *, at: float, limit: int
    ) -> Sequence[Matchers]:
        try:
            counted = decode_vector(engine.query(f"count({series.selector})", at))
            if not len(counted) or not counted.values[0] > limit:
                return UNSHARDED
            sizes = _count_by(engine, series.selector, label, at) if label else {}
            if "" in sizes:
                self._with_unlabelled.add(series)
        except LimitError:
            sizes = {"": 0.0}  # whether there are series without the label is unknown, so they are queried
        sizes = {**self._list_nodes(engine, series, label, at), **sizes} if label else {}
        if not any(sizes):
            log.warning("series_not_divided", limit=limit, reason=f"no {label or 'node label'} to divide them by")
            return UNSHARDED
        return [(match_any(label, names),) for names in group(sorted(sizes.items()), limit)]

    def _list_nodes(self, engine: Engine, series: SeriesSet, label: str, at: float) -> dict[str, float]:
        """All nodes in the engine's index, also those that report nothing now or could not be counted: left out of all
        shards, their rows would vanish."""
        span = (("start", f"{at - self._look_back_seconds:.3f}"), ("end", f"{at:.3f}"))
        fields = (("match[]", series.selector), *span)
        names = decode_names(engine.fetch(f"/api/v1/label/{label}/values", fields, use_get=True))
        unlabelled = [""] if series in self._with_unlabelled else []
        return dict.fromkeys((*names, *unlabelled), _USUAL_GPUS)


def _count_by(engine: Engine, selector: str, label: str, at: float) -> dict[str, float]:
    counts = decode_vector(engine.query(f"count by ({label}) ({selector})", at))
    names = (decode_labels(text).get(label, "") for text in counts.labels)
    return dict(zip(names, counts.values.tolist(), strict=True))


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
