"""What the settings of agent and analyzer share: the origin of a value, and values that both programs read from text.

A flag covers the environment, the environment a file, a file the default. Error texts have one form: the setting, the
value, its origin, and what to write instead: a parser raises InvalidSettingError with the last part only.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from gpusteward.core.messages import Language, Message, same_text

VARIABLE_PREFIX = "GPUSTEWARD_"


NOT_A_DURATION = Message(
    "write a duration above 0 with its unit, such as 10s, 1m30s or 500ms",
    "请写成大于 0 且带单位的时长，例如 10s、1m30s 或 500ms",
)


class InvalidSettingError(ValueError):
    """A value that cannot be used. `problem`: what to write instead."""

    def __init__(self, message: str | Message, **fields: object) -> None:
        """`message`: a Message where the value may come from a policy, whose errors people read in the web UI."""
        self.problem = message.fill(**fields) if isinstance(message, Message) else same_text(message)
        super().__init__(str(self.problem))


class Source(StrEnum):
    """Where a value can come from; a later one covers an earlier one."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"
    REQUEST = "request"  # changed through the API while running


ORIGINS: Mapping[Source, Message] = {
    Source.DEFAULT: Message("default", "默认值"),
    Source.FILE: Message("{place} line {line}", "{place} 第 {line} 行"),
    Source.ENVIRONMENT: Message("environment variable {place}", "环境变量 {place}"),
    Source.FLAG: Message("flag {place}", "参数 {place}"),
    Source.REQUEST: Message("request", "API 请求"),
}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where one value comes from."""

    source: Source
    place: str = ""  # "config.yaml", "PROM_URL", "--address"
    line: int = 0  # of a file

    def __str__(self) -> str:
        return self.text("en")

    def text(self, language: Language) -> str:
        return ORIGINS[self.source].text(language, place=self.place, line=self.line)


DEFAULT = Origin(Source.DEFAULT)


@dataclass(frozen=True, slots=True)
class Given:
    """A value as it was written, not yet checked."""

    value: object
    origin: Origin


def find_variable(names: Iterable[str], environ: Mapping[str, str]) -> str | None:
    """The first of these variables that is set. An empty one is not: charts leave a variable empty to mean unset."""
    return next((name for name in names if environ.get(name, "").strip()), None)


class ListenAddress(NamedTuple):
    """Where to listen; an empty host is every address of this machine, port 0 is any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


_ADDRESS = re.compile(r"(?:(?:\[(?P<six>[0-9a-fA-F:.%]+)\]|(?P<host>[^\[\]:/\s]*)):)?(?P<port>[0-9]{1,5})")


def parse_address(text: str) -> ListenAddress:
    """`9400`, `:9400`, `0.0.0.0:9400`, `[::1]:9400`, `host:9400`. Raises InvalidSettingError."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or int(match["port"]) > 65535:
        raise InvalidSettingError("write PORT, :PORT, HOST:PORT or [IPV6]:PORT, with a port up to 65535")
    return ListenAddress(match["six"] or match["host"] or "", int(match["port"]))


_DURATION_PART = re.compile(r"([0-9]++(?:\.[0-9]*+)?)(ms|us|µs|ns|s|m|h|d)")
_DURATION = re.compile(rf"(?:{_DURATION_PART.pattern})++")
_LONGEST_DURATION = 100  # characters
_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def parse_duration(text: str) -> float:
    """`10s`, `1m30s`, `500ms`, as Go writes durations, in seconds. Raises InvalidSettingError, also for 0."""
    if len(text) > _LONGEST_DURATION or not _DURATION.fullmatch(text.strip()):
        raise InvalidSettingError(NOT_A_DURATION)
    seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _DURATION_PART.findall(text))
    if seconds <= 0:
        raise InvalidSettingError(NOT_A_DURATION)
    return seconds


_ARGPARSE_ERRORS = (
    (r"invalid choice: (?P<value>.+) \(choose from (?P<choices>.+)\)", "{value} is not one of {choices}"),
    (r"expected (?:one|at least one) argument", "a value is missing"),
    (r"expected at most one argument", "at most one value is allowed"),
    (r"ignored explicit argument (?P<value>.+)", "takes no value, but has {value}"),
    (r"invalid (?:int|float) value: (?P<value>.+)", "{value} is not a number"),
    (r"the following arguments are required: (?P<names>.+)", "missing argument: {names}"),
)


def explain_argparse(text: str) -> str:
    """An error of argparse in the words of the others; unknown ones stay as they are."""
    for pattern, message in _ARGPARSE_ERRORS:
        if found := re.fullmatch(pattern, text):
            return message.format(**found.groupdict())
    return text
