"""Text for a terminal. Text from outside, such as names of pods and processes, is made safe.

Characters that move the cursor, change colours or the direction of writing are replaced. Width is measured in terminal
cells: a Chinese character takes two. Paragraphs are titles, facts and bullets, wrapped to the width of the terminal and
coloured if it has colours.
"""

import os
import re
import shutil
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple, TextIO

from gpusteward import control_characters

ELLIPSIS = "…"
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
    "suspicious": "bold magenta",
}


def clean(text: str) -> str:
    """With a replacement character for every control character."""
    return control_characters.replace_controls(text)


def escape_controls(text: str) -> str:
    """JSON with control characters escaped; its value stays the same."""
    return control_characters.escape_controls(text, keep="\n")


def measure(text: str) -> int:
    """Width in terminal cells."""
    return sum(_measure_one(one) for one in text)


def _measure_one(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fit(text: str, width: int, *, to_right: bool = False) -> str:
    """Exactly `width` cells: padded, or cut with an ellipsis."""
    missing = width - measure(text)
    if missing < 0:
        text = cut(text, width)
        missing = width - measure(text)
    return " " * missing + text if to_right else text + " " * missing


def cut(text: str, width: int) -> str:
    """At most `width` cells, with an ellipsis at the end."""
    if measure(text) <= width:
        return text
    kept, used = [], 0
    for character in text:
        used += _measure_one(character)
        if used > width - 1:
            break
        kept.append(character)
    return "".join(kept) + ELLIPSIS[: max(width, 0)]


def cut_middle(text: str, width: int) -> str:
    """At most `width` cells, with an ellipsis in the middle: similar names often differ at their end."""
    if measure(text) <= width:
        return text
    begin = len(text)
    while begin and measure(text[begin - 1 :]) <= max(0, width - 1) // 2:
        begin -= 1
    return cut(text, width - measure(text[begin:])) + text[begin:]


def wrap(text: str, width: int) -> Iterator[str]:
    """Lines of at most `width` cells, broken at blanks if possible."""
    line = ""
    for word in _pieces(text, width):
        if line and measure(line) + measure(word.rstrip()) > width:
            yield line.rstrip()
            line = ""
        line += word
    if line.strip():
        yield line.rstrip()


def _pieces(text: str, width: int) -> Iterator[str]:
    """Words with the following blank. Chinese and words that are too long may break anywhere."""
    for word in re.findall(r"\S+\s*", text):
        if measure(word.rstrip()) <= width and word.isascii():
            yield word
        else:
            yield from word


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
            lead = " " * line.indent + ("* " if line.is_bullet else fit(line.name, names) + "  " if line.name else "")
            style = "bold" if line.is_title else STYLES.get(line.word, "")
            for piece in list(wrap(clean(line.text), max(20, width - measure(lead)))) or [""]:
                yield WrappedLine(lead, piece, style)
                lead = " " * measure(lead)


def write_paragraphs(lines: Iterable[Line], out: TextIO) -> None:
    is_terminal = out.isatty()
    width = min(shutil.get_terminal_size((WIDTH, 24)).columns, 120) if is_terminal else WIDTH
    # See no-color.org.
    is_coloured = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
    for lead, text, style in wrap_lines(lines, width=width):
        codes = ";".join(_CODES[word] for word in style.split() if word in _CODES) if is_coloured else ""
        print((lead + (f"\x1b[{codes}m{text}\x1b[0m" if codes else text)).rstrip(), file=out)
