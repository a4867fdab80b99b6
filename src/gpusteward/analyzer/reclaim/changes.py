"""What an action changes on an object, and how to tell whether it is still so (pure)."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from gpusteward.analyzer.reclaim.actions import Action
from gpusteward.analyzer.reclaim.kinds.kind import Kind
from gpusteward.analyzer.reclaim.kinds.objects import (
    ACTION,
    DELETION_COST,
    DOMAIN,
    KubeObject,
    annotation,
    make_patch,
    make_path,
    split_pointer,
)
from gpusteward.analyzer.reclaim.kinds.registry import Chosen, find_kind
from gpusteward.analyzer.reclaim.plan import ActionState, Change
from gpusteward.analyzer.reclaim.policies.policy import ReclaimAction
from gpusteward.core.errors import SourceError
from gpusteward.messages import reclaim as messages

RECLAIMED_AT = f"{DOMAIN}reclaimed-at"
RECLAIMED_BY = f"{DOMAIN}reclaimed-by"
REASON = f"{DOMAIN}reason"
ORIGINAL = f"{DOMAIN}original-"
OURS = (ACTION, RECLAIMED_AT, RECLAIMED_BY, REASON)
LOWEST_COST = -1_000_000
"""The deletion cost of the longest idle surplus replica; the others follow. Costs of users are seldom this low."""


@dataclass(frozen=True)
class Planned:
    """What an action does to one object, as it was read."""

    chosen: Chosen
    fields: Mapping[str, Any]  # JSON pointer -> our value
    costs: Mapping[str, tuple[KubeObject, int]]  # deletion costs of surplus pods

    @cached_property
    def change(self) -> Change:
        kind, one = self.chosen
        method = "POST" if kind.is_evicted or kind.stop else "PATCH"
        before = {pointer: one.read(pointer) for pointer in self.fields}
        after = dict(self.fields)
        if kind.is_evicted:
            before, after = {"/metadata/name": one.name}, {"/metadata/name": None}
        elif kind.stop:
            before, after = {"/status/state/phase": one.read("/status/state/phase")}, {"/status/state/phase": "Aborted"}
        return Change(one.kind, one.name, one.path, method, before, after)


def list_costs(planned: Planned) -> dict[str, dict[str, str | None]]:
    """By the uid of the pod: the deletion cost that is set, and the one before; None: it had none."""
    return {
        pod.uid: {"ours": str(cost), "before": pod.annotations.get(DELETION_COST)}
        for pod, cost in planned.costs.values()
    }


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


def describe_change(action: Action, *, undo: bool = False) -> str:
    """For people: `spec.replicas: 3 -> 0`."""
    if action.target is None:
        return ""
    if action.action is ReclaimAction.EVICT:
        return f"{action.target.kind}/{action.target.name}: evict"
    before = {pointer: action.original.get(pointer) for pointer in action.patch}
    pair = (dict(action.patch), before) if undo else (before, dict(action.patch))
    target = action.target
    return Change(target.kind, target.name, target.path, "PATCH", *pair).text or f"{target.kind}/{target.name}"


def describe_difference(action: Action, one: KubeObject) -> str:
    """For people: our values, and those that the object has now."""
    now = {pointer: one.read(pointer) for pointer in action.patch}
    assert action.target is not None
    return Change(action.target.kind, one.name, one.path, "PATCH", dict(action.patch), now).text


def _name_original(pointer: str) -> str:
    """`gpusteward.io/original-replicas`, `gpusteward.io/original-stop`: the last part of the field."""
    return ORIGINAL + split_pointer(pointer)[-1].rpartition("/")[2]


def name_command(action: Action, verb: str) -> str:
    return f"gpusteward-{action.id}-{verb}"


def make_undo_command(action: Action) -> str:
    """What a person with a kubeconfig types to undo an action: exactly the original values, and our annotations off."""
    assert action.target is not None
    target, namespace = action.target, action.workload.namespace
    kind = find_kind(target.path, target.kind)
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


def make_withdrawal(action: Action, kind: Kind) -> str:
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
