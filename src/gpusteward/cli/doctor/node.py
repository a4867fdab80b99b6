"""The node: /proc and cgroups, which attribute processes to pods, and the kubelet's pod-resources socket."""

import socket
from collections.abc import Iterator
from pathlib import Path

from gpusteward.cli.doctor.check_results import CheckResult, Status
from gpusteward.core.errors import SourceError
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
            "{path} cannot be read: {reason}",
            "mount the host's /proc and set its path with --proc",
            {"path": proc, "reason": explain_os_error(error)},
        )
        return
    hidden = sum(_is_hidden(proc / str(pid) / "cgroup") for pid in pids)
    fields = {"count": len(pids), "hidden": hidden}
    if hidden:
        yield CheckResult(
            "processes",
            Status.FAIL,
            "the cgroups of {hidden} of {count} {count:|process|processes} cannot be read",
            "run as root, or mount /proc without hidepid",
            fields,
        )
    elif in_container and not (proc / "2" / "comm").exists():  # kthreadd, which exists on every host
        yield CheckResult(
            "processes",
            Status.WARN,
            "only {count} {count:|process is|processes are} visible: this is a separate PID namespace",
            "an agent needs hostPID: true to identify the processes of other pods",
            fields,
        )
    else:
        yield CheckResult(
            "processes", Status.OK, "{count} {count:|process|processes} visible, all cgroups readable", fields=fields
        )


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
        yield CheckResult(
            "cgroups", Status.WARN, "{path} does not exist", "mount /sys/fs/cgroup of the host", {"path": root}
        )
        return
    version = "v2" if (root / "cgroup.controllers").exists() else "v1"
    yield CheckResult("cgroups", Status.OK, "cgroup {version}", fields={"version": version})


def check_kubelet(path: Path = KUBELET_SOCKET, *, is_node: bool) -> Iterator[CheckResult]:
    """Query the socket as the agent does. `is_node`: a kubelet is expected here."""
    if not path.exists():
        if is_node:
            yield CheckResult(
                "kubelet",
                Status.FAIL,
                "{path} does not exist",
                (
                    "mount /var/lib/kubelet/pod-resources of the host into the pod, or set the socket with "
                    "--kubelet-socket"
                ),
                {"path": path},
            )
        else:
            yield CheckResult(
                "kubelet",
                Status.SKIP,
                "no kubelet on this machine",
                "no action needed unless this is a node of a cluster",
            )
        return
    try:
        claims = _count_claims(path)
    except (OSError, SourceError) as error:
        reason = explain_os_error(error) if isinstance(error, OSError) else error
        fields = {"path": path, "reason": reason}
        yield CheckResult(
            "kubelet",
            Status.FAIL,
            "no response on {path}: {reason}",
            "the socket belongs to root: run the agent as root, and check that the kubelet is running",
            fields,
        )
        return
    yield CheckResult(
        "kubelet",
        Status.OK,
        "it is listening; to query it, run pip install gpusteward"
        if claims is None
        else "it responds; {claims} GPU {claims:|claim|claims} on this node",
        fields={"claims": claims},
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
