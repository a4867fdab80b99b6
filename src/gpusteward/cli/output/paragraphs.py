"""Titles, facts and bullets, wrapped to the width of the terminal and coloured if it has colours."""

import os
import shutil
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple, TextIO

from gpusteward.cli.output.formats import STYLES
from gpusteward.cli.output.terminal_text import clean, fit, measure, wrap

WIDTH = 100  # without a terminal
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "magenta": "35"}


class Line(NamedTuple):
    """One line: a title, a fact with its name, or a bullet."""

    text: str
    name: str = ""
    word: str = ""  # selects the colour, such as `idle`
    indent: int = 0
    is_title: bool = False
    is_bullet: bool = False


class WrappedLine(NamedTuple):
    """A line of output."""

    lead: str  # indentation, bullet or name
    text: str
    style: str


def wrap_lines(lines: Iterable[Line], *, width: int) -> Iterator[WrappedLine]:
    """Names of consecutive facts form a column; their texts are wrapped beside it."""
    for has_name, block in groupby(lines, key=lambda line: bool(line.name)):
        together = list(block)
        names = max(measure(line.name) for line in together) if has_name else 0
        for line in together:
            yield from _wrap_line(line, names=names, width=width)


def _wrap_line(line: Line, *, names: int, width: int) -> Iterator[WrappedLine]:
    lead = " " * line.indent + ("* " if line.is_bullet else fit(line.name, names) + "  " if line.name else "")
    style = "bold" if line.is_title else STYLES.get(line.word, "")
    for piece in list(wrap(clean(line.text), max(20, width - measure(lead)))) or [""]:
        yield WrappedLine(lead, piece, style)
        lead = " " * measure(lead)


def write_paragraphs(lines: Iterable[Line], out: TextIO) -> None:
    is_terminal = out.isatty()
    width = min(shutil.get_terminal_size((WIDTH, 24)).columns, 120) if is_terminal else WIDTH
    is_coloured = is_terminal and has_colours()
    for lead, text, style in wrap_lines(lines, width=width):
        print((lead + (_paint(text, style) if is_coloured else text)).rstrip(), file=out)


def has_colours() -> bool:
    """See no-color.org."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def _paint(text: str, style: str) -> str:
    codes = ";".join(_CODES[word] for word in style.split() if word in _CODES)
    return f"\x1b[{codes}m{text}\x1b[0m" if codes else text
