"""The guards: each a named question about one workload, answered from facts alone (pure).

All of them are asked for every decision, in the order of `GUARDS`. An answer of no has a consequence: nothing (the
workload is not idle, or its policy only tells), refuse (it would be due, and something forbids it) or wait (only time
is missing). A warning is sent when nothing but time after the warning is missing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from math import inf
from typing import NamedTuple

from gpusteward.analyzer.reclaim.cluster import PodId
from gpusteward.analyzer.reclaim.decisions.host_use import HostReading, HostSignal, HostTotal
from gpusteward.analyzer.reclaim.decisions.workloads import Facts
from gpusteward.analyzer.reclaim.execution.journal import Warned
from gpusteward.analyzer.reclaim.plan import Answer, Asker, Fields, Outcome
from gpusteward.analyzer.reclaim.policies.policy import CHANGING_ACTIONS, ReclaimAction
from gpusteward.analyzer.sources.live_readings import HostUse
from gpusteward.core.gpu_counts import format_gpus
from gpusteward.core.messages import Message, same_text
from gpusteward.core.node.containers import OwnerEvidence
from gpusteward.core.verdicts import Activity, Proof, Step
from gpusteward.messages import reclaim as messages
from gpusteward.messages.verdicts import SIGNATURES, STEPS

LEAST_CYCLES = 2
"""A workload that this process has just seen for the first time is never acted on."""
MOST_NAMED = 10
"""Pods in one sentence."""
MOST_REVERTS = 1
"""Once may be the owner's own hand; the second time it is a controller that will do it again."""
Ask = Callable[[Facts], Answer]


class Guard(NamedTuple):
    """One guard, and what its no means."""

    ask: Ask
    consequence: Outcome
    after_warning: bool = False  # its no does not keep a warning back
    not_for: tuple[Asker, ...] = ()  # who may ask for the action although it says no

    @property
    def name(self) -> str:
        return self.ask.__name__


@lru_cache(maxsize=1024)
def _say(guard: str, passed: bool | None, text: Message) -> Answer:
    """An answer without fields: the same object each time, since a large plan has many of them."""
    return Answer(guard, passed, text)


def _answer(ask: Ask, passed: bool | None, yes: Message, no: Message, fields: Fields | None = None) -> Answer:
    text = no if passed is False else yes
    return Answer(ask.__name__, passed, text, fields) if fields else _say(ask.__name__, passed, text)


def idle(facts: Facts) -> Answer:
    """Every allocation is idle; of a pool, the surplus ones are."""
    if facts.pool is not None:
        pool = facts.pool
        is_so = pool.surplus > 0 and facts.activity is Activity.IDLE
        return _answer(
            idle,
            is_so,
            messages.SURPLUS,
            messages.NO_SURPLUS,
            lambda: {"count": pool.surplus, "replicas": pool.replicas, "keep": pool.keep},
        )
    is_so = facts.activity is Activity.IDLE and facts.idle_since is not None
    return _answer(
        idle,
        is_so,
        messages.IS_IDLE,
        messages.NOT_IDLE,
        lambda: {"gpus": format_gpus(facts.gpus), "active": format_gpus(facts.gpus - facts.idle_gpus)},
    )


def signature(facts: Facts) -> Answer:
    """Nothing in it is starved, hung, keep-alive, starting or unknown."""
    is_so: bool | None = facts.highest_step is Step.RECLAIM
    if not is_so and facts.policy is None and facts.silent_since is not None and facts.step_by_silence is Step.RECLAIM:
        is_so = None  # its policy may let silence of its servers stand for idle time
    return _answer(
        signature,
        is_so,
        messages.MAY_RECLAIM,
        messages.LIMITED,
        lambda: {"signature": SIGNATURES[facts.signature], "step": STEPS[facts.highest_step]},
    )


def proof(facts: Facts) -> Answer:
    """Idleness is proven by integrating signals."""
    return _answer(proof, facts.proof is Proof.INTEGRATED, messages.INTEGRATED, messages.SAMPLED)


def coverage(facts: Facts) -> Answer:
    """No samples are missing."""
    return _answer(
        coverage,
        facts.coverage >= facts.least_coverage,
        messages.COVERED,
        messages.NOT_COVERED,
        lambda: {"coverage": facts.coverage, "least": facts.least_coverage},
    )


def owner(facts: Facts) -> Answer:
    """The owner was read from the API server, with its uid."""
    workload = facts.workload
    is_so = workload.evidence is OwnerEvidence.READ and bool(workload.uid)
    return _answer(
        owner,
        is_so,
        messages.OWNER_READ,
        messages.OWNER_NOT_READ,
        lambda: {"uid": workload.uid, "evidence": workload.evidence.value},
    )


