"""The node: /proc and cgroups, which attribute processes to pods, and the kubelet's pod-resources socket."""

import socket
from collections.abc import Iterator
from pathlib import Path

from gpusteward.cli.doctor.check_results import CheckResult, Status
from gpusteward.core.errors import SourceError
from gpusteward.messages.cli import doctor as messages
from gpusteward.messages.errors.os_errors import explain_os_error

MAX_PROCESSES = 500
KUBELET_SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
TIMEOUT_SECONDS = 3.0


def check_proc(proc: Path = Path("/proc"), *, in_container: bool = False) -> Iterator[CheckResult]:
    """Whether processes of the host are visible and their cgroups readable."""
    try:
        pids = sorted(int(each.name) for each in proc.iterdir() if each.name.isdigit())[:MAX_PROCESSES]
    except OSError as error:
        yield CheckResult(
            "processes",
            Status.FAIL,
            messages.CANNOT_READ,
            messages.MOUNT_PROC,
            {"path": proc, "reason": explain_os_error(error)},
        )
        return
    hidden = sum(_is_hidden(proc / str(pid) / "cgroup") for pid in pids)
    fields = {"count": len(pids), "hidden": hidden}
    if hidden:
        yield CheckResult("processes", Status.FAIL, messages.CGROUPS_HIDDEN, messages.UNHIDE_PROC, fields)
    elif in_container and not (proc / "2" / "comm").exists():  # kthreadd, which exists on every host
        yield CheckResult("processes", Status.WARN, messages.OWN_PID_NAMESPACE, messages.SET_HOST_PID, fields)
    else:
        yield CheckResult("processes", Status.OK, messages.PROCESSES_SEEN, fields=fields)


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
        yield CheckResult("cgroups", Status.WARN, messages.MISSING_PATH, messages.MOUNT_CGROUP, {"path": root})
        return
    version = "v2" if (root / "cgroup.controllers").exists() else "v1"
    yield CheckResult("cgroups", Status.OK, messages.CGROUP_VERSION, fields={"version": version})


def check_kubelet(path: Path = KUBELET_SOCKET, *, is_node: bool) -> Iterator[CheckResult]:
    """Query the socket as the agent does. `is_node`: a kubelet is expected here."""
    if not path.exists():
        if is_node:
            yield CheckResult("kubelet", Status.FAIL, messages.MISSING_PATH, messages.MOUNT_SOCKET, {"path": path})
        else:
            yield CheckResult("kubelet", Status.SKIP, messages.NO_KUBELET, messages.ONLY_ON_NODES)
        return
    try:
        claims = _count_claims(path)
    except (OSError, SourceError) as error:
        reason = explain_os_error(error) if isinstance(error, OSError) else error
        fields = {"path": path, "reason": reason}
        yield CheckResult("kubelet", Status.FAIL, messages.SOCKET_FAILS, messages.RUN_AS_ROOT, fields)
        return
    yield CheckResult(
        "kubelet", Status.OK, messages.SOCKET_LISTENS if claims is None else messages.CLAIMS, fields={"claims": claims}
    )


def _count_claims(path: Path) -> int | None:
    """None if it listens, but the libraries to query it are missing. Raises OSError, SourceError."""
    try:
        from gpusteward.agent.kubernetes.kubelet import KubeletClient
    except ModuleNotFoundError:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT_SECONDS)
            connection.connect(str(path))
        return None
    kubelet = KubeletClient(path, timeout_seconds=TIMEOUT_SECONDS)
    try:
        return len(kubelet.read())
    finally:
        kubelet.close()
