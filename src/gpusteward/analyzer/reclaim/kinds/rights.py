"""The rights that reclaim needs; the chart grants exactly these (`make chart`)."""

from typing import NamedTuple

from gpusteward.core.kinds import KINDS, plural_of


class Right(NamedTuple):
    """A rule of RBAC."""

    group: str
    resource: str
    verbs: tuple[str, ...]


OWN_NAMESPACE_RIGHTS = (Right("coordination.k8s.io", "leases", ("get", "create", "patch")),)
"""In the analyzer's own namespace only."""
OBSERVE_RIGHTS = (
    Right("", "pods", ("get", "list")),  # which pods are there and wait
    # Annotations: keep, and the switch that stops all actions. The uid of kube-system tells clusters apart.
    Right("", "namespaces", ("get",)),
    Right("resource.k8s.io", "resourceclaims", ("get", "list")),  # which devices a pod holds through them
    Right("kueue.x-k8s.io", "workloads", ("get", "list")),
    Right("keda.sh", "scaledobjects", ("get", "list")),
    Right("autoscaling", "horizontalpodautoscalers", ("list",)),
)
"""What reclaim reads in every mode, in the whole cluster, beyond pods and their owners. A dry run needs the right to
write: without it, it shows the 403 that enforce would meet."""


def list_enforce_rights() -> list[Right]:
    """What mode enforce may change, in the whole cluster or in the namespaces of `reclaim.namespaces`."""
    rights = [
        Right("", "pods", ("patch",)),  # the deletion cost of surplus replicas
        Right("", "events", ("create",)),
    ]
    for kind in KINDS.values():
        if kind.is_evicted:
            rights.append(Right(kind.group, f"{kind.plural}/eviction", ("create",)))
        elif kind.loss is not None:
            rights.append(Right(kind.group, kind.plural, ("patch",)))
        if kind.stop is not None:
            rights.append(Right(kind.stop.version.partition("/")[0], plural_of(kind.stop.kind), ("create",)))
    return rights