def policy(facts: Facts) -> Answer:
    """The policy has an action that changes the cluster."""
    found = facts.policy
    if found is None:
        return _say("policy", None, messages.NO_POLICY)
    if found.is_default and found.action not in CHANGING_ACTIONS:
        return _say("policy", False, messages.NO_POLICY_MATCHES)
    is_so = found.action in CHANGING_ACTIONS and (
        found.action is not ReclaimAction.SCALE_TO_KEEP or facts.pool is not None
    )
    return _answer(
        policy,
        is_so,
        messages.POLICY_ACTS,
        messages.POLICY_ONLY_TELLS,
        lambda: {"policy": found.name, "action": found.action.value},
    )


def namespaces(facts: Facts) -> Answer:
    """The settings do not limit actions to other namespaces."""
    return _answer(
        namespaces,
        not facts.is_left_out,
        messages.NOT_LEFT_OUT,
        messages.LEFT_OUT,
        lambda: {"namespace": facts.workload.namespace},
    )


def protected(facts: Facts) -> Answer:
    """The namespace is not protected by the settings."""
    return _answer(
        protected,
        not facts.is_protected,
        messages.NOT_PROTECTED,
        messages.PROTECTED,
        lambda: {"namespace": facts.workload.namespace},
    )


def kept(facts: Facts) -> Answer:
    """Nobody opted out: pod, owner or namespace."""
    until = facts.policy.keep_until if facts.policy else None
    if facts.policy is None or not facts.policy.is_kept(facts.now):
        return _say("kept", True, messages.NOT_KEPT)
    shown: object = messages.FOR_EVER if until == inf else _show_time(until)
    return Answer("kept", False, messages.KEPT, lambda: {"until": shown})


def snoozed(facts: Facts) -> Answer:
    """Nobody snoozed it."""
    until = facts.snoozed_until
    if until is None or until <= facts.now:
        return _say("snoozed", True, messages.NOT_SNOOZED)
    return Answer("snoozed", False, messages.SNOOZED, lambda: {"until": _show_time(until)})


def reverted(facts: Facts) -> Answer:
    """No other controller has changed it back before."""
    is_so = facts.reverts <= MOST_REVERTS
    return _answer(reverted, is_so, messages.NEVER_REVERTED, messages.REVERTED, lambda: {"count": facts.reverts})


def cool_down(facts: Facts) -> Answer:
    """It was not restored or changed back recently."""
    until = facts.left_alone_until
    if until is None or until <= facts.now:
        return _say("cool_down", True, messages.COOLED_DOWN)
    return Answer("cool_down", False, messages.COOLING_DOWN, lambda: {"until": _show_time(until)})


def not_under_way(facts: Facts) -> Answer:
    """No action on it is open: nothing is suspended twice."""
    action = facts.open_action
    if action is None:
        return _say("not_under_way", True, messages.NOT_OPEN)
    fields = {"action": action.id, "state": messages.STATES[action.state]}
    return Answer("not_under_way", False, messages.OPEN, lambda: fields)


def seen(facts: Facts) -> Answer:
    """It was idle in earlier cycles of this process as well."""
    return _answer(
        seen,
        facts.cycles_seen >= LEAST_CYCLES,
        messages.SEEN,
        messages.SEEN_TOO_RARELY,
        lambda: {"cycles": facts.cycles_seen, "least": LEAST_CYCLES},
    )


def fresh(facts: Facts) -> Answer:
    """The verdict is not old."""
    seconds = facts.now - facts.result_at
    return _answer(
        fresh,
        seconds <= facts.max_age_seconds,
        messages.FRESH,
        messages.STALE,
        lambda: {"seconds": seconds, "most": facts.max_age_seconds},
    )


def window(facts: Facts) -> Answer:
    """It has been idle for the window of its policy."""
    if facts.policy is None:
        return _say("window", None, messages.NO_POLICY)
    seconds = facts.policy.window_seconds
    is_so = facts.idle_since is not None and facts.idle_seconds >= seconds
    return _answer(
        window,
        is_so,
        messages.LONG_ENOUGH,
        messages.TOO_SHORT,
        lambda: {"minutes": facts.idle_seconds / 60, "window": seconds / 60},
    )


