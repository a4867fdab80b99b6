"""Layers -> settings with their origins."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from gpusteward.analyzer.settings.fields import leaves
from gpusteward.analyzer.settings.layers import Layer
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.settings.validation_errors import describe
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.settings import DEFAULT, Given, Origin

KNOWN = leaves(Settings)
"""Every setting by its path."""


@dataclass(frozen=True, slots=True)
class GaveWay:
    """A value that is not used as it stands, since others that were given contradict it."""

    path: str
    value: object
    used: object
    origin: Origin


@dataclass(frozen=True)
class Effective:
    """The settings in force, and who chose each of them."""

    settings: Settings
    given: Mapping[str, Given]
    gave_way: tuple[GaveWay, ...] = ()

    def origin(self, path: str) -> Origin:
        return self.given[path].origin if path in self.given else DEFAULT


def settle(*layers: Layer) -> Effective:
    """The settings that these layers make together, the last one on top.

    Raises ConfigurationError: one message that names path, origin, value and what is allowed.
    """
    given: dict[str, Given] = {}
    for layer in layers:
        given |= layer.values
    try:
        settings = Settings.model_validate(_nest(given))
    except ValidationError as error:
        # Without its cause: pydantic's own text repeats the input, and that may be a secret.
        raise ConfigurationError(describe(error, KNOWN, given)) from None
    return _put_in_order(settings, given)


def _put_in_order(settings: Settings, given: Mapping[str, Given]) -> Effective:
    used = settings.model_copy(update={"thresholds": settings.thresholds.in_order()})
    effective = Effective(used, given)
    pairs = ((path, value_at(settings, path), value_at(used, path)) for path in KNOWN)
    gave_way = [GaveWay(path, old, new, effective.origin(path)) for path, old, new in pairs if old != new]
    return replace(effective, gave_way=tuple(gave_way))


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
