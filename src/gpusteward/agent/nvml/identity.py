"""Identity of GPUs and MIG instances: uuid, model, bus id, versions. Read once, as it does not change until the driver
is loaded again.

Of a GPU that was lost before the agent saw it NVML knows only the index. The driver lists its GPUs in /proc by PCI bus
id, with their uuid if it could read it once. The kubelet lists the uuid of a GPU for as long as a pod holds it.
"""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pynvml

from gpusteward.agent.nvml.library import GpuLostError, Handle, describe, is_absent, raise_if_fatal
from gpusteward.agent.nvml.signals import ENFORCED_POWER_LIMIT, MEMORY, read_once
from gpusteward.core.node.gpus import Gpu, GpuReading, MigIdentity

GIBIBYTE = 2**30
MEBIBYTE = 2**20

BRANDS = {
    pynvml.NVML_BRAND_QUADRO: "Quadro",
    pynvml.NVML_BRAND_TESLA: "Tesla",
    pynvml.NVML_BRAND_NVS: "NVS",
    pynvml.NVML_BRAND_GRID: "GRID",
    pynvml.NVML_BRAND_GEFORCE: "GeForce",
    pynvml.NVML_BRAND_TITAN: "Titan",
    pynvml.NVML_BRAND_NVIDIA_VAPPS: "NVIDIA Virtual Applications",
    pynvml.NVML_BRAND_NVIDIA_VPC: "NVIDIA Virtual PC",
    pynvml.NVML_BRAND_NVIDIA_VCS: "NVIDIA Virtual Compute Server",
    pynvml.NVML_BRAND_NVIDIA_VWS: "NVIDIA RTX Virtual Workstation",
    pynvml.NVML_BRAND_NVIDIA_CLOUD_GAMING: "NVIDIA Cloud Gaming",
    pynvml.NVML_BRAND_QUADRO_RTX: "Quadro RTX",
    pynvml.NVML_BRAND_NVIDIA_RTX: "NVIDIA RTX",
    pynvml.NVML_BRAND_NVIDIA: "NVIDIA",
    pynvml.NVML_BRAND_GEFORCE_RTX: "GeForce RTX",
    pynvml.NVML_BRAND_TITAN_RTX: "Titan RTX",
}


def read_gpu(node: str, index: int, *, handle: Handle) -> Gpu:
    """The identity of a whole GPU; values it does not report are empty, also the uuid.

    Raises GpuLostError, also if the uuid cannot be read now, and DriverGoneError.
    """
    pci = _call_nvml(pynvml.nvmlDeviceGetPciInfo, handle)
    memory = read_once(MEMORY, handle).get("memory_total_bytes")
    return Gpu(
        node=node,
        index=index,
        uuid=_read_uuid(handle),
        model=_call_nvml(pynvml.nvmlDeviceGetName, handle) or "",
        pci_bus_id=pci.busId.upper() if pci else "",
        minor=_call_nvml(pynvml.nvmlDeviceGetMinorNumber, handle),
        memory_total_bytes=None if memory is None else int(memory),
        power_limit_watts=read_once(ENFORCED_POWER_LIMIT, handle).get("enforced_power_limit_watts"),
        facts=_read_facts(handle),
    )


def read_instance(parent: Gpu, uuid: str, *, handle: Handle, parent_handle: Handle) -> Gpu:
    """The identity of a MIG instance.

    Raises GpuLostError, DriverGoneError.
    """
    memory = read_once(MEMORY, handle).get("memory_total_bytes")
    gpu_instance_id = _call_nvml(pynvml.nvmlDeviceGetGpuInstanceId, handle)
    attributes = _call_nvml(pynvml.nvmlDeviceGetAttributes, handle)
    mig = MigIdentity(
        parent_uuid=parent.uuid,
        profile=_read_profile(parent, handle, attributes),
        gpu_instance_id=gpu_instance_id or 0,
        compute_instance_id=_call_nvml(pynvml.nvmlDeviceGetComputeInstanceId, handle) or 0,
        placement_start=_read_placement(parent_handle, gpu_instance_id),
        video_engines=_count_video_engines(attributes),
    )
    return Gpu(
        node=parent.node,
        index=parent.index,
        uuid=uuid,
        model=parent.model,
        pci_bus_id=parent.pci_bus_id,
        minor=parent.minor,
        memory_total_bytes=None if memory is None else int(memory),
        mig=mig,
        facts=parent.facts,
    )


def name_profile(slices: int, compute_slices: int, *, memory_bytes: int, parent_memory_bytes: int) -> str:
    """NVIDIA's profile name such as `1g.10gb`: memory in eighths of the whole GPU, in whole GiB."""
    eighths = math.ceil(memory_bytes / parent_memory_bytes * 8)
    gigabytes = round(eighths / 8 * math.ceil(parent_memory_bytes / GIBIBYTE))
    name = f"{slices}g.{gigabytes}gb"
    return name if compute_slices == slices else f"{compute_slices}c.{name}"


def _read_uuid(handle: Handle) -> str:
    """Empty if the driver has none."""
    try:
        return str(pynvml.nvmlDeviceGetUUID(handle))
    except UnicodeDecodeError:
        return ""
    except pynvml.NVMLError as error:
        raise_if_fatal(error.value)
        if not is_absent(error.value):
            raise GpuLostError(describe(error.value)) from error
        return ""