def patience(facts: Facts) -> Answer:
    """Of a pool, the surplus has lasted for as long as its rule says."""
    rule = facts.policy.keep if facts.policy else None
    if facts.pool is None or rule is None:
        return _say("patience", True, messages.NO_POOL)
    return _answer(
        patience,
        facts.pool.has_lasted,
        messages.LASTED,
        messages.NOT_LASTED,
        lambda: {"minutes": facts.idle_seconds / 60, "patience": rule.patience_seconds / 60},
    )


def no_requests(facts: Facts) -> Answer:
    """Its servers had no request for as long as the policy asks, where that stands for the window."""
    seconds = facts.policy.no_requests_seconds if facts.policy else None
    if facts.policy is None:
        return _say("no_requests", None, messages.NO_POLICY)
    if seconds is None:
        return _say("no_requests", True, messages.REQUESTS_NOT_COUNTED)
    if facts.silent_since is None:
        return _say("no_requests", True, messages.NO_REQUEST_COUNTERS)
    if not facts.counts_silence:
        return _say("no_requests", True, messages.IDLE_ANYWAY)
    silent = facts.now - facts.silent_since
    return _answer(
        no_requests,
        silent >= seconds,
        messages.SILENT_LONG_ENOUGH,
        messages.NOT_SILENT_LONG_ENOUGH,
        lambda: {"minutes": silent / 60, "window": seconds / 60},
    )


def chance(facts: Facts) -> Answer:
    """Work is unlikely to come back soon. An unknown chance is not a low one."""
    most = facts.policy.highest_chance if facts.policy else None
    if most is None:
        return _say("chance", True, messages.CHANCE_ANY)
    found = facts.chance.probability
    fields = {"spells": facts.chance.spells, "chance": found, "most": most}
    if found is None:
        return Answer("chance", False, messages.CHANCE_UNKNOWN, lambda: fields)
    return _answer(chance, found <= most, messages.CHANCE_LOW, messages.CHANCE_HIGH, lambda: fields)


def quiet_hours(facts: Facts) -> Answer:
    """Neither warnings nor actions in quiet hours."""
    hours = facts.policy.quiet_hours if facts.policy else None
    return _answer(quiet_hours, hours is None or not hours.include(facts.now), messages.IN_HOURS, messages.QUIET)


def working_hours(facts: Facts) -> Answer:
    """Actions only within working hours, where the policy has some."""
    hours = facts.policy.working_hours if facts.policy else None
    return _answer(working_hours, hours is None or hours.include(facts.now), messages.IN_HOURS, messages.OUT_OF_HOURS)


def pressure(facts: Facts) -> Answer:
    """A pending pod needs these GPUs, where the policy waits for that."""
    if facts.policy is None or not facts.policy.on_pressure:
        return _say("pressure", True, messages.NO_PRESSURE_NEEDED)
    return _answer(pressure, facts.has_pressure, messages.PRESSURE, messages.NO_PRESSURE)


def budget(facts: Facts) -> Answer:
    """The limits per cycle, namespace and hour are not reached."""
    if facts.policy is None:
        return _say("budget", None, messages.NO_POLICY)
    limits, counts = facts.policy.limits, facts.counts
    pairs = (
        ("per_cycle", counts.cycle, limits.per_cycle),
        ("per_namespace", counts.namespace, limits.per_namespace),
        ("per_hour", counts.hour, limits.per_hour),
    )
    reached = next((pair for pair in pairs if pair[1] >= pair[2]), None)
    if reached is not None:
        return Answer(
            "budget", False, messages.OVER_BUDGET, lambda: dict(zip(("limit", "count", "most"), reached, strict=True))
        )
    return _say("budget", True, messages.IN_BUDGET)


def warned(facts: Facts) -> Answer:
    """All warnings for this idle spell were delivered, the last one at least the grace period ago."""
    if facts.policy is None:
        return _say("warned", None, messages.NO_POLICY)
    delivered = list_delivered(facts.warnings)
    least, grace = facts.policy.warnings, facts.policy.grace_seconds
    if len(delivered) < least:
        return Answer("warned", False, messages.NOT_WARNED, lambda: {"count": len(delivered), "least": least})
    seconds = facts.now - delivered[least - 1]
    return _answer(
        warned,
        seconds >= grace,
        messages.WARNED,
        messages.IN_GRACE,
        lambda: {"count": len(delivered), "minutes": seconds / 60, "grace": grace / 60},
    )


def leader(facts: Facts) -> Answer:
    """This analyzer holds the Lease."""
    return _answer(leader, facts.leader is None, messages.LEADER, facts.leader or messages.LEADER)


def switch(facts: Facts) -> Answer:
    """Nobody has switched reclaim off."""
    return _answer(switch, facts.switch is None, messages.SWITCH_ON, facts.switch or messages.SWITCH_ON)


