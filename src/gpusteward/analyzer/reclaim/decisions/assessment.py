"""All that the guards ask about the workloads of a cycle: their past, policy and objects, and what would change."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpusteward.analyzer.judge.resumption import Chance
from gpusteward.analyzer.pool_minutes import MINUTE, NO_MINUTES
from gpusteward.analyzer.reclaim.cluster import Reading
from gpusteward.analyzer.reclaim.components import ReclaimComponents
from gpusteward.analyzer.reclaim.decisions.decide import decide_one, may_be_inspected, waits_for_pressure
from gpusteward.analyzer.reclaim.decisions.guards import BY_NAME
from gpusteward.analyzer.reclaim.decisions.host_use import read_host_readings
from gpusteward.analyzer.reclaim.decisions.past import PastActions, Sightings, StartTimes, select_warnings
from gpusteward.analyzer.reclaim.decisions.pressure import choose_victims, list_pending_pods, make_victim
from gpusteward.analyzer.reclaim.decisions.workloads import (
    Counts,
    Pool,
    ReadObjects,
    ReclaimWorkload,
    WorkloadFinder,
    add_pods,
    count_silence,
    list_roots,
    read_objects,
)
from gpusteward.analyzer.reclaim.execution.changes import Inspection, plan_changes
from gpusteward.analyzer.reclaim.execution.journal import RESTORABLE_STATES, Action
from gpusteward.analyzer.reclaim.kinds.objects import ACTION
from gpusteward.analyzer.reclaim.permission import Stop
from gpusteward.analyzer.reclaim.plan import Decision, Outcome
from gpusteward.analyzer.reclaim.policies.policy import CHANGING_ACTIONS, Policy, ReclaimAction
from gpusteward.analyzer.reclaim.policies.pool_rule import choose_rule, decide_pool
from gpusteward.analyzer.results import Result
from gpusteward.core.node.containers import WorkloadKey

MOST_INSPECTIONS = 500
"""Workloads whose objects are read in one cycle; the others wait for the next ones."""


@dataclass(frozen=True)
class ReclaimCycle:
    """What all workloads that are looked at together have in common."""

    result: Result
    finder: WorkloadFinder
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
        self._sightings, self.start_times = Sightings(), StartTimes()
        self._cache = ObjectCache(components.clock)
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
        finder: WorkloadFinder,
        reading: Reading,
        result: Result,
        opened: Sequence[Action],
        *,
        stop: Stop,
        now: float,
    ) -> ReclaimCycle:
        """Raises SourceError if journal or snoozes cannot be read."""
        cool_down = result.settings.reclaim.cool_down_minutes * 60
        past = PastActions.read(self._components.journal, opened, now=now, cool_down=cool_down)
        snoozes: dict[WorkloadKey, float] = {}
        for key, until in self._components.read_snoozes(now).items():
            # Only one cluster is acted on, and its name may have changed since. That a snooze of another cluster's
            # workload of this name holds this one back too is the careful side.
            snoozes[key.without_cluster] = max(until, snoozes.get(key.without_cluster, 0.0))
        return ReclaimCycle(result, finder, reading, past, snoozes, stop, now, self._components.own_namespace)

    def assess_all(self, cycle: ReclaimCycle) -> list[ReclaimWorkload]:
        """Idle workloads and pools, the longest idle first; without pressure and budgets, which depend on the others.
        Raises SourceError."""
        finder, now = cycle.finder, cycle.now
        workloads = [finder.make_workload(number, now=now) for number in finder.list_numbers()]
        self._sightings.update(workloads, at=cycle.result.at)
        for one in workloads:
            self._add_past(one, cycle)
        for one in self._choose_inspected(workloads, now=now):
            one.objects = self._cache.read(one, cycle.reading)
            self._add_objects(one, cycle)
        self.start_times.forget(one.key for one in workloads)
        return [
            one
            for one in workloads
            if one.facts.pool is not None or one.verdict.idle_since is not None or one.is_unread_pool
        ]

    def assess_one(self, number: int, cycle: ReclaimCycle, *, by_person: bool) -> ReclaimWorkload:
        """One workload, with its objects read now. `by_person`: suspended even if its policy only tells."""
        one = cycle.finder.make_workload(number, now=cycle.now)
        self._add_past(one, cycle)
        one.objects = read_objects(one, cycle.reading)
        self._add_objects(one, cycle, by_person=by_person, in_any_case=True)
        self.add_pressure([one])
        add_counts(one, Counter(), cycle.past)
        return one

    def read_again(self, one: ReclaimWorkload, cycle: ReclaimCycle) -> Decision:
        """The decision with the objects as they are now, if they were read in an earlier cycle."""
        facts = one.facts
        one.verdict = one.verdict._replace(counts=facts.counts, has_pressure=facts.has_pressure, host=facts.host)
        one.objects = self._cache.renew(one, cycle.reading)
        self._add_objects(one, cycle)
        return decide_one(one)

    def add_host_use(self, workloads: Sequence[ReclaimWorkload], cycle: ReclaimCycle) -> None:
        """What the pods of these workloads do on their hosts, read together."""
        pods = [one.list_stopped_pods() for one in workloads]
        limits = cycle.result.settings.reclaim.host
        readings = read_host_readings(self._components.source, pods, at=self._components.clock(), limits=limits)
        for one, reading in zip(workloads, readings, strict=True):
            one.facts = one.facts._replace(host=reading if reading.pods else None)

    def forget_objects(self) -> None:
        """They have changed."""
        self._cache.forget()

    def _add_past(self, one: ReclaimWorkload, cycle: ReclaimCycle) -> None:
        """What earlier cycles and the journal say."""
        key, sighting, past = one.key.without_cluster, self._sightings.find(one.key), cycle.past
        is_same = sighting.uid == one.uid
        since = one.verdict.idle_since
        if since is not None and sighting.sampled_at is not None and is_same:
            since = max(since, sighting.sampled_at)
        silent = one.verdict.silent_since
        if silent is not None and sighting.sampled_at is not None and is_same:
            silent = max(silent, sighting.sampled_at)  # nobody knows how much the GPUs worked before
        one.action = past.waiting.get((key, one.uid))
        one.facts = one.verdict = one.verdict._replace(
            cycles_seen=sighting.cycles if is_same else 0,
            idle_since=since,
            silent_since=silent,
            snoozed_until=cycle.snoozes.get(key),
            is_left_out=cycle.result.settings.reclaim.is_left_out(key.namespace),
            is_protected=cycle.is_protected(key.namespace),
            reverts=past.reverts[key, one.uid],
            left_alone_until=past.left_alone.get(key),
            open_action=past.open.get(key),
            leader=cycle.stop.leader,
            switch=cycle.stop.switch,
            policy_problem=cycle.stop.policies,
        )

    def _choose_inspected(self, workloads: Sequence[ReclaimWorkload], *, now: float) -> list[ReclaimWorkload]:
        """Those whose objects are read in this cycle: what costs no request, and of the others those that have waited
        for the longest time. Up to half of them are pools: how many replicas are needed is known only of a pool that is
        looked at in every cycle."""
        for one in workloads:
            one.lacks_only_time = may_be_inspected(one.facts)
        wanted = [one for one in workloads if one.lacks_only_time or _may_be_pool(one)]
        unread = [one for one in wanted if not self._cache.has(one)]
        unread.sort(key=lambda one: self._inspected_at.get(one.key, 0.0))  # of equal ones the longest idle first
        pools = [one for one in unread if one.can_be_pool][: MOST_INSPECTIONS // 2]
        first = {one.key for one in pools}
        unread = pools + [one for one in unread if one.key not in first]
        left = {one.key for one in unread[MOST_INSPECTIONS:]}
        before = self._inspected_at
        self._inspected_at = {one.key: before.get(one.key, 0.0) for one in wanted}
        self._inspected_at |= dict.fromkeys((one.key for one in unread[:MOST_INSPECTIONS]), now)
        return [one for one in wanted if one.key not in left]

    def _add_objects(
        self, one: ReclaimWorkload, cycle: ReclaimCycle, *, by_person: bool = False, in_any_case: bool = False
    ) -> None:
        """What its objects say: its policy, and what would change; that only where the policy acts, no action on it is
        open, and nothing but time is missing, or `in_any_case`."""
        objects, now = one.objects, cycle.now
        one.changes = ()
        if objects is None:
            return
        if objects.found is None:
            one.facts = one.verdict._replace(inspection=Inspection(refusal=objects.error))
            return
        facts = add_pods(one.verdict, objects.found.pods)
        if facts.policy_problem is not None:  # without a policy nothing is planned, nor done
            one.facts = facts
            return
        policy = objects.find_policy(self._components.policies)
        if by_person and policy.action not in CHANGING_ACTIONS:
            policy = replace(policy, action=ReclaimAction.SUSPEND)
        if policy.action is not ReclaimAction.SCALE_TO_KEEP:
            facts, policy = count_silence(facts, policy)
        age = 0.0 if facts.idle_since is None else now - facts.idle_since
        chance = self._components.read_chance(one.key, age, now) if policy.highest_chance is not None else Chance()
        is_pool = policy.action is ReclaimAction.SCALE_TO_KEEP
        if is_pool and policy.is_pool:
            self._add_pool(one, policy, chance, cycle, in_any_case=in_any_case)
            return
        inspection, may_act = None, one.lacks_only_time and not is_pool and not policy.is_kept(now)
        may_act = may_act and facts.open_action is None  # else the plan waits for it, and would refuse its annotation
        if policy.action in CHANGING_ACTIONS and (in_any_case or may_act):
            inspection, one.changes = objects.plan_changes(policy, cycle.reading, now=now)
        warnings = select_warnings(one.action, facts.idle_since, policy, facts.pods)
        one.facts = facts._replace(policy=policy, chance=chance, warnings=warnings, inspection=inspection)

    def _add_pool(
        self, one: ReclaimWorkload, policy: Policy, chance: Chance, cycle: ReclaimCycle, *, in_any_case: bool
    ) -> None:
        """The surplus replicas of a pool by the pool rule; of them those that do nothing now, what worked longest ago
        first."""
        assert one.objects is not None
        assert one.objects.found is not None
        now, grace = cycle.now, policy.grace_seconds
        pods = {pod.name: pod for pod in one.objects.found.pods}
        self.start_times.add(one.key, one.objects.found.pods)
        minutes = cycle.result.pools.get(one.key, NO_MINUTES)
        cycle_seconds = float(cycle.result.settings.scheduler.interval)
        rule = choose_rule(policy.keep, int(minutes.wanted[-1]) if len(minutes) else 0)
        found = decide_pool(minutes, rule, cycle_seconds=cycle_seconds)
        one.lowered = _find_lowered(one.facts.open_action)
        replicas = [each for each in cycle.finder.list_replicas(one, minutes) if each.pod.name in pods]
        above = max(0, found.wanted - len(replicas))  # what is lowered already
        has_lasted, count = found.surplus > above, max(found.surplus, found.coming) - above
        chosen = [each for each in replicas if each.is_quiet][: max(0, found.surplus - above if has_lasted else count)]
        # Warned in time, so that the surplus can go as soon as it has lasted for as long as the rule says.
        window = max(0.0, rule.patience_seconds - grace)
        since = (minutes.end - found.surplus_minutes) * MINUTE  # by the minutes that are known: it does not move
        if one.lowered is not None or (
            one.action is not None and found.surplus_minutes * MINUTE >= rule.patience_seconds
        ):
            began = one.lowered or one.action
            assert began is not None
            since = min(since, began.created_at - window)
        policy = replace(policy, keep=rule, window_seconds=window)
        one.surplus = chosen
        pool = Pool(len(replicas), len(replicas) - len(chosen), len(chosen), has_lasted)
        facts = add_pods(one.verdict, [pods[each.pod.name] for each in chosen])
        facts = cycle.finder.limit_to(facts, chosen, pool, since=since)
        warnings = select_warnings(one.action, facts.idle_since, policy, facts.pods)
        if one.lowered is not None:  # its owner was warned of this pool, and it moves
            warnings = one.lowered.warnings
            facts = facts._replace(open_action=None if chosen else facts.open_action)
        seen = self._sightings.find(one.key)
        seen_cycles = seen.any_cycles if seen.uid == one.uid else 0
        one.facts = facts._replace(policy=policy, chance=chance, warnings=warnings, cycles_seen=seen_cycles)
        if in_any_case or (facts.open_action is None and may_be_inspected(one.facts)):
            inspection, one.changes = plan_changes(
                one.objects.found,
                policy,
                cycle.reading,
                incomplete=one.objects.incomplete,
                surplus=[each.pod for each in chosen],
                lowered_by=one.lowered.id if one.lowered else "",
                now=now,
            )
            one.facts = one.facts._replace(inspection=inspection)

    def add_pressure(self, workloads: Sequence[ReclaimWorkload]) -> None:
        """Whether pending pods could start with the GPUs of the longest idle workloads whose policy waits for that.
        Only those count that may be acted on now: a part of what a pod needs would be taken for nothing."""
        waiting = [one for one in workloads if one.changes and waits_for_pressure(one.facts)]
        if not waiting:
            return
        pending = list_pending_pods(self._components.cluster.list_pending())
        chosen = choose_victims(pending, [make_victim(one) for one in waiting])
        for one in waiting:
            one.facts = one.facts._replace(has_pressure=one.number in chosen)


def _find_lowered(action: Action | None) -> Action | None:
    """The action that has lowered this pool, and can move."""
    is_pool = action is not None and action.action is ReclaimAction.SCALE_TO_KEEP
    return action if is_pool and action is not None and action.state in RESTORABLE_STATES else None


def _may_be_pool(one: ReclaimWorkload) -> bool:
    blocking = (BY_NAME[name] for name in ("namespaces", "protected", "owner", "reverted"))
    return one.can_be_pool and all(guard.ask(one.facts).passed for guard in blocking)


def decide_all(workloads: Sequence[ReclaimWorkload], past: PastActions) -> list[Decision]:
    """In the order of their turns: each counts those before it that will be acted on."""
    order = list(range(len(workloads)))
    if any(one.tried_at for one in workloads):
        order.sort(key=lambda number: workloads[number].turn)
    done: Counter[str] = Counter()  # by namespace
    decisions: dict[int, Decision] = {}
    for number in order:
        one = workloads[number]
        add_counts(one, done, past)
        decisions[number] = decision = decide_one(one)
        if decision.outcome is Outcome.ACT:
            done[one.key.namespace] += 1
    return [decisions[number] for number in range(len(workloads))]


def add_counts(one: ReclaimWorkload, done: Counter[str], past: PastActions) -> None:
    """For the guard `budget`."""
    total = done.total()
    counts = Counts(total, done[one.key.namespace], past.last_hour + total, past.hour_ends)
    if counts != one.facts.counts:
        one.facts = one.facts._replace(counts=counts)


class ObjectCache:
    """Objects of workloads from earlier cycles, for plans only: before a warning and an action they are read again."""

    SECONDS = 1800.0
    BRIEF_SECONDS = 60.0
    MOST = 3000

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: dict[tuple[object, ...], tuple[float, ReadObjects]] = {}

    def has(self, one: ReclaimWorkload) -> bool:
        """Whether `read` would cost no request."""
        entry = self._entries.get((one.key, one.uid, one.pods))
        return entry is not None and entry[0] > self._clock()

    def read(self, one: ReclaimWorkload, reading: Reading) -> ReadObjects:
        entry = self._entries.get((one.key, one.uid, one.pods))
        return entry[1] if entry is not None and entry[0] > self._clock() else self.renew(one, reading)

    def renew(self, one: ReclaimWorkload, reading: Reading) -> ReadObjects:
        now, key = self._clock(), (one.key, one.uid, one.pods)
        objects = read_objects(one, reading)
        self._entries.pop(key, None)
        if len(self._entries) >= self.MOST:
            del self._entries[next(iter(self._entries))]  # the oldest one
        # An error may be over soon, and so may an action that changes the object at this moment.
        is_brief = objects.found is None or ACTION in objects.found.root.annotations
        self._entries[key] = (now + (self.BRIEF_SECONDS if is_brief else self.SECONDS), objects)
        return objects

    def forget(self) -> None:
        self._entries.clear()
