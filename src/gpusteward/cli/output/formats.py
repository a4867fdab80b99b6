"""Rows for people and for programs: a table, JSON, CSV.

A table has colours and fits the window where standard output is a terminal that shows them; elsewhere it is plain text
of the width it needs, for grep and awk. NO_COLOR is honoured.
"""

import csv
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, TextIO

from gpusteward.cli.output.terminal_text import clean, escape_unfit, fit, measure
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
    """Text as it is; what is not known is a dash."""
    return "-" if value in (None, "") else str(value)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: the key of its value, its title, and how the value is written for people."""

    key: str
    title: Message
    show: Callable[[Any], str] = dash
    to_right: bool = False
    is_styled: bool = False  # coloured by the word of its value
    is_flexible: bool = False  # folded where a window is too narrow for all


def write_rows(
    rows: Sequence[Cells],
    columns: Sequence[Column],
    *,
    keys: Sequence[str],
    output: str,
    language: Language = "en",
    out: TextIO | None = None,
) -> None:
    """Print rows as asked for: `table` has the columns, `json` and `csv` have the keys."""
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
    """Indented, Chinese as it is; nothing in it can move a cursor."""
    print(escape_unfit(json.dumps(value, indent=2, ensure_ascii=False)), file=out or sys.stdout)


def _write_csv(rows: Sequence[Cells], keys: Sequence[str], out: TextIO) -> None:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(keys)
    for row in rows:
        writer.writerow([_csv_cell(row.get(key)) for key in keys])


def _csv_cell(value: object) -> object:
    """A text that a spreadsheet would take for a formula is marked as text."""
    if value is None:
        return ""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    text = clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) and len(text) > 1 else text


def _shown(row: Cells, column: Column) -> str:
    return clean(column.show(row.get(column.key)))


def _style(row: Cells, column: Column) -> str:
    """By the word itself, whatever language it is shown in."""
    return STYLES.get(str(row.get(column.key)), "") if column.is_styled else ""


def _write_plain(rows: Sequence[Cells], columns: Sequence[Column], *, language: Language, out: TextIO) -> None:
    lines = [[column.title.text(language).upper() for column in columns]]
    lines += [[_shown(row, column) for column in columns] for row in rows]
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

    from gpusteward.cli.output.consoles import PrintingConsole

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
        table.add_row(*(Text(_shown(row, column), style=_style(row, column)) for column in columns))
    PrintingConsole(file=out, highlight=False).print(table)
