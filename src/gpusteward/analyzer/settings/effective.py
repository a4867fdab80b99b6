"""The effective settings as they may be printed: secrets masked."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from pydantic import SecretStr

from gpusteward.analyzer.setting_values import MASK, mask_password
from gpusteward.analyzer.settings.reading import KNOWN, Effective, value_at
from gpusteward.core.settings import Source


@dataclass(frozen=True, slots=True)
class Shown:
    """One setting, ready to be printed."""

    path: str
    value: object  # a JSON type; a secret is masked, or empty when it is not set
    source: Source
    origin: str
    about: str


def show(effective: Effective) -> tuple[Shown, ...]:
    return tuple(_show(path, effective) for path in KNOWN)


def _show(path: str, effective: Effective) -> Shown:
    origin = effective.origin(path)
    value = showable(value_at(effective.settings, path))
    return Shown(path, value, origin.source, str(origin), KNOWN[path].description or "")


def showable(value: object) -> object:
    """A value as JSON types, without secrets and without passwords inside URLs."""
    if isinstance(value, SecretStr):
        return MASK if value.get_secret_value() else ""
    if isinstance(value, Mapping):
        return {str(key): showable(each) for key, each in value.items()}
    if isinstance(value, str | PurePath):
        return mask_password(str(value))
    if isinstance(value, float) and value.is_integer():
        return int(value)  # as people write it
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Iterable):
        return [showable(each) for each in value]
    return str(value)
