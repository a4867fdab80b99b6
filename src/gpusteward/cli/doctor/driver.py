"""The NVIDIA driver: whether NVML responds, and whether its devices can be opened."""

import os
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gpusteward.cli.doctor.check_results import CheckResult, Status
from gpusteward.core.errors import SourceError
from gpusteward.core.exposition import LabelCache
from gpusteward.core.usage_split import SPLIT_SIGNALS

if TYPE_CHECKING:
    from gpusteward.agent.dialects.dcgm import DcgmDialect
    from gpusteward.agent.dialects.native import NativeDialect
    from gpusteward.agent.nvml import Nvml, NvmlReading

_Result = TypeVar("_Result")

TIMEOUT_SECONDS = 15.0
NVIDIA_VENDOR = "0x10de"
DISPLAY_CLASSES = ("0x0300", "0x0302")  # PCI classes of VGA and 3D controllers


def check_nvml(
    *, pci: Path = Path("/sys/bus/pci/devices"), timeout_seconds: float = TIMEOUT_SECONDS
) -> Iterator[CheckResult]:
    """Open NVML as the agent does, read once, release it. A call that hangs in the driver is abandoned."""
    try:
        from gpusteward.agent.nvml import Nvml
    except ModuleNotFoundError as error:
        status = Status.FAIL if has_gpu(pci) else Status.SKIP
        yield CheckResult(
            "driver",
            status,
            "the Python package {name} is not installed",
            "pip install gpusteward",
            {"name": error.name},
        )
        return
    nvml = Nvml("", event_wait_milliseconds=10)
    try:
        reading = wait_for(lambda: _read_once(nvml), timeout_seconds)
    except TimeoutError:
        yield CheckResult(
            "driver",
            Status.FAIL,
            "the driver did not respond within {seconds:.0f} s",
            "look for Xid errors in dmesg; drain and reboot the node",
            {"seconds": timeout_seconds},
        )
    except SourceError as error:
        yield _explain(error, has_gpu(pci))
    else:
        yield from _describe(reading)


def _read_once(nvml: "Nvml") -> "NvmlReading":
    try:
        return nvml.read(SPLIT_SIGNALS.union(*(dialect.wanted for dialect in _make_dialects())))
    finally:
        nvml.release()


def _make_dialects() -> "tuple[DcgmDialect, NativeDialect]":
    """The dialects that export signals of GPUs, with their default fields."""
    from gpusteward.agent.dialects.dcgm import DcgmDialect
    from gpusteward.agent.dialects.dcgm_options import DcgmOptions
    from gpusteward.agent.dialects.native import NativeDialect
    from gpusteward.agent.field_list import default_fields

    labels = LabelCache()
    return DcgmDialect(DcgmOptions(), default_fields("classic"), labels=labels), NativeDialect(labels)


def wait_for(work: Callable[[], _Result], seconds: float) -> _Result:
    """The result of the work. Raises the SourceError that it raises, and TimeoutError."""
    done: Future[_Result] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except SourceError as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done.result(seconds)


def _describe(reading: "NvmlReading") -> Iterator[CheckResult]:
    whole = [one.gpu for one in reading.readings if one.gpu.mig is None and not one.lost]
    versions = sorted({gpu.facts.get("driver_version", "?") for gpu in whole})
    yield CheckResult(
        "driver",
        Status.OK,
        "{gpus} {gpus:|GPU|GPUs}, driver {version}",
        fields={"gpus": len(whole), "version": ", ".join(versions) or "?"},
    )
    for reason in dict.fromkeys(failure.reason for failure in reading.failures):
        yield CheckResult(
            "driver",
            Status.FAIL,
            "{reason}",
            "look for its Xid in dmesg; drain the node, then reset the GPU or reboot",
            {"reason": reason},
        )
    yield from _describe_unavailable(reading)


def _describe_unavailable(reading: "NvmlReading") -> Iterator[CheckResult]:
    """The default families that each GPU model does not provide."""
    from gpusteward.agent.collection import find_unavailable

    for model, is_mig, families in find_unavailable(reading.readings, _make_dialects()):
        text = (
            "{model} divided by MIG does not provide: {families}" if is_mig else "{model} does not provide: {families}"
        )
        has_profiling = any(name.startswith("DCGM_FI_PROF_") for name in families)
        advice = (
            (
                "before Hopper, DCGM_FI_PROF_* need a DCGM hostengine: --dcgm-hostengine of the agent, or "
                "agent.profiling.hostengine of the chart"
            )
            if has_profiling
            else ""
        )
        yield CheckResult("families", Status.OK, text, advice, {"model": model, "families": ", ".join(families)})


def _explain(reason: SourceError, is_needed: bool) -> CheckResult:
    if not is_needed:
        return CheckResult(
            "driver",
            Status.SKIP,
            "this machine has no NVIDIA GPU",
            "no action needed unless an agent will run on this machine",
        )
    return CheckResult(
        "driver", Status.FAIL, "{reason}", "run nvidia-smi as the same user and fix what it reports", {"reason": reason}
    )


def has_gpu(pci: Path) -> bool:
    """Whether the PCI bus has an NVIDIA GPU, with or without a driver."""
    return any(
        _read(each / "vendor") == NVIDIA_VENDOR and _read(each / "class")[:6] in DISPLAY_CLASSES for each in _list(pci)
    )


def _list(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def check_devices(dev: Path = Path("/dev")) -> Iterator[CheckResult]:
    """Every process that uses a GPU opens these for reading and writing."""
    devices = [
        path for path in sorted(dev.glob("nvidia*")) if path.name.removeprefix("nvidia")[:1] in (*"0123456789", "c")
    ]
    if not devices:
        yield CheckResult(
            "devices",
            Status.SKIP,
            "there is no /dev/nvidia*",
            "no action needed unless an agent will run on this machine",
        )
        return
    closed = [path for path in devices if not os.access(path, os.R_OK | os.W_OK)]
    for path in closed:
        yield CheckResult(
            "devices",
            Status.FAIL,
            "this user may not open {path}",
            (
                "it belongs to group {group}: join the group, run as root, or give the container the "
                "nvidia runtime class"
            ),
            {"path": path, "group": _group(path)},
        )
    if not closed:
        yield CheckResult(
            "devices", Status.OK, "{count} {count:|device|devices} can be opened", fields={"count": len(devices)}
        )


def _group(path: Path) -> str:
    """Its group and mode: `video (crw-rw----)`."""
    try:
        return f"{path.group()} ({stat.filemode(path.stat().st_mode)})"
    except (KeyError, OSError):
        return "?"