def policy_file(facts: Facts) -> Answer:
    """There is a policy file that can be used."""
    return _answer(
        policy_file,
        facts.policy_problem is None,
        messages.POLICY_FILE_VALID,
        facts.policy_problem or messages.NO_POLICY,
    )


def same_owner(facts: Facts) -> Answer:
    """The owner of the pods, read again, has the uid of the verdict."""
    found = facts.inspection
    if found is None or not found.uid:
        return _say("same_owner", None, messages.NOT_INSPECTED)
    return _answer(
        same_owner,
        found.uid == facts.workload.uid,
        messages.SAME_OWNER,
        messages.OTHER_OWNER,
        lambda: {"uid": found.uid, "found": found.uid, "expected": facts.workload.uid},
    )


def complete(facts: Facts) -> Answer:
    """Every pod of the owner that holds GPUs is in the verdict."""
    found = facts.inspection
    if found is None or not found.uid:
        return _say("complete", None, messages.NOT_INSPECTED)
    if found.incomplete is not None:
        return Answer("complete", False, found.incomplete)
    return Answer("complete", True, messages.COMPLETE, lambda: {"count": found.pods})


def other_pods(facts: Facts) -> Answer:
    """No pod without GPUs is stopped, unless the policy says so: what it does is not in the verdict."""
    found, policy = facts.inspection, facts.policy
    if found is None or found.refusal is not None or policy is None:
        return _say("other_pods", None, messages.NOT_INSPECTED)
    if not found.other_pods:
        return _say("other_pods", True, messages.NO_OTHER_PODS)
    return _answer(
        other_pods,
        policy.stops_other_pods,
        messages.STOPS_OTHER_PODS,
        messages.WOULD_STOP_OTHER_PODS,
        lambda: {
            "pods": describe_pods(found.other_pods, facts.host),
            "count": len(found.other_pods),
            "policy": policy.name,
        },
    )


def host(facts: Facts) -> Answer:
    """The pods that would stop do not work on their hosts: CPU, disk, network. Asked before a warning and before an
    action."""
    found = facts.host
    if found is None:
        return _say("host", None, messages.HOST_NOT_READ)
    if found.error is not None:
        # As with usage, nothing rests on an answer that did not come: the signals may be there, and the next cycle asks
        # again. That is not the same as signals that the source does not have.
        error = found.error
        return Answer("host", False, messages.HOST_UNREADABLE, lambda: {"reason": error})
    minutes = found.seconds / 60
    if work := found.work:
        return Answer(
            "host", False, messages.HOST_WORKS, lambda: {"minutes": minutes, "signals": _join(map(_show_work, work))}
        )
    return Answer(
        "host",
        True,
        messages.HOST_QUIET,
        lambda: {"minutes": minutes, "signals": _join(_show_total(each, found.pods) for each in found.totals)},
    )


def _show_work(total: HostTotal) -> Message:
    amounts = {"amount": _scale(total.signal, total.amount or 0.0), "least": _scale(total.signal, total.least)}
    return messages.HOST_WORK[total.signal].fill(**amounts, pod=total.busiest)


def _show_total(total: HostTotal, pods: int) -> Message:
    if total.amount is None:
        return messages.HOST_NO_SIGNAL.fill(signal=messages.HOST_SIGNALS[total.signal])
    text = messages.HOST_AMOUNTS[total.signal].fill(amount=_scale(total.signal, total.amount))
    return messages.HOST_PARTLY.fill(text=text, count=total.unknown, pods=pods) if total.unknown else text


def _scale(signal: HostSignal, amount: float) -> float:
    """Cores, or MB/s."""
    return amount if signal is HostSignal.CPU else amount / 1e6


def _join(texts: Iterable[Message], *, marks: tuple[str, str] = ("; ", "；")) -> Message:
    found = list(texts)
    return Message(marks[0].join(each.en for each in found), marks[1].join(each.zh for each in found))


def pods(facts: Facts) -> Answer:
    """Uid and start of every pod are known: a pod that was created again under the same name is another one, and has
    not been idle before its start."""
    if not facts.pods:
        return _say("pods", None, messages.NOT_INSPECTED)
    return _answer(
        pods,
        not facts.unknown_pod,
        messages.PODS_KNOWN,
        messages.POD_UNKNOWN,
        lambda: {"count": len(facts.pods), "pod": facts.unknown_pod},
    )


