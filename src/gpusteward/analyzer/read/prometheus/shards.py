"""More series than one query may touch: the work is cut into groups of nodes."""

from collections.abc import Iterator, Sequence

from gpusteward.analyzer.read.prometheus.client import Engine
from gpusteward.analyzer.read.prometheus.decode import decode_labels, decode_vector
from gpusteward.analyzer.read.prometheus.matchers import Matchers, match_any, write_selector
from gpusteward.analyzer.read.prometheus.plan import SidePlan
from gpusteward.logs import Log

log = Log(__name__)

WHOLE: Sequence[Matchers] = ((),)


def cut(engine: Engine, side: SidePlan, *, at: float, limit: int) -> Sequence[Matchers]:
    """Conditions that divide the series of one side; one empty condition where they fit. Raises SourceError."""
    selector = write_selector(side.metric, side.matchers)
    counted = decode_vector(engine.query(f"count({selector})", at))
    if not len(counted) or not counted.values[0] > limit:
        return WHOLE
    label = side.spelling.node or side.spelling.namespace
    if not label:
        log.warning("series_not_divided", series=int(counted.values[0]), limit=limit, reason="no node label")
        return WHOLE
    by_node = decode_vector(engine.query(f"count by ({label}) ({selector})", at))
    sizes = [
        (decode_labels(text).get(label, ""), count)
        for text, count in zip(by_node.labels, by_node.values.tolist(), strict=True)
    ]
    return [(match_any(label, names),) for names in group(sorted(sizes), limit)]


def group(sizes: Sequence[tuple[str, float]], limit: int) -> Iterator[list[str]]:
    """Neighbours together, each group within the limit; what alone is larger stands alone."""
    names: list[str] = []
    total = 0.0
    for name, size in sizes:
        if names and total + size > limit:
            yield names
            names, total = [], 0.0
        names.append(name)
        total += size
    if names:
        yield names
