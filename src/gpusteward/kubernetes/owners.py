"""What a person deployed, as far as a pod alone can tell (pure).

The agent may read pods and nothing else, so the walk from the pod to its root owner stops at what the pod's owner
reference, labels and naming habits say. The analyzer, which may read owners, walks the rest.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpusteward.core.containers import Workload


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
"""Labels by which a custom resource marks its pods, whatever stands between; the outermost first."""

_NOTEBOOK_LABEL = "notebook-name"  # too plain a word to be believed on anything but a StatefulSet's pod
_RAY_KIND_LABEL, _RAY_NAME_LABEL = "ray.io/originated-from-crd", "ray.io/originated-from-cr-name"
_HASH_LABELS = (("rollouts-pod-template-hash", "Rollout"), ("pod-template-hash", "Deployment"))

_CRON_SUFFIX = re.compile(r"^(.+)-(\d{8})$")
_CRON_MINUTES = range(26_000_000, 45_000_000)
"""The CronJob controller appends the scheduled time in minutes since 1970. These are the years 2019 to 2055: a job
that somebody named after eight digits of this range by hand is taken for a CronJob's, which is a guess."""


def find_workload(namespace: str, pod: str, *, owners: Sequence[Owner], labels: Mapping[str, str]) -> Workload:
    """The outermost owner that the pod itself gives away; a pod nobody owns is its own workload."""
    owner = next((each for each in owners if each.controller and each.name), None)
    if owner is None or owner.kind == "Node":  # a mirror of a static pod
        return Workload("Pod", namespace, pod)
    kind, name = _from_labels(owner, labels) or _from_owner(owner, labels)
    return Workload(kind, namespace, name)


def _from_labels(owner: Owner, labels: Mapping[str, str]) -> tuple[str, str] | None:
    for label, kind in _BY_LABEL:
        if name := labels.get(label):
            return kind, name
    if labels.get(_RAY_KIND_LABEL) and labels.get(_RAY_NAME_LABEL):
        return labels[_RAY_KIND_LABEL], labels[_RAY_NAME_LABEL]
    if owner.kind == "StatefulSet" and (name := labels.get(_NOTEBOOK_LABEL)):
        return "Notebook", name
    return None


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
