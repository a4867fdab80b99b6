"""Metric families that a GPU model does not provide: named once in the log, and by `gpusteward doctor`."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from gpusteward.core.gpus import GpuReading
from gpusteward.logs import Log

log = Log(__name__)

FIRST_CYCLE = 3
"""The families are named from this cycle on: a second source of signals may need some time to connect."""


class FamilySource(Protocol):
    """A dialect, as far as it knows which signals its families need."""

    def list_unavailable(self, unsupported: frozenset[str]) -> list[str]:
        """Names of the families that a GPU without these signals cannot have."""


class ModelFamilies(NamedTuple):
    """The families that a GPU model does not provide."""

    model: str
    is_mig: bool
    families: tuple[str, ...]


def find_unavailable(readings: Sequence[GpuReading], dialects: Iterable[FamilySource]) -> Iterator[ModelFamilies]:
    """One row per model, and one more where it is divided by MIG."""
    dialects = tuple(dialects)
    unsupported: dict[tuple[str, bool], frozenset[str]] = {}
    for reading in readings:
        if not reading.lost and not reading.gpu.mig:
            key = (reading.gpu.model, reading.is_mig_parent)
            missing = reading.unsupported.difference(*_signals_of(reading, readings))
            unsupported[key] = unsupported.get(key, missing) & missing
    for (model, is_mig), signals in unsupported.items():
        names = dict.fromkeys(name for dialect in dialects for name in dialect.list_unavailable(signals))
        if names:
            yield ModelFamilies(model, is_mig, tuple(names))


def _signals_of(device: GpuReading, readings: Iterable[GpuReading]) -> Iterator[Iterable[str]]:
    """The signals of a device and of its MIG instances, from whatever source."""
    return (each.signals for each in readings if each.gpu.device_uuid == device.gpu.uuid)


class UnavailableFamilies:
    """Logs each family of each model once."""

    def __init__(self) -> None:
        self._cycles = 0
        self._seen: object = None  # what was unsupported when the families were last determined
        self._logged: set[tuple[str, bool, str]] = set()

    def update(self, readings: Sequence[GpuReading], dialects: Iterable[FamilySource]) -> None:
        """Log the families that are not named yet."""
        seen = {(each.gpu.model, each.is_mig_parent, each.unsupported) for each in readings if each.unsupported}
        self._cycles += bool(seen)
        if self._cycles < FIRST_CYCLE or seen == self._seen:
            return
        self._seen = seen
        for model, is_mig, families in find_unavailable(readings, dialects):
            new = [name for name in families if (model, is_mig, name) not in self._logged]
            self._logged.update((model, is_mig, name) for name in new)
            if new:
                log.info("families_unavailable", model=model, mig=is_mig, families=",".join(new))
