"""Parses /proc/PID/cgroup into pod uid, container id and QoS class (pure, never raises).

    12:memory:/kubepods/burstable/pod<uid>/<id>                                 cgroupfs driver
    0::/kubepods.slice/kubepods-pod<uid>.slice/cri-containerd-<id>.scope        systemd driver
    0::/../../kubepods-pod<uid>.slice:cri-containerd:<id>                       seen from another cgroup namespace

Each line has a path, and each name in the path belongs to a pod, to a container, or to neither. Runtimes differ only in
the prefix of the container id of 64 hexadecimal digits, so any prefix is accepted. LXC, systemd-nspawn, virtual
machines and Slurm jobs deliberately match neither: Kubernetes does not know them, so they count as the host.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

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
    return max(identities, key=_count_ids, default=CgroupIdentity())


def iterate_paths(text: str) -> Iterator[str]:
    """The path of each valid line, `hierarchy:controllers:path`; a path may contain colons."""
    for line in text.split("\n"):
        hierarchy, _, rest = line.strip().partition(":")
        _, colon, path = rest.partition(":")
        if hierarchy.isdecimal() and colon:
            yield path.removesuffix(" (deleted)")  # appended by the kernel for a removed cgroup


def _count_ids(identity: CgroupIdentity) -> int:
    return 2 * bool(identity.pod_uid) + bool(identity.container_id)


def _parse_path(path: str) -> CgroupIdentity:
    """The innermost pod and its container: in kind and minikube a node is a container itself."""
    names = "/" + path.replace(r"\x2d", "-").translate(_PLAIN)  # \x2d: systemd's escape for a dash inside a name
    pods = list(_POD.finditer(names))
    outer = _find_containers(names, pods[0].start() if pods else len(names))
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


def _find_containers(names: str, end: int) -> tuple[CgroupIdentity, ...]:
    """The containers outside of any pod; a kubelet without cgroups per pod puts those of its pods there."""
    return tuple(CgroupIdentity(container_id=found[1]) for found in _CONTAINERS[0].finditer(names, 0, end))
