"""Text from outside, made fit for a terminal: names of pods and processes are anybody's words.

What moves the cursor, changes colours or turns the direction of writing is replaced; width is counted in cells, where a
Chinese character takes two.
"""

import re
import unicodedata
from collections.abc import Iterator

_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
ELLIPSIS = "…"


def clean(text: str) -> str:
    """The same with a mark in place of everything that is no writing."""
    return _UNFIT.sub("\N{REPLACEMENT CHARACTER}", text)


def escape_unfit(text: str) -> str:
    """For JSON that may land on a terminal: the same value, written in escapes."""
    return _UNFIT.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def measure(text: str) -> int:
    """How many cells of a terminal it takes."""
    return sum(_measure_one(one) for one in text)


def _measure_one(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fit(text: str, width: int, *, to_right: bool = False) -> str:
    """Exactly so many cells: padded, or cut with an ellipsis."""
    missing = width - measure(text)
    if missing < 0:
        text = cut(text, width)
        missing = width - measure(text)
    return " " * missing + text if to_right else text + " " * missing


def cut(text: str, width: int) -> str:
    """At most so many cells, an ellipsis in place of what is left out."""
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
    """At most so many cells, an ellipsis in the middle: names of one family differ at their end."""
    if measure(text) <= width:
        return text
    tail = _take_last(text, max(0, width - 1) // 2)
    return cut(text, width - measure(tail)) + tail


def _take_last(text: str, width: int) -> str:
    """As many of the last characters as fit."""
    begin = len(text)
    while begin and measure(text[begin - 1 :]) <= width:
        begin -= 1
    return text[begin:]


def wrap(text: str, width: int) -> Iterator[str]:
    """Lines of at most so many cells, broken at blanks where there are any."""
    line = ""
    for word in _pieces(text, width):
        if line and measure(line) + measure(word.rstrip()) > width:
            yield line.rstrip()
            line = ""
        line += word
    if line.strip():
        yield line.rstrip()


def _pieces(text: str, width: int) -> Iterator[str]:
    """Words with the blank behind them; Chinese may break anywhere, and so must a word that is too long."""
    for word in re.findall(r"\S+\s*", text):
        if measure(word.rstrip()) <= width and word.isascii():
            yield word
        else:
            yield from word
