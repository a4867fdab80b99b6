"""The NVIDIA driver: whether NVML answers, and whether its devices may be opened."""

import os
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from gpusteward.cli.doctor.findings import Finding, Status
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message

if TYPE_CHECKING:
    from gpusteward.agent.nvml import Nvml, NvmlReading

PATIENCE_SECONDS = 15.0
LOOKED_AT = frozenset(("utilization_ratio", "power_watts"))  # calls that a lost GPU does not answer
NVIDIA_VENDOR = "0x10de"
DISPLAY_CLASSES = ("0x0300", "0x0302")  # VGA and 3D controllers, as PCI has them

NO_GPU = Message("no NVIDIA GPU in this machine", "此机器没有 NVIDIA GPU")
ONLY_FOR_AGENTS = Message(
    "nothing, unless an agent shall run here", "无需处理，除非要在此运行 agent（可用 --source simulated 模拟）"
)
NO_LIBRARY = Message("the Python package {name} is not installed", "未安装 Python 包 {name}")
INSTALL = Message("pip install 'gpusteward[agent]'", "pip install 'gpusteward[agent]'")
REFUSED = Message("{reason}", "{reason}")
CHECK_DRIVER = Message(
    "run nvidia-smi as the same user, and mend what it says", "以同一用户运行 nvidia-smi，并按其提示修复"
)
READ = Message("{gpus} {gpus:|GPU|GPUs}, driver {version}", "{gpus} 张 GPU，驱动版本 {version}")
HUNG = Message("the driver did not answer within {seconds:.0f} s", "驱动在 {seconds:.0f} 秒内没有响应")
REBOOT = Message("see dmesg for Xid errors; drain the node and reboot it", "请在 dmesg 中查找 Xid 错误；排空节点并重启")
RESET = Message(
    "see dmesg for its Xid; drain the node, then reset the GPU or reboot",
    "请在 dmesg 中查找 Xid；排空节点后重置 GPU 或重启",
)

NO_DEVICES = Message("there is no /dev/nvidia*", "没有 /dev/nvidia* 设备")
OPEN = Message("{count} {count:|device|devices} may be opened", "{count} 个设备可以打开")
CLOSED = Message("{path} may not be opened by this user", "当前用户无权打开 {path}")
JOIN = Message(
    "it belongs to group {group}: join it, run as root, or give the container the nvidia runtime class",
    "该设备属于 {group} 组：请加入该组、以 root 运行，或为容器使用 nvidia 运行时类",
)


def check_nvml(
    *, pci: Path = Path("/sys/bus/pci/devices"), patience_seconds: float = PATIENCE_SECONDS
) -> Iterator[Finding]:
    """Opens NVML as the agent does, looks once, and lets go of it. A call that hangs in the driver is left behind."""
    try:
        from gpusteward.agent.nvml import Nvml
    except ModuleNotFoundError as error:
        status = Status.FAIL if has_gpu(pci) else Status.SKIP
        yield Finding("driver", status, NO_LIBRARY, INSTALL, {"name": error.name})
        return
    nvml = Nvml("", event_wait_milliseconds=10)
    try:
        reading = _wait_for(lambda: _look(nvml), patience_seconds)
    except TimeoutError:
        yield Finding("driver", Status.FAIL, HUNG, REBOOT, {"seconds": patience_seconds})
    except SourceError as error:
        yield _explain(str(error), has_gpu(pci))
    else:
        yield from _judge(reading)


def _look(nvml: "Nvml") -> "NvmlReading":
    try:
        return nvml.read(LOOKED_AT)
    finally:
        nvml.release()


def _wait_for(work: "Callable[[], NvmlReading]", seconds: float) -> "NvmlReading":
    """What the work gives. Raises what it raises, and TimeoutError when it takes too long."""
    done: Future[NvmlReading] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except SourceError as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done.result(seconds)


def _judge(reading: "NvmlReading") -> Iterator[Finding]:
    whole = [one.gpu for one in reading.readings if one.gpu.mig is None]
    versions = sorted({gpu.facts.get("driver_version", "?") for gpu in whole})
    yield Finding("driver", Status.OK, READ, facts={"gpus": len(whole), "version": ", ".join(versions) or "?"})
    for reason in dict.fromkeys(failure.reason for failure in reading.failures):
        yield Finding("driver", Status.FAIL, REFUSED, RESET, {"reason": reason})


def _explain(reason: str, is_needed: bool) -> Finding:
    if not is_needed:
        return Finding("driver", Status.SKIP, NO_GPU, ONLY_FOR_AGENTS)
    return Finding("driver", Status.FAIL, REFUSED, CHECK_DRIVER, {"reason": reason})


def has_gpu(pci: Path) -> bool:
    """Whether the bus has an NVIDIA GPU, driver or not."""
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


def check_devices(dev: Path = Path("/dev")) -> Iterator[Finding]:
    """Every process that uses a GPU opens these, for reading and writing."""
    devices = [
        path for path in sorted(dev.glob("nvidia*")) if path.name.removeprefix("nvidia")[:1] in (*"0123456789", "c")
    ]
    if not devices:
        yield Finding("devices", Status.SKIP, NO_DEVICES, ONLY_FOR_AGENTS)
        return
    closed = [path for path in devices if not os.access(path, os.R_OK | os.W_OK)]
    for path in closed:
        yield Finding("devices", Status.FAIL, CLOSED, JOIN, {"path": path, "group": _group(path)})
    if not closed:
        yield Finding("devices", Status.OK, OPEN, facts={"count": len(devices)})


def _group(path: Path) -> str:
    """The group that may open it, with its mode: `video (crw-rw----)`."""
    try:
        return f"{path.group()} ({stat.filemode(path.stat().st_mode)})"
    except (KeyError, OSError):
        return "?"
