"""Candidates of a cycle -> all that the guards ask: their past, policy and objects, and what would change."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from gpusteward.analyzer.judge.resumption import Chance
from gpusteward.analyzer.reclaim.actions import Action
from gpusteward.analyzer.reclaim.changes import Planned
from gpusteward.analyzer.reclaim.cluster import Reading
from gpusteward.analyzer.reclaim.components import ReclaimComponents
from gpusteward.analyzer.reclaim.decisions.candidates import CandidateFacts, CandidateFinder, CandidatePod, list_roots
from gpusteward.analyzer.reclaim.decisions.decide import choose_victims, decide, may_be_inspected, waits_for_pressure
from gpusteward.analyzer.reclaim.decisions.facts import Counts, Facts, Inspection, Pool
from gpusteward.analyzer.reclaim.decisions.guards import BY_NAME
from gpusteward.analyzer.reclaim.decisions.inspection import Inspected, InspectionCache, plan_changes, read_objects
from gpusteward.analyzer.reclaim.decisions.past_actions import PastActions, select_warnings
from gpusteward.analyzer.reclaim.decisions.pressure import list_pending_pods, make_victim
from gpusteward.analyzer.reclaim.decisions.sightings import PoolHistory, Sighting, Sightings
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject
from gpusteward.analyzer.reclaim.plan import Decision, Outcome
from gpusteward.analyzer.reclaim.policies.policy import CHANGING_ACTIONS, Policy, ReclaimAction
from gpusteward.analyzer.results import Result
from gpusteward.core.containers import WorkloadKey
from gpusteward.core.messages import Message

MOST_INSPECTIONS = 500
"""Workloads whose objects are read in one cycle; the others wait for the next ones."""


@dataclass
class Considered:
    """A candidate in one cycle."""

    found: CandidateFacts
    base: Facts  # without what its objects say
    facts: Facts
    inspected: Inspected | None = None
    planned: Sequence[Planned] = ()
    surplus: Sequence[CandidatePod] = ()
    action: Action | None = None  # that was warned about, or is planned
    lacks_only_time: bool = False  # as far as is known without its objects
    read_at: float = 0.0  # when reading all this began, by the monotonic clock
    tried_at: float = 0.0  # when an action was tried last that was held back or refused

    @property
    def turn(self) -> float:
        """The lowest is the first to be acted on: the longest idle. One that was held back or refused counts as idle
        since then, so that it does not keep the others from their turn in every cycle."""
        return max(self.facts.idle_since or 0.0, self.tried_at)

    @property
    def is_unread_pool(self) -> bool:
        """Whether it was warned about, and nobody knows in this cycle which of its replicas are surplus."""
        return self.action is not None and self.facts.policy is None and self.facts.idle_since is None

    def decide(self) -> Decision:
        """With every guard and its answer."""
        changes = [planned.change for planned in self.planned]
        return decide(self.facts, changes=changes, action_id=self.action.id if self.action else "")


class Stop(NamedTuple):
    """Why this analyzer may do nothing at all; None: it may."""

    leader: Message | None = None  # another one acts, or the Lease cannot be renewed
    switch: Message | None = None  # nobody may act


@dataclass(frozen=True)
class Situation:
    """What all candidates that are looked at together have in common."""

    result: Result
    finder: CandidateFinder
    reading: Reading
    past: PastActions
    snoozes: Mapping[WorkloadKey, float]  # until when, by keys without the name of a cluster
    stop: Stop
    now: float
    own_namespace: str
    _protected: dict[str, bool] = field(default_factory=dict)  # namespaces that were asked for

    def is_protected(self, namespace: str) -> bool:
        if namespace not in self._protected:
            is_own = namespace == self.own_namespace
            self._protected[namespace] = is_own or self.result.settings.reclaim.is_protected(namespace)
        return self._protected[namespace]


class Assessor:
    """Remembers what earlier cycles have seen. Belongs to one thread at a time: `reclaimer.Reclaimer` has the lock."""

    def __init__(self, components: ReclaimComponents) -> None:
        self._components = components
        self._sightings, self._pools = Sightings(), PoolHistory()
        self._cache = InspectionCache(components.clock)
        self._inspected_at: dict[WorkloadKey, float] = {}  # when the objects of idle workloads were read last
        self._roots_of: Result | None = None
        self._roots: Mapping[str, str] = {}  # of that result: uid of a pod -> uid of its root owner

    def open_reading(self, result: Result) -> Reading:
        """For one cycle, or for one workload."""
        if self._roots_of is not result:
            self._roots_of, self._roots = result, list_roots(result)
        return Reading(self._components.cluster, roots=self._roots)

    def look(
        self,
        finder: CandidateFinder,
        reading: Reading,
        result: Result,
        opened: Sequence[Action],
        *,
        stop: Stop,
        now: float,
    ) -> Situation:
        """Raises SourceError if journal or snoozes cannot be read."""
        cool_down = result.settings.reclaim.cool_down_minutes * 60
        past = PastActions.read(self._components.journal, opened, now=now, cool_down=cool_down)
        snoozes: dict[WorkloadKey, float] = {}
        for key, until in self._components.read_snoozes(now).items():
            # Only one cluster is acted on, and its name may have changed since. That a snooze of another cluster's
            # workload of this name holds this one back too is the careful side.
            snoozes[key.without_cluster] = max(until, snoozes.get(key.without_cluster, 0.0))
        own = self._components.own_namespace
        return Situation(result, finder, reading, past, snoozes, stop, now, own)

    def assess_all(self, situation: Situation) -> list[Considered]:
        """Idle workloads and pools, the longest idle first; without pressure and budgets, which depend on the others.
        Raises SourceError."""
        finder, now = situation.finder, situation.now
        found = [finder.describe(number, now=now) for number in finder.find_all()]
        self._sightings.update((each.sighting for each in found), at=situation.result.at)
        everyone = [self._with_past(each, situation) for each in found]
        for one in self._choose_inspected(everyone, now=now):
            one.inspected = self._cache.read(one.found, situation.reading)
            self._add_objects(one, situation)
        self._pools.forget(each.key for each in found)
        return [
            one
            for one in everyone
            if one.facts.pool is not None or one.found.facts.idle_since is not None or one.is_unread_pool
        ]

    def assess_one(self, number: int, situation: Situation, *, by_person: bool) -> Considered:
        """One workload, with its objects read now. `by_person`: suspended even if its policy only tells."""
        one = self._with_past(situation.finder.describe(number, now=situation.now), situation)
        one.inspected = read_objects(one.found, situation.reading)
        self._add_objects(one, situation, by_person=by_person, in_any_case=True)
        self.add_pressure([one])
        add_counts(one, Counter(), situation.past)
        return one

    def forget_objects(self) -> None:
        """They have changed."""
        self._cache.forget()

    def _choose_inspected(self, everyone: Sequence[Considered], *, now: float) -> list[Considered]:
        """Those whose objects are read in this cycle: what costs no request, and of the others those that have waited
        for the longest time. Up to half of them are pools: how many replicas are needed is known only of a pool that is
        looked at in every cycle."""
        for one in everyone:
            one.lacks_only_time = may_be_inspected(one.facts)
        wanted = [one for one in everyone if one.lacks_only_time or self._may_be_pool(one)]
        unread = [one for one in wanted if not self._cache.has(one.found)]
        unread.sort(key=lambda one: self._inspected_at.get(one.found.key, 0.0))  # of equal ones the longest idle first
        pools = [one for one in unread if one.found.can_be_pool][: MOST_INSPECTIONS // 2]
        first = {one.found.key for one in pools}
        unread = pools + [one for one in unread if one.found.key not in first]
        left = {one.found.key for one in unread[MOST_INSPECTIONS:]}
        chosen = [one for one in wanted if one.found.key not in left]
        before = self._inspected_at
        self._inspected_at = {one.found.key: before.get(one.found.key, 0.0) for one in wanted}
        self._inspected_at |= dict.fromkeys((one.found.key for one in unread[:MOST_INSPECTIONS]), now)
        return chosen

    def _with_past(self, found: CandidateFacts, situation: Situation) -> Considered:
        key, sighting = found.key.without_cluster, self._sightings.find(found.key)
        past = situation.past
        is_same = sighting.uid == found.workload.uid
        since = found.facts.idle_since
        if since is not None and sighting.sampled_at is not None and is_same:
            since = max(since, sighting.sampled_at)
        action = past.waiting.get((key, found.workload.uid))
        facts = found.facts._replace(
            now=situation.now,
            cycles_seen=sighting.cycles if is_same else 0,
            idle_since=since,
            snoozed_until=situation.snoozes.get(key),
            is_left_out=situation.result.settings.reclaim.is_left_out(key.namespace),
            is_protected=situation.is_protected(key.namespace),
            reverts=past.reverts[key, found.workload.uid],
            left_alone_until=past.left_alone.get(key),
            open_action=past.open.get(key),
            leader=situation.stop.leader,
            switch=situation.stop.switch,
            policy_problem=self._components.policies.error,
        )
        return Considered(found, facts, facts, action=action)

    def _may_be_pool(self, one: Considered) -> bool:
        blocking = (BY_NAME[name] for name in ("namespaces", "protected", "owner", "reverted"))
        return one.found.can_be_pool and all(guard.ask(one.facts).passed for guard in blocking)

    def read_again(self, one: Considered, situation: Situation) -> Decision:
        """The decision with the objects as they are now, if they were read in an earlier cycle."""
        one.base = one.base._replace(counts=one.facts.counts, has_pressure=one.facts.has_pressure)
        one.inspected = self._cache.renew(one.found, situation.reading)
        self._add_objects(one, situation)
        return one.decide()

    def _add_objects(
        self, one: Considered, situation: Situation, *, by_person: bool = False, in_any_case: bool = False
    ) -> None:
        """What its objects say: its policy, and what would change; that only where the policy acts, no action on it is
        open, and nothing but time is missing, or `in_any_case`."""
        inspected, facts, now = one.inspected, one.base, situation.now
        one.planned = ()
        if inspected is None:
            return
        if inspected.metadata is None:
            one.facts = facts._replace(inspection=Inspection(refusal=inspected.error))
            return
        assert inspected.objects is not None
        facts = add_pods(facts, inspected.objects.pods)
        if facts.policy_problem is not None:  # without a policy nothing is planned, nor done
            one.facts = facts
            return
        policy = inspected.find_policy(self._components.policies)
        if by_person and policy.action not in CHANGING_ACTIONS:
            policy = replace(policy, action=ReclaimAction.SUSPEND)
        age = 0.0 if facts.idle_since is None else now - facts.idle_since
        chance = (
            self._components.read_chance(one.found.key, age, now) if policy.highest_chance is not None else Chance()
        )
        is_pool = policy.action is ReclaimAction.SCALE_TO_KEEP
        if is_pool and policy.keep is not None:
            self._add_pool(one, policy, chance, situation, in_any_case=in_any_case)
            return
        inspection, may_act = None, one.lacks_only_time and not is_pool and not policy.is_kept(now)
        may_act = may_act and facts.open_action is None  # else the plan waits for it, and would refuse its annotation
        if policy.action in CHANGING_ACTIONS and (in_any_case or may_act):
            inspection, one.planned = inspected.plan_changes(policy, situation.reading, now=now)
        warnings = select_warnings(one.action, facts.idle_since, policy, facts.pods)
        one.facts = facts._replace(policy=policy, chance=chance, warnings=warnings, inspection=inspection)

    def _add_pool(
        self, one: Considered, policy: Policy, chance: Chance, situation: Situation, *, in_any_case: bool
    ) -> None:
        """The surplus replicas of a pool, the longest idle first."""
        assert policy.keep is not None
        assert one.inspected is not None
        assert one.inspected.objects is not None
        pods = {pod.name: pod for pod in one.inspected.objects.pods}
        finder, interval = situation.finder, situation.result.settings.scheduler.interval
        sighting = self._sightings.find(one.found.key)
        replicas = [_bound(each, pods, sighting) for each in finder.list_replicas(one.found)]
        replicas.sort(key=lambda each: (not each.is_idle, each.idle_since))
        active = sum(not replica.is_idle for replica in replicas)
        at = one.found.facts.result_at
        self._pools.add(one.found.key, active=active, at=at, most_gap_seconds=3 * interval + 60)
        most = self._pools.find_most_active(one.found.key, now=at, seconds=policy.keep.window_seconds)
        keep = len(replicas) if most is None else policy.keep.compute_keep(most)
        eligible = [
            each for each in replicas if each.is_idle and situation.now - each.idle_since >= policy.window_seconds
        ]
        # A surplus that grows does not begin anew: those that were warned about go, the others wait for that action.
        warned = one.action.pod_uids if one.action and one.action.action is policy.action else frozenset()
        eligible = [each for each in eligible if pods[each.pod.name].uid in warned] or eligible
        one.surplus = eligible[: max(0, len(replicas) - keep)]
        pool = Pool(len(replicas), len(replicas) - len(one.surplus))
        limited = finder.limit_to(one.found, list(one.surplus), pool).facts
        stopped = add_pods(one.base, [pods[each.pod.name] for each in one.surplus])
        one.facts = stopped._replace(
            policy=policy,
            chance=chance,
            pool=pool,
            activity=limited.activity,
            signature=limited.signature,
            highest_step=limited.highest_step,
            proof=limited.proof,
            gpus=limited.gpus,
            idle_gpus=limited.idle_gpus,
            idle_since=limited.idle_since if one.surplus else None,
            coverage=limited.coverage,
            warnings=select_warnings(one.action, limited.idle_since if one.surplus else None, policy, stopped.pods),
        )
        if in_any_case or (one.facts.open_action is None and may_be_inspected(one.facts)):
            inspection, one.planned = plan_changes(
                one.inspected, policy, situation.reading, surplus=one.surplus, now=situation.now
            )
            one.facts = one.facts._replace(inspection=inspection)

    def add_pressure(self, considered: Sequence[Considered]) -> None:
        """Whether pending pods could start with the GPUs of the longest idle workloads whose policy waits for that.
        Only those count that may be acted on now: a part of what a pod needs would be taken for nothing."""
        waiting = [one for one in considered if one.planned and waits_for_pressure(one.facts)]
        if not waiting:
            return
        pending = list_pending_pods(self._components.cluster.list_pending())
        victims = [
            make_victim(one.found, one.inspected.objects)._replace(idle_since=one.turn)
            for one in waiting
            if one.inspected and one.inspected.objects
        ]
        chosen = choose_victims(pending, victims)
        for one in waiting:
            one.facts = one.facts._replace(has_pressure=one.found.number in chosen)


def add_pods(facts: Facts, pods: Sequence[KubeObject]) -> Facts:
    """The pods as they were read: idle never begins before the newest of them started. Metrics may have neither uid nor
    start, and a pod that was created again under the same name looks like the one before."""
    starts = [pod.started_at for pod in pods]
    unknown = next((pod.name for pod, start in zip(pods, starts, strict=True) if not pod.uid or start is None), "")
    since = facts.idle_since
    if since is not None:
        since = max([since, *(start for start in starts if start is not None)])
    return facts._replace(pods=tuple(sorted(pod.uid for pod in pods)), unknown_pod=unknown, idle_since=since)


def _bound(replica: CandidatePod, pods: Mapping[str, KubeObject], sighting: Sighting) -> CandidatePod:
    """Idle since its pod began at the earliest, and only while an integrating signal proves it."""
    start = pods[replica.pod.name].started_at if replica.pod.name in pods else None
    sampled = sighting.sampled_pods.get(replica.pod)
    return replace(replica, idle_since=max(replica.idle_since, start or 0.0, sampled or 0.0))


def decide_all(considered: Sequence[Considered], past: PastActions) -> list[Decision]:
    """In the order of their turns: each counts those before it that will be acted on."""
    order = list(range(len(considered)))
    if any(one.tried_at for one in considered):
        order.sort(key=lambda number: considered[number].turn)
    done: Counter[str] = Counter()  # by namespace
    decisions: dict[int, Decision] = {}
    for number in order:
        one = considered[number]
        add_counts(one, done, past)
        decisions[number] = decision = one.decide()
        if decision.outcome is Outcome.ACT:
            done[one.found.key.namespace] += 1
    return [decisions[number] for number in range(len(considered))]


def add_counts(one: Considered, done: Counter[str], past: PastActions) -> None:
    """For the guard `budget`."""
    total = done.total()
    counts = Counts(total, done[one.found.key.namespace], past.last_hour + total, past.hour_ends)
    if counts != one.facts.counts:
        one.facts = one.facts._replace(counts=counts)
