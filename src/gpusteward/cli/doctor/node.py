"""The node: the NVIDIA driver and its devices, the DCGM hostengine, /proc and cgroups, which attribute processes to
pods, and the kubelet's pod-resources socket."""

import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gpusteward.agent.settings.values import Hostengine, parse_hostengine
from gpusteward.cli.doctor.check_results import CheckResult, CheckStatus, count, fail, ok, skip, warn
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.exposition import LabelCache
from gpusteward.core.node.usage_split import SPLIT_SIGNALS
from gpusteward.core.settings import InvalidSettingError, find_variable
from gpusteward.messages.errors.os_errors import explain_os_error

if TYPE_CHECKING:
    from gpusteward.agent.dcgm.client import HostengineReport
    from gpusteward.agent.dialects.dcgm import DcgmDialect
    from gpusteward.agent.dialects.native import NativeDialect
    from gpusteward.agent.nvml import Nvml, NvmlReading

_Result = TypeVar("_Result")

TIMEOUT_SECONDS = 15.0
NVIDIA_VENDOR = "0x10de"
DISPLAY_CLASSES = ("0x0300", "0x0302")  # PCI classes of VGA and 3D controllers
NOT_FOR_AGENT = "no action needed unless an agent will run on this machine"


def check_nvml(
    *, pci: Path = Path("/sys/bus/pci/devices"), timeout_seconds: float = TIMEOUT_SECONDS
) -> Iterator[CheckResult]:
    """Open NVML as the agent does, read once, release it. A call that hangs in the driver is abandoned."""
    try:
        from gpusteward.agent.nvml import Nvml
    except ModuleNotFoundError as error:
        status = CheckStatus.FAIL if has_gpu(pci) else CheckStatus.SKIP
        yield CheckResult(
            "driver", status, f"the Python package {error.name} is not installed", "pip install gpusteward"
        )
        return
    nvml = Nvml("", event_wait_milliseconds=10)
    try:
        reading = wait_for(lambda: _read_once(nvml), timeout_seconds)
    except TimeoutError:
        yield fail(
            "driver",
            f"the driver did not respond within {timeout_seconds:.0f} s",
            "look for Xid errors in dmesg; drain and reboot the node",
        )
    except SourceError as error:
        if has_gpu(pci):
            yield fail("driver", str(error), "run nvidia-smi as the same user and fix what it reports")
        else:
            yield skip("driver", "this machine has no NVIDIA GPU", NOT_FOR_AGENT)
    else:
        yield from _describe_reading(reading)


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


def _describe_reading(reading: "NvmlReading") -> Iterator[CheckResult]:
    from gpusteward.agent.collection import find_unavailable

    whole = [one.gpu for one in reading.readings if one.gpu.mig is None and not one.lost]
    versions = sorted({gpu.facts.get("driver_version", "?") for gpu in whole})
    yield ok("driver", f"{count(len(whole), 'GPU')}, driver {', '.join(versions) or '?'}")
    for reason in dict.fromkeys(str(failure.reason) for failure in reading.failures):
        yield fail("driver", reason, "look for its Xid in dmesg; drain the node, then reset the GPU or reboot")
    for model, is_mig, families in find_unavailable(reading.readings, _make_dialects()):  # by default
        divided = " divided by MIG" if is_mig else ""
        advice = (
            "before Hopper, DCGM_FI_PROF_* need a DCGM hostengine: --dcgm-hostengine of the agent, or "
            "agent.profiling.hostengine of the chart"
        )
        has_profiling = any(name.startswith("DCGM_FI_PROF_") for name in families)
        finding = f"{model}{divided} does not provide: {', '.join(families)}"
        yield ok("families", finding, advice if has_profiling else "")


def has_gpu(pci: Path) -> bool:
    """Whether the PCI bus has an NVIDIA GPU, with or without a driver."""
    for vendor in pci.glob("*/vendor"):
        with suppress(OSError, UnicodeDecodeError):
            pci_class = vendor.with_name("class").read_text(encoding="ascii")[:6]
            if vendor.read_text(encoding="ascii").strip() == NVIDIA_VENDOR and pci_class in DISPLAY_CLASSES:
                return True
    return False


def check_devices(dev: Path = Path("/dev")) -> Iterator[CheckResult]:
    """Every process that uses a GPU opens these for reading and writing."""
    devices = [
        path for path in sorted(dev.glob("nvidia*")) if path.name.removeprefix("nvidia")[:1] in (*"0123456789", "c")
    ]
    if not devices:
        yield skip("devices", "there is no /dev/nvidia*", NOT_FOR_AGENT)
        return
    closed = [path for path in devices if not os.access(path, os.R_OK | os.W_OK)]
    for path in closed:
        yield fail(
            "devices",
            f"this user may not open {path}",
            f"it belongs to group {_group(path)}: join the group, run as root, or give the container the nvidia "
            "runtime class",
        )
    if not closed:
        yield ok("devices", f"{count(len(devices), 'device')} can be opened")


def _group(path: Path) -> str:
    """Its group and mode: `video (crw-rw----)`."""
    try:
        return f"{path.group()} ({stat.filemode(path.stat().st_mode)})"
    except (KeyError, OSError):
        return "?"


HOSTENGINE_FLAG = "--dcgm-hostengine"
HOSTENGINE_VARIABLES = ("GPUSTEWARD_DCGM_HOSTENGINE", "DCGM_REMOTE_HOSTENGINE_INFO")


def find_hostengine(flag: str | None, environ: Mapping[str, str]) -> Hostengine | None:
    """The hostengine of the flag, else of the agent's variables. Raises ConfigurationError."""
    variable = find_variable(HOSTENGINE_VARIABLES, environ)
    text = flag or (environ[variable] if variable else "")
    try:
        return parse_hostengine(text) if text else None
    except InvalidSettingError as error:
        raise ConfigurationError(f"{HOSTENGINE_FLAG if flag else variable}: {text!r}: {error.problem}") from error


