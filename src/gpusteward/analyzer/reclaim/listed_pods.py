"""Pods as the API server lists them: only the fields that reclaim reads are decoded, and a limited amount of each.

A pod may have 1 MB that nothing here reads, in any of its fields: a tenant with thousands of them fills no memory. What
is cut is more than any pod in use has.
"""

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import msgspec

from gpusteward.analyzer.reclaim.kinds.objects import ACTION, DELETION_COST, Json
from gpusteward.analyzer.reclaim.kinds.refusals import MIRROR, PREFER_NO_EVICTION, SAFE_TO_EVICT
from gpusteward.analyzer.reclaim.policies.policy import ANNOTATIONS
from gpusteward.kubernetes.owners import Reference

LONGEST_ANNOTATION = 1000  # a longer one of ours is unreadable anyway (256 characters)
LONGEST_LABELS = 8 * 1024  # characters of all labels together
MOST_CONTAINERS = 64  # with GPUs
MOST_RESOURCES = 16  # with GPUs, of a container
MOST_OWNERS = 64
MOST_SELECTORS = 16
_ANNOTATIONS = frozenset({*ANNOTATIONS, ACTION, DELETION_COST, MIRROR, PREFER_NO_EVICTION, SAFE_TO_EVICT})

_READY = "Ready"
_REQUIRED: Json = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": True}}


class _ListedMetadata(msgspec.Struct, rename="camel", omit_defaults=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Reference] | None = None


class _Resources(msgspec.Struct, omit_defaults=True):
    limits: dict[str, str | int | float] | None = None


class _Container(msgspec.Struct, rename="camel", omit_defaults=True):
    name: str = ""
    restart_policy: str | None = None
    resources: _Resources | None = None


class _NodeAffinity(msgspec.Struct):
    required: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="requiredDuringSchedulingIgnoredDuringExecution")


class _Affinity(msgspec.Struct, rename="camel"):
    node_affinity: _NodeAffinity | None = None


class _Claim(msgspec.Struct, rename="camel", omit_defaults=True):
    name: str = ""
    resource_claim_name: str | None = None


class _ListedSpec(msgspec.Struct, rename="camel"):
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: _Affinity | None = None
    priority_class_name: str | None = None
    resource_claims: list[_Claim] | None = None
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None


class _Condition(msgspec.Struct, omit_defaults=True):
    type: str = ""
    status: str = ""


class _ListedStatus(msgspec.Struct, rename="camel", omit_defaults=True):
    phase: str | None = None
    conditions: list[_Condition] | None = None
    start_time: str | None = None
    resource_claim_statuses: list[_Claim] | None = None


class ListedPod(msgspec.Struct):
    """One pod of a list."""

    metadata: _ListedMetadata = msgspec.field(default_factory=_ListedMetadata)
    spec: _ListedSpec = msgspec.field(default_factory=_ListedSpec)
    status: _ListedStatus = msgspec.field(default_factory=_ListedStatus)


def keep_used(pod: ListedPod) -> Json:
    """The pod in the form of the API server, without what nothing here reads."""
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    metadata.labels = _keep_labels(metadata.labels or {})
    metadata.annotations = _keep_annotations(metadata.annotations or {})
    owners = metadata.owner_references or []
    metadata.owner_references = [each for each in owners if each.controller] + [
        each for each in owners[:MOST_OWNERS] if not each.controller
    ]
    status.conditions = [each for each in status.conditions or () if each.type == _READY] or None
    kept: dict[str, Any] = {
        "nodeName": spec.node_name,
        "nodeSelector": dict(list((spec.node_selector or {}).items())[:MOST_SELECTORS]),
        "affinity": _REQUIRED if _requires_nodes(spec) else None,
        "priorityClassName": spec.priority_class_name,
        "resourceClaims": msgspec.to_builtins(spec.resource_claims or []),
        "containers": _keep_containers(spec.containers),
        "initContainers": _keep_containers(spec.init_containers),
    }
    return {
        "metadata": msgspec.to_builtins(metadata),
        "spec": {name: value for name, value in kept.items() if value},
        "status": msgspec.to_builtins(status),
    }


def _keep_labels(labels: Mapping[str, str]) -> dict[str, str]:
    lengths = accumulate(len(name) + len(value) for name, value in labels.items())
    pairs = zip(labels.items(), lengths, strict=True)
    return {name: value for (name, value), length in pairs if length <= LONGEST_LABELS}


def _keep_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    return {name: annotations[name][:LONGEST_ANNOTATION] for name in _ANNOTATIONS.intersection(annotations)}


def _requires_nodes(spec: _ListedSpec) -> bool:
    """Whether it asks for nodes by more than their labels; by what, is not read."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    return affinity is not None and bytes(affinity.required) not in (b"", b"{}", b"null")


def _keep_containers(containers: list[_Container] | None) -> list[Json]:
    """Those with GPUs."""
    kept: list[Json] = []
    for each in containers or ():
        limits = (each.resources.limits if each.resources else None) or {}
        gpus = [(name, quantity) for name, quantity in limits.items() if is_gpu_resource(name)]
        if gpus and len(kept) < MOST_CONTAINERS:
            each.resources = _Resources(dict(gpus[:MOST_RESOURCES]))
            kept.append(msgspec.to_builtins(each))
    return kept


def is_gpu_resource(resource: str) -> bool:
    """`nvidia.com/gpu`, `nvidia.com/mig-1g.10gb`, `nvidia.com/gpu.shared`, `amd.com/gpu`; no amounts such as HAMi's."""
    domain, _, name = resource.partition("/")
    is_amount = any(part in name for part in ("mem", "core", "priority"))
    return bool(name) and not is_amount and ("gpu" in name or domain == "nvidia.com")
