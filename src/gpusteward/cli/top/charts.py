"""Time series as a line of block characters. Time without data is blank, never a low block."""

from collections.abc import Sequence
from itertools import pairwise

BLOCKS = "▁▂▃▄▅▆▇█"
GAP = " "


def draw_sparkline(
    points: Sequence[tuple[float, float]], *, start: float, end: float, width: int, top: float | None = None
) -> str:
    """One character per interval, with the height of the highest value in it, so that short bursts are seen.

    If points are further apart than intervals, a value lasts until the next one is due.
    """
    if width <= 0 or end <= start or not points:
        return GAP * max(0, width)
    highest = top or max(value for _, value in points) or 1.0
    columns = _fill_columns(points, start=start, step=(end - start) / width, width=width)
    return "".join(GAP if value is None else _block(value / highest) for value in columns)


def _fill_columns(
    points: Sequence[tuple[float, float]], *, start: float, step: float, width: int
) -> list[float | None]:
    columns: list[float | None] = [None] * width
    distance = _find_usual_distance(points)
    for at, value in points:
        first = min(width - 1, _find_column(at - start, step)) if at <= start + step * width else width
        last = max(first, _find_column(at + distance - start, step) - 1)
        for number in range(max(0, first), min(width, last + 1)):
            before = columns[number]
            columns[number] = value if before is None else max(before, value)
    return columns


def _find_column(seconds: float, step: float) -> int:
    """Unix seconds have about seven digits after the point: a value on a border must not fall below it."""
    return int(seconds / step + 1e-5)


def _find_usual_distance(points: Sequence[tuple[float, float]]) -> float:
    """The median, so that gaps do not count."""
    distances = sorted(after[0] - before[0] for before, after in pairwise(points))
    return distances[len(distances) // 2] if distances else 0.0


def _block(ratio: float) -> str:
    return BLOCKS[min(len(BLOCKS) - 1, max(0, int(ratio * len(BLOCKS))))]
