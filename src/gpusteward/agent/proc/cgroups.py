"""The text of /proc/PID/cgroup -> pod uid, container id, QoS class. Pure; never raises.

    12:memory:/kubepods/burstable/pod<uid>/<id>                                 cgroupfs driver
    0::/kubepods.slice/kubepods-pod<uid>.slice/cri-containerd-<id>.scope        systemd driver
    0::/../../kubepods-pod<uid>.slice:cri-containerd:<id>                       seen from another cgroup namespace

A line is a path, a path is a row of names, and a name is a pod's, a container's or nobody's. Runtimes differ only in
the prefix they put before the 64 hexadecimal digits of a container's id, so any prefix will do. LXC, systemd-nspawn,
virtual machines and Slurm jobs are nobody's on purpose: Kubernetes knows nothing of them, to it they are the host.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_UUID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}"
_POD = re.compile(rf"(?:(.*)-)?pod({_UUID}|[0-9a-f]{{32}})(?:\.slice)?")
"""`pod<uid>`, or a slice that begins with the names of its parents; 32 digits are a static pod's uid."""
_CONTAINER = re.compile(r"(?:(.*)-)?([0-9a-f]{64})(?:\.scope)?")
_BY_PARENT = {
    "ecs": re.compile(r"[0-9a-f]{32}-[0-9]+"),  # Fargate: task id and a number
    "garden": re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){4}"),  # Cloud Foundry
}
"""Ids of other shapes, believed only somewhere below the name that explains them."""
_WATCHERS = ("conmon", "kata_overhead")
"""A prefix or parent that says: this belongs to a container, but runs outside of it."""
_QOS = {"besteffort": "besteffort", "burstable": "burstable", "kubepods": "guaranteed"}
"""The cgroup a pod lies in; guaranteed pods have none of their own and lie in the root of all pods."""
_ESCAPE = re.compile(r"\\x([0-9a-f]{2})")  # how systemd writes a dash inside a name


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
    """The innermost pod and its container: in kind and minikube a node is a container itself.

    Below a pod the first container is the one Kubernetes knows; what that runs inside itself is its own affair.
    Without a pod the innermost container wins.
    """
    names = list(_split(path))
    for place in range(len(names) - 1, -1, -1):
        if pod := _POD.fullmatch(names[place]):
            home = pod[1] or (names[place - 1] if place else "")
            return CgroupIdentity(
                pod_uid=pod[2].replace("_", "-"),
                container_id=next(_find_containers(names, place + 1), "") or _uuid_below(names, place),
                qos=_QOS.get(home.removesuffix(".slice").rpartition("-")[2], ""),
            )
    *_, innermost = ("", *_find_containers(names, 0))
    return CgroupIdentity(container_id=innermost)


def _split(path: str) -> Iterator[str]:
    """Names of a path. A systemd path taken for a plain one, `slice:prefix:id`, is the names it stands for."""
    for part in path.split("/"):
        name = _ESCAPE.sub(lambda code: chr(int(code[1], 16)), part) if "\\" in part else part
        outer, colon, inner = name.partition(":")
        yield outer
        if colon:
            yield inner.replace(":", "-")


def _find_containers(names: Sequence[str], start: int) -> Iterator[str]:
    for place in range(start, len(names)):
        if container := _match_container(names, place):
            yield container


def _match_container(names: Sequence[str], place: int) -> str:
    name, parent = names[place], names[place - 1] if place else ""
    if match := _CONTAINER.fullmatch(name):
        return "" if (match[1] or parent).endswith(_WATCHERS) else match[2]
    for ancestor in names[:place]:
        if ancestor in _BY_PARENT and _BY_PARENT[ancestor].fullmatch(name):
            return name
    return ""


def _uuid_below(names: Sequence[str], place: int) -> str:
    """Some runtimes name containers by uuid; directly below a pod nothing else has such a name."""
    below = names[place + 1] if place + 1 < len(names) else ""
    return below if re.fullmatch(_UUID, below) else ""
