"""`EffectiveSettings`: combines the layers (file, environment, flags, requests) and keeps the origin of each value."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from gpusteward.analyzer.settings.fields import find_settings
from gpusteward.analyzer.settings.layers import Layer
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.settings.validation_errors import describe
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.settings import DEFAULT, Given, Origin

KNOWN = find_settings(Settings)
"""Every setting by its path."""


@dataclass(frozen=True, slots=True)
class AdjustedValue:
    """A value that is replaced because it contradicts another one."""

    path: str
    value: object
    used: object
    origin: Origin


@dataclass(frozen=True)
class EffectiveSettings:
    """The settings in use, with the origin of each value."""

    settings: Settings
    given: Mapping[str, Given]
    adjusted: tuple[AdjustedValue, ...] = ()

    def origin(self, path: str) -> Origin:
        return self.given[path].origin if path in self.given else DEFAULT


def combine_layers(*layers: Layer) -> EffectiveSettings:
    """The settings that these layers result in; the last layer has precedence.

    Raises ConfigurationError with setting, value, origin and what is allowed, for all errors at once.
    """
    given: dict[str, Given] = {}
    for layer in layers:
        given |= layer.values
    try:
        settings = Settings.model_validate(_nest(given))
    except ValidationError as error:
        # Without the cause: pydantic's text repeats the input, which may be a secret.
        raise ConfigurationError(describe(error, KNOWN, given)) from None
    return _adjust_thresholds(settings, given)


def _adjust_thresholds(settings: Settings, given: Mapping[str, Given]) -> EffectiveSettings:
    used = settings.model_copy(update={"thresholds": settings.thresholds.in_order()})
    effective = EffectiveSettings(used, given)
    pairs = ((path, value_at(settings, path), value_at(used, path)) for path in KNOWN)
    adjusted = [AdjustedValue(path, old, new, effective.origin(path)) for path, old, new in pairs if old != new]
    return replace(effective, adjusted=tuple(adjusted))


def value_at(settings: Settings, path: str) -> object:
    value: object = settings
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _nest(given: Mapping[str, Given]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, each in given.items():
        *sections, key = path.split(".")
        branch = tree
        for section in sections:
            branch = branch.setdefault(section, {})
        branch[key] = each.value
    return tree
