"""The name of a cluster is a label of its series, on a real control plane: it may appear or change at any time, and
what is known of a workload stays with it."""

import pytest

from gpusteward.analyzer.reclaim.plan import ActionState, Outcome
from gpusteward.core.containers import WorkloadKey
from tests.analyzer.reclaim.test_real_giving_back import lower, read_replicas, start_pool
from tests.analyzer.reclaim.test_real_new_pods import start
from tests.analyzer.reclaim.world import World
from tests.analyzer.usage_tables import working
from tests.kubernetes.cluster import wait_for

pytestmark = pytest.mark.slow


def test_never_a_workload_that_was_snoozed_before_its_cluster_had_a_name(world: World, node: str) -> None:
    item = start(world)
    world.snoozes = {WorkloadKey("StatefulSet", world.namespace, "lab"): world.now + 7 * 86_400.0}
    world.cluster_name = "prod"
    world.rest(minutes=65)
    for _ in range(12):
        assert world.cycle() == {"lab": Outcome.WAIT}, world.explain()
    assert "snoozed" in world.list_failed("lab")
    assert world.sender.kinds() == []
    assert read_replicas(world, item) == 1


def test_never_a_workload_that_was_restored_before_its_cluster_had_a_name(world: World, node: str) -> None:
    """Not within its cool-down, and not while the action is open."""
    item = start(world)
    [action] = world.run_until_acted()
    world.reclaimer.restore(action.id, by="alice")
    wait_for(lambda: len(world.kubernetes.list_pods(world.namespace)) == 1)
    world.cluster_name = "prod"
    world.rest(minutes=65)
    world.cycle()
    assert "cool_down" in world.list_failed("lab"), world.explain()
    assert read_replicas(world, item) == 1


@pytest.mark.parametrize("has_uids", [False, True])
def test_a_lowered_pool_is_given_back_after_its_cluster_got_a_name(world: World, node: str, *, has_uids: bool) -> None:
    world.has_uids = has_uids
    item, _ = start_pool(world)
    lower(world)
    world.cycle()
    assert [each.state for each in world.list_actions()] == [ActionState.VERIFIED]
    assert read_replicas(world, item) == 4
    world.cluster_name = "prod"
    world.rows = {each["metadata"]["name"]: working() for each in world.kubernetes.list_pods(world.namespace)}
    world.cycle()
    assert read_replicas(world, item) == 6, world.explain()
    assert world.list_actions()[0].state is ActionState.RESTORED
