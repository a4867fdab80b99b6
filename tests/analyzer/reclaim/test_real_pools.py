"""Pools on a real control plane: lowered by the pool rule, further when load falls, and raised when it rises."""

from collections.abc import Mapping
from typing import cast

import numpy as np
import pytest

from gpusteward.analyzer.pool_minutes import PoolMinutes
from gpusteward.analyzer.pool_watch import PoolWatch
from gpusteward.analyzer.reclaim.decisions import assessment
from gpusteward.analyzer.reclaim.decisions.assessment import ObjectCache
from gpusteward.analyzer.reclaim.execution.journal import ActionState, ReclaimError
from gpusteward.analyzer.reclaim.kinds.objects import ACTION, DELETION_COST
from gpusteward.analyzer.reclaim.plan import Outcome
from gpusteward.analyzer.reclaim.policies.pool_rule import KeepRule
from gpusteward.analyzer.reclaim.replay.pools import follow_pool
from gpusteward.analyzer.results import Result
from gpusteward.core.node.containers import WorkloadKey
from tests.analyzer.reclaim.test_real_prohibitions import SAMPLED, patch, read_replicas, start
from tests.analyzer.reclaim.world import START, STEP_SECONDS, World, pool_policy
from tests.analyzer.usage_tables import working
from tests.kubernetes.cluster import Json, path_of, wait_for

pytestmark = pytest.mark.slow

GRACE_SECONDS = 1800.0


def list_names(world: World) -> list[str]:
    """Of the pods of the pool that live on."""
    pods = (each["metadata"] for each in world.kubernetes.list_pods(world.namespace))
    return sorted(each["name"] for each in pods if "deletionTimestamp" not in each)


class Service:
    """A pool that gets load: it goes to replicas that are there, and what fits nowhere is unmet."""

    def __init__(self, world: World, replicas: int) -> None:
        self.world, self.replicas, self.unmet = world, replicas, 0
        self.item = start(world, "pool", replicas=replicas)
        world.kubernetes.wait_for_pods(world.namespace, replicas)

    def cycle(self, load: int) -> Outcome | None:
        """Five minutes of this load, and a cycle at their end."""
        names = list_names(self.world)
        self.unmet += max(0, load - len(names))
        self.world.rows = dict.fromkeys(names[:load], working())
        before = read_replicas(self.world, self.item)
        outcome = self.world.cycle().get("pool")
        after = read_replicas(self.world, self.item)
        if after != before:
            wait_for(lambda: len(list_names(self.world)) == after)
            self.world.kubernetes.wait_for_pods(self.world.namespace, after)  # a pod that is not running holds no GPU
        return outcome

    @property
    def running(self) -> int:
        return read_replicas(self.world, self.item)

    @property
    def annotations(self) -> Json:
        item = self.world.kubernetes.request("GET", path_of(self.item))
        found: Json = item["metadata"].get("annotations") or {}
        return found


def run_cycles(pool: Service, load: int) -> None:
    for _ in range(8):
        pool.cycle(load)


def test_a_pool_moves_with_its_load_by_one_action(world: World, node: str) -> None:
    """Lowered, lowered further when load falls, partly raised when it rises, and all back when all are busy."""
    pool = Service(world, 8)
    world.policies.policy = pool_policy()
    for _ in range(8):
        pool.cycle(4)
    assert pool.running == 5, world.explain()
    for _ in range(6):
        pool.cycle(1)
    assert pool.running == 2, world.explain()
    pool.cycle(1)
    pool.cycle(2)
    assert pool.running == 8, "both that are left are busy: nobody knows how much more is needed"
    [action] = world.list_actions()
    assert action.state is ActionState.RESTORED, world.explain()
    assert (action.original, action.evidence.get("moved_from")) == ({"/spec/replicas": 8}, None)
    assert ACTION not in pool.annotations
    assert [kind for kind in world.sender.kinds() if kind == "warning"] == ["warning"], "one warning for all of it"
    for _ in range(8):
        pool.cycle(1)
    assert pool.running == 2, "what was needed is no reason to leave it alone"
    for load in (1, 1):
        pool.cycle(load)
    world.reclaimer.restore(world.list_actions()[0].id, by="alice")
    for _ in range(8):
        pool.cycle(1)
    assert pool.running == 8, "alice wants it"


def test_what_a_pool_needs_of_what_was_lowered_is_given_back_in_the_next_cycle(world: World, node: str) -> None:
    pool = Service(world, 10)
    world.policies.policy = pool_policy(KeepRule(window_seconds=600.0, headroom=2.0, patience_seconds=600.0))
    for _ in range(8):
        pool.cycle(2)
    assert pool.running == 5, world.explain()
    pool.cycle(3)
    assert pool.running == 7
    [action] = world.list_actions()
    assert action.is_open
    assert (action.patch, action.gpus) == ({"/spec/replicas": 7}, 3.0)
    assert pool.unmet == 0