def check_hostengine(
    hostengine: Hostengine | None, *, timeout_seconds: float = TIMEOUT_SECONDS
) -> Iterator[CheckResult]:
    """Connect as the agent does, ask what each GPU supports, disconnect. A call that hangs is abandoned."""
    if hostengine is None:
        yield skip(
            "dcgm",
            "no DCGM hostengine is configured",
            "no action needed on Hopper and newer; on older GPUs, profiling fields such as Tensor Core "
            "activity and the utilization of MIG instances need one: set --dcgm-hostengine of the agent, "
            "or agent.profiling.hostengine of the chart",
        )
        return
    from gpusteward.agent.dcgm.client import describe_hostengine

    try:
        report = wait_for(lambda: describe_hostengine(hostengine), timeout_seconds)
    except TimeoutError:
        yield fail(
            "dcgm",
            f"the hostengine {hostengine} did not respond within {timeout_seconds:.0f} s",
            "restart the hostengine, and check its log",
        )
    except SourceError as error:
        yield fail(
            "dcgm",
            f"the hostengine {hostengine} cannot be used: {error}",
            "check the address, that nv-hostengine runs (the GPU operator runs it as nvidia-dcgm), and "
            "that libdcgm of the same major version is installed here",
        )
    else:
        yield from _describe_report(report)


def _describe_report(report: "HostengineReport") -> Iterator[CheckResult]:
    gpus = count(len(report.fields_by_gpu), "GPU")
    yield ok("dcgm", f"the hostengine {report.hostengine} responds; DCGM {report.version}, {gpus}")
    by_fields: dict[tuple[str, ...], list[str]] = {}
    for uuid, names in report.fields_by_gpu.items():
        by_fields.setdefault(names, []).append(uuid)
    for names, uuids in by_fields.items():
        these = f"{count(len(uuids), 'GPU')} (such as {uuids[0]})"
        if names:
            yield ok("dcgm", f"{these}: {', '.join(names)}")
        else:
            yield warn(
                "dcgm",
                f"{these} without profiling fields",
                "DCGM does not profile GeForce GPUs; on data center GPUs the hostengine must run as root "
                "or with CAP_SYS_ADMIN",
            )


MAX_PROCESSES = 500
KUBELET_SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
KUBELET_SECONDS = 3.0


def check_proc(proc: Path = Path("/proc"), *, in_container: bool = False) -> Iterator[CheckResult]:
    """Whether processes of the host are visible and their cgroups readable."""
    try:
        pids = sorted(int(each.name) for each in proc.iterdir() if each.name.isdigit())[:MAX_PROCESSES]
    except OSError as error:
        yield fail(
            "processes",
            f"{proc} cannot be read: {explain_os_error(error)}",
            "mount the host's /proc and set its path with --proc",
        )
        return
    hidden = sum(_is_hidden(proc / str(pid) / "cgroup") for pid in pids)
    processes = count(len(pids), "process", "processes")
    if hidden:
        yield fail(
            "processes",
            f"the cgroups of {hidden} of {processes} cannot be read",
            "run as root, or mount /proc without hidepid",
        )
    elif in_container and not (proc / "2" / "comm").exists():  # kthreadd, which exists on every host
        yield warn(
            "processes",
            f"only {count(len(pids), 'process is', 'processes are')} visible: this is a separate PID namespace",
            "an agent needs hostPID: true to identify the processes of other pods",
        )
    else:
        yield ok("processes", f"{processes} visible, all cgroups readable")


def _is_hidden(path: Path) -> bool:
    """A process that has ended meanwhile is not hidden."""
    try:
        path.read_bytes()
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def check_cgroups(root: Path = Path("/sys/fs/cgroup")) -> Iterator[CheckResult]:
    if not root.is_dir():
        yield warn("cgroups", f"{root} does not exist", "mount /sys/fs/cgroup of the host")
        return
    yield ok("cgroups", "cgroup v2" if (root / "cgroup.controllers").exists() else "cgroup v1")


def check_kubelet(path: Path = KUBELET_SOCKET, *, is_node: bool) -> Iterator[CheckResult]:
    """Query the socket as the agent does. `is_node`: a kubelet is expected here."""
    if not path.exists():
        if is_node:
            yield fail(
                "kubelet",
                f"{path} does not exist",
                "mount /var/lib/kubelet/pod-resources of the host into the pod, or set the socket with "
                "--kubelet-socket",
            )
        else:
            yield skip("kubelet", "no kubelet on this machine", "no action needed unless this is a node of a cluster")
        return
    try:
        claims = _count_claims(path)
    except (OSError, SourceError) as error:
        reason = explain_os_error(error) if isinstance(error, OSError) else error
        yield fail(
            "kubelet",
            f"no response on {path}: {reason}",
            "the socket belongs to root: run the agent as root, and check that the kubelet is running",
        )
        return
    yield ok(
        "kubelet",
        "it is listening; to query it, run pip install gpusteward"
        if claims is None
        else f"it responds; {count(claims, 'GPU claim')} on this node",
    )


def _count_claims(path: Path) -> int | None:
    """None if it listens, but the libraries to query it are missing. Raises OSError, SourceError."""
    try:
        from gpusteward.agent.kubernetes.kubelet import KubeletClient
    except ModuleNotFoundError:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(KUBELET_SECONDS)
            connection.connect(str(path))
        return None
    kubelet = KubeletClient(path, timeout_seconds=KUBELET_SECONDS)
    try:
        return len(kubelet.read().claims)
    finally:
        kubelet.close()
