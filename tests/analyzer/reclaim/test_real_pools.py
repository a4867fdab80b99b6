"""Pools on a real control plane: what the plan says while the surplus of a pool grows."""

import pytest

from gpusteward.analyzer.reclaim.plan import ActionState, Outcome
from gpusteward.analyzer.reclaim.policies.effective import KeepRule, ReclaimAction
from tests.analyzer.reclaim.test_real_prohibitions import read_replicas, start
from tests.analyzer.reclaim.world import EMPTY, World, suspend_policy
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
