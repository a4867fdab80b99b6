"""Who runs on a GPU: a container of a pod of a workload."""

from collections.abc import Mapping
from dataclasses import dataclass, field

USER_LABELS = (
    "gpusteward.io/user",
    "hub.jupyter.org/username",  # JupyterHub's KubeSpawner
    "opendatahub.io/user",  # Open Data Hub, OpenShift AI
    "com.coder.user.username",  # Coder's Kubernetes templates
    "user",
)
"""Labels of a pod that name whose it is; the first one there counts."""


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
    user: str = field(default="", compare=False)  # whose it is, where anything says so


def find_user(labels: Mapping[str, str]) -> str:
    """Whose a pod with these labels is; empty: nobody is named."""
    return next((labels[name] for name in USER_LABELS if labels.get(name)), "")
