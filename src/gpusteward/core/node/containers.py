"""Containers and their workloads."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from gpusteward.core.kinds import find_kind

USER_LABELS = (
    "gpusteward.io/user",
    "hub.jupyter.org/username",  # JupyterHub's KubeSpawner
    "opendatahub.io/user",  # Open Data Hub, OpenShift AI
    "com.coder.user.username",  # Coder's Kubernetes templates
    "user",
)
"""Pod labels with the user of the pod; the first one present counts."""


class OwnerEvidence(StrEnum):
    """How the owner of a pod is known; the weakest first. Only one that was read may be acted on."""

    UNKNOWN = "unknown"  # nobody names an owner: the pod stands for it
    DERIVED = "derived"  # from names or labels of the pod
    REFERENCE = "reference"  # an owner reference names it; it was not read, and may have an owner itself
    READ = "read"  # from the API server, with its uid


EVIDENCE_ORDER = tuple(OwnerEvidence)


def weigh_reported(kind: str) -> OwnerEvidence:
    """The evidence of a workload that an agent reports by kind and name: a kind with others below it never owns a pod
    directly, so the agent has derived it."""
    return OwnerEvidence.DERIVED if find_kind(kind).children else OwnerEvidence.REFERENCE


class WorkloadKey(NamedTuple):
    """Identifies a workload."""

    kind: str
    namespace: str
    name: str
    cluster: str = ""

    @property
    def path(self) -> str:
        """As the API writes it; the cluster is a field of its own there."""
        return f"{self.kind}/{self.namespace}/{self.name}"

    @property
    def without_cluster(self) -> "WorkloadKey":
        """For what belongs to one API server. The name of a cluster is a label of its series: it may appear or change
        at any time, while the workload stays the same."""
        return self._replace(cluster="")


@dataclass(frozen=True, slots=True)
class Workload:
    """The root owner of a pod, as far as it is known: the object that was deployed."""

    kind: str
    namespace: str
    name: str
    cluster: str = ""  # empty: the only one, or unknown
    evidence: OwnerEvidence = field(default=OwnerEvidence.REFERENCE, compare=False)
    uid: str = field(default="", compare=False)  # empty: not known


@dataclass(frozen=True, slots=True)
class Container:
    """One container. Names are empty if only its cgroup is known, uids if only the kubelet lists it.

    Only the analyzer knows the cluster, and only where the series of the site name it.
    """

    namespace: str = ""
    pod: str = ""
    pod_uid: str = ""
    name: str = ""
    workload: Workload | None = field(default=None, compare=False)
    pod_labels: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    started_at: float | None = field(default=None, compare=False)  # when the pod started, unix seconds
    user: str = field(default="", compare=False)  # the user of the pod, if known
    cluster: str = ""

    @property
    def workload_key(self) -> WorkloadKey:
        """Of its root owner; a pod without an owner is its own workload."""
        owner = self.workload
        if owner is None:
            return WorkloadKey("Pod", self.namespace, self.pod, self.cluster)
        return WorkloadKey(owner.kind, owner.namespace, owner.name, self.cluster)


LABEL_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._/-]{0,316}$"
"""A label key of Kubernetes: a prefix of at most 253 characters, a slash, and a name of at most 63."""
_PREFIXES = re.compile("^(?:exported_)?(?:pod_label_|label_)?")


@lru_cache(maxsize=4096)
def normalize_label(name: str) -> str:
    """The same for all names of a pod label: `hub.jupyter.org/username` is `label_hub_jupyter_org_username` in
    kube-state-metrics, and `hub_jupyter_org_username` in dcgm-exporter."""
    return _PREFIXES.sub("", re.sub(r"[^a-z0-9]", "_", name.lower()))


def find_user(labels: Mapping[str, str]) -> str:
    """The user of a pod with these labels; empty if no label names one."""
    return next((labels[name] for name in USER_LABELS if labels.get(name)), "")
