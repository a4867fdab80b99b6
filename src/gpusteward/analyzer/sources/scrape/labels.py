"""What is between the braces of a line."""

import re

_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n"}


def parse_labels(text: bytes) -> dict[str, str]:
    """`a="b",c="d"` -> a mapping. Raises ValueError for anything else."""
    inside = text.decode("utf-8").strip()
    labels: dict[str, str] = {}
    place = 0
    while place < len(inside):
        match = _LABEL.match(inside, place)
        if match is None:
            raise ValueError("labels cannot be read")
        value = match[2]
        labels[match[1]] = _ESCAPE.sub(_unescape, value) if "\\" in value else value
        place = match.end()
    return labels


def _unescape(found: re.Match[str]) -> str:
    return _ESCAPED.get(found[1], found[1])
