"""The owners of a pod (pure).

The analyzer may read owners: `climb_owners` follows the owner references of a pod to the root, each owner compared by
its uid. The agent may read only pods: `find_workload` derives the workload from the pod's owner reference, labels and
naming conventions.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from gpusteward.core.kinds import KINDS, find_kind
from gpusteward.core.node.containers import OwnerEvidence, Workload
from gpusteward.kubernetes.api import make_path

MAX_DEPTH = 8
PAIR_LABEL = "dual-pods.llm-d.ai/dual"
"""llm-d's fast model actuation: one pod holds the GPUs, another one works on them; each has the name of the other."""


class Reference(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """An entry of ownerReferences."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    def make_path(self, namespace: str) -> str:
        return make_path(self.api_version, self.kind, namespace, self.name)


class Owner(Protocol):
    """An object that was read."""

    @property
    def uid(self) -> str: ...

    @property
    def controller(self) -> Reference | None: ...


_Owner = TypeVar("_Owner", bound=Owner)

_BY_LABEL = tuple((kind.pod_label, kind.name) for kind in KINDS.values() if kind.pod_label)
"""Labels that a custom resource sets on its pods, whatever objects are between them; the outermost first."""

_NOTEBOOK_LABEL = "notebook-name"  # too common a name to be trusted on any pod
_LONG_NOTEBOOK = "nb-"
_RAY_KIND_LABEL, _RAY_NAME_LABEL = "ray.io/originated-from-crd", "ray.io/originated-from-cr-name"
_HASH_LABELS = (("rollouts-pod-template-hash", "Rollout"), ("pod-template-hash", "Deployment"))

_CRON_SUFFIX = re.compile(r"^(.+)-(\d{8})$")
_CRON_MINUTES = range(26_000_000, 45_000_000)
"""The CronJob controller appends the scheduled time in minutes since 1970. These are the years 2019 to 2055. A job
that a user named with eight digits of this range is mistaken for a CronJob's."""


def find_controller(references: Sequence[Reference]) -> Reference | None:
    return next((each for each in references if each.controller and each.name), None)


def climb_owners(
    controller: Reference | None, read: Callable[[Reference], _Owner | None]
) -> tuple[list[_Owner], Reference | None]:
    """The owners above an object, the nearest first, and the reference of the one at which this ended, if that is not
    above the root: of that one nothing is known but its reference. `read`: None if it cannot be read."""
    owners: list[_Owner] = []
    while controller is not None and controller.kind != "Node":  # a static pod belongs to its node alone
        may_read = len(owners) < MAX_DEPTH and find_kind(controller.kind, controller.group).is_owner
        owner = read(controller) if may_read else None
        if owner is None or owner.uid != controller.uid:  # deleted, and created anew under the same name
            return owners, controller
        owners.append(owner)
        controller = owner.controller
    return owners, None


def find_workload(namespace: str, pod: str, *, owners: Sequence[Reference], labels: Mapping[str, str]) -> Workload:
    """The outermost owner that the pod itself names, marked as derived if its owner reference names another object; a
    pod without an owner is its own workload."""
    owner = find_controller(owners)
    if owner is None or owner.kind == "Node":  # a mirror of a static pod
        return Workload("Pod", namespace, pod)
    kind, name = _find_outermost(owner, labels)
    is_named = (kind, name) == (owner.kind, owner.name)
    return Workload(kind, namespace, name, evidence=OwnerEvidence.REFERENCE if is_named else OwnerEvidence.DERIVED)


def _find_outermost(owner: Reference, labels: Mapping[str, str]) -> tuple[str, str]:
    """Kind and name: by labels that a custom resource sets on its pods, else by the name of the pod's owner."""
    for label, kind in _BY_LABEL:
        if name := labels.get(label):
            return kind, name
    if labels.get(_RAY_KIND_LABEL) and labels.get(_RAY_NAME_LABEL):
        return labels[_RAY_KIND_LABEL], labels[_RAY_NAME_LABEL]
    notebook = labels.get(_NOTEBOOK_LABEL, "")
    # Kubeflow names the StatefulSet after the notebook, or `nb-...` if that is too long; a chart that sets the same
    # label does not.
    if notebook and owner.kind == "StatefulSet" and (owner.name == notebook or owner.name.startswith(_LONG_NOTEBOOK)):
        return "Notebook", notebook
    if owner.kind == "Job" and (cron := _CRON_SUFFIX.match(owner.name)) and int(cron[2]) in _CRON_MINUTES:
        return "CronJob", cron[1]
    # A ReplicaSet of a Deployment or a Rollout is named after it and the hash its pods are labelled with.
    for label, kind in _HASH_LABELS if owner.kind == "ReplicaSet" else ():
        ending = f"-{labels.get(label, '')}"
        if len(ending) > 1 and owner.name.endswith(ending) and owner.name != ending:
            return kind, owner.name.removesuffix(ending)
    return owner.kind, owner.name
