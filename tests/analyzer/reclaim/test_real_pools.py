"""Pools on a real control plane: what the plan says while the surplus of a pool grows."""

import pytest

from gpusteward.analyzer.reclaim.decisions import assessment
from gpusteward.analyzer.reclaim.decisions.assessment import ObjectCache
from gpusteward.analyzer.reclaim.execution.journal import ActionState
from gpusteward.analyzer.reclaim.plan import Outcome
from gpusteward.analyzer.reclaim.policies.policy import KeepRule, ReclaimAction
from tests.analyzer.reclaim.test_real_prohibitions import SAMPLED, read_replicas, start
from tests.analyzer.reclaim.world import EMPTY, STEP_SECONDS, World, suspend_policy
from tests.kubernetes.cluster import wait_for

pytestmark = pytest.mark.slow

GRACE_SECONDS = 1800.0


def test_a_growing_surplus_of_a_pool_never_postpones_what_was_warned_about(world: World, node: str) -> None:
    """Every ten minutes one more replica has nothing to do. From the warning on the plan says what is waited for, and
    until when, and that time does not move. What becomes surplus later waits for the open action, and is never due."""
    item = start(world, "pool", replicas=8)
    names = sorted(each["metadata"]["name"] for each in world.kubernetes.wait_for_pods(world.namespace, 8))
    keep = KeepRule(window_seconds=600.0, headroom=1.0)
    world.policies.policy = suspend_policy(
        action=ReclaimAction.SCALE_TO_KEEP, keep=keep, window_seconds=600.0, grace_seconds=GRACE_SECONDS
    )
    world.put_to_work(names)
    warned_at, has_acted, waits = 0.0, False, 0
    for number in range(20):
        if number in (0, 2, 4, 6, 8, 10):
            world.rows[names[number // 2]] = EMPTY
        at, outcome = world.now, world.cycle()["pool"]
        decision = world.decision("pool")
        if outcome is Outcome.WARN:
            assert not warned_at, "once"
            warned_at = at
        if outcome is Outcome.ACT:
            assert at == warned_at + GRACE_SECONDS
            has_acted = True
            wait_for(lambda: len(world.kubernetes.list_pods(world.namespace)) == 7)
        if has_acted:
            assert outcome is Outcome.ACT or (outcome is Outcome.WAIT and decision.due_at is None), world.explain()
            assert outcome is Outcome.ACT or "not_under_way" in world.list_failed("pool")
        elif outcome is Outcome.WAIT:
            waits += 1
            assert decision.due_at == warned_at + GRACE_SECONDS, world.explain()
            [waited_for] = decision.failed
            assert (waited_for.guard, "grace period of 30 min" in waited_for.reason.en) == ("warned", True)
    assert waits >= 5, "the surplus has grown meanwhile"
    [action] = world.list_actions(ActionState.ACTED, ActionState.VERIFIED)
    assert read_replicas(world, item) == 7
    assert [pod["pod"] for pod in action.evidence["allocations"]] == names[:1], "it was warned about"


def test_a_pool_is_never_postponed_by_other_idle_workloads(
    world: World, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than can be read in a cycle, and all of them idle for longer: how many replicas were active at once is known
    only of a pool that is looked at again and again."""
    monkeypatch.setattr(ObjectCache, "SECONDS", 1.0)  # read anew in every cycle
    monkeypatch.setattr(assessment, "MOST_INSPECTIONS", 2)
    others = [start(world, f"other-{number}") for number in range(8)]
    item = start(world, "pool", replicas=3)
    names = [each["metadata"]["name"] for each in world.kubernetes.wait_for_pods(world.namespace, 11)]
    keep = KeepRule(window_seconds=1800.0, headroom=1.0)
    world.policies.policy = suspend_policy(
        action=ReclaimAction.SCALE_TO_KEEP, keep=keep, window_seconds=600.0, grace_seconds=600.0
    )
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
    keep = KeepRule(window_seconds=600.0, headroom=1.0)
    world.policies.policy = suspend_policy(
        action=ReclaimAction.SCALE_TO_KEEP, keep=keep, window_seconds=600.0, grace_seconds=GRACE_SECONDS
    )
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


def test_never_counts_the_time_in_which_a_replica_of_a_pool_was_only_sampled(world: World, node: str) -> None:
    """Its GPU has shown nothing for an hour, but between two samples it may have worked."""
    item = start(world, "pool", replicas=4)
    names = sorted(each["metadata"]["name"] for each in world.kubernetes.wait_for_pods(world.namespace, 4))
    keep = KeepRule(window_seconds=600.0, headroom=1.0)
    world.policies.policy = suspend_policy(
        action=ReclaimAction.SCALE_TO_KEEP, keep=keep, window_seconds=1800.0, grace_seconds=GRACE_SECONDS
    )
    world.put_to_work(names[:2])
    world.rows |= dict.fromkeys(names[2:], SAMPLED)
    for _ in range(12):
        world.cycle()
    sampled_at = world.now - STEP_SECONDS
    world.rows |= dict.fromkeys(names[2:], EMPTY)
    warned_at = 0.0
    for _ in range(10):
        at, outcome = world.now, world.cycle().get("pool")
        if outcome is Outcome.WARN:
            warned_at = at
            break
    assert warned_at - sampled_at >= 1800.0, world.explain()
    assert read_replicas(world, item) == 4
