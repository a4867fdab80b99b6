"""Reads the identity of processes from /proc: name, user, place, pod uid and container id. Cached per process.

Pod and container come from the paths in /proc/PID/cgroup; `parse_cgroup` is pure and never raises:

    12:memory:/kubepods/burstable/pod<uid>/<id>                                 cgroupfs driver
    0::/kubepods.slice/kubepods-pod<uid>.slice/cri-containerd-<id>.scope        systemd driver
    0::/../../kubepods-pod<uid>.slice:cri-containerd:<id>                       seen from another cgroup namespace

Each name in a path belongs to a pod, to a container, or to neither. Runtimes differ only in the prefix of the container
id of 64 hexadecimal digits, so any prefix is accepted. LXC, systemd-nspawn, virtual machines and Slurm jobs
deliberately match neither: Kubernetes does not know them, so they count as the host.
"""

import os
import pwd
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from gpusteward.core.node.gpus import Place

_UUID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}"
_END = r"(?=/|\Z)"  # of a name
_POD = re.compile(rf"/(?:([^/]*)-)?pod({_UUID}|[0-9a-f]{{32}})(?:\.slice)?{_END}")
"""`pod<uid>`, or a slice that begins with the names of its parents; 32 digits are a static pod's uid."""
_CONTAINERS = (
    # A systemd unit with an id in its name is a container only if it is a scope: podman's health checks are services.
    re.compile(rf"/(?:[^/]*-)?([0-9a-f]{{64}})(?:\.(?!mount|service|slice)\w+)?{_END}"),
    re.compile(rf"/([0-9a-f]{{32}}-[0-9]+){_END}"),  # Fargate: task id and a number
    re.compile(rf"/([0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{4}}){_END}"),  # Cloud Foundry
    re.compile(rf"(?<!/)(?<!/lxc)/({_UUID}){_END}"),  # Mesos, Concourse; in the root or below lxc it is a machine
)
"""Patterns of container names, the most reliable first."""
_OUTSIDE = re.compile(
    r"/(?:[^/]*-)?(?:conmon|kata[-_]overhead|kata_sandboxed_pod)"
    rf"(?:-[0-9a-f]{{64}})?(?:\.scope|\.slice)?{_END}"
)
"""Names of cgroups that belong to a container but run outside of it."""
_QOS = {"besteffort": "besteffort", "burstable": "burstable", "kubepods": "guaranteed"}
"""Parent cgroup of a pod -> QoS class; guaranteed pods are directly in the root cgroup of all pods."""
_PLAIN = str.maketrans({":": "/", " ": ""})
"""Splits a systemd path written as a plain one, `slice:prefix:id`, into its names."""


@dataclass(frozen=True, slots=True)
class CgroupIdentity:
    """Pod and container of a cgroup path; empty where the path does not contain them."""

    pod_uid: str = ""
    container_id: str = ""
    qos: str = ""
    outer: tuple["CgroupIdentity", ...] = ()
    """The pods and containers that enclose it, the outermost first. Whoever may create cgroups inside a container can
    name them after another pod; who runs a whole Kubernetes inside a container does so too."""

    @property
    def is_container(self) -> bool:
        return bool(self.pod_uid or self.container_id)


def parse_cgroup(text: str | bytes) -> CgroupIdentity:
    """The identity of the most specific line: on hybrid hosts some controllers stay in the root or in a service."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    identities = (_parse_path(path) for path in iterate_paths(text))
    return max(identities, key=lambda each: (bool(each.pod_uid), bool(each.container_id)), default=CgroupIdentity())


def iterate_paths(text: str) -> Iterator[str]:
    """The path of each valid line, `hierarchy:controllers:path`; a path may contain colons."""
    for line in text.split("\n"):
        hierarchy, _, rest = line.strip().partition(":")
        _, colon, path = rest.partition(":")
        if hierarchy.isdecimal() and colon:
            yield path.removesuffix(" (deleted)")  # appended by the kernel for a removed cgroup


def _parse_path(path: str) -> CgroupIdentity:
    """The innermost pod and its container: in kind and minikube a node is a container itself."""
    names = "/" + path.replace(r"\x2d", "-").translate(_PLAIN)  # \x2d: systemd's escape for a dash inside a name
    pods = list(_POD.finditer(names))
    # The containers outside of any pod; a kubelet without cgroups per pod puts those of its pods there.
    end = pods[0].start() if pods else len(names)
    outer = tuple(CgroupIdentity(container_id=found[1]) for found in _CONTAINERS[0].finditer(names, 0, end))
    if not pods:
        container_id = _find_container(names, 0, len(names), is_in_pod=False)
        return CgroupIdentity(container_id=container_id, outer=outer[:-1] if container_id else ())
    ends = [*(pod.start() for pod in pods[1:]), len(names)]
    *enclosing, pod = (_read_pod(names, pod, end) for pod, end in zip(pods, ends, strict=True))
    return replace(pod, outer=(*outer, *enclosing))


def _read_pod(names: str, pod: re.Match[str], end: int) -> CgroupIdentity:
    home = pod[1] or names[: pod.start()].rpartition("/")[2]
    return CgroupIdentity(
        pod_uid=pod[2].replace("_", "-"),
        container_id=_find_container(names, pod.end(), end, is_in_pod=True),
        qos=_QOS.get(home.removesuffix(".slice").rpartition("-")[2], ""),
    )


def _find_container(names: str, start: int, end: int, *, is_in_pod: bool) -> str:
    """Below a pod, the outermost container, which is the one Kubernetes knows; without a pod, the innermost one."""
    for shape in _CONTAINERS:
        if found := list(shape.finditer(names, start, end)):
            container, end = (found[0], found[0].end()) if is_in_pod else (found[-1], len(names))
            return "" if _OUTSIDE.search(names, 0, end) else container[1]
    return ""


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
            # pathlib takes three times as long, for each process
            found = os.stat(f"{self._root}/{pid}/stat")  # noqa: PTH116
            inode = found.st_ino, found.st_ctime_ns
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
        text = self._read(pid, "cgroup").decode("utf-8", "replace")
        cgroup = parse_cgroup(text)
        identity = ProcessIdentity(
            name=(self._read_name(pid) or comm)[:_NAME_LIMIT].decode("utf-8", "replace"),
            place=self._find_place(cgroup, text),
            pod_uid=cgroup.pod_uid,
            container_id=cgroup.container_id,
            user=_name_user(Path(self._root, str(pid)).stat().st_uid),
            outer=cgroup.outer,
        )
        if self._read_stat(pid)[1] != started:
            raise ValueError("the pid was reused during the read")
        return _CachedProcess(started, inode, identity)

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
