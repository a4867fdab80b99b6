"""Text -> value, for settings: each function takes what a person wrote, or raises ValueError with what is allowed.

The message goes on where the written text ends: `'94o0' is not an address: write ...`.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from gpusteward.core.did_you_mean import suggest


class ListenAddress(NamedTuple):
    """Where to listen; an empty host is every address of this machine, port 0 is any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class ConfigMapName(NamedTuple):
    """A ConfigMap and the namespace it is in."""

    namespace: str
    name: str


_ADDRESS = re.compile(r"(?:(?:\[(?P<six>[0-9a-fA-F:.%]+)\]|(?P<host>[^\[\]:/\s]*)):)?(?P<port>[0-9]{1,5})")
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?(?:ms|us|µs|ns|s|m|h))+")
_DURATION_PART = re.compile(r"([0-9.]+)(ms|us|µs|ns|s|m|h)")
_DURATION_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_SWITCHES = {"true": True, "t": True, "1": True, "yes": True} | {"false": False, "f": False, "0": False, "no": False}


def parse_address(text: str) -> ListenAddress:
    """`9400`, `:9400`, `0.0.0.0:9400`, `[::1]:9400`, `host:9400`."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or int(match["port"]) > 65535:
        raise ValueError("is not an address: write PORT, :PORT, HOST:PORT or [IPV6]:PORT, with a port up to 65535")
    return ListenAddress(match["six"] or match["host"] or "", int(match["port"]))


def parse_switch(text: str) -> bool:
    try:
        return _SWITCHES[text.strip().lower()]
    except KeyError:
        raise ValueError("is neither true nor false (1/0 and yes/no are understood too)") from None


def parse_duration(text: str) -> float:
    """A Go duration (`10s`, `1m30s`, `500ms`) in seconds."""
    if not _DURATION.fullmatch(text.strip()):
        raise ValueError("is not a duration: write a number with its unit, such as 10s, 1m30s or 500ms")
    seconds = sum(float(number) * _DURATION_UNITS[unit] for number, unit in _DURATION_PART.findall(text))
    if seconds <= 0:
        raise ValueError("is no time at all: a duration here must be longer than 0")
    return seconds


def parse_collect_interval(text: str) -> float:
    """Milliseconds, as dcgm-exporter counts, in seconds."""
    milliseconds = number_between(0, 600_000, unit="milliseconds")(text)
    if milliseconds < 500:
        # People write seconds here and then pay for a loop that never rests.
        raise ValueError(
            f"is in milliseconds and below 500: for {text.strip()} seconds write {milliseconds * 1000:.0f}, "
            f"or use --interval {text.strip()}"
        )
    return milliseconds / 1000


def parse_configmap(text: str) -> ConfigMapName | None:
    if text.strip() in ("", "none"):
        return None
    namespace, _, name = text.strip().partition(":")
    if not namespace or not name or ":" in name:
        raise ValueError("does not name a ConfigMap: write NAMESPACE:NAME, or none")
    return ConfigMapName(namespace, name)


def parse_url(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s/]+(/\S*)?", text.strip()):
        raise ValueError("is not a URL: write http://HOST:PORT or https://HOST:PORT")
    return text.strip().rstrip("/")


def parse_list(text: str) -> tuple[str, ...]:
    """`a, b` -> ("a", "b")."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def parse_lines(text: str) -> tuple[str, ...]:
    """`a; b` -> ("a", "b"), for parts that may hold commas."""
    return tuple(part.strip() for part in text.split(";") if part.strip())


def parse_patterns(text: str) -> tuple[re.Pattern[str], ...]:
    return tuple(_compile(pattern) for pattern in parse_list(text))


def _compile(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"holds {pattern!r}, which is not a regular expression: {error}") from error


def one_of(*allowed: str) -> Callable[[str], str]:
    """A parser for these words; their case matters only where two differ in nothing else."""
    words = {word.lower(): word for word in allowed} | {word: word for word in allowed}

    def parse(text: str) -> str:
        word = text.strip()
        try:
            return words.get(word) or words[word.lower()]
        except KeyError:
            raise ValueError(f"is not one of {', '.join(allowed)}{suggest(text, allowed)}") from None

    return parse


def some_of(*allowed: str) -> Callable[[str], tuple[str, ...]]:
    """A parser for a comma list of at least one of these words."""
    parse_one = one_of(*allowed)

    def parse(text: str) -> tuple[str, ...]:
        chosen = tuple(dict.fromkeys(parse_one(part) for part in parse_list(text)))
        if not chosen:
            raise ValueError(f"names nothing: write one or more of {', '.join(allowed)}")
        return chosen

    return parse


def number_between(low: float, high: float, *, unit: str) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            raise ValueError(f"is not a number of {unit}") from None
        if not low <= number <= high:
            raise ValueError(f"is out of bounds: {low:g} to {high:g} {unit}")
        return number

    return parse


def whole_between(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ValueError("is not a whole number") from None
        if not low <= number <= high:
            raise ValueError(f"is out of bounds: {low} to {high}")
        return number

    return parse
