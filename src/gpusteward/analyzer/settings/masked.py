"""The effective settings for printing: secrets are masked."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from pydantic import BaseModel, SecretStr

from gpusteward.analyzer.setting_values import MASK, SecretFile, mask_password
from gpusteward.analyzer.settings.effective import KNOWN, EffectiveSettings, value_at
from gpusteward.core.settings import Source


@dataclass(frozen=True, slots=True)
class MaskedSetting:
    """One setting without secrets."""

    path: str
    value: object  # a JSON type; a secret is masked, or empty when it is not set
    source: Source
    origin: str
    about: str


def mask_settings(effective: EffectiveSettings) -> tuple[MaskedSetting, ...]:
    values = ((path, effective.origin(path), mask_value(value_at(effective.settings, path))) for path in KNOWN)
    return tuple(
        MaskedSetting(path, value, origin.source, str(origin), KNOWN[path].description or "")
        for path, origin, value in values
    )


def mask_value(value: object) -> object:
    """A value as JSON types, without secrets and without passwords inside URLs."""
    if isinstance(value, SecretStr):
        return MASK if value.get_secret_value() else ""
    if isinstance(value, SecretFile):
        return f"file {value.path}"
    if isinstance(value, BaseModel):
        return mask_value(value.model_dump())
    if isinstance(value, Mapping):
        return {str(key): mask_value(each) for key, each in value.items()}
    if isinstance(value, str | PurePath):
        return mask_password(str(value))
    if isinstance(value, float) and value.is_integer():
        return int(value)  # as people write it
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Iterable):
        return [mask_value(each) for each in value]
    return str(value)
