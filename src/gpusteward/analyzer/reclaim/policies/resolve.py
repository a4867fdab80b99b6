"""Which policy applies to a workload: workload annotation, namespace annotation, policy, default; the nearest wins.

The file is the whole truth: a workload that no policy of it matches is at most notified.

Annotations are written by tenants: they may only make a policy more careful. One that would do the opposite is ignored,
and the plan says so.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from gpusteward.analyzer.reclaim.policies.file import (
    DEFAULTS,
    NO_POLICIES,
    LimitFields,
    Match,
    PolicyFields,
    PolicyFile,
    make_rule,
    parse_policies,
    read_hours,
)
from gpusteward.analyzer.reclaim.policies.policy import (
    ACTION,
    ACTION_ORDER,
    GRACE,
    INTERCHANGEABLE,
    WARNINGS,
    WINDOW,
    Limits,
    OwnerAnnotations,
    Policy,
    ReclaimAction,
    read_annotations,
)
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.kinds import POOL_KINDS, find_class
from gpusteward.core.messages import Message
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.logs import Log
from gpusteward.messages import policies as messages
from gpusteward.watched_file import WatchedFile

log = Log(__name__)

EVICTION_WARNINGS = 2
"""At least, before an action that cannot be undone."""
_LONGEST, _WEEK = 90 * 86_400.0, 7 * 86_400.0
_LONGER = (("window_seconds", "window", WINDOW), ("grace_seconds", "grace", GRACE), ("warnings", "warnings", WARNINGS))
"""What is more careful the larger it is: attribute, field of the policy, annotation."""


@dataclass(frozen=True, slots=True)
class WorkloadMetadata:
    """What match rules and annotations of a workload are read from."""

    key: WorkloadKey
    models: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)  # of its pods
    priority_class: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)  # of the owner, and of its pods
    namespace_annotations: Mapping[str, str] = field(default_factory=dict)


def resolve_policy(file: PolicyFile, metadata: WorkloadMetadata) -> Policy:
    """The policy of one workload, with the origin of every field (pure)."""
    entry = next((each for each in file.policies if matches(each.match, metadata)), None)
    class_ = find_class(metadata.key.kind)
    default = f"default-{class_}"
    fields: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name in PolicyFields.model_fields:
        own = None if entry is None else getattr(entry, name)
        fields[name] = getattr(DEFAULTS[class_], name) if own is None else own
        origins[name] = default if own is None or entry is None else f"policy {entry.name}"
    values = PolicyFields.model_construct(**fields)
    limits, zone = values.limits or LimitFields(), values.time_zone or "UTC"
    chance = values.highest_chance
    policy = Policy(
        name=entry.name if entry else default,
        workload_class=class_,
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
        no_requests_seconds=values.no_requests_for,
        longest_snooze_seconds=values.longest_snooze or _WEEK,
        origins=origins,
        is_default=entry is None,
    )
    annotated = (
        (read_annotations(metadata.namespace_annotations), "namespace annotation"),
        (read_annotations(metadata.annotations), "workload annotation"),
    )
    found = policy
    for each, origin in annotated:
        found = _apply(found, each, origin, policy=policy)
    if found.no_requests_seconds is not None and found.window_seconds > policy.window_seconds:
        # Whoever asked for a longer window did not mean that silence makes it shorter.
        found = replace(found, no_requests_seconds=max(found.no_requests_seconds, found.window_seconds))
    return _apply_pool(found, values, metadata.key.kind, annotated)


def matches(match: Match, metadata: WorkloadMetadata) -> bool:
    """All fields that are set, each by one of its entries."""
    key = metadata.key
    texts = (
        (match.clusters, (key.cluster,)),
        (match.namespaces, (key.namespace,)),
        (match.kinds, (key.kind,)),
        (match.models, metadata.models),
        (match.priority_classes, (metadata.priority_class,)),
    )
    for patterns, values in texts:
        # `*` is all, also a workload without a value: GPUs whose model is not known.
        is_any = not patterns or "*" in patterns
        if not is_any and not any(fnmatchcase(value, pattern) for value in values for pattern in patterns):
            return False
    if match.classes and find_class(key.kind) not in match.classes:
        return False
    labels = metadata.labels
    return all(name in labels and fnmatchcase(labels[name], pattern) for name, pattern in match.labels.items())


def _apply(found: Policy, annotated: OwnerAnnotations, origin: str, *, policy: Policy) -> Policy:
    """With the annotations that are not less careful than the policy; the others are problems."""
    origins, problems = dict(found.origins), [*found.problems, *annotated.problems]
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
    return replace(found, **changes, origins=origins, problems=tuple(problems))


def _apply_pool(
    found: Policy, values: PolicyFields, kind: str, annotated: Sequence[tuple[OwnerAnnotations, str]]
) -> Policy:
    """The pool rule, if somebody said that the replicas are interchangeable; the nearest statement counts. Without it,
    lowering the replicas stays advice."""
    is_pool, origin = bool(values.interchangeable), found.origins["interchangeable"]
    for each, each_origin in annotated:
        if each.is_interchangeable is not None:
            is_pool, origin = each.is_interchangeable, each_origin
    origins = {**found.origins, "interchangeable": origin}
    if is_pool and kind in POOL_KINDS:
        return replace(found, is_pool=True, keep=make_rule(values.keep), origins=origins)
    if found.action is not ReclaimAction.SCALE_TO_KEEP:
        return replace(found, origins=origins)
    problem = (messages.NOT_A_POOL if kind not in POOL_KINDS else messages.NOT_OPTED_IN).fill(
        kind=kind, name=INTERCHANGEABLE
    )
    return replace(found, action=ReclaimAction.NOTIFY, origins=origins, problems=(*found.problems, problem))


class WatchedPolicies:
    """The policies in effect: a changed file is applied, an unusable one is refused and logged once.

    While there is no file that can be used, at the start or later, nothing new is warned of or done: there are no
    policies, and `error` says why. Earlier ones are forgotten, so that a restart changes nothing. Safe to use from any
    thread.
    """

    def __init__(self, path: Path | None) -> None:
        """A file that cannot be used does not stop the program: what is suspended must be given back all the same."""
        self.current: PolicyFile = NO_POLICIES
        self.error: Message | None = messages.NO_POLICY_FILE  # why there are no policies; None: there are
        self.has_file = path is not None
        self.reloads_ok = self.reloads_refused = 0
        self._lock = threading.Lock()
        self._watched = WatchedFile(path, setting="reclaim.policy_file") if path else None
        self.poll()
        self.reloads_ok = 0

    def poll(self) -> PolicyFile:
        """The policies to use from now on: none while the file cannot be used."""
        with self._lock:
            if self._watched is not None and self._watched.has_changed():
                try:
                    self._accept(parse_policies(self._watched.read(), where=str(self._watched.path)))
                except ConfigurationError as error:
                    self._refuse(error)
        return self.current

    def find_policy(self, metadata: WorkloadMetadata) -> Policy:
        """Of one workload."""
        return resolve_policy(self.current, metadata)

    def _accept(self, policies: PolicyFile) -> None:
        if policies != self.current or self.error is not None:
            self.current = policies
            self.reloads_ok += 1
            log.info("policies_loaded", policies=len(policies.policies))
        self.error = None

    def _refuse(self, error: ConfigurationError) -> None:
        """Log it once: the same error returns at every poll while the file is missing."""
        reason = error.as_message()
        if reason != self.error:
            self.reloads_refused += 1
            log.warning("policies_refused", reason=str(error), effect="nothing new is warned of or done")
        self.error, self.current = reason, NO_POLICIES
