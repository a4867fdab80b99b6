"""/proc and cgroups: how the agent tells which pod a process belongs to."""

from collections.abc import Iterator
from pathlib import Path

from gpusteward.cli.doctor.findings import Finding, Status
from gpusteward.core.messages import Message

MOST_LOOKED_AT = 500

NO_PROC = Message("{path} cannot be read: {reason}", "无法读取 {path}：{reason}")
MOUNT = Message("mount the host's /proc, and name it with --proc", "请挂载宿主机的 /proc，并用 --proc 指定其位置")
SEEN = Message(
    "{count} {count:|process|processes} seen, all their cgroups readable", "可见 {count} 个进程，cgroup 均可读取"
)
ALONE = Message(
    "only {count} {count:|process is|processes are} seen: this is a PID namespace of its own",
    "仅可见 {count} 个进程：处于独立的 PID 命名空间",
)
HOST_PID = Message(
    "an agent needs hostPID: true to name the processes of other pods",
    "agent 需要 hostPID: true 才能识别其他 Pod 的进程",
)
HIDDEN = Message(
    "the cgroups of {hidden} of {count} {count:|process|processes} may not be read",
    "{count} 个进程中有 {hidden} 个的 cgroup 不可读",
)
UNHIDE = Message("run as root, or mount /proc without hidepid", "以 root 运行，或在挂载 /proc 时去掉 hidepid")
VERSION = Message("cgroup {version}", "cgroup {version}")
NO_CGROUP = Message("{path} is not there", "{path} 不存在")
MOUNT_CGROUP = Message("mount /sys/fs/cgroup of the host", "请挂载宿主机的 /sys/fs/cgroup")


def check_proc(proc: Path = Path("/proc"), *, in_container: bool = False) -> Iterator[Finding]:
    """A look at some processes of all kinds."""
    try:
        pids = sorted(int(each.name) for each in proc.iterdir() if each.name.isdigit())[:MOST_LOOKED_AT]
    except OSError as error:
        yield Finding("processes", Status.FAIL, NO_PROC, MOUNT, {"path": proc, "reason": error.strerror})
        return
    hidden = sum(_is_hidden(proc / str(pid) / "cgroup") for pid in pids)
    facts = {"count": len(pids), "hidden": hidden}
    if hidden:
        yield Finding("processes", Status.FAIL, HIDDEN, UNHIDE, facts)
    elif in_container and not (proc / "2" / "comm").exists():  # kthreadd, which every host has
        yield Finding("processes", Status.WARN, ALONE, HOST_PID, facts)
    else:
        yield Finding("processes", Status.OK, SEEN, facts=facts)


def _is_hidden(path: Path) -> bool:
    """A process that ended meanwhile is not hidden."""
    try:
        path.read_bytes()
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def check_cgroups(root: Path = Path("/sys/fs/cgroup")) -> Iterator[Finding]:
    if not root.is_dir():
        yield Finding("cgroups", Status.WARN, NO_CGROUP, MOUNT_CGROUP, {"path": root})
        return
    version = "v2" if (root / "cgroup.controllers").exists() else "v1"
    yield Finding("cgroups", Status.OK, VERSION, facts={"version": version})
