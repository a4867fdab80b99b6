"""Values of settings as users write them: parsed or checked; raises InvalidSettingError.

Below every package that declares settings, so that none of them needs `analyzer.settings` for its own section.
"""

import re
from dataclasses import dataclass
from datetime import UTC, time, tzinfo
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import ConfigDict, SecretStr, WithJsonSchema

from gpusteward.core.settings import InvalidSettingError, parse_address

SECTION = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)
"""For the model of a section: unknown keys are reported by `settings.layers`, and input may be a secret."""

_URL = re.compile(r"https?://[^\s/?#]+(?:[/?#]\S*)?")
_CREDENTIALS = re.compile(r"(?<=//)[^/?#\s]*@|(?<=//)[^/?#\s@\[]*:(?!\d*(?:[/?#\s'\"]|$))\S*@")
"""All before the last @ of the authority; the second half is a password with an unescaped slash."""
_PARAMETER = re.compile(r"(?<=[?&])([^=&#\s'\"]+)=[^&#\s'\"]+")
_LEVELS = {"warn": "warning", "critical": "error", "fatal": "error", "notset": "debug"}  # other programs' words
_HOURS = re.compile(r"([0-2]?\d:[0-5]\d)\s*-\s*([0-2]?\d:[0-5]\d)")
_WEEKLY = re.compile(r"([a-z]+)\s+([0-2]?\d:[0-5]\d)", re.IGNORECASE)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MASK = "**********"


@dataclass(frozen=True, slots=True)
class SecretFile:
    """A secret that is in a file, as Kubernetes mounts it: the key of the setting with `_file` names the file."""

    path: Path


Secret = Annotated[SecretStr | SecretFile, WithJsonSchema({"type": "string"})]
"""One setting, written as a value or as a file (`settings.layers`). Empty: not set."""
NO_SECRET = SecretStr("")


def read_secret(secret: SecretStr | SecretFile) -> str:
    """The secret itself, empty where there is none. Raises OSError, UnicodeDecodeError when its file cannot be read."""
    if isinstance(secret, SecretFile):
        return secret.path.read_text(encoding="utf-8").strip()
    return secret.get_secret_value()


def is_given(secret: SecretStr | SecretFile) -> bool:
    """Whether there is a value or a file, without reading it."""
    return isinstance(secret, SecretFile) or bool(secret.get_secret_value())


def check_address(text: str) -> str:
    parse_address(text)
    return text.strip()


def check_url(text: str) -> str:
    """Empty stays empty: not set."""
    if text.strip() and not _URL.fullmatch(text.strip()):
        raise InvalidSettingError("write a URL: http://HOST:PORT/PATH or https://HOST/PATH")
    return text.strip()


def split_list(value: object) -> object:
    """`a, b` as a list; anything else stays as it is."""
    return [part for part in re.split(r"[\s,]+", value) if part] if isinstance(value, str) else value


def check_level(value: object) -> object:
    if not isinstance(value, str):
        return value
    level = value.strip().lower()
    return _LEVELS.get(level, level)


def mask_password(text: str) -> str:
    """A URL without its credentials, of which the user may be a token, and without the values of its parameters."""
    return _PARAMETER.sub(rf"\1={MASK}", _CREDENTIALS.sub(f"{MASK}@", text))


def split_hours(text: str) -> tuple[time, time] | None:
    """`22:00-08:00`; None for an empty text. Raises ValueError."""
    if not text.strip():
        return None
    match = _HOURS.fullmatch(text.strip())
    if match is None:
        raise InvalidSettingError("write two times, such as 22:00-08:00")
    return _read_time(match[1]), _read_time(match[2])


def read_weekly(text: str) -> tuple[int, time] | None:
    """`monday 09:00` as day of the week and time; None for an empty text. Raises ValueError."""
    if not text.strip():
        return None
    match = _WEEKLY.fullmatch(text.strip())
    if match is None or match[1].lower() not in _DAYS:
        raise InvalidSettingError("write a day and a time, such as monday 09:00")
    return _DAYS.index(match[1].lower()), _read_time(match[2])


def read_zone(name: str) -> tzinfo:
    """Raises ValueError for a zone this machine does not know."""
    if name.strip().upper() == "UTC":
        return UTC  # also where no tzdata is installed
    try:
        return ZoneInfo(name.strip())
    except (KeyError, ValueError, OSError) as error:
        raise InvalidSettingError(
            "unknown time zone; write one such as Asia/Shanghai (the package tzdata has them)"
        ) from error


def _read_time(text: str) -> time:
    hour, minute = (int(part) for part in text.split(":"))
    return time(hour, minute)
