"""Restored means running, on a real control plane: until its pods run, a restored workload waits for GPUs."""

import pytest

from gpusteward.analyzer.api.v1.reclaim.actions import make_action_row
from gpusteward.analyzer.reclaim.execution.journal import ActionState
from tests.analyzer.reclaim.test_real_prohibitions import patch, start
from tests.analyzer.reclaim.world import World
from tests.kubernetes.cluster import Cluster, Json, path_of, pod, wait_for

pytestmark = pytest.mark.slow


def suspend_and_take_its_gpus(world: World, *, gpus: int) -> tuple[Json, Json, str]:
    """A Deployment with two pods on a node of its own is suspended, and another pod takes GPUs there."""
    place = world.kubernetes.make_name("place")
    node = world.kubernetes.add_node(gpus=2, labels={"place": place})
    item = start(world, replicas=2, selector={"place": place})
    [action] = world.run_until_acted()
    wait_for(lambda: not world.kubernetes.list_pods(world.namespace))
    world.cycle()
    [other] = world.kubernetes.apply(pod("other", world.namespace, node=node, gpus=gpus))
    world.kubernetes.wait_for_pods(world.namespace, 1)
    return item, other, action.id


def wait_for_pods(world: World, *, pending: int, running: int) -> None:
    def count(phase: str) -> int:
        pods = world.kubernetes.list_pods(world.namespace)
        return sum(each["status"].get("phase") == phase and each["metadata"]["name"] != "other" for each in pods)

    wait_for(lambda: (count("Pending"), count("Running")) == (pending, running))


def read_waiting(world: World, action_id: str) -> float | None:
    action = world.reclaimer.read_action(action_id, visible=None)
    assert action is not None
    assert action.state is ActionState.RESTORED
    assert make_action_row(action, "en").waiting_gpus == action.waiting_gpus
    return action.waiting_gpus


def test_a_restored_workload_waits_until_its_pods_run(world: World) -> None:
    _, other, action_id = suspend_and_take_its_gpus(world, gpus=1)
    restored = world.reclaimer.restore(action_id, by="alice")
    assert (restored.state, restored.waiting_gpus) == (ActionState.RESTORED, 2.0)
    [notice] = [each for each in world.sender.notices.values() if each.kind == "restored"]
    assert "waiting for 2 GPUs" in notice.text.en
    assert "正在等待 2 张 GPU" in notice.text.zh
    wait_for_pods(world, pending=1, running=1)
    world.cycle()
    assert read_waiting(world, action_id) == 1.0
    assert world.list_actions()[0].steps[-1].note.en == "restored, waiting for 1 GPU"
    world.start()  # another process knows it from the journal
    world.cycle()
    assert read_waiting(world, action_id) == 1.0
    world.kubernetes.delete(other)
    wait_for_pods(world, pending=0, running=2)
    world.cycle()
    assert read_waiting(world, action_id) is None
    steps = len(world.list_actions()[0].steps)
    world.cycle()
    assert len(world.list_actions()[0].steps) == steps, "it is not followed any more"


def test_waiting_ends_when_its_owner_does_not_want_it_any_more(world: World) -> None:
    item, _, action_id = suspend_and_take_its_gpus(world, gpus=2)
    world.reclaimer.restore(action_id, by="alice")
    wait_for_pods(world, pending=2, running=0)
    world.cycle()
    assert read_waiting(world, action_id) == 2.0
    patch(world, item, {"spec": {"replicas": 0}})
    world.cycle()
    assert read_waiting(world, action_id) is None


def test_a_restored_workload_waits_while_it_has_no_pods_at_all(world: World, kubernetes: Cluster) -> None:
    """A quota does not let its controller make any."""
    item, _, action_id = suspend_and_take_its_gpus(world, gpus=1)
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none", "namespace": world.namespace},
        "spec": {"hard": {"pods": "1"}},
    }
    kubernetes.apply(quota)
    wait_for(lambda: "hard" in kubernetes.request("GET", path_of(quota)).get("status", {}))
    world.reclaimer.restore(action_id, by="alice")
    wait_for(lambda: kubernetes.request("GET", path_of(item))["status"].get("observedGeneration", 0) >= 3)
    world.cycle()
    assert read_waiting(world, action_id) == 2.0
