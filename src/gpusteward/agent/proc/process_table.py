"""Reads the identity of processes from /proc: name, user, place, pod uid and container id. Cached per process."""

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
    """The identity of a process. Empty: unknown, or not in a container."""

    name: str = ""
    place: Place = Place.UNKNOWN
    pod_uid: str = ""
    container_id: str = ""
    user: str = ""  # the user it runs as; a number if the name is unknown
    outer: tuple[CgroupIdentity, ...] = ()  # pods and containers that enclose its own, the outermost first


_NO_IDENTITY = ProcessIdentity()


@dataclass(slots=True)
class _CachedProcess:
    """A cached identity."""

    started: bytes
    inode: tuple[int, int]  # of its `stat`
    identity: ProcessIdentity


class ProcessTable:
    """The processes of the /proc mounted at `root`. A cached process costs one stat call.

    The kernel creates the /proc inodes of a process on first access, with a number and time, and drops them when the
    process ends: the same inode is the same process. If the kernel dropped an inode from its cache earlier, the start
    time shows whether it is still the same process.
    """

    def __init__(self, root: Path = Path("/proc")) -> None:
        self.root = root
        self._root = str(root)
        self._cache: dict[int, _CachedProcess] = {}

    def identify(self, pid: int) -> ProcessIdentity:
        """Never raises: a process that ended, cannot be read or is in another PID namespace is `Place.UNKNOWN`."""
        try:
            inode = self._find_inode(pid)
            cached = self._cache.get(pid)
            if cached is None or cached.inode != inode:
                cached = self._cache[pid] = self._identify(pid, inode, cached)
        except (OSError, ValueError):
            self._cache.pop(pid, None)
            return _NO_IDENTITY
        return cached.identity

    def _identify(self, pid: int, inode: tuple[int, int], before: _CachedProcess | None) -> _CachedProcess:
        comm, started = self._read_stat(pid)
        if before is not None and before.started == started:
            return _CachedProcess(started, inode, before.identity)
        identity = self._look_up(pid, comm)
        if self._read_stat(pid)[1] != started:
            raise ValueError("the pid was reused during the read")
        return _CachedProcess(started, inode, identity)

    def _find_inode(self, pid: int) -> tuple[int, int]:
        found = os.stat(f"{self._root}/{pid}/stat")  # noqa: PTH116 - pathlib takes three times as long, for each process
        return found.st_ino, found.st_ctime_ns

    def forget_except(self, pids: Collection[int]) -> None:
        """Drop all other processes from the cache."""
        self._cache = {pid: self._cache[pid] for pid in pids if pid in self._cache}

    def _read_stat(self, pid: int) -> tuple[bytes, bytes]:
        """Name and start time: fields 2 and 22. The name is in brackets and may contain brackets and blanks."""
        before, closing, after = self._read(pid, "stat").rpartition(b")")
        fields = after.split()
        if not closing or len(fields) < 20:
            raise ValueError("invalid stat file")
        return before.partition(b"(")[2], fields[19]

    def _look_up(self, pid: int, comm: bytes) -> ProcessIdentity:
        text = self._read(pid, "cgroup").decode("utf-8", "replace")
        cgroup = parse_cgroup(text)
        name = self._read_name(pid) or comm
        return ProcessIdentity(
            name=name[:_NAME_LIMIT].decode("utf-8", "replace"),
            place=self._find_place(cgroup, text),
            pod_uid=cgroup.pod_uid,
            container_id=cgroup.container_id,
            user=_name_user(Path(self._root, str(pid)).stat().st_uid),
            outer=cgroup.outer,
        )

    def _read_name(self, pid: int) -> bytes:
        """argv[0] up to its first blank, never more: arguments may contain secrets, and a process that sets its title
        (`nginx: worker`, `ray::train --token ...`) has them in argv[0] too.
        """
        try:
            words = self._read(pid, "cmdline").partition(b"\0")[0].split(maxsplit=1)
        except OSError:
            return b""
        return words[0] if words else b""

    def _find_place(self, cgroup: CgroupIdentity, text: str) -> Place:
        """Paths of cgroups are relative to the cgroup namespace of the reader.

        In the host's namespace `/` is the root cgroup: the host. In another namespace `/` is the container of the agent
        itself, without a pod in its path; other paths then begin with `/../`, and one without further names is the
        host's root, because inner cgroups have no processes.
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
        """Read with as few system calls as possible: pathlib would need five."""
        descriptor = os.open(f"{self._root}/{pid}/{file}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, _CHUNK)
        finally:
            os.close(descriptor)


def _name_user(number: int) -> str:
    """The user name on this machine; in a container the names of the host are unknown."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
