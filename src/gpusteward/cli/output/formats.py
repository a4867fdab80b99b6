"""Rows as a table, JSON or CSV.

On a terminal a table is coloured and fits its width. Elsewhere it is plain text of any width, for grep and awk.
NO_COLOR is honoured.
"""

import csv
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, TextIO

from gpusteward.cli.output.console import open_console
from gpusteward.cli.output.terminal_text import clean, escape_controls, fit, measure
from gpusteward.core.messages import Language, Message

Cells = Mapping[str, object]
STYLES: Mapping[str, str] = {
    "idle": "yellow",
    "unknown": "magenta",
    "active": "green",
    "high": "green",
    "normal": "green",
    "low": "yellow",
    "ok": "green",
    "warn": "yellow",
    "fail": "bold red",
    "skip": "dim",
    "suspicious": "magenta",
}


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


def write_rows(
    rows: Sequence[Cells],
    columns: Sequence[Column],
    *,
    keys: Sequence[str],
    output: str,
    language: Language = "en",
    out: TextIO | None = None,
) -> None:
    """`output` is `table`, which has the columns, or `json` or `csv`, which have the keys."""
    out = out or sys.stdout
    if output == "json":
        write_json([{key: row.get(key) for key in keys} for row in rows], out)
    elif output == "csv":
        _write_csv(rows, keys, out)
    elif out.isatty() and find_spec("rich"):
        _write_rich(rows, columns, language=language, out=out)
    else:
        _write_plain(rows, columns, language=language, out=out)


def write_json(value: object, out: TextIO | None = None) -> None:
    """Indented, Chinese not escaped, control characters escaped."""
    print(escape_controls(json.dumps(value, indent=2, ensure_ascii=False)), file=out or sys.stdout)


def _write_csv(rows: Sequence[Cells], keys: Sequence[str], out: TextIO) -> None:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(keys)
    for row in rows:
        writer.writerow([_csv_cell(row.get(key)) for key in keys])


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
    widths = [max(measure(line[number]) for line in lines) for number in range(len(columns))]
    for line in lines:
        cells = [
            fit(cell, width, to_right=column.to_right)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ]
        print("  ".join(cells).rstrip(), file=out)


def _write_rich(rows: Sequence[Cells], columns: Sequence[Column], *, language: Language, out: TextIO) -> None:
    from rich.table import Table
    from rich.text import Text

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
    for row in rows:
        table.add_row(*(Text(_format_cell(row, column), style=_style(row, column)) for column in columns))
    open_console(out).print(table)
