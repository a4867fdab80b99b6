"""Replay: what a policy would have released in the past, and what would have been regretted (pure over idle spells).

A release is regretted if work came back within `regret_seconds` after it: the workload was needed again. For a pool,
the replica that was given back last is the first that is needed again.

Pools are replayed by the function that plans, on the minutes that the ledger keeps of their replicas; a pool without
these releases nothing.

A release shortly before the end counts as not regretted: work did not come back in the time that is known.

Not replayed, because the past does not tell: budgets, pressure of pending pods, snoozes and annotations. A policy that
waits for pressure is replayed as if there had always been some.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from gpusteward.analyzer.pool_minutes import PoolMinutes
from gpusteward.analyzer.reclaim.policies.policy import Hours, Policy, ReclaimAction
from gpusteward.analyzer.reclaim.policies.pool_rule import KeepRule
from gpusteward.analyzer.reclaim.replay.intervals import Intervals, PastChances, find_intervals
from gpusteward.analyzer.reclaim.replay.pools import CYCLE_SECONDS, PoolReplay, follow_pool
from gpusteward.analyzer.spell_table import ENDS, Mask, Numbers, SpellTable
from gpusteward.analyzer.tables import PROOFS, SIGNATURES, Column
from gpusteward.core.idle_spells import SpellEnd
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.verdicts import Proof, Step

REGRET_SECONDS = 1800.0
ORACLE_SECONDS = 1800.0
"""Whoever knew the future would take every idle time of a pod of at least this length, at its start."""
FIXED_MINUTES = (30, 60, 120, 300)
FRONTIER_MINUTES = (30, 45, 60, 90, 120, 180, 240, 300, 480, 720, 1440)
MOST_RELEASES = 1000
"""How many releases a replay lists; all of them are counted."""
_STEPS = ((6 * 3600.0, 600.0), (48 * 3600.0, 3600.0), (float("inf"), 6 * 3600.0))
"""While a chance is too high, it is looked at again: every ten minutes up to an age of six hours, then less often."""
_WORK = ENDS.index(SpellEnd.WORK)
_RECLAIMABLE = np.array([each.highest_step is Step.RECLAIM for each in SIGNATURES])
_HOUR = 3600.0

PolicyOf = Callable[[WorkloadKey], Policy]
PriceOf = Callable[[WorkloadKey, str], float]
"""Workload, model -> price of a GPU-hour; 0 where there is none."""


@dataclass(frozen=True, slots=True)
class Release:
    """GPUs that would have been given back."""

    workload: WorkloadKey
    policy: str
    at: float
    until: float  # when they were needed again, released, or the end of the period
    gpus: float
    gpu_hours: float
    cost: float
    is_regretted: bool
    replicas: int = 0  # of a pool; 0: the whole workload


@dataclass(frozen=True, slots=True)
class ReplayTotals:
    """One policy over one period."""

    name: str
    releases: int = 0
    regretted: int = 0
    gpu_hours: float = 0.0
    cost: float = 0.0
    oracle_share: float | None = None  # of what could have been saved; None: nothing could
    unmet_gpu_hours: float = 0.0  # replicas that were needed before they were back
    window_seconds: float | None = None  # of a point of the frontier

    @property
    def regret(self) -> float | None:
        """The share of releases that would have been regretted; None without any."""
        return self.regretted / self.releases if self.releases else None


@dataclass(frozen=True, slots=True)
class Replay:
    """A policy compared with others on the same time."""

    since: float
    until: float
    regret_seconds: float
    policy: ReplayTotals
    compared: tuple[ReplayTotals, ...]  # the present policy, and fixed windows
    frontier: tuple[ReplayTotals, ...]  # the policy with other windows
    oracle_gpu_hours: float
    spells: int
    regretted: tuple[Release, ...]
    releases: tuple[Release, ...]  # the largest savings first


class Variant(NamedTuple):
    """One policy to replay."""

    name: str
    policies: Sequence[Policy]  # by workload
    window_seconds: float | None = None  # instead of that of the policies
    ignores_chance: bool = False


@dataclass(frozen=True)
class _Period:
    """The idle intervals of all workloads in a period, made once for all variants."""

    table: SpellTable
    intervals: Intervals  # of workloads
    pods: Intervals
    workload_of: Numbers  # of each pod
    chances: PastChances
    since: float
    until: float
    prices: Column  # of a GPU-hour, by workload
    pools: Mapping[WorkloadKey, PoolMinutes]
    cycle_seconds: float
    followed: dict[tuple[WorkloadKey, KeepRule | None], PoolReplay] = field(default_factory=dict)

    @cached_property
    def oracle_gpu_hours(self) -> float:
        seconds = self.pods.ended_at - np.maximum(self.pods.started_at, self.since)
        is_long = (self.pods.seconds >= ORACLE_SECONDS) & (seconds > 0)
        return float((seconds * self.pods.gpus)[is_long].sum()) / _HOUR


@dataclass(frozen=True)
class _Releases:
    """Releases in columns: a month has hundreds of thousands."""

    workload: Numbers
    at: Column
    until: Column
    gpus: Column
    replicas: Numbers  # 0: the whole workload
    is_regretted: Mask

    @property
    def gpu_hours(self) -> Column:
        found: Column = (self.until - self.at) * self.gpus / _HOUR
        return found

    @property
    def counts(self) -> Numbers:
        return np.maximum(self.replicas, 1)


def _join(parts: Sequence[_Releases]) -> _Releases:
    return _Releases(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(_Releases)))


def replay(
    table: SpellTable,
    policy_of: PolicyOf,
    present: PolicyOf,
    *,
    since: float,
    price_of: PriceOf = lambda _key, _model: 0.0,
    pools: Mapping[WorkloadKey, PoolMinutes] = MappingProxyType({}),
    cycle_seconds: float = CYCLE_SECONDS,
    regret_seconds: float = REGRET_SECONDS,
    with_frontier: bool = True,
) -> Replay:
    """Replay a policy from `since` to the end of the spells, beside the present policy and fixed windows. `pools`: what
    their replicas did in each minute, a week before `since` too."""
    period = _make_period(table, since, price_of, pools, cycle_seconds)
    policies, now = _share(map(policy_of, table.workloads)), _share(map(present, table.workloads))
    releases, totals = _run(period, Variant("policy", policies), regret_seconds)
    others = [Variant("present policy", now)]
    others += [Variant(f"fixed {each} min", policies, each * 60.0, ignores_chance=True) for each in FIXED_MINUTES]
    slider = [Variant(f"{each} min", policies, each * 60.0) for each in FRONTIER_MINUTES] if with_frontier else []
    regretted = np.flatnonzero(releases.is_regretted)
    largest = np.argsort(-releases.gpu_hours, kind="stable")[:MOST_RELEASES]
    return Replay(
        since=since,
        until=period.until,
        regret_seconds=regret_seconds,
        policy=totals,
        compared=tuple(_run(period, each, regret_seconds)[1] for each in others),
        frontier=tuple(_run(period, each, regret_seconds)[1] for each in slider),
        oracle_gpu_hours=period.oracle_gpu_hours,
        spells=len(table),
        regretted=tuple(
            _list(period, policies, releases, regretted[np.argsort(releases.at[regretted])][-MOST_RELEASES:])
        ),
        releases=tuple(_list(period, policies, releases, largest)),
    )


def _share(policies: Iterable[Policy]) -> list[Policy]:
    """The same object for policies that replay the same: thousands of workloads have a few."""
    shared: dict[object, Policy] = {}
    return [shared.setdefault((each.name, each.action, each.keep, _find_rule(each)), each) for each in policies]


def _list(period: _Period, policies: Sequence[Policy], releases: _Releases, rows: Numbers) -> Iterator[Release]:
    gpu_hours = releases.gpu_hours
    for row in rows.tolist():
        workload = int(releases.workload[row])
        yield Release(
            workload=period.table.workloads[workload],
            policy=policies[workload].name,
            at=float(releases.at[row]),
            until=float(releases.until[row]),
            gpus=float(releases.gpus[row]),
            gpu_hours=float(gpu_hours[row]),
            cost=float(gpu_hours[row] * period.prices[workload]),
            is_regretted=bool(releases.is_regretted[row]),
            replicas=int(releases.replicas[row]),
        )


def _make_period(
    table: SpellTable,
    since: float,
    price_of: PriceOf,
    pools: Mapping[WorkloadKey, PoolMinutes],
    cycle_seconds: float,
) -> _Period:
    """Only what reclaim may act on: proven by signals that include all of the time, with a reclaimable signature."""
    is_proven = (table.proof == PROOFS.index(Proof.INTEGRATED)) & _RECLAIMABLE[table.signature]
    proven = table.take(is_proven)
    intervals = find_intervals(proven)
    workload_of = np.zeros(len(table.pods), np.intp)
    workload_of[table.held.pod] = table.held.workload
    names = list(dict.fromkeys(key.kind for key in table.workloads))
    kind_of = np.array([names.index(key.kind) for key in table.workloads], np.intp)
    model_of = np.zeros(len(table.workloads), np.intp)
    model_of[table.workload] = table.model
    models = table.models or [""]
    prices = [price_of(key, models[model]) for key, model in zip(table.workloads, model_of.tolist(), strict=True)]
    return _Period(
        table=proven,
        intervals=intervals,
        pods=find_intervals(proven, table.held.pod),
        workload_of=workload_of,
        chances=PastChances(intervals, kind_of[intervals.group]),
        since=since,
        until=table.at,
        prices=np.array(prices, np.float64),
        pools=pools,
        cycle_seconds=cycle_seconds,
    )


def _run(period: _Period, variant: Variant, regret_seconds: float) -> tuple[_Releases, ReplayTotals]:
    policies = variant.policies
    if variant.window_seconds is not None:
        different = {id(each): each for each in policies}
        with_window = {
            key: _with_window(each, variant.window_seconds, variant.ignores_chance) for key, each in different.items()
        }
        policies = [with_window[id(each)] for each in policies]
    of_workloads = _release_workloads(period, policies, regret_seconds)
    if variant.ignores_chance:
        of_pools, unmet = _release_pods(period, policies, regret_seconds), 0.0
    else:
        of_pools, unmet = _release_replicas(period, policies, regret_seconds)
    releases = _join([of_workloads, of_pools])
    saved, oracle, counts = releases.gpu_hours, period.oracle_gpu_hours, releases.counts
    return releases, ReplayTotals(
        name=variant.name,
        releases=int(counts.sum()),
        regretted=int(counts[releases.is_regretted].sum()),
        gpu_hours=float(saved.sum()),
        cost=float((saved * period.prices[releases.workload]).sum()),
        oracle_share=float(saved.sum()) / oracle if oracle else None,
        unmet_gpu_hours=unmet,
        window_seconds=variant.window_seconds,
    )


def _with_window(policy: Policy, seconds: float, ignores_chance: bool) -> Policy:
    """A fixed window acts at its end, without grace; one of the slider keeps everything else, and the pool rule."""
    if ignores_chance:
        return replace(policy, window_seconds=seconds, grace_seconds=0.0, warnings=1, highest_chance=None)
    return replace(policy, window_seconds=seconds)


class _Rule(NamedTuple):
    """Workloads with the same rule are replayed at once."""

    age: float
    highest_chance: float | None
    working_hours: Hours | None
    quiet_hours: Hours | None


def _release_workloads(period: _Period, policies: Sequence[Policy], regret_seconds: float) -> _Releases:
    intervals = period.intervals
    rules = [_find_rule(each) for each in policies]
    numbers = {rule: number for number, rule in enumerate(dict.fromkeys(rules))}
    rule_of = np.array([numbers[each] for each in rules], np.intp)[intervals.group]
    released_at = np.full(len(intervals), np.nan)
    for rule, number in numbers.items():
        if rule is not None:
            rows = np.flatnonzero((rule_of == number) & (intervals.seconds > rule.age))
            released_at[rows] = _find_release_times(period, rows, rule)
    rows = np.flatnonzero((released_at >= period.since) & (released_at < intervals.ended_at))
    return _make_releases(intervals, intervals.group, rows, released_at, regret_seconds, replicas=0)


def _release_pods(period: _Period, policies: Sequence[Policy], regret_seconds: float) -> _Releases:
    """Of pools, as if nobody knew that their replicas are interchangeable: each pod by itself."""
    pods, ages = period.pods, np.array([each.window_seconds if _is_pool(each) else np.inf for each in policies])
    workloads = period.workload_of[pods.group]
    released_at = pods.started_at + ages[workloads]
    rows = np.flatnonzero((released_at >= period.since) & (released_at < pods.ended_at))
    return _make_releases(pods, workloads, rows, released_at, regret_seconds, replicas=1)


def _make_releases(
    intervals: Intervals,
    workloads: Numbers,
    rows: Numbers,
    released_at: Column,
    regret_seconds: float,
    *,
    replicas: int,
) -> _Releases:
    at, until = released_at[rows], intervals.ended_at[rows]
    return _Releases(
        workload=workloads[rows],
        at=at,
        until=until,
        gpus=intervals.gpus[rows],
        replicas=np.full(len(rows), replicas, np.intp),
        is_regretted=(intervals.ended_by[rows] == _WORK) & (until - at <= regret_seconds),
    )


def _is_pool(policy: Policy) -> bool:
    return policy.action is ReclaimAction.SCALE_TO_KEEP and policy.is_pool


def _find_rule(policy: Policy) -> _Rule | None:
    if policy.action not in (ReclaimAction.SUSPEND, ReclaimAction.EVICT):
        return None
    warning = (policy.warnings - 1) * policy.warning_interval_seconds  # from the first warning to the last one
    age = policy.window_seconds + warning + policy.grace_seconds
    return _Rule(age, policy.highest_chance, policy.working_hours, policy.quiet_hours)


def _find_release_times(period: _Period, rows: Numbers, rule: _Rule) -> Column:
    """When each of these intervals would have been acted on; NaN: never."""
    begins, ends = period.intervals.started_at[rows], period.intervals.ended_at[rows]
    found, age, waiting = np.full(len(rows), np.nan), rule.age, np.arange(len(rows))
    while True:
        waiting = waiting[ends[waiting] > begins[waiting] + age]
        if not len(waiting):
            return found
        at = begins[waiting] + age
        may_act = _is_allowed(rule, at)
        if rule.highest_chance is not None:
            may_act &= period.chances.tell(age)[rows[waiting]] <= rule.highest_chance  # False where it is unknown
        found[waiting[may_act]] = at[may_act]
        waiting = waiting[~may_act]
        age += next(step for limit, step in _STEPS if age < limit)


def _is_allowed(rule: _Rule, times: Column) -> Mask:
    """Within working hours, and not within quiet hours."""
    working, quiet = rule.working_hours, rule.quiet_hours
    if working is None and quiet is None:
        return np.ones(len(times), np.bool_)
    allowed = (
        (working is None or working.include(at)) and (quiet is None or not quiet.include(at)) for at in times.tolist()
    )
    return np.fromiter(allowed, np.bool_, len(times))


def _release_replicas(period: _Period, policies: Sequence[Policy], regret_seconds: float) -> tuple[_Releases, float]:
    """Of pools: the releases, and the GPU-hours of replicas that were needed before they were back."""
    rows: list[tuple[int, float, float, float, int, bool]] = []
    unmet = 0.0
    for workload, key in enumerate(period.table.workloads):
        minutes, policy = period.pools.get(key), policies[workload]
        if minutes is None or not _is_pool(policy):
            continue
        pool = period.followed.get((key, policy.keep))
        if pool is None:
            pool = follow_pool(minutes, policy.keep, cycle_seconds=period.cycle_seconds, since=period.since)
            period.followed[key, policy.keep] = pool
        unmet += pool.unmet_seconds * minutes.gpus / _HOUR
        for at, until, replicas, was_needed in pool.releases:
            is_regretted = was_needed and until - at <= regret_seconds
            rows.append((workload, at, until, replicas * minutes.gpus, replicas, is_regretted))
    workload_, at_, until_, gpus_, replicas_, regretted_ = zip(*rows, strict=True) if rows else [()] * 6
    return _Releases(
        workload=np.array(workload_, np.intp),
        at=np.array(at_, np.float64),
        until=np.array(until_, np.float64),
        gpus=np.array(gpus_, np.float64),
        replicas=np.array(replicas_, np.intp),
        is_regretted=np.array(regretted_, np.bool_),
    ), unmet
