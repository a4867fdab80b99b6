"""The stage `reclaim` of a cycle: continue what is open, plan, warn, act. Also what API and CLI call.

Order within a cycle: actions that were interrupted are continued; those that are done are verified, and looked at for a
change by somebody else; then every idle workload gets a decision; then warnings are sent and actions carried out, the
longest idle first. Before an action, everything it is based on is read again.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from gpusteward.analyzer.judge.resumption import Chance
from gpusteward.analyzer.reclaim.actions import (
    RESTORABLE_STATES,
    Action,
    ReclaimError,
    Step,
    SwitchState,
)
from gpusteward.analyzer.reclaim.candidates import CandidateFacts, CandidateFinder, Replica, list_evidence, list_roots
from gpusteward.analyzer.reclaim.cluster import Cluster, Reading
from gpusteward.analyzer.reclaim.counters import ReclaimCounters
from gpusteward.analyzer.reclaim.decide import (
    choose_victims,
    decide,
    list_objections,
    may_be_acted_on,
    may_be_inspected,
    waits_for_pressure,
)
from gpusteward.analyzer.reclaim.executor import SELF, Executor, OnStep, Planned
from gpusteward.analyzer.reclaim.guards import BY_NAME, Counts, Facts, Inspection, Pool, ask_all
from gpusteward.analyzer.reclaim.inspection import Inspected, InspectionCache, plan_changes, read_objects
from gpusteward.analyzer.reclaim.journal import Journal, make_action_id
from gpusteward.analyzer.reclaim.lease import ActorLease
from gpusteward.analyzer.reclaim.past import Past, find_end, select_warnings
from gpusteward.analyzer.reclaim.plan import ActionState, Decision, Mode, Outcome, Plan
from gpusteward.analyzer.reclaim.policies.effective import CHANGING_ACTIONS, EffectivePolicy, ReclaimAction
from gpusteward.analyzer.reclaim.pool_rule import compute_keep
from gpusteward.analyzer.reclaim.pressure import list_pending_pods, make_victim
from gpusteward.analyzer.reclaim.sightings import PoolHistory, Sightings
from gpusteward.analyzer.reclaim.subjects import Policies
from gpusteward.analyzer.reclaim.switch import Switch
from gpusteward.analyzer.reclaim.usage_check import WorkSource, find_work
from gpusteward.analyzer.reclaim.warnings import Notices, NoticeSender
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.reclaim import ReclaimSettings
from gpusteward.core.containers import WorkloadKey
from gpusteward.core.errors import GpustewardError, SourceError
from gpusteward.core.messages import Message
from gpusteward.logs import Log
from gpusteward.messages import reclaim as messages

log = Log(__name__)

VERIFY_SECONDS = 600.0
"""Pods that are not even being deleted after this long: the change has had no effect, and is undone."""
MARKED_SECONDS = 7200.0
"""For so long after an action the idle spells that it ended are marked: they end when their pods leave the window."""
LOCK_SECONDS = 30.0
"""How long a person's request waits for the cycle that is acting."""
CLOSE_SECONDS = 1.0
MOST_INSPECTIONS = 500
"""Workloads whose objects are read in one cycle; the others wait for the next ones."""


def no_chance(_key: WorkloadKey, _age_seconds: float, _now: float) -> Chance:
    """Unknown."""
    return Chance()


def _no_snoozes(_now: float) -> Mapping[WorkloadKey, float]:
    return {}


@dataclass(frozen=True)
class ReclaimComponents:
    """What the reclaimer uses."""

    cluster: Cluster
    journal: Journal
    switch: Switch
    lease: ActorLease
    policies: Policies
    sender: NoticeSender | None = None  # None: nobody can be warned, so nothing is ever done
    source: WorkSource | None = None  # to read usage once more before an action; None: it is not
    read_chance: Callable[[WorkloadKey, float, float], Chance] = no_chance
    read_snoozes: Callable[[float], Mapping[WorkloadKey, float]] = _no_snoozes  # may raise SourceError
    own_namespace: str = ""  # always protected
    clock: Callable[[], float] = time.time
    on_step: OnStep = lambda _step, _action: None  # called between any two steps of an action; for tests


