"""Label matchers and series selectors (`metric{pod!=""}`): parsed, combined and written."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gpusteward.core.errors import ConfigurationError
from gpusteward.messages.errors import engine_errors


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition on one label."""

    label: str
    operator: str  # = != =~ !~
    value: str

    def __str__(self) -> str:
        return f"{self.label}{self.operator}{quote(self.value)}"


Matchers = tuple[Matcher, ...]

_MATCHER = re.compile(
    r"""\s*(?P<label>[a-zA-Z_][a-zA-Z0-9_]*)\s*(?P<operator>=~|!~|!=|=)\s*
        (?P<value>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)\s*(?:,|$)""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


def parse_condition(text: str) -> Matchers:
    """`{a="b", c!~"d"}`, with or without the braces; empty is no condition. Raises ConfigurationError."""
    inside = text.strip()
    if inside.startswith("{") and inside.endswith("}"):
        inside = inside[1:-1].strip()
    matchers: list[Matcher] = []
    position = 0
    while position < len(inside):
        match = _MATCHER.match(inside, position)
        if match is None:
            raise ConfigurationError(engine_errors.BAD_CONDITION, condition=repr(text), rest=repr(inside[position:]))
        value = match["value"]
        inside_quotes = value[1:-1]
        if value[0] != "`":
            inside_quotes = _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), inside_quotes)
        matchers.append(Matcher(match["label"], match["operator"], inside_quotes))
        position = match.end()
    return tuple(matchers)


def write_selector(metric: str, matchers: Iterable[Matcher]) -> str:
    """`metric{a="b"}`."""
    inside = ",".join(map(str, matchers))
    return f"{metric}{{{inside}}}" if inside else metric


def join_labels(*labels: str) -> str:
    """What stands between the brackets of `by (...)`; empty names are no labels."""
    return ", ".join(filter(None, labels))


def match_any(label: str, values: Iterable[str]) -> Matcher:
    """The label equals one of these values, whatever characters they contain."""
    # In the syntax of Go's regexp; `re.escape` writes escapes that Go refuses.
    return Matcher(label, "=~", "|".join(re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", value) for value in values))


def quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
