"""Facts -> decision: what the answers of the guards come to (pure)."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from gpusteward.analyzer.reclaim.decisions.guards import BY_NAME, GUARDS, Guard, ask_all, describe_pods, list_delivered
from gpusteward.analyzer.reclaim.decisions.workloads import Facts, ReclaimWorkload, list_evidence
from gpusteward.analyzer.reclaim.execution.changes import Change
from gpusteward.analyzer.reclaim.execution.executor import RULE
from gpusteward.analyzer.reclaim.execution.journal import Action, ActionState, JournalStep, make_action_id
from gpusteward.analyzer.reclaim.permission import Mode
from gpusteward.analyzer.reclaim.plan import Answer, Asker, Decision, OtherPod, Outcome
from gpusteward.analyzer.reclaim.policies.policy import Policy
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.sources.live_readings import HostUse
from gpusteward.core.messages import Message
from gpusteward.messages import reclaim as messages

RESEND_SECONDS = 3600.0
"""A warning that was not delivered for so long is sent again: its channel may have been repaired."""
MOST_KEPT = 100
"""Pods without GPUs that the journal names."""
MOST_DAYS = 8
"""Hours of a policy repeat every week."""
_LASTING = tuple(
    guard for outcome in (Outcome.NOTHING, Outcome.REFUSE) for guard in GUARDS if guard.consequence is outcome
)
"""Guards whose no does not end by waiting."""
_WITHOUT_END = tuple(BY_NAME[name] for name in ("not_under_way", "chance", "leader", "switch", "pressure", "usage"))
"""Guards whose no ends at a time that nobody knows, or that is not computed."""
_WAITING = tuple(guard for guard in GUARDS if guard.consequence is Outcome.WAIT)
_BEFORE_WARNING = tuple(guard for guard in _WAITING if not guard.after_warning)
_AFTER_WARNING = tuple(guard for guard in _WAITING if guard.after_warning)


def decide(facts: Facts, *, changes: Sequence[Change] = (), action_id: str = "") -> Decision:
    """With every guard and its answer."""
    outcome, policy = choose_outcome(facts), facts.policy
    return Decision(
        workload=facts.workload,
        policy=policy,
        action=policy.action if policy else None,
        outcome=outcome,
        ask=partial(ask_all, facts),
        gpus=facts.gpus,
        idle_since=facts.idle_since,
        due_at=_find_due(facts) if outcome in (Outcome.ACT, Outcome.WARN, Outcome.WAIT) else None,
        changes=tuple(changes),
        action_id=action_id,
        other_pods=list_other_pods(facts),
    )


def list_other_pods(facts: Facts) -> tuple[OtherPod, ...]:
    """Pods without GPUs that would stop, with what they use of their hosts, as far as that was read."""
    uses = facts.host.by_pod if facts.host else {}
    others = facts.inspection.other_pods if facts.inspection else ()
    return tuple(OtherPod(*pod, *uses.get(pod.name, HostUse())) for pod in others)


def decide_one(one: ReclaimWorkload) -> Decision:
    """With what would change on it."""
    return decide(one.facts, changes=one.changes, action_id=one.action.id if one.action else "")


def choose_outcome(facts: Facts) -> Outcome:
    """The first lasting no decides."""
    refusing = next((guard for guard in _LASTING if guard.ask(facts).passed is False), None)
    if refusing is not None:
        return refusing.consequence
    if facts.policy is None:  # its objects have not been read yet: what may be done is not known
        return Outcome.WAIT
    if _says_no(facts, _BEFORE_WARNING):
        return Outcome.WAIT
    if not _says_no(facts, _AFTER_WARNING):
        return Outcome.ACT
    return Outcome.WARN if is_warning_due(facts) else Outcome.WAIT


def may_be_inspected(facts: Facts) -> bool:
    """Whether only time is missing, if anything: then it is worth reading the objects."""
    return not _says_no(facts, _LASTING)


def may_be_acted_on(facts: Facts) -> bool:
    """Whether no guard says no."""
    return not _says_no(facts, GUARDS)


def is_warning_true(facts: Facts) -> bool:
    """Whether what a warning says is still to happen."""
    return facts.policy is not None and not _says_no(facts, (*_LASTING, *_BEFORE_WARNING))


def _says_no(facts: Facts, guards: Iterable[Guard]) -> bool:
    return any(guard.ask(facts).passed is False for guard in guards)


def waits_for_pressure(facts: Facts) -> bool:
    """Whether nothing is missing but a pending pod that needs its GPUs."""
    policy = facts.policy
    return policy is not None and policy.on_pressure and may_be_acted_on(facts._replace(has_pressure=True))


def list_objections(answers: Iterable[Answer], asker: Asker) -> list[Answer]:
    """What forbids an action that a person asks for."""
    return [answer for answer in answers if answer.passed is False and asker not in BY_NAME[answer.guard].not_for]


def is_warning_due(facts: Facts) -> bool:
    """Fewer than needed were sent, and the last one is old enough; or one was not delivered for long."""
    policy, sent = facts.policy, facts.warnings
    if policy is None:
        return False
    if not sent:
        return True
    since_last = facts.now - max(each.sent_at for each in sent)
    if sent[-1].delivered_at is None:
        return since_last >= max(policy.warning_interval_seconds, RESEND_SECONDS)
    return len(list_delivered(sent)) < policy.warnings and since_last >= policy.warning_interval_seconds


def _find_due(facts: Facts) -> float | None:
    """When it would be acted on if all warnings are delivered in time; None while it waits for something whose end is
    not known: the plan then says for what."""
    policy = facts.policy
    if policy is None or facts.idle_since is None or _says_no(facts, _WITHOUT_END):
        return None
    limit_ends = _find_limit_end(facts)
    if limit_ends is None:
        return None
    delivered = list_delivered(facts.warnings)
    missing = max(0, policy.warnings - len(delivered))
    last_warning = delivered[policy.warnings - 1] if not missing else _last_warning(facts, missing)
    if last_warning is None:
        return None
    times = [facts.now, last_warning + policy.grace_seconds, limit_ends, facts.snoozed_until, facts.left_alone_until]
    if facts.pool is not None and policy.keep is not None:
        times.append(facts.idle_since + policy.keep.patience_seconds)
    return _find_open(policy, max(time for time in times if time is not None))


def _find_open(policy: Policy, at: float) -> float | None:
    """The first time from then on within the working hours of a policy and outside of its quiet hours."""
    found: float | None = at
    for _ in range(MOST_DAYS):
        before = found
        if found is not None and policy.working_hours is not None:
            found = policy.working_hours.find_next(found, within=True)
        if found is not None and policy.quiet_hours is not None:
            found = policy.quiet_hours.find_next(found, within=False)
        if found == before:
            return found
    return None


def _find_limit_end(facts: Facts) -> float | None:
    """When the limit per hour allows the next action; None if that depends on what else is acted on meanwhile."""
    assert facts.policy is not None
    if BY_NAME["budget"].ask(facts).passed is not False:
        return facts.now
    most, ends = facts.policy.limits.per_hour, facts.counts.hour_ends
    is_hour_only = facts.counts.hour == len(ends) >= most > 0
    return ends[len(ends) - most] if is_hour_only else None


def _last_warning(facts: Facts, missing: int) -> float | None:
    """When the last one that is missing can be sent; None: never, all hours are quiet."""
    assert facts.policy is not None
    assert facts.idle_since is not None
    interval = facts.policy.warning_interval_seconds
    first = max(facts.now, facts.idle_since + facts.policy.window_seconds)
    if facts.warnings:
        first = max(facts.now, facts.warnings[-1].sent_at + interval)
    quiet, last = facts.policy.quiet_hours, first + (missing - 1) * interval
    return last if quiet is None else quiet.find_next(last, within=False)


def describe_changes(one: ReclaimWorkload) -> Message:
    """For a warning: what would change, and which pods without GPUs that stops."""
    text = "; ".join(change.text for change in one.changes)
    others = one.facts.inspection.other_pods if one.facts.inspection else ()
    if not others:
        return Message(text, text)
    return messages.WARNING_OTHER_PODS.fill(text=text, count=len(others), pods=describe_pods(others, one.facts.host))


def make_action(one: ReclaimWorkload, result: Result, mode: Mode, *, at: float, by: str) -> Action:
    """A new one, for the journal."""
    policy = one.facts.policy
    assert policy is not None
    return Action(
        id=make_action_id(),
        workload=one.key,
        uid=one.uid,
        action=policy.action,
        mode=mode,
        state=ActionState.PLANNED,
        policy=policy.name,
        gpus=one.facts.gpus,
        idle_since=one.facts.idle_since or at,
        created_at=at,
        updated_at=at,
        evidence={**list_evidence(one, result), "pods": list(one.facts.pods)},
        by=by,
        steps=(JournalStep(ActionState.PLANNED, at, by),),
    )


def make_evidence(one: ReclaimWorkload, result: Result) -> dict[str, Any]:
    """What an action rests on, for the journal: the verdict of what it takes away, and every guard and its answer."""
    facts = one.facts
    return {
        **list_evidence(one, result, {row for replica in one.surplus for row in replica.rows}),
        "guards": [{"guard": each.guard, "passed": each.passed, "reason": each.reason} for each in ask_all(facts)],
        "origins": dict(facts.policy.origins) if facts.policy else {},
        "changes": [change.make_row() for change in one.changes],
        "pods": list(facts.pods),
        **({RULE: asdict(facts.policy.keep)} if facts.pool is not None and facts.policy and facts.policy.keep else {}),
        "other_pods": [pod._asdict() for pod in list_other_pods(facts)[:MOST_KEPT]],
    }
