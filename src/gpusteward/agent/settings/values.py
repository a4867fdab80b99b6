"""Text -> value, for the settings of the agent: each parser raises InvalidSettingError with what to write instead."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from gpusteward.core.did_you_mean import suggest
from gpusteward.core.settings import InvalidSettingError

_Number = TypeVar("_Number", int, float)


class ConfigMapName(NamedTuple):
    """A ConfigMap and the namespace it is in."""

    namespace: str
    name: str


class Hostengine(NamedTuple):
    """A DCGM hostengine: at a TCP or Unix address, embedded in this process, or the one that is found (`auto`)."""

    kind: Literal["tcp", "unix", "embedded", "auto"]
    address: str = ""  # HOST:PORT or a path

    def __str__(self) -> str:
        return f"unix:{self.address}" if self.kind == "unix" else self.address or self.kind


HOSTENGINE_PORT = 5555

_SWITCHES = {"true": True, "t": True, "1": True, "yes": True} | {"false": False, "f": False, "0": False, "no": False}


def parse_switch(text: str) -> bool:
    try:
        return _SWITCHES[text.strip().lower()]
    except KeyError:
        raise InvalidSettingError("write true or false") from None


def parse_collect_interval(text: str) -> float:
    """Milliseconds, as in dcgm-exporter, in seconds."""
    milliseconds = number_between(0, 600_000, unit="milliseconds")(text)
    if milliseconds < 500:
        # Seconds by mistake would make a loop that never rests.
        raise InvalidSettingError(
            f"this is in milliseconds and must be at least 500: for {text.strip()} seconds write "
            f"{milliseconds * 1000:.0f}, or use --interval {text.strip()}"
        )
    return milliseconds / 1000


def parse_configmap(text: str) -> ConfigMapName | None:
    if text.strip() in ("", "none"):
        return None
    namespace, _, name = text.strip().partition(":")
    if not namespace or not name or ":" in name:
        raise InvalidSettingError("write NAMESPACE:NAME of a ConfigMap, or none")
    return ConfigMapName(namespace, name)


_TCP = re.compile(r"(?:tcp://)?(?P<host>\[[0-9a-fA-F:.%]+\]|(?![0-9]+$)[\w.-]+)(?::(?P<port>[0-9]{1,5}))?")


def parse_hostengine(text: str) -> Hostengine:
    """`auto`, `embedded`, `HOST`, `HOST:PORT`, `unix:PATH` or dcgm-exporter's `unix://PATH`."""
    word = text.strip()
    if word.lower() in ("auto", "embedded"):
        return Hostengine("auto" if word.lower() == "auto" else "embedded")
    if word.startswith("unix:"):
        path = word.removeprefix("unix:").removeprefix("//")
        if path.startswith("/"):
            return Hostengine("unix", path)
    elif (match := _TCP.fullmatch(word)) and int(match["port"] or HOSTENGINE_PORT) <= 65535:
        return Hostengine("tcp", f"{match['host']}:{match['port'] or HOSTENGINE_PORT}")
    raise InvalidSettingError("write HOST:PORT, unix:PATH, embedded or auto")


def parse_url(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s/]+(/\S*)?", text.strip()):
        raise InvalidSettingError("write a URL: http://HOST:PORT or https://HOST:PORT")
    return text.strip().rstrip("/")


def parse_list(text: str) -> tuple[str, ...]:
    """`a, b` -> ("a", "b")."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def parse_path(text: str) -> Path | None:
    """None for an empty text: the default of dcgm-exporter's flags."""
    return Path(text) if text else None


def parse_lines(text: str) -> tuple[str, ...]:
    """`a; b` -> ("a", "b"), for parts that may contain commas."""
    return tuple(part.strip() for part in text.split(";") if part.strip())


def parse_patterns(text: str) -> tuple[re.Pattern[str], ...]:
    return tuple(_compile(pattern) for pattern in parse_list(text))


def _compile(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidSettingError(f"write regular expressions; {pattern!r} is none: {error}") from error


def one_of(*allowed: str) -> Callable[[str], str]:
    """A parser for these words; case matters only where two words differ in nothing else."""
    words = {word.lower(): word for word in allowed} | {word: word for word in allowed}

    def parse(text: str) -> str:
        word = text.strip()
        try:
            return words.get(word) or words[word.lower()]
        except KeyError:
            raise InvalidSettingError(f"write one of {', '.join(allowed)}{suggest(text, allowed)}") from None

    return parse


def some_of(*allowed: str) -> Callable[[str], tuple[str, ...]]:
    """A parser for a comma list of at least one of these words."""
    parse_one = one_of(*allowed)

    def parse(text: str) -> tuple[str, ...]:
        chosen = tuple(dict.fromkeys(parse_one(part) for part in parse_list(text)))
        if not chosen:
            raise InvalidSettingError(f"write one or more of {', '.join(allowed)}")
        return chosen

    return parse


def number_between(low: float, high: float, *, unit: str) -> Callable[[str], float]:
    return _between(float, low, high, f"write a number of {unit} from {low:g} to {high:g}")


def whole_between(low: int, high: int) -> Callable[[str], int]:
    return _between(int, low, high, f"write a whole number from {low} to {high}")


def _between(kind: Callable[[str], _Number], low: _Number, high: _Number, advice: str) -> Callable[[str], _Number]:
    def parse(text: str) -> _Number:
        try:
            number = kind(text)
        except ValueError:
            raise InvalidSettingError(advice) from None
        if not low <= number <= high:
            raise InvalidSettingError(advice)
        return number

    return parse
