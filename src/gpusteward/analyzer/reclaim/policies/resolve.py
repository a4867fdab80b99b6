"""Which policy applies to a workload: workload annotation, namespace annotation, policy, default; the nearest wins.

The file is the whole truth: a workload that no policy of it matches is at most notified.

Annotations are written by tenants: they may only make a policy more careful. One that would do the opposite is ignored,
and the plan says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from gpusteward.analyzer.reclaim.policies.annotations import (
    ACTION,
    GRACE,
    INTERCHANGEABLE,
    WARNINGS,
    WINDOW,
    OwnerAnnotations,
    read_annotations,
)
from gpusteward.analyzer.reclaim.policies.classes import POOL_KINDS, find_class
from gpusteward.analyzer.reclaim.policies.effective import (
    ACTION_ORDER,
    EffectivePolicy,
    KeepRule,
    Limits,
    ReclaimAction,
    WorkloadClass,
)
from gpusteward.analyzer.reclaim.policies.policy import (
    DEFAULTS,
    KeepFields,
    LimitFields,
    Match,
    Policy,
    PolicyFields,
    PolicyFile,
    read_hours,
)
from gpusteward.core.containers import WorkloadKey
from gpusteward.messages import policies as messages

EVICTION_WARNINGS = 2
"""At least, before an action that cannot be undone."""
_LONGEST, _WEEK = 90 * 86_400.0, 7 * 86_400.0
_LONGER = (("window_seconds", "window", WINDOW), ("grace_seconds", "grace", GRACE), ("warnings", "warnings", WARNINGS))
"""What is more careful the larger it is: attribute, field of the policy, annotation."""


@dataclass(frozen=True, slots=True)
class WorkloadFacts:
    """What the match rules and annotations of a workload are read from."""

    key: WorkloadKey
    models: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)  # of its pods
    priority_class: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)  # of the owner, and of its pods
    namespace_annotations: Mapping[str, str] = field(default_factory=dict)


def resolve_policy(file: PolicyFile, facts: WorkloadFacts) -> EffectivePolicy:
    """The policy of one workload, with the origin of every field (pure)."""
    fields = _merge_fields(find_policy(file, facts), facts)
    annotated = (
        (read_annotations(facts.namespace_annotations), "namespace annotation"),
        (read_annotations(facts.annotations), "workload annotation"),
    )
    effective = policy = _make_effective(fields)
    for each, origin in annotated:
        effective = _apply(effective, each, origin, policy=policy)
    return _apply_pool(effective, fields, facts.key.kind, annotated)


def find_policy(file: PolicyFile, facts: WorkloadFacts) -> Policy | None:
    """The first that matches; None: nothing is done to it."""
    return next((policy for policy in file.policies if matches(policy.match, facts)), None)


def matches(match: Match, facts: WorkloadFacts) -> bool:
    """All fields that are set, each by one of its entries."""
    key = facts.key
    texts = (
        (match.clusters, (key.cluster,)),
        (match.namespaces, (key.namespace,)),
        (match.kinds, (key.kind,)),
        (match.models, facts.models),
        (match.priority_classes, (facts.priority_class,)),
    )
    if not all(not patterns or _is_any(patterns, values) for patterns, values in texts):
        return False
    if match.classes and find_class(key.kind) not in match.classes:
        return False
    return all(
        name in facts.labels and fnmatchcase(facts.labels[name], pattern) for name, pattern in match.labels.items()
    )


def _is_any(patterns: Sequence[str], values: Sequence[str]) -> bool:
    """`*` is all, also a workload without a value: GPUs whose model is not known."""
    return "*" in patterns or any(fnmatchcase(value, pattern) for value in values for pattern in patterns)


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of a policy and the defaults of the class, merged."""

    name: str
    workload_class: WorkloadClass
    values: PolicyFields
    origins: Mapping[str, str]
    is_default: bool  # no policy of the file matches


