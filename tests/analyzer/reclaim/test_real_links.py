"""Whoever has the link of a warning need not wait for window and warning; everything else holds, on a real control
plane."""

from datetime import time
from typing import Any

import pytest

from gpusteward.analyzer.reclaim.execution.journal import ActionState, ReclaimError
from gpusteward.analyzer.reclaim.plan import Asker
from gpusteward.analyzer.reclaim.policies.policy import Hours, Limits, ReclaimAction
from gpusteward.analyzer.sources.live_readings import HostUse
from gpusteward.core.node.containers import WorkloadKey
from tests.analyzer.reclaim.test_real_prohibitions import read_replicas, start
from tests.analyzer.reclaim.world import World, suspend_policy
from tests.kubernetes.cluster import Json

pytestmark = pytest.mark.slow

BY = "link (me) 0123456789abcdef"


def ask(world: World) -> ActionState:
    key = WorkloadKey("Deployment", world.namespace, "web")
    return world.reclaimer.suspend(key, by=BY, asker=Asker.LINK).state


def rest_for_minutes(world: World) -> Json:
    """Idle for less than the window, without any warning, seen in two cycles."""
    item = start(world, replicas=2)
    world.rest(minutes=15)
    world.cycle()
    world.cycle()
    assert world.sender.kinds() == []
    return item


def test_a_link_suspends_before_window_and_warning_and_the_journal_names_it(world: World, node: str) -> None:
    item = rest_for_minutes(world)
    assert ask(world) is ActionState.ACTED
    assert read_replicas(world, item) == 0
    [action] = world.list_actions()
    assert action.by == BY
    assert world.reclaimer.restore(action.id, by=BY).state is ActionState.RESTORED
    assert read_replicas(world, item) == 2


@pytest.mark.parametrize(
    ("policy", "guard"),
    [
        ({"action": ReclaimAction.NOTIFY}, "policy"),
        ({"limits": Limits(per_cycle=0)}, "budget"),
        ({"working_hours": Hours(time(0), time(1), days=frozenset())}, "working_hours"),
        ({"keep_until": float("inf")}, "kept"),
    ],
)
def test_never_by_a_link_what_the_policy_does_not_allow(
    world: World, node: str, policy: dict[str, Any], guard: str
) -> None:
    item = rest_for_minutes(world)
    world.policies.policy = suspend_policy(**policy)
    key = WorkloadKey("Deployment", world.namespace, "web")
    assert guard in [each.guard for each in world.reclaimer.preview(key, asker=Asker.LINK).failed]
    with pytest.raises(ReclaimError):
        ask(world)
    assert (read_replicas(world, item), world.list_writes()) == (2, [])


def test_never_by_a_link_while_a_gpu_works(world: World, node: str) -> None:
    item = rest_for_minutes(world)
    world.work()
    world.judge()
    world.cycle()
    with pytest.raises(ReclaimError):
        ask(world)
    assert (read_replicas(world, item), world.list_writes()) == (2, [])


def test_never_by_a_link_while_a_pod_works_on_its_host(world: World, node: str) -> None:
    item = rest_for_minutes(world)
    [*pods] = [each["metadata"]["name"] for each in world.kubernetes.list_pods(world.namespace)]
    world.source.hosts = {pods[0]: HostUse(cpu_cores=1.5)}
    with pytest.raises(ReclaimError, match="cores"):
        ask(world)
    assert (read_replicas(world, item), world.list_writes()) == (2, [])


def test_never_by_a_link_a_workload_seen_for_the_first_time(world: World, node: str) -> None:
    item = start(world, replicas=2)
    world.rest(minutes=15)
    world.cycle()
    with pytest.raises(ReclaimError):
        ask(world)
    assert (read_replicas(world, item), world.list_writes()) == (2, [])
