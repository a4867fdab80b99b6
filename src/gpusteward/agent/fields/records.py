"""Text -> records, by the rules dcgm-exporter reads its CSV with, so that a file means the same to both.

Those are the rules of Go's `encoding/csv`, which Python's reader does not share: a comment has its `#` in the very
first column, a quote may stand only around a whole cell, and nothing is trimmed but blanks.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Record:
    """One row: the line it begins on, and its cells, or why it has none."""

    line: int
    cells: tuple[str, ...] = ()
    fault: str = ""


def read_records(text: str) -> Iterator[Record]:
    """Every row that is neither a comment nor empty."""
    lines = text.replace("\r\n", "\n").removesuffix("\r").split("\n")
    number = 0
    while number < len(lines):
        first, used = number, 1
        if lines[first] and not lines[first].startswith("#"):
            record, used = _read_record(lines, first)
            yield record
        number += used


def _read_record(lines: list[str], first: int) -> tuple[Record, int]:
    """The row that begins on this line, and how many lines it takes: a quoted cell may hold line breaks."""
    cells: list[str] = []
    rest, last = lines[first], first
    while True:
        if rest.startswith('"'):
            cell, rest, last, fault = _read_quoted(lines, rest[1:], last)
        else:
            cell, comma, after = rest.partition(",")
            fault = _BARE_QUOTE if '"' in cell else ""
            rest = comma + after
        if fault:
            return Record(first + 1, fault=fault), last - first + 1
        cells.append(cell.strip(" "))
        if not rest:
            return Record(first + 1, tuple(cells)), last - first + 1
        rest = rest[1:]


def _read_quoted(lines: list[str], rest: str, last: int) -> tuple[str, str, int, str]:
    """What is inside the quotes, what follows them, the line they end on, and what is wrong with them."""
    cell = ""
    while True:
        inside, quote, rest = rest.partition('"')
        cell += inside
        if quote and rest.startswith('"'):
            cell, rest = cell + '"', rest[1:]
        elif quote:
            return cell, rest, last, "" if not rest or rest.startswith(",") else _TEXT_AFTER_QUOTE
        elif last + 1 == len(lines):
            return cell, "", last, _OPEN_QUOTE
        else:
            last += 1
            cell, rest = cell + "\n", lines[last]


_BARE_QUOTE = 'a quote inside a cell; quote the whole cell, right after the comma, and double quotes inside it ("")'
_TEXT_AFTER_QUOTE = "text after the closing quote; a quoted cell must end at a comma or at the end of the line"
_OPEN_QUOTE = "a quote that is never closed"
