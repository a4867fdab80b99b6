"""Who runs on a GPU: a container of a pod of a workload."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Workload:
    """The root owner of a pod, as far as it is known: what a person deployed."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Container:
    """One container. Names are empty where only its cgroup is known; uids where only the kubelet spoke."""

    namespace: str = ""
    pod: str = ""
    pod_uid: str = ""
    name: str = ""
    workload: Workload | None = field(default=None, compare=False)
    pod_labels: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    started_at: float | None = field(default=None, compare=False)  # when the pod started, unix seconds
