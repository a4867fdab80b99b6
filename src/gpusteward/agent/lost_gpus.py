"""Identifies GPUs that were lost before the agent saw them, of which NVML knows only the index.

The driver lists its GPUs in /proc by PCI bus id, with their uuid if it could read it once. The kubelet lists the uuid
of a GPU for as long as a pod holds it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpusteward.core.gpus import GpuReading

_FOLDER = "driver/nvidia/gpus"
_UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_BUS_ID = re.compile(r"([0-9a-fA-F]{1,8}):([0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F])")
_LONGEST_FILE = 4096  # bytes; ten short lines


@dataclass(frozen=True, slots=True)
class _DriverGpu:
    """A GPU as the driver lists it; empty: not known."""

    bus_id: str  # as NVML writes it
    uuid: str
    model: str


def identify_lost_gpus(
    readings: tuple[GpuReading, ...], *, proc: Path, device_ids: Iterable[str]
) -> tuple[GpuReading, ...]:
    """The readings with what /proc and the kubelet's device ids tell about lost GPUs without a uuid."""
    if not any(each.lost and not each.gpu.uuid for each in readings):
        return readings
    return _identify_by_claims(_identify_by_driver(readings, _list_driver_gpus(proc)), device_ids)


def _identify_by_driver(readings: tuple[GpuReading, ...], listed: Sequence[_DriverGpu]) -> tuple[GpuReading, ...]:
    """NVML numbers GPUs by bus id: the missing ones are those that it does not show, in this order."""
    known = {each.gpu.pci_bus_id for each in readings}
    rest = [each for each in listed if each.bus_id not in known]
    if len(rest) != sum(not each.gpu.uuid for each in readings):
        return readings
    found = iter(rest)
    return tuple(each if each.gpu.uuid else _name(each, next(found)) for each in readings)


def _name(reading: GpuReading, found: _DriverGpu) -> GpuReading:
    return replace(reading, gpu=replace(reading.gpu, uuid=found.uuid, model=found.model, pci_bus_id=found.bus_id))


def _identify_by_claims(readings: tuple[GpuReading, ...], device_ids: Iterable[str]) -> tuple[GpuReading, ...]:
    """Of a single GPU without a uuid: it is the only uuid that pods hold and no GPU has."""
    held = {match[0] for text in device_ids if (match := _UUID.match(text))}
    unknown = held - {each.gpu.device_uuid for each in readings}
    if len(unknown) != 1 or sum(not each.gpu.uuid for each in readings) != 1:
        return readings
    (uuid,) = unknown
    return tuple(each if each.gpu.uuid else replace(each, gpu=replace(each.gpu, uuid=uuid)) for each in readings)


def _list_driver_gpus(proc: Path) -> list[_DriverGpu]:
    """All GPUs of the driver but those it was told to exclude, ordered by bus id."""
    try:
        folders = list((proc / _FOLDER).iterdir())
    except OSError:
        return []
    return sorted((gpu for each in folders if (gpu := _read_driver_gpu(each))), key=lambda gpu: gpu.bus_id)


def _read_driver_gpu(folder: Path) -> _DriverGpu | None:
    address = _BUS_ID.fullmatch(folder.name)
    if address is None:
        return None
    facts = _read_facts(folder / "information")
    if facts.get("GPU Excluded") == "Yes":
        return None
    uuid = facts.get("GPU UUID", "")
    return _DriverGpu(
        f"{int(address[1], 16):08X}:{address[2].upper()}",
        uuid if _UUID.fullmatch(uuid) else "",  # question marks before the GPU was opened once
        facts.get("Model", ""),
    )


def _read_facts(path: Path) -> dict[str, str]:
    """The lines `Name:   text`."""
    try:
        with path.open(errors="replace") as file:
            lines = file.read(_LONGEST_FILE).splitlines()
    except OSError:
        return {}
    return {name.strip(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