def _merge_fields(policy: Policy | None, facts: WorkloadFacts) -> _Fields:
    class_ = find_class(facts.key.kind)
    default, origins = f"default-{class_}", {}
    values = {name: getattr(DEFAULTS[class_], name) for name in PolicyFields.model_fields}
    for name in PolicyFields.model_fields:
        own = None if policy is None else getattr(policy, name)
        origins[name] = default
        if policy is not None and own is not None:
            values[name], origins[name] = own, f"policy {policy.name}"
    name = policy.name if policy else default
    return _Fields(name, class_, PolicyFields.model_construct(**values), origins, is_default=policy is None)


def _make_effective(fields: _Fields) -> EffectivePolicy:
    values = fields.values
    limits, zone = values.limits or LimitFields(), values.time_zone or "UTC"
    chance = values.highest_chance
    return EffectivePolicy(
        name=fields.name,
        workload_class=fields.workload_class,
        action=values.action or ReclaimAction.NOTIFY,
        window_seconds=values.window or _LONGEST,
        grace_seconds=values.grace or _LONGEST,
        highest_chance=chance if chance is not None and chance < 1 else None,
        warnings=max(values.warnings or 1, EVICTION_WARNINGS if values.action is ReclaimAction.EVICT else 1),
        warning_interval_seconds=values.warning_interval or _LONGEST,
        limits=Limits(limits.per_cycle, limits.per_namespace, limits.per_hour),
        working_hours=read_hours(values.working_hours or "", zone),
        quiet_hours=read_hours(values.quiet_hours or "", zone),
        on_pressure=bool(values.on_pressure),
        stops_other_pods=bool(values.stops_other_pods),
        longest_snooze_seconds=values.longest_snooze or _WEEK,
        origins=fields.origins,
        is_default=fields.is_default,
    )


def _apply(
    effective: EffectivePolicy, annotated: OwnerAnnotations, origin: str, *, policy: EffectivePolicy
) -> EffectivePolicy:
    """With the annotations that are not less careful than the policy; the others are problems."""
    origins, problems = dict(effective.origins), [*effective.problems, *annotated.problems]
    changes: dict[str, Any] = {}
    if annotated.keep_until is not None:
        changes["keep_until"], origins["keep_until"] = annotated.keep_until or None, origin
    for attribute, name, annotation in _LONGER:
        value = getattr(annotated, attribute)
        if value is not None and value >= getattr(policy, attribute):
            changes[attribute], origins[name] = value, origin
        elif value is not None:
            problems.append(messages.LESS_CAREFUL.fill(name=annotation, origin=origin))
    if annotated.action is not None and ACTION_ORDER.index(annotated.action) <= ACTION_ORDER.index(policy.action):
        changes["action"], origins["action"] = annotated.action, origin
    elif annotated.action is not None:
        problems.append(messages.LESS_CAREFUL.fill(name=ACTION, origin=origin))
    return replace(effective, **changes, origins=origins, problems=tuple(problems))


def _apply_pool(
    effective: EffectivePolicy, fields: _Fields, kind: str, annotated: Sequence[tuple[OwnerAnnotations, str]]
) -> EffectivePolicy:
    """The pool rule, if somebody said that the replicas are interchangeable; the nearest statement counts. Without it,
    lowering the replicas stays advice."""
    is_pool, origin = bool(fields.values.interchangeable), fields.origins["interchangeable"]
    for each, each_origin in annotated:
        if each.is_interchangeable is not None:
            is_pool, origin = each.is_interchangeable, each_origin
    origins = {**effective.origins, "interchangeable": origin}
    if is_pool and kind in POOL_KINDS:
        keep = fields.values.keep or KeepFields()
        return replace(effective, keep=KeepRule(keep.window, keep.headroom), origins=origins)
    if effective.action is not ReclaimAction.SCALE_TO_KEEP:
        return replace(effective, origins=origins)
    problem = (messages.NOT_A_POOL if kind not in POOL_KINDS else messages.NOT_OPTED_IN).fill(
        kind=kind, name=INTERCHANGEABLE
    )
    return replace(effective, action=ReclaimAction.NOTIFY, origins=origins, problems=(*effective.problems, problem))
