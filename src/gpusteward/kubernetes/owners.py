"""The workload of a pod, from the pod alone (pure).

The agent may read only pods, so it derives the workload from the pod's owner reference, labels and naming conventions.
The analyzer, which may read owners, follows the owner references further.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpusteward.core.containers import OwnerEvidence, Workload


@dataclass(frozen=True, slots=True)
class Owner:
    """An entry of a pod's ownerReferences."""

    kind: str = ""
    name: str = ""
    controller: bool | None = None


_BY_LABEL = (
    ("serving.kserve.io/inferenceservice", "InferenceService"),
    ("leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet"),
    ("jobset.sigs.k8s.io/jobset-name", "JobSet"),
    ("notebooks.kubeflow.org/workspace-name", "Workspace"),
)
"""Labels that a custom resource sets on its pods, whatever objects are between them; the outermost first."""

_NOTEBOOK_LABEL = "notebook-name"  # too common a name to be trusted on any pod
_LONG_NOTEBOOK = "nb-"
_RAY_KIND_LABEL, _RAY_NAME_LABEL = "ray.io/originated-from-crd", "ray.io/originated-from-cr-name"
_HASH_LABELS = (("rollouts-pod-template-hash", "Rollout"), ("pod-template-hash", "Deployment"))

_CRON_SUFFIX = re.compile(r"^(.+)-(\d{8})$")
_CRON_MINUTES = range(26_000_000, 45_000_000)
"""The CronJob controller appends the scheduled time in minutes since 1970. These are the years 2019 to 2055. A job
that a user named with eight digits of this range is mistaken for a CronJob's."""


def find_workload(namespace: str, pod: str, *, owners: Sequence[Owner], labels: Mapping[str, str]) -> Workload:
    """The outermost owner that the pod itself names, marked as derived if its owner reference names another object; a
    pod without an owner is its own workload."""
    owner = next((each for each in owners if each.controller and each.name), None)
    if owner is None or owner.kind == "Node":  # a mirror of a static pod
        return Workload("Pod", namespace, pod)
    kind, name = _from_labels(owner, labels) or _from_owner(owner, labels)
    is_named = (kind, name) == (owner.kind, owner.name)
    return Workload(kind, namespace, name, evidence=OwnerEvidence.REFERENCE if is_named else OwnerEvidence.DERIVED)


def _from_labels(owner: Owner, labels: Mapping[str, str]) -> tuple[str, str] | None:
    for label, kind in _BY_LABEL:
        if name := labels.get(label):
            return kind, name
    if labels.get(_RAY_KIND_LABEL) and labels.get(_RAY_NAME_LABEL):
        return labels[_RAY_KIND_LABEL], labels[_RAY_NAME_LABEL]
    if owner.kind == "StatefulSet" and _is_notebook(owner.name, labels.get(_NOTEBOOK_LABEL, "")):
        return "Notebook", labels[_NOTEBOOK_LABEL]
    return None


def _is_notebook(stateful_set: str, notebook: str) -> bool:
    """Kubeflow names the StatefulSet after the notebook, or `nb-...` if that is too long; a chart that sets the same
    label does not."""
    return bool(notebook) and (stateful_set == notebook or stateful_set.startswith(_LONG_NOTEBOOK))


def _from_owner(owner: Owner, labels: Mapping[str, str]) -> tuple[str, str]:
    if owner.kind == "ReplicaSet":
        return _above_replica_set(owner, labels)
    if owner.kind == "Job" and (cron := _CRON_SUFFIX.match(owner.name)) and int(cron[2]) in _CRON_MINUTES:
        return "CronJob", cron[1]
    return owner.kind, owner.name


def _above_replica_set(owner: Owner, labels: Mapping[str, str]) -> tuple[str, str]:
    """A ReplicaSet of a Deployment or a Rollout is named after it and the hash its pods are labelled with."""
    for label, kind in _HASH_LABELS:
        ending = f"-{labels.get(label, '')}"
        if len(ending) > 1 and owner.name.endswith(ending) and owner.name != ending:
            return kind, owner.name.removesuffix(ending)
    return owner.kind, owner.name