def kind(facts: Facts) -> Answer:
    """The kind is known, and this very object may be changed."""
    found = facts.inspection
    if found is None:
        return _say("kind", None, messages.NOT_INSPECTED)
    if found.refusal is not None:
        return Answer("kind", False, found.refusal)
    return Answer(
        "kind", True, messages.KIND_KNOWN, lambda: {"kind": found.kind, "name": found.name, "text": found.text}
    )


def usage(facts: Facts) -> Answer:
    """Read again right before the action, no GPU has begun to work, and every sample is fresh."""
    if not facts.is_usage_read:
        return _say("usage", None, messages.NOT_READ_AGAIN)
    return _answer(usage, facts.usage is None, messages.USAGE_FRESH, facts.usage or messages.USAGE_FRESH)


_OPERATOR = (Asker.OPERATOR,)
_PEOPLE = (Asker.OPERATOR, Asker.LINK)
GUARDS: Sequence[Guard] = (
    Guard(idle, Outcome.NOTHING),
    Guard(policy, Outcome.NOTHING, not_for=_OPERATOR),
    Guard(signature, Outcome.REFUSE),
    Guard(proof, Outcome.REFUSE),
    Guard(coverage, Outcome.REFUSE),
    Guard(owner, Outcome.REFUSE),
    Guard(namespaces, Outcome.REFUSE),
    Guard(protected, Outcome.REFUSE),
    Guard(kept, Outcome.REFUSE),
    Guard(reverted, Outcome.REFUSE),
    Guard(same_owner, Outcome.REFUSE),
    Guard(complete, Outcome.REFUSE),
    Guard(pods, Outcome.REFUSE),
    Guard(kind, Outcome.REFUSE),
    Guard(other_pods, Outcome.REFUSE),
    Guard(host, Outcome.REFUSE),
    Guard(not_under_way, Outcome.WAIT),
    Guard(snoozed, Outcome.WAIT),
    Guard(cool_down, Outcome.WAIT, not_for=_OPERATOR),
    Guard(seen, Outcome.WAIT),
    Guard(fresh, Outcome.WAIT),
    Guard(window, Outcome.WAIT, not_for=_PEOPLE),
    Guard(no_requests, Outcome.WAIT, not_for=_OPERATOR),
    Guard(chance, Outcome.WAIT, not_for=_OPERATOR),
    Guard(quiet_hours, Outcome.WAIT, not_for=_OPERATOR),
    Guard(leader, Outcome.WAIT),
    Guard(switch, Outcome.WAIT),
    Guard(policy_file, Outcome.WAIT),
    Guard(warned, Outcome.WAIT, after_warning=True, not_for=_PEOPLE),
    Guard(patience, Outcome.WAIT, after_warning=True, not_for=_PEOPLE),
    Guard(working_hours, Outcome.WAIT, after_warning=True, not_for=_OPERATOR),
    Guard(pressure, Outcome.WAIT, after_warning=True, not_for=_OPERATOR),
    Guard(budget, Outcome.WAIT, after_warning=True, not_for=_OPERATOR),
    Guard(usage, Outcome.WAIT, after_warning=True),
)
"""Names are public: they are in plans, in the journal and in metrics."""
BY_NAME: Mapping[str, Guard] = {guard.name: guard for guard in GUARDS}


def ask_all(facts: Facts) -> tuple[Answer, ...]:
    return tuple(guard.ask(facts) for guard in GUARDS)


def describe_pods(pods: Sequence[PodId], host: HostReading | None) -> Message:
    """For people: the names of the first ones, and what they use of their hosts, where that was read."""
    named = [_describe_pod(pod.name, host) for pod in pods[:MOST_NAMED]]
    more = [same_text(f"+{len(pods) - MOST_NAMED}")] if len(pods) > MOST_NAMED else []
    return _join([*named, *more], marks=(", ", "、"))


def _describe_pod(name: str, host: HostReading | None) -> Message:
    if host is None or host.error is not None:  # the guard `host` says why
        return same_text(name)
    signals = []
    for signal, amount in zip(HostSignal, host.by_pod.get(name, HostUse()), strict=True):
        if amount is None:
            signals.append(messages.HOST_NO_SIGNAL.fill(signal=messages.HOST_SIGNALS[signal]))
        else:
            signals.append(messages.HOST_AMOUNTS[signal].fill(amount=_scale(signal, amount)))
    return messages.POD_USE.fill(pod=name, signals=_join(signals))


def list_delivered(warnings: Sequence[Warned]) -> list[float]:
    """When warnings were delivered, in order."""
    return sorted(each.delivered_at for each in warnings if each.delivered_at is not None)


def _show_time(at: float | None) -> str:
    if at is None or at == inf:
        return ""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