def _read_placement(parent: Handle, gpu_instance_id: int | None) -> int | None:
    """Where the GPU instance begins; None without the permission to read it, as in most containers."""
    if gpu_instance_id is None:
        return None
    instance = _call_nvml(pynvml.nvmlDeviceGetGpuInstanceById, parent, gpu_instance_id)
    info = _call_nvml(pynvml.nvmlGpuInstanceGetInfo, instance) if instance else None
    return None if info is None else int(info.placement.start)


def _count_video_engines(attributes: Any) -> int | None:
    """Of the GPU instance. Some profiles have none: 1g.5gb of an A100 with 40 GB, 1g.10gb with 80 GB, 1g.6gb of an A30,
    and those that end with -me; each of H100, H200 and B200 has a decoder (NVIDIA's MIG user guide, supported
    profiles). A name alone does not tell: computed ones, as DCGM's, lack the +me of a profile with media engines."""
    if attributes is None:
        return None
    return int(
        attributes.sharedDecoderCount
        + attributes.sharedEncoderCount
        + attributes.sharedJpegCount
        + attributes.sharedOfaCount
    )


def _read_profile(parent: Gpu, handle: Handle, attributes: Any) -> str:
    """From the device name (`NVIDIA H100 80GB HBM3 MIG 1g.10gb`), or computed if the name does not contain it."""
    _model, is_named, profile = (_call_nvml(pynvml.nvmlDeviceGetName, handle) or "").rpartition(" MIG ")
    if is_named:
        return str(profile)
    if attributes is None or not parent.memory_total_bytes:
        return ""
    return name_profile(
        attributes.gpuInstanceSliceCount,
        attributes.computeInstanceSliceCount,
        memory_bytes=attributes.memorySizeMB * MEBIBYTE,
        parent_memory_bytes=parent.memory_total_bytes,
    )


def _read_facts(handle: Handle) -> dict[str, str]:
    """Texts for `signals.FACTS`, as far as the device reports them."""
    version = pynvml.nvmlDeviceGetInforomVersion
    facts = {
        "driver_version": _call_nvml(pynvml.nvmlSystemGetDriverVersion),
        "nvml_version": _call_nvml(pynvml.nvmlSystemGetNVMLVersion),
        "brand": BRANDS.get(_call_nvml(pynvml.nvmlDeviceGetBrand, handle)),
        "serial": _call_nvml(pynvml.nvmlDeviceGetSerial, handle),
        "vbios_version": _call_nvml(pynvml.nvmlDeviceGetVbiosVersion, handle),
        "inforom_image_version": _call_nvml(pynvml.nvmlDeviceGetInforomImageVersion, handle),
        "inforom_oem_version": _call_nvml(version, handle, pynvml.NVML_INFOROM_OEM),
        "inforom_ecc_version": _call_nvml(version, handle, pynvml.NVML_INFOROM_ECC),
        "inforom_power_version": _call_nvml(version, handle, pynvml.NVML_INFOROM_POWER),
    }
    return {name: text for name, text in facts.items() if text}


def _call_nvml(function: Callable[..., Any], *arguments: object) -> Any:
    """The result of the call, or None if the device does not support it."""
    try:
        return function(*arguments)
    except (pynvml.NVMLError, UnicodeDecodeError) as error:
        if isinstance(error, pynvml.NVMLError):
            raise_if_fatal(error.value)
        return None


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
    # NVML numbers GPUs by bus id: the missing ones are those that it does not show, in this order.
    shown = {each.gpu.pci_bus_id for each in readings}
    rest = [each for each in _list_driver_gpus(proc) if each.bus_id not in shown]
    if len(rest) == sum(not each.gpu.uuid for each in readings):
        found = iter(rest)
        readings = tuple(each if each.gpu.uuid else _name(each, next(found)) for each in readings)
    # Of a single GPU without a uuid: it is the only uuid that pods hold and no GPU has.
    held = {match[0] for text in device_ids if (match := _UUID.match(text))}
    unknown = held - {each.gpu.device_uuid for each in readings}
    if len(unknown) != 1 or sum(not each.gpu.uuid for each in readings) != 1:
        return readings
    (uuid,) = unknown
    return tuple(each if each.gpu.uuid else replace(each, gpu=replace(each.gpu, uuid=uuid)) for each in readings)


def _name(reading: GpuReading, found: _DriverGpu) -> GpuReading:
    return replace(reading, gpu=replace(reading.gpu, uuid=found.uuid, model=found.model, pci_bus_id=found.bus_id))


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
    try:
        with (folder / "information").open(errors="replace") as file:
            lines = file.read(_LONGEST_FILE).splitlines()
    except OSError:
        lines = []
    facts = {name.strip(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
    if facts.get("GPU Excluded") == "Yes":
        return None
    uuid = facts.get("GPU UUID", "")
    return _DriverGpu(
        f"{int(address[1], 16):08X}:{address[2].upper()}",
        uuid if _UUID.fullmatch(uuid) else "",  # question marks before the GPU was opened once
        facts.get("Model", ""),
    )
