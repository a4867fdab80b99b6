"""Rows as a table, JSON or CSV, and a progress bar.

On a terminal a table is coloured and fits its width. Elsewhere it is plain text of any width, for grep and awk.
NO_COLOR is honoured. rich is loaded only where it is needed.
"""

import csv
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TextIO

from gpusteward.cli.output.terminal_text import STYLES, clean, escape_controls, fit, measure
from gpusteward.core.messages import Language, Message

if TYPE_CHECKING:
    from rich.console import Console

Advance = Callable[[int, int], None]
"""Called with the number of steps done, and of all steps."""
LINE_SECONDS = 10
"""How often a log, for example that of a Job, gets a line about work that takes long."""


def open_console(out: TextIO, *, width: int | None = None) -> "Console":
    """Raises ModuleNotFoundError if rich is not installed."""
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            """Handled by `main`; rich would exit with 1. Raises BrokenPipeError."""
            raise BrokenPipeError

    return PipeConsole(file=out, highlight=False, width=width)


@contextmanager
def show_progress(title: str, *, without_terminal: str = "") -> Iterator[Advance]:
    """A bar on standard error if that is a terminal, removed at the end.

    `without_terminal`: a line to print instead, and again with the steps done while the work goes on.
    """
    if not (sys.stderr.isatty() and find_spec("rich")):
        yield _print_lines(without_terminal) if without_terminal else lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _print_lines(text: str) -> Advance:
    print(text, file=sys.stderr, flush=True)
    printed_at = time.monotonic()

    def advance(done: int, total: int) -> None:
        nonlocal printed_at
        if time.monotonic() - printed_at >= LINE_SECONDS:
            print(f"{text} {done}/{total}", file=sys.stderr, flush=True)
            printed_at = time.monotonic()

    return advance


Cells = Mapping[str, object]


GAP = 2  # between columns
INDENT = 2  # of values below a name
KEPT = 9  # priority of columns that are never left out


def dash(value: object) -> str:
    """An unknown value is a dash."""
    return "-" if value in (None, "") else str(value)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    key: str
    title: Message
    show: Callable[[Any], str] = dash  # value -> text
    to_right: bool = False
    is_styled: bool = False  # coloured by its value, see STYLES
    is_flexible: bool = False  # wrapped if the terminal is too narrow
    stands_alone: bool = False  # on a line of its own if the terminal is too narrow, so that it is never broken
    priority: int = 9  # beside a column that stands alone, low ones are left out if the terminal is too narrow


def write_rows(
    rows: Sequence[Cells],
    columns: Sequence[Column],
    *,
    keys: Sequence[str],
    output: str,
    language: Language = "en",
    out: TextIO | None = None,
    total: Cells | None = None,
) -> None:
    """`output` is `table`, which has the columns, or `json` or `csv`, which have the keys. `total`: the last line of a
    table."""
    out = out or sys.stdout
    if output == "json":
        write_json([{key: row.get(key) for key in keys} for row in rows], out)
    elif output == "csv":
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(keys)
        writer.writerows([_csv_cell(row.get(key)) for key in keys] for row in rows)
    elif out.isatty() and find_spec("rich"):
        _write_rich(rows, columns, language=language, out=out, total=total)
    else:
        _write_plain([*rows, *([total] if total else ())], columns, language=language, out=out)


def write_json(value: object, out: TextIO | None = None) -> None:
    """Indented, Chinese not escaped, control characters escaped."""
    print(escape_controls(json.dumps(value, indent=2, ensure_ascii=False)), file=out or sys.stdout)


def _csv_cell(value: object) -> object:
    """Text that a spreadsheet would interpret as a formula is marked as text."""
    if value is None:
        return ""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    text = clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) and len(text) > 1 else text


def _format_cell(row: Cells, column: Column) -> str:
    return clean(column.show(row.get(column.key)))


def _style(row: Cells, column: Column) -> str:
    """Depends on the value, not on its translation."""
    return STYLES.get(str(row.get(column.key)), "") if column.is_styled else ""


def _write_plain(rows: Sequence[Cells], columns: Sequence[Column], *, language: Language, out: TextIO) -> None:
    lines = [[column.title.text(language).upper() for column in columns]]
    lines += [[_format_cell(row, column) for column in columns] for row in rows]
    widths = [max(map(measure, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        cells = [
            fit(cell, width, to_right=column.to_right)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ]
        print("  ".join(cells).rstrip(), file=out)


def _write_rich(
    rows: Sequence[Cells], columns: Sequence[Column], *, language: Language, out: TextIO, total: Cells | None
) -> None:
    from rich.table import Table
    from rich.text import Text

    console, lines = open_console(out), [*rows, *([total] if total else ())]
    if any(column.stands_alone for column in columns) and _width(lines, columns, language) > console.width:
        _write_stacked(lines, columns, language=language, console=console)
        return
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        title = Text(column.title.text(language).upper())
        table.add_column(
            title,
            justify="right" if column.to_right else "left",
            overflow="fold",
            no_wrap=not column.is_flexible,
            min_width=16 if column.is_flexible else None,
        )
    for row in lines:
        style = "bold" if row is total else ""
        table.add_row(*(Text(_format_cell(row, column), style=_style(row, column)) for column in columns), style=style)
    console.print(table)


def _width(rows: Sequence[Cells], columns: Sequence[Column], language: Language) -> int:
    return sum(_column_width(rows, column, language) + GAP for column in columns) - GAP


def _column_width(rows: Sequence[Cells], column: Column, language: Language) -> int:
    cells = [column.title.text(language), *(_format_cell(row, column) for row in rows)]
    return max(map(measure, cells))


def _write_stacked(rows: Sequence[Cells], columns: Sequence[Column], *, language: Language, console: "Console") -> None:
    """The name of a row on a line of its own, its other values below: a name is never broken, and can be pasted."""
    from rich.text import Text

    names = [column for column in columns if column.stands_alone]
    others = [column for column in columns if not column.stands_alone]
    while _width(rows, others, language) + INDENT > console.width and any(one.priority < KEPT for one in others):
        others.remove(min(others, key=lambda column: column.priority))
    widths = [_column_width(rows, column, language) for column in others]
    titles = [
        fit(column.title.text(language).upper(), width, to_right=column.to_right)
        for column, width in zip(others, widths, strict=True)
    ]
    for column in names:
        console.print(Text(column.title.text(language).upper(), style="bold"), soft_wrap=True)
    console.print(Text(" " * INDENT + (" " * GAP).join(titles), style="bold"), soft_wrap=True)
    for row in rows:
        for column in names:
            console.print(Text(_format_cell(row, column)), soft_wrap=True)
        line = Text(" " * INDENT)
        for column, width in zip(others, widths, strict=True):
            line.append(fit(_format_cell(row, column), width, to_right=column.to_right), style=_style(row, column))
            line.append(" " * GAP)
        line.rstrip()
        console.print(line, soft_wrap=True)
