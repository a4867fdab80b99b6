"""The text of /proc/PID/cgroup -> pod uid, container id, QoS class. Pure; never raises.

    12:memory:/kubepods/burstable/pod<uid>/<id>                                 cgroupfs driver
    0::/kubepods.slice/kubepods-pod<uid>.slice/cri-containerd-<id>.scope        systemd driver
    0::/../../kubepods-pod<uid>.slice:cri-containerd:<id>                       seen from another cgroup namespace

A line is a path, a path is a row of names, and a name is a pod's, a container's or nobody's. Runtimes differ only in
the prefix they put before the 64 hexadecimal digits of a container's id, so any prefix will do. LXC, systemd-nspawn,
virtual machines and Slurm jobs are nobody's on purpose: Kubernetes knows nothing of them, to it they are the host.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_UUID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}"
_END = r"(?=/|\Z)"  # of a name
_POD = re.compile(rf"/(?:([^/]*)-)?pod({_UUID}|[0-9a-f]{{32}})(?:\.slice)?{_END}")
"""`pod<uid>`, or a slice that begins with the names of its parents; 32 digits are a static pod's uid."""
_CONTAINERS = (
    # A unit of systemd with an id in its name is a container only if a scope: podman's health checks are services.
    re.compile(rf"/(?:[^/]*-)?([0-9a-f]{{64}})(?:\.(?!mount|service|slice)\w+)?{_END}"),
    re.compile(rf"/([0-9a-f]{{32}}-[0-9]+){_END}"),  # Fargate: task id and a number
    re.compile(rf"/([0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{4}}){_END}"),  # Cloud Foundry
    re.compile(rf"(?<!/)(?<!/lxc)/({_UUID}){_END}"),  # Mesos, Concourse; in the root or below lxc it is a machine's
)
"""The shapes of a container's name, the strongest evidence first."""
_OUTSIDE = re.compile(
    r"/(?:[^/]*-)?(?:conmon|kata[-_]overhead|kata_sandboxed_pod)"
    rf"(?:-[0-9a-f]{{64}})?(?:\.scope|\.slice)?{_END}"
)
"""A name that says: what lies here belongs to a container, but runs outside of it."""
_QOS = {"besteffort": "besteffort", "burstable": "burstable", "kubepods": "guaranteed"}
"""The cgroup a pod lies in; guaranteed pods have none of their own and lie in the root of all pods."""
_PLAIN = str.maketrans({":": "/", " ": ""})
"""A systemd path taken for a plain one, `slice:prefix:id`, is the names it stands for."""


@dataclass(frozen=True, slots=True)
class CgroupIdentity:
    """What a cgroup path says of its processes. Empty: it does not say."""

    pod_uid: str = ""
    container_id: str = ""
    qos: str = ""

    @property
    def is_container(self) -> bool:
        return bool(self.pod_uid or self.container_id)


def parse_cgroup(text: str | bytes) -> CgroupIdentity:
    """What the most telling line says: on hybrid hosts some controllers stay in the root or in a service."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    identities = (_parse_path(path) for path in iterate_paths(text))
    return max(identities, key=_count_ids, default=CgroupIdentity())


def iterate_paths(text: str) -> Iterator[str]:
    """The path of each well-formed line, `hierarchy:controllers:path`; a path may hold more colons."""
    for line in text.split("\n"):
        hierarchy, _, rest = line.strip().partition(":")
        _, colon, path = rest.partition(":")
        if hierarchy.isdecimal() and colon:
            yield path.removesuffix(" (deleted)")  # the kernel's mark on a cgroup that is gone


def _count_ids(identity: CgroupIdentity) -> int:
    return 2 * bool(identity.pod_uid) + bool(identity.container_id)


def _parse_path(path: str) -> CgroupIdentity:
    """The innermost pod and its container: in kind and minikube a node is a container itself."""
    names = "/" + path.replace(r"\x2d", "-").translate(_PLAIN)  # \x2d: how systemd writes a dash inside a name
    *_, pod = (None, *_POD.finditer(names))
    if pod is None:
        return CgroupIdentity(container_id=_find_container(names, None))
    home = pod[1] or names[: pod.start()].rpartition("/")[2]
    return CgroupIdentity(
        pod_uid=pod[2].replace("_", "-"),
        container_id=_find_container(names, pod),
        qos=_QOS.get(home.removesuffix(".slice").rpartition("-")[2], ""),
    )


def _find_container(names: str, pod: re.Match[str] | None) -> str:
    """Below a pod the first container is the one Kubernetes knows; what that runs inside itself is its own affair.

    Without a pod the innermost container wins.
    """
    for shape in _CONTAINERS:
        if found := list(shape.finditer(names, pod.end() if pod else 0)):
            container, end = (found[0], found[0].end()) if pod else (found[-1], len(names))
            return "" if _OUTSIDE.search(names, 0, end) else container[1]
    return ""
