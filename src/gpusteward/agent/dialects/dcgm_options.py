"""Options of the dcgm dialect, and the selection of devices it exports."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpusteward.core.errors import ConfigurationError
from gpusteward.messages.errors import settings_errors as messages


def instance_number(index: int, position: int) -> int:
    """DCGM's node-wide number of a MIG instance: eight numbers are reserved per GPU."""
    return index * 8 + position


@dataclass(frozen=True, slots=True)
class DeviceSelection:
    """Which GPUs and MIG instances to export.

    `f` is whole GPUs, or the instances of those that have any; `g` whole GPUs only, `i` instances only, `g+i` both.
    """

    kinds: str = "f"
    ids: frozenset[int] = frozenset()  # empty: all

    def takes_gpu(self, index: int) -> bool:
        return "g" in self.kinds and self._takes(index)

    def takes_instance(self, index: int, position: int) -> bool:
        """`position` counts the instances of the GPU with that index."""
        if self.kinds == "f":
            return True
        return "i" in self.kinds and self._takes(instance_number(index, position))

    def _takes(self, number: int) -> bool:
        return not self.ids or number in self.ids


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
    """`f`, `g`, `g:0,1,3-5`, `i`, `i:0,2`, `g+i`. Raises ConfigurationError."""
    kinds, colon, ids = text.strip().partition(":")
    if kinds not in ("f", "g", "i", "g+i"):
        raise ConfigurationError(messages.INVALID_DEVICES, text=text)
    if not colon:
        return DeviceSelection(kinds)
    if kinds not in ("g", "i"):
        raise ConfigurationError(messages.DEVICES_WITHOUT_IDS, text=text)
    return DeviceSelection(kinds, frozenset(number for part in ids.split(",") for number in _parse_range(part, text)))


def _parse_range(part: str, text: str) -> Iterator[int]:
    match = re.fullmatch(r"\s*([0-9]{1,4})(?:-([0-9]{1,4}))?\s*", part)
    if match is None:
        raise ConfigurationError(messages.INVALID_DEVICE_RANGE, text=text, part=part)
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ConfigurationError(messages.BACKWARD_DEVICE_RANGE, text=text, part=part)
    yield from range(first, last + 1)
