"""More series than one query may touch: the work is cut into groups of nodes."""

from collections.abc import Iterator, Sequence

from gpusteward.analyzer.sources.engine.client import Engine, LimitError
from gpusteward.analyzer.sources.engine.decode import decode_labels, decode_names, decode_vector
from gpusteward.analyzer.sources.promql.matchers import Matchers, match_any, write_selector
from gpusteward.analyzer.sources.promql.plan import SidePlan
from gpusteward.logs import Log

log = Log(__name__)

WHOLE: Sequence[Matchers] = ((),)
_FAR = 2
"""A site does not double between two looks."""
SMALLEST_SHARD = 500
_SHRINK = 4
_GROW = 2
_USUAL_GPUS = 8.0
"""Of a node that could not be counted."""
_INDEX_SECONDS = 3600.0


class SeriesLimit:
    """How many series one query may select: as set, or less if the engine refuses so many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.now = most

    def lower(self, selected: int) -> bool:
        """The engine refused a query over so many, or up to the limit if they were more. False if it cannot be less."""
        if self.now <= SMALLEST_SHARD:
            return False
        self.now = max(min(self.now, max(selected, self.now // _SHRINK)) // _SHRINK, SMALLEST_SHARD)
        log.warning("series_limit_lowered", limit=self.now, reason="the engine refused larger queries")
        return True

    def rise(self) -> None:
        """An engine that was short of memory may have more by now."""
        self.now = min(self._most, self.now * _GROW)


class Shards:
    """The groups of nodes of each side. What fits by far is counted once only, until somebody says otherwise."""

    def __init__(self, window_seconds: float) -> None:
        self._look_back_seconds = max(window_seconds, _INDEX_SECONDS)
        self._whole: set[tuple[str, Matchers]] = set()
        self._nameless: set[tuple[str, Matchers]] = set()  # sides with series that no node is named of

    def expire(self) -> None:
        self._whole.clear()

    def cut(self, engine: Engine, side: SidePlan, *, at: float, limit: int, known: int) -> Sequence[Matchers]:
        """Conditions that divide the series of one side; one empty condition where they fit. `known`: so many rows of
        this side were seen up to now. Raises SourceError."""
        key = (side.metric, side.matchers)
        if key in self._whole and known <= limit / _FAR:
            return WHOLE
        groups = self._divide(engine, side, at=at, limit=limit)
        if groups is WHOLE:
            self._whole.add(key)
        return groups

    def _divide(self, engine: Engine, side: SidePlan, *, at: float, limit: int) -> Sequence[Matchers]:
        selector = write_selector(side.metric, side.matchers)
        label = side.spelling.node or side.spelling.namespace
        try:
            counted = decode_vector(engine.query(f"count({selector})", at))
            if not len(counted) or not counted.values[0] > limit:
                return WHOLE
            sizes = _count_by(engine, selector, label, at) if label else {}
            if "" in sizes:
                self._nameless.add((side.metric, side.matchers))
        except LimitError:
            sizes = {"": 0.0}  # nobody knows, so they are asked for
        sizes = {**self._list_others(engine, side, selector, label, at), **sizes} if label else {}
        if not any(sizes):
            log.warning("series_not_divided", limit=limit, reason=f"no {label or 'node label'} to divide them by")
            return WHOLE
        return [(match_any(label, names),) for names in group(sorted(sizes.items()), limit)]

    def _list_others(self, engine: Engine, side: SidePlan, selector: str, label: str, at: float) -> dict[str, float]:
        """Nodes that are silent now, or could not be counted: the engine's index knows them. Left out of all groups,
        their rows would vanish."""
        span = (("start", f"{at - self._look_back_seconds:.3f}"), ("end", f"{at:.3f}"))
        fields = (("match[]", selector), *span)
        names = decode_names(engine.fetch(f"/api/v1/label/{label}/values", fields, is_read_by_get=True))
        nameless = [""] if (side.metric, side.matchers) in self._nameless else []
        return dict.fromkeys((*names, *nameless), _USUAL_GPUS)


def _count_by(engine: Engine, selector: str, label: str, at: float) -> dict[str, float]:
    counts = decode_vector(engine.query(f"count by ({label}) ({selector})", at))
    names = (decode_labels(text).get(label, "") for text in counts.labels)
    return dict(zip(names, counts.values.tolist(), strict=True))


def group(sizes: Sequence[tuple[str, float]], limit: int) -> Iterator[list[str]]:
    """Neighbours together, each group within the limit; what alone is larger stands alone."""
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