@pytest.mark.parametrize("state", ["off", "switched off"])
def test_a_pool_is_raised_in_mode_off_and_under_the_switch_and_never_lowered_further(
    world: World, node: str, state: str
) -> None:
    pool = Service(world, 10)
    world.policies.policy = pool_policy(KeepRule(window_seconds=600.0, headroom=2.0, patience_seconds=600.0))
    for _ in range(8):
        pool.cycle(2)
    assert pool.running == 5, world.explain()
    if state == "off":
        world.settings = world.make_settings("off")
        world.start()
    else:
        world.reclaimer.switch_off(by="alice", reason="incident")
    for _ in range(5):
        pool.cycle(1)
    assert pool.running == 5, "nothing more is taken"
    for load in (3, 3, 3):
        pool.cycle(load)
    assert pool.running == 7, world.explain()
    for _ in range(2):
        pool.cycle(7)
    assert pool.running == 10
    assert ACTION not in pool.annotations


@pytest.mark.parametrize(
    ("load", "step"), [(1, "journalled"), (1, "costs_set"), (1, "patched"), (3, "journalled"), (3, "patched")]
)
def test_a_move_of_a_pool_that_is_interrupted_never_loses_its_original(
    world: World, node: str, step: str, load: int
) -> None:
    class Killed(BaseException):
        """The process ends here."""

    pool = Service(world, 10)
    world.policies.policy = pool_policy(KeepRule(window_seconds=600.0, headroom=2.0, patience_seconds=600.0))
    for _ in range(8):
        pool.cycle(2)
    assert pool.running == 5, world.explain()

    def end(reached: str, _action: object) -> None:
        if reached == step:
            raise Killed

    world.on_step = end
    world.start()
    with pytest.raises(Killed):
        run_cycles(pool, load)
    world.on_step = lambda _step, _action: None
    world.start()
    for _ in range(8):
        pool.cycle(load)
    [action] = [each for each in world.list_actions() if each.is_open]
    assert action.original == {"/spec/replicas": 10}
    assert action.patch == {"/spec/replicas": pool.running}, world.explain()
    world.reclaimer.restore(action.id, by="alice")
    assert pool.running == 10
    assert ACTION not in pool.annotations
    costs = [each["metadata"].get("annotations") or {} for each in world.kubernetes.list_pods(world.namespace)]
    assert not any(DELETION_COST in each for each in costs)


