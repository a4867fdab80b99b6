"""/proc: pid -> name, place, pod uid, container id. Looked up once in the life of a process."""

import os
import pwd
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gpusteward.agent.proc.cgroups import CgroupIdentity, iterate_paths, parse_cgroup
from gpusteward.core.gpus import Place

_CHUNK = 1 << 16  # a cgroup file has a line per controller, far less than this
_NAME_LIMIT = 256  # a name becomes a label: an argv[0] of megabytes must not
_HOST_CGROUP_NAMESPACE = "cgroup:[4026531835]"  # fixed in the kernel: PROC_CGROUP_INIT_INO


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Who a process is. Empty: not known, or not in a container."""

    name: str = ""
    place: Place = Place.UNKNOWN
    pod_uid: str = ""
    container_id: str = ""
    user: str = ""  # who it runs as, a number where no name is known


_NOBODY = ProcessIdentity()


@dataclass(slots=True)
class _Known:
    """A process that was looked up."""

    started: bytes
    inode: tuple[int, int]  # of its `stat`
    identity: ProcessIdentity


class ProcessTable:
    """The processes of the /proc under `root`. A process already known costs one look at the inode of its `stat`.

    The kernel makes the inodes of a process when somebody looks, numbers and dates them then, and drops them with the
    process: the same inode is the same process. One that was dropped from the cache only is another inode, and the
    start time tells.
    """

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._root = str(root)
        self._known: dict[int, _Known] = {}

    def identify(self, pid: int) -> ProcessIdentity:
        """Never raises: gone, forbidden, or of another PID namespace is `Place.UNKNOWN`, and asked again next time."""
        try:
            inode = self._find_inode(pid)
            known = self._known.get(pid)
            if known is None or known.inode != inode:
                known = self._known[pid] = self._meet(pid, inode, known)
        except (OSError, ValueError):
            self._known.pop(pid, None)
            return _NOBODY
        return known.identity

    def _meet(self, pid: int, inode: tuple[int, int], before: _Known | None) -> _Known:
        comm, started = self._read_stat(pid)
        if before is not None and before.started == started:
            return _Known(started, inode, before.identity)
        identity = self._look_up(pid, comm)
        if self._read_stat(pid)[1] != started:
            raise ValueError("the pid found a new owner while we read")
        return _Known(started, inode, identity)

    def _find_inode(self, pid: int) -> tuple[int, int]:
        found = os.stat(f"{self._root}/{pid}/stat")  # noqa: PTH116 - pathlib takes three times as long, for each process
        return found.st_ino, found.st_ctime_ns

    def forget_except(self, pids: Collection[int]) -> None:
        """Keep what is known of these processes only."""
        self._known = {pid: self._known[pid] for pid in pids if pid in self._known}

    def _read_stat(self, pid: int) -> tuple[bytes, bytes]:
        """Name and start time: fields 2 and 22. The name stands in brackets and may hold brackets and blanks itself."""
        before, closing, after = self._read(pid, "stat").rpartition(b")")
        fields = after.split()
        if not closing or len(fields) < 20:
            raise ValueError("not the stat of a process")
        return before.partition(b"(")[2], fields[19]

    def _look_up(self, pid: int, comm: bytes) -> ProcessIdentity:
        text = self._read(pid, "cgroup").decode("utf-8", "replace")
        cgroup = parse_cgroup(text)
        name = self._read_name(pid) or comm
        return ProcessIdentity(
            name=name[:_NAME_LIMIT].decode("utf-8", "replace"),
            place=self._tell_place(cgroup, text),
            pod_uid=cgroup.pod_uid,
            container_id=cgroup.container_id,
            user=_name_user(Path(self._root, str(pid)).stat().st_uid),
        )

    def _read_name(self, pid: int) -> bytes:
        """argv[0] up to its first blank, never more: arguments may be secrets, and a process that writes itself a
        title (`nginx: worker`, `ray::train --token ...`) puts its arguments into argv[0] too.
        """
        try:
            words = self._read(pid, "cmdline").partition(b"\0")[0].split(maxsplit=1)
        except OSError:
            return b""
        return words[0] if words else b""

    def _tell_place(self, cgroup: CgroupIdentity, text: str) -> Place:
        """The kernel shows cgroups relative to the cgroup namespace of whoever reads.

        With the host's namespace `/` is the root cgroup: the host. With one of our own `/` is the container we run
        in, the agent's, which names no pod; others then begin with `/../`, and one that goes up without coming down
        is the host's root, because inner cgroups hold no processes.
        """
        if cgroup.is_container:
            return Place.CONTAINER
        paths = set(iterate_paths(text))
        if not paths or (paths == {"/"} and not self._sees_host_cgroups):
            return Place.UNKNOWN
        return Place.HOST

    @cached_property
    def _sees_host_cgroups(self) -> bool:
        try:
            return str(Path(self._root, "self/ns/cgroup").readlink()) == _HOST_CGROUP_NAMESPACE
        except OSError:
            return True  # a kernel without cgroup namespaces

    def _read(self, pid: int, file: str) -> bytes:
        """One system call where others take five: this runs for every process in every cycle."""
        descriptor = os.open(f"{self._root}/{pid}/{file}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, _CHUNK)
        finally:
            os.close(descriptor)


def _name_user(number: int) -> str:
    """As this machine knows it; in a container of its own, names of the host are unknown."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
