"""A change of one object: the patch, its undo, and the check that it holds.

What is written is planned here from the objects as they were read; nothing is written. The original values and ours are
in the journal, and as annotations on the object: from either of them a change can be undone, also by hand.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from gpusteward.analyzer.reclaim.cluster import PodId, Reading
from gpusteward.analyzer.reclaim.execution.journal import Action, ActionState
from gpusteward.analyzer.reclaim.kinds.objects import (
    ACTION,
    DELETION_COST,
    DOMAIN,
    KubeObject,
    annotation,
    make_patch,
    split_pointer,
)
from gpusteward.analyzer.reclaim.kinds.targets import (
    Chosen,
    WorkloadObjects,
    choose_targets,
    find_kind_at,
    list_stopped,
)
from gpusteward.analyzer.reclaim.policies.policy import Policy, ReclaimAction
from gpusteward.core.errors import SourceError
from gpusteward.core.kinds import WorkloadKind
from gpusteward.core.messages import Message
from gpusteward.kubernetes.api import make_path
from gpusteward.kubernetes.owners import PAIR_LABEL
from gpusteward.messages import reclaim as messages

RECLAIMED_AT = f"{DOMAIN}reclaimed-at"
RECLAIMED_BY = f"{DOMAIN}reclaimed-by"
REASON = f"{DOMAIN}reason"
ORIGINAL = f"{DOMAIN}original-"
OURS = (ACTION, RECLAIMED_AT, RECLAIMED_BY, REASON)
LOWEST_COST = -1_000_000
"""The deletion cost of the longest idle surplus replica; the others follow. Costs of users are seldom this low."""


@dataclass(frozen=True)
class Change:
    """What an action does to one object, as it was read."""

    kind: WorkloadKind
    object: KubeObject
    fields: Mapping[str, Any]  # JSON pointer -> our value; empty: its pod is evicted, or a command stops it
    costs: Mapping[str, tuple[KubeObject, int]] = field(default_factory=dict)  # deletion costs of surplus pods
    gpus: float | None = None  # that become free; None: all of the workload

    @property
    def method(self) -> str:
        """PATCH, or POST for an eviction or a command."""
        return "POST" if self.kind.is_evicted or self.kind.stop else "PATCH"

    @property
    def before(self) -> dict[str, Any]:
        """By JSON pointer; None: absent."""
        if self.kind.is_evicted:
            return {"/metadata/name": self.object.name}
        pointers = ["/status/state/phase"] if self.kind.stop else self.fields
        return {pointer: self.object.read(pointer) for pointer in pointers}

    @property
    def after(self) -> dict[str, Any]:
        if self.kind.is_evicted:
            return {"/metadata/name": None}
        return {"/status/state/phase": "Aborted"} if self.kind.stop else dict(self.fields)

    @property
    def text(self) -> str:
        """For people: `spec.replicas: 3 -> 0`."""
        return describe_fields(self.before, self.after)

    def make_row(self) -> dict[str, Any]:
        """For the journal and the API."""
        one = self.object
        return {
            "kind": one.kind,
            "name": one.name,
            "path": one.path,
            "method": self.method,
            "before": self.before,
            "after": self.after,
            "gpus": self.gpus,
        }

    def list_costs(self) -> dict[str, dict[str, str | None]]:
        """By the uid of the pod: the deletion cost that is set, and the one before; None: it had none."""
        return {
            pod.uid: {"ours": str(cost), "before": pod.annotations.get(DELETION_COST)}
            for pod, cost in self.costs.values()
        }


class Inspection(NamedTuple):
    """What the objects of a workload say, and what would change on them."""

    refusal: Message | None = None  # why they must not be changed
    text: str = ""  # what would change
    kind: str = ""
    name: str = ""
    uid: str = ""  # of the owner that was found
    incomplete: Message | None = None  # why not all GPUs of its pods are known to be in the verdict
    pods: int = 0
    other_pods: tuple[PodId, ...] = ()  # without GPUs, that would stop as well


def plan_changes(
    objects: WorkloadObjects,
    policy: Policy,
    reading: Reading,
    *,
    incomplete: Message | None,
    surplus: Sequence[PodId],
    now: float,
    lowered_by: str = "",
) -> tuple[Inspection, list[Change]]:
    """What would change, and why it must not. `surplus`: of a pool, the replicas that go, in this order.
    `lowered_by`: the action that has lowered it already. Never raises."""
    root, is_pool = objects.root, policy.action is ReclaimAction.SCALE_TO_KEEP
    about = Inspection(uid=root.uid, incomplete=incomplete, pods=len(objects.pods), kind=root.kind, name=root.name)
    try:
        chosen, refusal = choose_targets(objects, policy.action, reading.list_objects, lowered_by=lowered_by)
        refusal = refusal or find_other_pod(objects, surplus if is_pool else None)
        if refusal is None and is_pool:
            refusal = check_replicas(chosen[0], objects)
        if refusal is not None:
            return about._replace(refusal=refusal), []
        # Of a pool only replicas with GPUs go.
        others = [] if is_pool else reading.list_others_below(list_stopped(objects, chosen))
    except SourceError as error:
        return about._replace(refusal=error.as_message()), []
    if is_pool:
        changes = [_lower(chosen[0], objects, surplus)]
    else:
        changes = [Change(kind, one, kind.make_fields(format_time(now))) for kind, one in chosen]
    text, one = "; ".join(each.text for each in changes), chosen[0].object
    return about._replace(text=text, kind=one.kind, name=one.name, other_pods=tuple(others)), changes


def find_other_pod(objects: WorkloadObjects, surplus: Sequence[PodId] | None) -> Message | None:
    """Whether another pod works with the GPU of one that would go: only the server in that one knows whether the GPU is
    needed. One label is enough here, and no exporter has to know of it. `surplus`: of a pool; None: all go."""
    names = None if surplus is None else {each.name for each in surplus}
    for pod in objects.pods:
        if (other := pod.labels.get(PAIR_LABEL)) and (names is None or pod.name in names):
            return messages.HELD_FOR_POD.fill(pod=pod.name, other=other)
    return None


def check_replicas(chosen: Chosen, objects: WorkloadObjects) -> Message | None:
    """Why lowering the replicas could remove others than the surplus ones. Kubernetes removes pods that are not ready
    first, whatever their deletion cost is, and compares costs only among the pods of one ReplicaSet."""
    replicas = chosen.object.read(chosen.kind.replicas)
    if replicas != len(objects.pods):
        return messages.REPLICAS_DIFFER.fill(replicas=replicas, pods=len(objects.pods))
    status, one = chosen.object.status, chosen.object
    is_old = one.read("/metadata/generation") != status.get("observedGeneration", one.read("/metadata/generation"))
    is_partial = status.get("updatedReplicas", replicas) != replicas
    if is_old or is_partial or len({chain[0].uid for chain in objects.chains if chain}) > 1:
        return messages.POOL_ROLLS_OUT
    unready = next((pod for pod in objects.pods if pod.is_deleted or not pod.has_condition("Ready")), None)
    return None if unready is None else messages.REPLICA_NOT_READY.fill(pod=unready.name)


def _lower(chosen: Chosen, objects: WorkloadObjects, surplus: Sequence[PodId]) -> Change:
    """The replicas of a pool, with the lowest deletion cost for the pods that are to go."""
    by_uid = {pod.uid: pod for pod in objects.pods}
    by_name = {pod.name: pod for pod in objects.pods}
    pods = [by_uid.get(each.uid) or by_name[each.name] for each in surplus]
    costs = {pod.name: (pod, LOWEST_COST + number) for number, pod in enumerate(pods)}
    return Change(chosen.kind, chosen.object, {chosen.kind.replicas: len(objects.pods) - len(costs)}, costs)


class DroppedFieldError(SourceError):
    """The server accepts a change and drops its field: the CRD of this version does not have it."""


def is_ours(action: Action, one: KubeObject) -> bool:
    """Whether the object still has the values that we set. One without fields of ours has our annotation."""
    if not action.patch:
        return one.annotations.get(ACTION) == action.id
    return all(one.read(pointer) == value for pointer, value in action.patch.items())


def is_restored(action: Action, one: KubeObject) -> bool:
    """Whether our annotation is gone and every field has its original value."""
    is_original = all(one.read(pointer) == value for pointer, value in action.original.items())
    return ACTION not in one.annotations and is_original and action.state is ActionState.RESTORING


def make_restoring_fields(action: Action, one: KubeObject) -> dict[str, Any]:
    """The original values, and our annotations removed. An object that we created around a field is removed with it,
    unless somebody has added other fields to it."""
    fields: dict[str, Any] = {}
    for pointer, value in action.original.items():
        ours = [each for each in action.patch if each == pointer or each.startswith(f"{pointer}/")]
        is_whole = pointer in action.patch or _has_only(one.read(pointer), [each[len(pointer) :] for each in ours])
        fields |= {pointer: value} if is_whole else dict.fromkeys(ours)
    return fields | list_our_annotations(one)


def _has_only(value: Any, pointers: list[str]) -> bool:
    """Whether an object has no other fields than these, which are one level below it."""
    return isinstance(value, dict) and set(value) == {split_pointer(pointer)[0] for pointer in pointers}


def make_annotations(action: Action, *, at: float) -> dict[str, str]:
    """Ours: the id of the action, who and why, and the original values."""
    reason = messages.REASON.fill(since=format_time(action.idle_since), policy=action.policy)
    values = {ACTION: action.id, RECLAIMED_AT: format_time(at), RECLAIMED_BY: action.by, REASON: reason.en}
    values |= {_name_original(pointer): json.dumps(value) for pointer, value in action.original.items()}
    return {annotation(name): value for name, value in values.items()}


def list_our_annotations(one: KubeObject) -> dict[str, None]:
    """To be removed."""
    names = [name for name in one.annotations if name in OURS or name.startswith(ORIGINAL)]
    return dict.fromkeys(annotation(name) for name in names)


def find_dropped(answer: KubeObject, fields: Mapping[str, Any]) -> SourceError | None:
    """A field that the answer of the server does not have as it was sent."""
    for pointer, value in fields.items():
        if answer.read(pointer) != value:
            return DroppedFieldError(messages.NOT_CHANGED, field=".".join(split_pointer(pointer)))
    return None


def describe_action(action: Action, *, undo: bool = False) -> str:
    """For people: `spec.replicas: 3 -> 0`."""
    if action.target is None:
        return ""
    if action.action is ReclaimAction.EVICT:
        return f"{action.target.kind}/{action.target.name}: evict"
    before = {pointer: action.original.get(pointer) for pointer in action.patch}
    pair = (action.patch, before) if undo else (before, action.patch)
    return describe_fields(*pair) or f"{action.target.kind}/{action.target.name}"


def describe_difference(action: Action, one: KubeObject) -> str:
    """For people: our values, and those that the object has now."""
    return describe_fields(action.patch, {pointer: one.read(pointer) for pointer in action.patch})


def describe_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """For people, values by JSON pointer: `spec.replicas: 3 -> 0`."""
    return ", ".join(f"{_name(key)}: {_show(before.get(key))} -> {_show(after[key])}" for key in after)


def _name(pointer: str) -> str:
    parts = [f"[{part}]" if "/" in part or "." in part else part for part in split_pointer(pointer)]
    return ".".join(parts).replace(".[", "[")


def _show(value: object) -> str:
    return "(absent)" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _name_original(pointer: str) -> str:
    """`gpusteward.io/original-replicas`, `gpusteward.io/original-stop`: the last part of the field."""
    return ORIGINAL + split_pointer(pointer)[-1].rpartition("/")[2]


def name_command(action: Action, verb: str) -> str:
    return f"gpusteward-{action.id}-{verb}"


def make_undo_command(action: Action) -> str:
    """What a person with a kubeconfig types to undo an action: exactly the original values, and our annotations off."""
    assert action.target is not None
    target, namespace = action.target, action.workload.namespace
    kind = find_kind_at(target.path, target.kind)
    where = f"{name_resource(target.path)} {shlex.quote(target.name)} --namespace {shlex.quote(namespace)}"
    fields = dict(action.original) | dict.fromkeys(annotation(name) for name in _list_annotations(action))
    undo = f"kubectl patch {where} --type merge --patch {shlex.quote(json.dumps(make_patch(fields)))}"
    if kind is None or kind.resume is None:
        return undo
    body = kind.resume.make_body(
        name=name_command(action, "resume"),
        namespace=namespace,
        target={"apiVersion": read_version(target.path), "kind": target.kind, "name": target.name, "uid": target.uid},
    )
    resume = f"echo {shlex.quote(json.dumps(body))} | kubectl create -f -"
    return f"{make_withdrawal(action, kind)} && {resume} && {undo}"


def make_withdrawal(action: Action, kind: WorkloadKind) -> str:
    """What a person types so that a command which waits for its controller stops nothing."""
    assert kind.stop is not None
    name, namespace = name_command(action, "stop"), action.workload.namespace
    resource = name_resource(make_path(kind.stop.version, kind.stop.kind, namespace, name))
    return f"kubectl delete {resource} {name} --namespace {shlex.quote(namespace)} --ignore-not-found"


def _list_annotations(action: Action) -> list[str]:
    return [*OURS, *(_name_original(pointer) for pointer in action.original)]


def name_resource(path: str) -> str:
    """As kubectl names it: `deployments.apps` of /apis/apps/v1/namespaces/team/deployments/web. Without the version,
    which the server may not serve any more."""
    parts = path.strip("/").split("/")
    resource = parts[-2]
    return resource if parts[0] == "api" else f"{resource}.{parts[1]}"


def read_version(path: str) -> str:
    """`apps/v1` of the path of an object."""
    parts = path.strip("/").split("/")
    return parts[1] if parts[0] == "api" else f"{parts[1]}/{parts[2]}"


def format_time(at: float) -> str:
    """RFC 3339, in whole seconds."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