@dataclass
class _Considered:
    """A candidate in one cycle."""

    found: CandidateFacts
    facts: Facts
    inspected: Inspected | None = None
    planned: Sequence[Planned] = ()
    surplus: Sequence[Replica] = ()
    action: Action | None = None  # that was warned about, or is planned


class Reclaimer:
    """`reclaim` is called by the thread that runs cycles, the other methods by any."""

    def __init__(self, settings: ReclaimSettings, components: ReclaimComponents) -> None:
        self._settings, self._components = settings, components
        self._journal, self._switch, self._lease = components.journal, components.switch, components.lease
        self._counters = ReclaimCounters()
        self._notices = Notices(components.sender)
        self._executor = Executor(
            components.cluster,
            components.journal,
            permission=self,
            teller=self._notices,
            counters=self._counters,
            clock=components.clock,
            on_step=components.on_step,
        )
        self._lock = threading.RLock()
        self._sightings, self._pools = Sightings(), PoolHistory()
        self._cache = InspectionCache(components.clock)
        self._last_plan: Plan | None = None
        self._last_result: Result | None = None
        self._last_error = ""
        self._inspected_at: dict[WorkloadKey, float] = {}  # when the objects of idle workloads were read last
        self._roots_of: Result | None = None
        self._roots: Mapping[str, str] = {}  # of that result: uid of a pod -> uid of its root owner
        self._looked_at: set[str] = set()  # actions put back whose object, read in this cycle, has not changed
        self._unwarned: set[str] = set()  # namespaces without a channel; each is logged once

    @property
    def mode(self) -> Mode:
        return Mode(self._settings.mode)

    @property
    def last_plan(self) -> Plan | None:
        return self._last_plan

    @property
    def counts(self) -> Mapping[tuple[str, str], int]:
        return self._counters.counts()

    def find_objection(self) -> Message | None:
        """Why this analyzer may not act at this moment. Renews the Lease and reads the switch."""
        if not self._lease.renew():
            holder = self._lease.current or "?"
            error = self._lease.error
            return error.as_message() if error else messages.LEASE_LOST.fill(holder=holder)
        return self._switch.find_reason()

    def reclaim(self, result: Result) -> None:
        """Raises SourceError if journal or cluster cannot be reached: the next cycle tries again."""
        self._settings = result.settings.reclaim
        if self.mode is Mode.OFF:
            self._last_plan = None
            return
        with self._lock:
            self._last_result = result
            try:
                with self._components.cluster.keeping_connections():
                    self._run(result)
                self._last_error = ""
            except GpustewardError as error:
                self._last_error = str(error)
                raise

    def read_actions(
        self, *, workload: WorkloadKey | None = None, states: Sequence[ActionState] = (), limit: int = 100
    ) -> list[Action]:
        return self._journal.list_newest(workload=workload, states=states, limit=limit)

    def read_action(self, action_id: str) -> Action | None:
        return self._journal.read(action_id)

    def preview(self, workload: WorkloadKey) -> Decision:
        with self._locked():
            return self._decide(self._consider_fresh(workload, renews=False))

    def suspend(self, workload: WorkloadKey, *, by: str) -> Action:
        with self._locked():
            if self.mode is not Mode.ENFORCE:
                raise ReclaimError(messages.NOT_ON, mode=self.mode.value)
            considered = self._consider_fresh(workload, by_person=True)
            objections = list_objections(ask_all(considered.facts))
            if objections or not considered.planned:
                reason = objections[0].reason if objections else messages.NOT_INSPECTED
                raise ReclaimError(messages.REFUSED, reason=reason)
            action = considered.action or self._journal.add(self._make_action(considered, by=by))
            actions = self._carry_out(replace_action(considered, replace(action, by=by)))
            if actions and actions[0].state is not ActionState.ACTED:
                raise ReclaimError(messages.REFUSED, reason=actions[0].steps[-1].note or actions[0].error)
            return actions[0]

    def restore(self, action_id: str, *, by: str) -> Action:
        with self._locked():
            action = self._journal.read(action_id)
            if action is None:
                raise ReclaimError(messages.NO_SUCH_ACTION, action=action_id)
            if not self._journal.is_own(action):
                raise ReclaimError(messages.OTHER_CLUSTER, action=action_id, cluster=action.workload.cluster)
            if action.state not in (*RESTORABLE_STATES, ActionState.RESTORING):
                raise ReclaimError(messages.NOT_RESTORABLE, action=action_id, state=action.state.value)
            return self._executor.restore(action, by=by)

    def switch_off(self, *, by: str, reason: str = "") -> SwitchState:
        log.warning("reclaim_switched_off", by=by, reason=reason)
        return self._switch.set(is_off=True, by=by, reason=reason, at=self._now())

    def switch_on(self, *, by: str) -> SwitchState:
        log.warning("reclaim_switched_on", by=by)
        return self._switch.set(is_off=False, by=by, reason="", at=self._now())

    def read_switch(self) -> SwitchState:
        return self._switch.read()

    def describe(self) -> Mapping[str, Any]:
        plan = self._last_plan
        return {
            "mode": self.mode.value,
            "holder": self._lease.current,
            "is_holder": self._lease.is_valid,
            "stopped_by": plan.stopped_by.en if plan and plan.stopped_by else "",
            "planned_at": plan.at if plan else None,
            "outcomes": {outcome.value: count for outcome, count in (plan.counts if plan else {}).items()},
            "error": self._last_error,
        }

    def close(self) -> None:
        """Give the Lease up; an API server that does not respond does not delay the end of the program."""
        thread = threading.Thread(target=self._lease.release, name="release-lease", daemon=True)
        thread.start()
        thread.join(CLOSE_SECONDS)

    # One cycle.

    def _run(self, result: Result) -> None:
        now, reading = self._now(), self._open_reading(result)
        self._components.policies.refresh()
        objection = self.find_objection() if self.mode is Mode.ENFORCE else self._switch.find_reason()
        may_write = self.mode is Mode.ENFORCE and objection is None
        finder = CandidateFinder(result)
        self._continue_open(finder, reading, may_write=may_write)
        found = [finder.describe(number, now=now) for number in finder.find_all()]
        self._sightings.update((each.sighting for each in found), at=result.at)
        considered = self._consider(found, finder, reading, objection=objection, now=now)
        decisions = [self._decide(each) for each in considered]
        counts = Counter(decision.outcome for decision in decisions)
        counts[Outcome.NOTHING] += len(result.workloads) - len(found)
        self._last_plan = Plan(now, self.mode, tuple(decisions), objection, dict(counts))
        for each, decision in zip(considered, decisions, strict=True):
            if objection is None and decision.outcome is Outcome.WARN:
                self._warn(each, decision)
            elif objection is None and decision.outcome is Outcome.ACT and not self._act(each):
                return

    def _continue_open(self, finder: CandidateFinder, reading: Reading, *, may_write: bool) -> None:
        """What earlier cycles, or an earlier process, have left open."""
        self._looked_at.clear()
        for action in self._journal.list_open():
            if may_write and not self._lease.is_valid:  # many actions, or a slow API server
                may_write = self.find_objection() is None
            try:
                if action.state in (ActionState.PLANNED, ActionState.WARNED):
                    self._continue_warned(action, may_write=may_write)
                elif action.state in (ActionState.ACTING, ActionState.RESTORING) and may_write:
                    self._executor.recover(action)
                elif action.state in RESTORABLE_STATES:
                    self._watch(action, reading, finder, may_write=may_write)
            except (SourceError, ReclaimError) as error:  # costs this action only
                log.warning("action_not_continued", action=action.id, state=action.state.value, reason=error)

    def _continue_warned(self, action: Action, *, may_write: bool) -> None:
        """One of another mode has warned nobody, or is not wanted any more."""
        if may_write and self._executor.adopt(action) is not None:
            return
        if may_write:
            self._looked_at.add(action.id)
        if action.mode is not self.mode:
            self._end(action, messages.SPELL_ENDED)
            return
        warnings = self._notices.update(action.warnings)
        if warnings != action.warnings:
            self._journal.move(action, action.state, at=self._now(), note="delivered", warnings=warnings)

    def _watch(self, action: Action, reading: Reading, finder: CandidateFinder, *, may_write: bool) -> None:
        """Whether the pods of an action are gone, and whether somebody has changed its object back."""
        if may_write and self._executor.find_revert(action) is not None:
            return
        now = self._now()
        if action.action is ReclaimAction.SCALE_TO_KEEP and may_write and self._is_needed(action, finder):
            self._executor.restore(action, by=SELF)
            return
        if action.state is ActionState.VERIFIED and now - (action.acted_at or now) < MARKED_SECONDS:
            self._journal.mark_spells(action)
        if action.state is not ActionState.ACTED:
            return
        remaining = self._list_remaining(action, reading)
        if not remaining:
            self._executor.verify(action)
            return
        is_late = now - (action.acted_at or now) >= VERIFY_SECONDS and not any(pod.is_deleted for pod in remaining)
        if is_late and may_write and action.action is not ReclaimAction.EVICT:
            self._executor.restore(action, by=SELF, note=messages.NO_EFFECT.fill(minutes=VERIFY_SECONDS / 60))

    def _list_remaining(self, action: Action, reading: Reading) -> list[Any]:
        """Pods that the action should have removed and that are still there."""
        assert action.target is not None
        pods = reading.list_pods_below(action.workload.namespace, [action.uid, action.target.uid])
        if action.action is not ReclaimAction.SCALE_TO_KEEP:
            acted_on = {one.get("pod_uid") for one in action.evidence.get("allocations", ())}
            is_cron = action.workload.kind == "CronJob"  # its next Job is none of our business
            return [pod for pod in pods if not is_cron or pod.uid in acted_on]
        keep = int(next(iter(action.patch.values()), 0))
        return pods[keep:]

    def _is_needed(self, action: Action, finder: CandidateFinder) -> bool:
        """All replicas that are left are at work: the others are given back."""
        keep = int(next(iter(action.patch.values()), 0))
        result = self._last_result
        number = result.workloads.find(action.workload) if result else None
        if number is None:
            return False
        replicas = finder.list_replicas(finder.describe(number, now=self._now()))
        return sum(one.is_active for one in replicas) >= keep

    def _consider(
        self,
        found: Sequence[CandidateFacts],
        finder: CandidateFinder,
        reading: Reading,
        *,
        objection: Message | None,
        now: float,
    ) -> list[_Considered]:
        past = Past.read(self._journal, now=now, cool_down=self._settings.cool_down_minutes * 60)
        snoozes = self._components.read_snoozes(now)
        everyone = [self._with_past(each, past, snoozes, objection=objection, now=now) for each in found]
        for one in self._choose_inspected(everyone, now=now):
            one.inspected = self._cache.read(one.found, reading)
            self._add_policy(one, finder, now=now)
            self._add_changes(one, reading, now=now)
        considered = [one for one in everyone if one.facts.pool is not None or one.found.facts.idle_since is not None]
        self._end_spells(considered, past)
        self._add_pressure(considered)
        self._pools.forget(each.key for each in found)
        return self._with_budgets(considered, past)

    def _open_reading(self, result: Result) -> Reading:
        if self._roots_of is not result:
            self._roots_of, self._roots = result, list_roots(result)
        return Reading(self._components.cluster, roots=self._roots)

    def _choose_inspected(self, everyone: Sequence[_Considered], *, now: float) -> list[_Considered]:
        """Those whose objects are read in this cycle: what costs no request, and of the others those that have waited
        for the longest time."""
        wanted = [one for one in everyone if may_be_inspected(one.facts) or self._may_be_pool(one)]
        unread = [one for one in wanted if not self._cache.has(one.found)]
        unread.sort(key=lambda one: self._inspected_at.get(one.found.key, 0.0))  # of equal ones the longest idle first
        left = {one.found.key for one in unread[MOST_INSPECTIONS:]}
        chosen = [one for one in wanted if one.found.key not in left]
        before = self._inspected_at
        self._inspected_at = {one.found.key: before.get(one.found.key, 0.0) for one in wanted}
        self._inspected_at |= dict.fromkeys((one.found.key for one in unread[:MOST_INSPECTIONS]), now)
        return chosen

    def _consider_fresh(self, key: WorkloadKey, *, by_person: bool = False, renews: bool = True) -> _Considered:
        """One workload, with everything read now. Raises ReclaimError if the last result does not have it. `renews`:
        the Lease, which is not for one who only looks."""
        result = self._last_result
        number = result.workloads.find(key) if result else None
        if result is None or number is None:
            raise ReclaimError(messages.NO_SUCH_WORKLOAD, workload=key.path)
        finder, now, reading = CandidateFinder(result), self._now(), self._open_reading(result)
        past = Past.read(self._journal, now=now, cool_down=self._settings.cool_down_minutes * 60)
        acts = renews and self.mode is Mode.ENFORCE
        objection = self.find_objection() if acts else self._switch.find_reason()
        snoozes = self._components.read_snoozes(now)
        one = self._with_past(finder.describe(number, now=now), past, snoozes, objection=objection, now=now)
        one.inspected = read_objects(one.found, reading)
        self._add_policy(one, finder, now=now)
        if by_person and one.facts.policy is not None and one.facts.policy.action not in CHANGING_ACTIONS:
            one.facts = replace(one.facts, policy=replace(one.facts.policy, action=ReclaimAction.SUSPEND))
        self._add_changes(one, reading, now=now, in_any_case=True)
        self._add_pressure([one])
        return self._with_budgets([one], past)[0]

    def _with_past(
        self,
        found: CandidateFacts,
        past: Past,
        snoozes: Mapping[WorkloadKey, float],
        *,
        objection: Message | None,
        now: float,
    ) -> _Considered:
        key, sighting = found.key, self._sightings.find(found.key)
        is_same = sighting.uid == found.workload.uid
        since = found.facts.idle_since
        if since is not None and sighting.sampled_at is not None and is_same:
            since = max(since, sighting.sampled_at)
        action = past.waiting.get((key, found.workload.uid))
        is_leader_problem = objection is not None and self._lease.was_refused
        facts = replace(
            found.facts,
            now=now,
            cycles_seen=sighting.cycles if is_same else 0,
            idle_since=since,
            snoozed_until=snoozes.get(key),
            is_protected=self._is_protected(key.namespace),
            reverts=past.reverts[key, found.workload.uid],
            left_alone_until=past.left_alone.get(key),
            open_action=past.open.get(key),
            leader=objection if is_leader_problem else None,
            switch=None if is_leader_problem else objection,
        )
        return _Considered(found, facts, action=action)

    def _is_protected(self, namespace: str) -> bool:
        return self._settings.is_protected(namespace) or namespace == self._components.own_namespace

    def _may_be_pool(self, one: _Considered) -> bool:
        blocking = (BY_NAME[name] for name in ("protected", "owner", "reverted"))
        return one.found.can_be_pool and all(guard.ask(one.facts).passed for guard in blocking)

    def _add_policy(self, one: _Considered, finder: CandidateFinder, *, now: float) -> None:
        if one.inspected is None or one.inspected.subject is None:
            return
        policy = self._components.policies.find_policy(one.inspected.subject)
        facts = one.facts
        age = 0.0 if facts.idle_since is None else now - facts.idle_since
        chance = (
            self._components.read_chance(one.found.key, age, now) if policy.highest_chance is not None else Chance()
        )
        warnings = select_warnings(one.action, facts.idle_since, policy)
        one.facts = replace(facts, policy=policy, chance=chance, warnings=warnings)
        if policy.keep is not None and policy.action is ReclaimAction.SCALE_TO_KEEP:
            self._add_pool(one, policy, finder, now=now)

    def _add_pool(self, one: _Considered, policy: EffectivePolicy, finder: CandidateFinder, *, now: float) -> None:
        """The surplus replicas of a pool, the longest idle first."""
        assert policy.keep is not None
        result = self._last_result
        interval = result.settings.scheduler.interval if result else 300.0
        replicas = finder.list_replicas(one.found)
        active = sum(not replica.is_idle for replica in replicas)
        at = one.found.facts.result_at
        self._pools.add(one.found.key, active=active, at=at, most_gap_seconds=3 * interval + 60)
        most = self._pools.find_most_active(one.found.key, now=at, seconds=policy.keep.window_seconds)
        keep = len(replicas) if most is None else compute_keep(most, policy.keep)
        eligible = [each for each in replicas if each.is_idle and now - each.idle_since >= policy.window_seconds]
        one.surplus = eligible[: max(0, len(replicas) - keep)]
        pool = Pool(len(replicas), len(replicas) - len(one.surplus), active)
        limited = finder.limit_to(one.found, list(one.surplus), pool).facts
        one.facts = replace(
            one.facts,
            pool=pool,
            activity=limited.activity,
            signature=limited.signature,
            highest_step=limited.highest_step,
            proof=limited.proof,
            gpus=limited.gpus,
            idle_gpus=limited.idle_gpus,
            idle_since=limited.idle_since if one.surplus else None,
            coverage=limited.coverage,
            warnings=select_warnings(one.action, limited.idle_since if one.surplus else None, policy),
        )

    def _add_changes(self, one: _Considered, reading: Reading, *, now: float, in_any_case: bool = False) -> None:
        """Only where the policy acts, and nothing but time is missing."""
        policy, inspected = one.facts.policy, one.inspected
        if inspected is None:
            return
        if policy is None:
            one.facts = replace(one.facts, inspection=Inspection(refusal=inspected.error))
            return
        if policy.action not in CHANGING_ACTIONS or not (in_any_case or may_be_inspected(one.facts)):
            return
        inspection, one.planned = plan_changes(inspected, policy, reading, surplus=one.surplus, now=now)
        one.facts = replace(one.facts, inspection=inspection)

    def _add_pressure(self, considered: Sequence[_Considered]) -> None:
        """Whether pending pods could start with the GPUs of the longest idle workloads whose policy waits for that.
        Only those count that may be acted on now: a part of what a pod needs would be taken for nothing."""
        waiting = [one for one in considered if one.planned and waits_for_pressure(one.facts)]
        if not waiting:
            return
        pending = list_pending_pods(self._components.cluster.list_pending())
        victims = [
            make_victim(one.found, one.inspected.family) for one in waiting if one.inspected and one.inspected.family
        ]
        chosen = choose_victims(pending, victims)
        for one in waiting:
            one.facts = replace(one.facts, has_pressure=one.found.number in chosen)

    def _with_budgets(self, considered: Sequence[_Considered], past: Past) -> list[_Considered]:
        """Each counts those before it that will be acted on."""
        done: Counter[str] = Counter()
        for one in considered:
            namespace = one.found.key.namespace
            counts = Counts(done.total(), done[namespace], past.last_hour + done.total())
            one.facts = replace(one.facts, counts=counts)
            if may_be_acted_on(one.facts):
                done[namespace] += 1
        return list(considered)

    def _end_spells(self, considered: Sequence[_Considered], past: Past) -> None:
        """Warnings of a workload that is not idle any more, or of an earlier spell, are over. Where a write was begun,
        only after its object was looked at: the write may have arrived late."""
        idle = {(one.found.key, one.found.workload.uid): one for one in considered if one.facts.idle_since is not None}
        for key, action in past.waiting.items():
            one = idle.get(key)
            if action.target is not None and action.id not in self._looked_at:
                continue
            reason = find_end(action, one.facts if one else None)
            if reason is not None:
                self._end(action, reason)
                if one is not None:
                    one.action = None
                    one.facts = replace(one.facts, warnings=())

    def _decide(self, one: _Considered) -> Decision:
        return decide(
            one.facts,
            changes=[planned.change for planned in one.planned],
            action_id=one.action.id if one.action else "",
        )

    # Warnings and actions.

    def _warn(self, one: _Considered, decision: Decision) -> None:
        """The row is written first: the keys of the warning are made of its id, so a second one changes nothing."""
        action = one.action or self._journal.add(self._make_action(one, by=SELF))
        text = "; ".join(change.text for change in decision.changes)
        warned = self._notices.warn(action, text=Message(text, text), at=self._now(), due_at=decision.due_at)
        if not warned.keys and self.mode is Mode.ENFORCE:
            self._log_unwarned(action.workload.namespace)
            return
        state = ActionState.PLANNED if self.mode is Mode.OBSERVE else ActionState.WARNED
        warnings = (*action.warnings, warned)
        self._journal.move(action, state, at=self._now(), note="warned", warnings=warnings)
        self._counters.add(action.workload.kind, "warned")

    def _log_unwarned(self, namespace: str) -> None:
        if namespace not in self._unwarned:
            self._unwarned.add(namespace)
            log.warning(
                "nobody_to_warn", namespace=namespace, effect="nothing is reclaimed", help="set notify.channels"
            )

    def _act(self, one: _Considered) -> bool:
        """Everything is read again first. Whether the cycle may go on with others."""
        if self.mode is Mode.OBSERVE:
            self._try_out(one)
            return True
        try:
            fresh = self._consider_fresh(one.found.key)
            fresh.facts = replace(fresh.facts, counts=one.facts.counts, has_pressure=one.facts.has_pressure)
            decision = self._decide(fresh)
            if decision.outcome is not Outcome.ACT or fresh.action is None:
                log.info(
                    "action_not_taken", workload=one.found.key.path, failed=[each.guard for each in decision.failed]
                )
                return self._lease.is_valid
            self._carry_out(fresh)
        except SourceError as error:  # of the journal or the API server: this action is picked up later
            log.warning("action_interrupted", workload=one.found.key.path, reason=error)
        return self._lease.is_valid

    def _carry_out(self, one: _Considered) -> list[Action]:
        """Each object is an action of its own."""
        result, action = self._last_result, one.action
        assert result is not None
        assert action is not None
        rows = {row for replica in one.surplus for row in replica.rows}
        allocations = [
            each for row, each in zip(one.found.rows, one.found.allocations, strict=True) if not rows or row in rows
        ]
        work = find_work(
            self._components.source,
            allocations,
            at=self._now(),
            seconds=result.verdicts.usage.window_seconds,
            rule=result.settings.judge.activity,
        )
        if work is not None:
            log.info("action_not_taken", workload=one.found.key.path, reason=work.en)
            return [self._journal.move(action, action.state, at=self._now(), note=work.en)]
        evidence = self._make_evidence(one, result)
        done = []
        for number, planned in enumerate(one.planned):
            each = action if number == 0 else self._journal.add(replace(action, id=make_action_id()))
            done.append(
                self._executor.act(replace(each, gpus=one.facts.gpus / len(one.planned)), planned, evidence=evidence)
            )
        self._cache.forget()
        return done

    def _try_out(self, one: _Considered) -> None:
        """Server-side dry runs in observe mode, once per idle spell."""
        action = one.action
        if action is None or any(step.note.startswith("dry run") for step in action.steps):
            return
        errors = [error for planned in one.planned if (error := self._executor.try_out(planned)) is not None]
        note = f"dry run: {errors[0]}" if errors else "dry run: accepted"
        result = self._last_result
        assert result is not None
        self._journal.move(
            action, ActionState.PLANNED, at=self._now(), note=note, evidence=self._make_evidence(one, result)
        )
        self._counters.add(action.workload.kind, "dry_run")

    def _make_action(self, one: _Considered, *, by: str) -> Action:
        policy, now = one.facts.policy, self._now()
        assert policy is not None
        result = self._last_result
        assert result is not None
        return Action(
            id=make_action_id(),
            workload=one.found.key,
            uid=one.found.workload.uid,
            action=policy.action,
            mode=self.mode,
            state=ActionState.PLANNED,
            policy=policy.name,
            gpus=one.facts.gpus,
            idle_since=one.facts.idle_since or now,
            created_at=now,
            updated_at=now,
            evidence=list_evidence(one.found, result),
            by=by,
            steps=(Step(ActionState.PLANNED, now, by),),
        )

    def _make_evidence(self, one: _Considered, result: Result) -> dict[str, Any]:
        answers = [
            {"guard": answer.guard, "passed": answer.passed, "reason": answer.reason.en}
            for answer in ask_all(one.facts)
        ]
        policy = one.facts.policy
        origins = dict(policy.origins) if policy else {}
        changes = [planned.change._asdict() for planned in one.planned]
        rows = {row for replica in one.surplus for row in replica.rows}
        return {**list_evidence(one.found, result, rows), "guards": answers, "origins": origins, "changes": changes}

    def _end(self, action: Action, text: Message) -> None:
        now = self._now()
        self._journal.move(action, ActionState.ENDED, at=now, note=text.en, ended_at=now)

    def _now(self) -> float:
        return self._components.clock()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Raises ReclaimError if a cycle is acting for too long."""
        if not self._lock.acquire(timeout=LOCK_SECONDS):
            raise ReclaimError(messages.BUSY)
        try:
            with self._components.cluster.keeping_connections():
                yield
        finally:
            self._lock.release()


def replace_action(one: _Considered, action: Action) -> _Considered:
    return replace(one, action=action)