def test_the_live_program_releases_what_replay_says_at_the_same_cycles(world: World, node: str) -> None:
    """A recorded day before, and then some hours of load, cycle by cycle; the same minutes are replayed."""
    key = WorkloadKey("Deployment", world.namespace, "pool")
    rule = KeepRule(window_seconds=1800.0, quantile=0.95, headroom=1.25, recent_seconds=600.0, patience_seconds=900.0)
    world.now = START - START % 3600
    first = int(world.now // 60) - 1440
    night, day = [1] * 60, [8] * 60  # all replicas are needed until now
    counts = np.array(([*night] * 12 + [*day] * 12), np.int16)
    full = np.full(1440, 8, np.int16)
    world.minutes = {key: PoolMinutes(first, counts, full, full, 1.0)}
    world.start()
    pool = Service(world, 8)
    world.policies.policy = pool_policy(rule)
    loads = [2] * 10 + [1] * 6 + [4] * 3 + [1] * 9 + [6] * 2 + [1] * 7
    live = []
    for load in loads:
        pool.cycle(load)
        live.append(8 - pool.running)
    demand = np.concatenate((counts, np.repeat(loads[1:], 5))).astype(np.int16)
    all_ready = np.full(len(demand), 8, np.int16)
    recorded = PoolMinutes(first, demand, all_ready, all_ready)
    found = follow_pool(recorded, rule, cycle_seconds=STEP_SECONDS, since=START)
    cycles = [START - START % 3600 + number * STEP_SECONDS for number in range(len(loads))]
    replayed = [sum(each.replicas for each in found.releases if each.at <= at < each.until) for at in cycles]
    assert max(live) >= 5, world.explain()
    assert live == replayed, f"{live}\n{replayed}\n{world.explain()}"


def test_a_warning_is_sent_in_time_and_nothing_goes_before_patience_is_over(world: World, node: str) -> None:
    pool = Service(world, 6)
    world.policies.policy = pool_policy(KeepRule(600.0, patience_seconds=2400.0), grace_seconds=1200.0)
    outcomes = [pool.cycle(2) for _ in range(9)]
    warned = outcomes.index(Outcome.WARN)
    acted = outcomes.index(Outcome.ACT)
    assert (acted - warned) * STEP_SECONDS == 1200.0, "both end at once"
    assert outcomes.count(Outcome.WARN) == 1
    assert pool.running == 3


def test_a_pool_is_never_postponed_by_other_idle_workloads(
    world: World, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than can be read in a cycle, and all of them idle for longer."""
    monkeypatch.setattr(ObjectCache, "SECONDS", 1.0)  # read anew in every cycle
    monkeypatch.setattr(assessment, "MOST_INSPECTIONS", 2)
    others = [start(world, f"other-{number}") for number in range(8)]
    item = start(world, "pool", replicas=3)
    names = [each["metadata"]["name"] for each in world.kubernetes.wait_for_pods(world.namespace, 11)]
    world.policies.policy = pool_policy()
    world.put_to_work([name for name in names if name.startswith("pool-")])
    world.rest(minutes=30)
    world.rows.clear()
    for _ in range(30):
        if world.cycle().get("pool") is Outcome.ACT:
            wait_for(lambda: len(world.kubernetes.list_pods(world.namespace)) == 9)  # before simulated time goes on
    assert read_replicas(world, item) == 1, world.explain()
    assert {read_replicas(world, each) for each in others} == {1}, "a single replica is no pool"


def test_a_pool_whose_objects_are_not_read_keeps_its_warning(
    world: World, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where many workloads are read anew, some wait for the next cycle. Nobody knows in this one which replicas of such
    a pool are surplus: that is no sign of work."""
    monkeypatch.setattr(ObjectCache, "SECONDS", 1.0)  # read anew in every cycle
    item = start(world, "pool", replicas=4)
    names = sorted(each["metadata"]["name"] for each in world.kubernetes.wait_for_pods(world.namespace, 4))
    world.policies.policy = pool_policy(grace_seconds=GRACE_SECONDS)
    world.put_to_work(names[:2])
    outcomes = [world.cycle().get("pool") for _ in range(5)]
    assert Outcome.WARN in outcomes, world.explain()
    [warned] = world.list_actions(ActionState.WARNED)
    with monkeypatch.context() as patched:
        patched.setattr(assessment, "MOST_INSPECTIONS", 0)
        world.cycle()
    world.cycle()
    assert [each.id for each in world.list_actions(ActionState.WARNED)] == [warned.id], world.explain()
    assert read_replicas(world, item) == 4


def test_never_while_a_replica_of_a_pool_is_only_sampled(world: World, node: str) -> None:
    """Its GPU has shown nothing for an hour, but between two samples it may have worked: how many were at work at once
    is not known, and the window begins anew."""
    pool = Service(world, 4)
    world.policies.policy = pool_policy()
    names = list_names(world)
    world.rows = {**dict.fromkeys(names[:2], working()), **dict.fromkeys(names[2:], SAMPLED)}
    for _ in range(12):
        world.cycle()
    assert pool.running == 4
    outcomes = [pool.cycle(2) for _ in range(6)]
    assert Outcome.ACT not in outcomes[:3], "ten minutes of window and ten of patience"
    assert pool.running == 3, world.explain()


def test_never_lowers_a_pool_of_which_nothing_is_known(world: World, node: str) -> None:
    """All of it has been idle for hours, but nobody has counted how many are at work at once."""
    pool = Service(world, 4)
    world.policies.policy = pool_policy()
    world.watch = cast(PoolWatch, NoWatch())
    for _ in range(30):
        assert world.cycle().get("pool") in (None, Outcome.NOTHING)
    assert pool.running == 4
    assert world.list_actions() == []


class NoWatch:
    def update(self, _result: Result) -> Mapping[WorkloadKey, PoolMinutes]:
        return {}


def test_never_releases_a_replica_while_a_rollout_runs(world: World, node: str) -> None:
    pool = Service(world, 4)
    world.policies.policy = pool_policy()
    for _ in range(3):
        pool.cycle(1)
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    template = {"metadata": {"labels": {"round": "2"}}, "spec": {"nodeSelector": {"none": "such"}}}
    patch(world, pool.item, {"spec": {"strategy": strategy, "template": template}})
    wait_for(lambda: len(world.kubernetes.list_pods(world.namespace)) == 5)  # one that stays pending
    for _ in range(8):
        pool.world.cycle()
    assert pool.running == 4, world.explain()


@pytest.mark.parametrize("scaler", ["HorizontalPodAutoscaler"])
def test_never_lowers_a_pool_that_something_else_scales_and_names_it(world: World, node: str, scaler: str) -> None:
    pool = Service(world, 4)
    world.kubernetes.apply(
        {
            "apiVersion": "autoscaling/v2",
            "kind": scaler,
            "metadata": {"name": "by-load", "namespace": world.namespace},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "pool"},
                "minReplicas": 1,
                "maxReplicas": 4,
            },
        }
    )
    world.policies.policy = pool_policy()
    for _ in range(8):
        world.cycle()
    assert pool.running == 4
    [kind] = [each for each in world.decision("pool").failed if each.guard == "kind"]
    assert "HorizontalPodAutoscaler by-load scales it" in kind.reason.en
    with pytest.raises(ReclaimError, match="by-load"):
        world.reclaimer.suspend(WorkloadKey("Deployment", world.namespace, "pool"), by="alice")


def test_never_takes_a_replica_that_works_at_the_moment_of_the_write(world: World, node: str) -> None:
    """Of the four that have nothing to do, one begins to work after the plan."""
    pool = Service(world, 6)
    world.policies.policy = pool_policy()
    while pool.cycle(1) is not Outcome.WARN:
        pass
    names = list_names(world)
    world.source.on_read = lambda: world.source.working.update(names)
    for _ in range(3):
        pool.cycle(1)
    assert pool.running == 6, world.explain()
