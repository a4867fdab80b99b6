"""Options of the dcgm dialect, and the selection of devices it exports."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpusteward.core.errors import ConfigurationError


def instance_number(index: int, position: int) -> int:
    """DCGM's node-wide number of a MIG instance: eight numbers are reserved per GPU."""
    return index * 8 + position


@dataclass(frozen=True, slots=True)
class DeviceSelection:
    """Which GPUs and MIG instances to export.

    Without both it is flexible (`f`): whole GPUs, or the instances of those that have any. No ids: all.
    """

    gpus: frozenset[int] | None = None
    instances: frozenset[int] | None = None

    @property
    def is_flexible(self) -> bool:
        return self.gpus is None and self.instances is None

    def takes_gpu(self, index: int) -> bool:
        return _takes(self.gpus, index)

    def takes_instance(self, index: int, position: int) -> bool:
        """`position` counts the instances of the GPU with that index."""
        return self.is_flexible or _takes(self.instances, instance_number(index, position))


def _takes(ids: frozenset[int] | None, number: int) -> bool:
    return ids is not None and (not ids or number in ids)


@dataclass(frozen=True, slots=True)
class DcgmOptions:
    """All options, with dcgm-exporter's defaults."""

    names: str = "classic"  # or "v4.9", or "both"
    hostname_label: str = "Hostname"  # or "hostname", or "both"
    hostname: str = ""  # empty: no hostname label
    device_per_pod: bool = False  # one sample per allocation of a shared GPU instead of one per GPU
    old_labels: bool = False  # the label names of dcgm-exporter 1.x
    pod_labels: bool = False
    pod_uid: bool = False
    replace_blanks: bool = False
    xid_error_labels: bool = False  # err_code and err_msg on the gauge of the last XID
    hpc_jobs: bool = False  # a copy of every sample for each job on its GPU
    xid_window_seconds: float = 300.0
    clock_events_window_seconds: float = 300.0
    devices: DeviceSelection = DeviceSelection()


def parse_devices(text: str) -> DeviceSelection:
    """`f`, `g`, `g:0,1,3-5`, `i`, `i:0,2`, `g+i`, `g:0,1+i:0`. Raises ConfigurationError."""
    if text.strip() == "f":
        return DeviceSelection()
    chosen: dict[str, frozenset[int]] = {}
    for part in text.split("+"):
        kind, colon, ids = part.strip().partition(":")
        if kind == "f" and colon:
            raise ConfigurationError(f"--devices {text!r}: only g and i accept a list of ids, as in g:0,1,3-5")
        if kind not in ("g", "i") or kind in chosen:
            raise ConfigurationError(
                f"--devices {text!r}: use f, g, i or g+i; g and i accept ids, as in g:0,1,3-5 or g:0,1+i:0"
            )
        ranges = ids.split(",") if colon else ()
        chosen[kind] = frozenset(number for each in ranges for number in _parse_range(each, text))
    return DeviceSelection(chosen.get("g"), chosen.get("i"))


def _parse_range(part: str, text: str) -> Iterator[int]:
    match = re.fullmatch(r"\s*([0-9]{1,4})(?:-([0-9]{1,4}))?\s*", part)
    if match is None:
        raise ConfigurationError(f"--devices {text!r}: {part!r} is neither an id nor a range such as 3-5")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ConfigurationError(f"--devices {text!r}: the range {part!r} runs backwards")
    yield from range(first, last + 1)
