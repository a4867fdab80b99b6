"""A course as a line of blocks. What was not seen is a blank: never a low block."""

from collections.abc import Sequence
from itertools import pairwise

BLOCKS = "▁▂▃▄▅▆▇█"
GAP = " "


def draw(
    points: Sequence[tuple[float, float]], *, start: float, end: float, width: int, top: float | None = None
) -> str:
    """One character an interval of time, its height the highest value in it: a short burst is what one looks for.

    Where points are further apart than intervals, the value stands until the next one is due.
    """
    if width <= 0 or end <= start or not points:
        return GAP * max(0, width)
    highest = top or max(value for _, value in points) or 1.0
    columns = _spread(points, start=start, step=(end - start) / width, width=width)
    return "".join(GAP if value is None else _block(value / highest) for value in columns)


def _spread(points: Sequence[tuple[float, float]], *, start: float, step: float, width: int) -> list[float | None]:
    columns: list[float | None] = [None] * width
    pace = _find_pace(points)
    for moment, value in points:
        first = min(width - 1, _cell(moment - start, step)) if moment <= start + step * width else width
        last = max(first, _cell(moment + pace - start, step) - 1)
        for number in range(max(0, first), min(width, last + 1)):
            before = columns[number]
            columns[number] = value if before is None else max(before, value)
    return columns


def _cell(seconds: float, step: float) -> int:
    """Moments of today have seven digits behind the point: what should be a border must not fall short of it."""
    return int(seconds / step + 1e-5)


def _find_pace(points: Sequence[tuple[float, float]]) -> float:
    """The usual distance of two points: the middle one, so that gaps do not count."""
    distances = sorted(after[0] - before[0] for before, after in pairwise(points))
    return distances[len(distances) // 2] if distances else 0.0


def _block(ratio: float) -> str:
    return BLOCKS[min(len(BLOCKS) - 1, max(0, int(ratio * len(BLOCKS))))]
