"""Titles, lines and bullets for a person to read; wrapped to the window on a terminal, colours where it has them."""

import os
import shutil
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple, TextIO

from gpusteward.cli.output.formats import STYLES
from gpusteward.cli.output.terminal_text import clean, fit, measure, wrap

WIDTH = 100  # where there is no window to fit into
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "magenta": "35"}


class Line(NamedTuple):
    """One line: a title, a fact with its name, or a bullet."""

    text: str
    name: str = ""
    word: str = ""  # colours the text, such as `idle`
    indent: int = 0
    is_title: bool = False
    is_bullet: bool = False


class Laid(NamedTuple):
    """One line as it is printed: what stands before the text, the text, and its style."""

    lead: str
    text: str
    style: str


def lay_out(lines: Iterable[Line], *, width: int) -> Iterator[Laid]:
    """Names of lines that follow each other in one column, texts wrapped beside them."""
    for has_name, block in groupby(lines, key=lambda line: bool(line.name)):
        together = list(block)
        names = max(measure(line.name) for line in together) if has_name else 0
        for line in together:
            yield from _lay_out_one(line, names=names, width=width)


def _lay_out_one(line: Line, *, names: int, width: int) -> Iterator[Laid]:
    lead = " " * line.indent + ("* " if line.is_bullet else fit(line.name, names) + "  " if line.name else "")
    style = "bold" if line.is_title else STYLES.get(line.word, "")
    for piece in list(wrap(clean(line.text), max(20, width - measure(lead)))) or [""]:
        yield Laid(lead, piece, style)
        lead = " " * measure(lead)


def write_paragraphs(lines: Iterable[Line], out: TextIO) -> None:
    is_terminal = out.isatty()
    width = min(shutil.get_terminal_size((WIDTH, 24)).columns, 120) if is_terminal else WIDTH
    is_coloured = is_terminal and has_colours()
    for lead, text, style in lay_out(lines, width=width):
        print((lead + (_paint(text, style) if is_coloured else text)).rstrip(), file=out)


def has_colours() -> bool:
    """See no-color.org."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def _paint(text: str, style: str) -> str:
    codes = ";".join(_CODES[word] for word in style.split() if word in _CODES)
    return f"\x1b[{codes}m{text}\x1b[0m" if codes else text
