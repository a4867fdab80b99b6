"""Text from outside made safe for a terminal, such as names of pods and processes.

Characters that move the cursor, change colours or the direction of writing are replaced. Width is measured in terminal
cells: a Chinese character takes two.
"""

import re
import unicodedata
from collections.abc import Iterator

from gpusteward import control_characters

ELLIPSIS = "…"


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
    tail = _take_last(text, max(0, width - 1) // 2)
    return cut(text, width - measure(tail)) + tail


def _take_last(text: str, width: int) -> str:
    """The last characters that fit."""
    begin = len(text)
    while begin and measure(text[begin - 1 :]) <= width:
        begin -= 1
    return text[begin:]


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
