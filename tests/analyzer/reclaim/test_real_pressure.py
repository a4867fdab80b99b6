"""Acting only when a pending pod needs the GPUs; an autoscaler that leaves a suspended owner alone."""

import pytest

from gpusteward.analyzer.reclaim.execution.journal import ActionState
from gpusteward.analyzer.sources.live_readings import HostUse
from tests.analyzer.reclaim.test_real_prohibitions import read_replicas, start
from tests.analyzer.reclaim.world import World, suspend_policy
from tests.kubernetes.cluster import pod, wait_for

pytestmark = pytest.mark.slow

RESOURCE = "amd.com/gpu"  # no other test uses it: pods of other tests would take the place otherwise


def test_idle_gpus_are_taken_only_for_a_pod_that_can_start_with_them(world: World) -> None:
    """Two of four GPUs of a node are idle: nothing for a pod that needs three, both for one that needs two."""
    node = world.kubernetes.add_node()
    place = {"kubernetes.io/hostname": node}
    about = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}
    room = {RESOURCE: "4"}
    world.kubernetes.set_status(about, {"capacity": room, "allocatable": room})
    items = [start(world, name, selector=place, resource=RESOURCE) for name in ("a", "b", "c", "d")]
    world.put_to_work(
        [
            each["metadata"]["name"]
            for each in world.kubernetes.list_pods(world.namespace)
            if each["metadata"]["name"][0] in "cd"
        ]
    )
    world.policies.policy = suspend_policy(on_pressure=True)
    world.rest(minutes=65)
    for _ in range(10):
        world.cycle()
    assert world.list_failed("a") == ["pressure"], world.explain()
    other = world.kubernetes.add_namespace("waiting")
    for name, gpus in (("large", 3), ("small", 2)):
        waiting = pod(name, other, gpus=gpus)
        waiting["spec"]["nodeSelector"] = place
        waiting["spec"]["containers"][0]["resources"] = {"limits": {RESOURCE: str(gpus)}}
        [created] = world.kubernetes.apply(waiting)
        for _ in range(2):
            world.cycle()
        expected = [1, 1, 1, 1] if name == "large" else [0, 0, 1, 1]
        assert [read_replicas(world, item) for item in items] == expected, world.explain()
        if name == "large":
            world.kubernetes.delete(created)
    world.kubernetes.wait_for_pods(other, 1)


def test_a_pending_pod_never_waits_for_a_workload_that_is_held_back(world: World) -> None:
    """The longest idle one begins to work in every cycle, right before the action: another one makes room."""
    node = world.kubernetes.add_node()
    place = {"kubernetes.io/hostname": node}
    about = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}
    room = {RESOURCE: "2"}
    world.kubernetes.set_status(about, {"capacity": room, "allocatable": room})
    held, other = (start(world, name, selector=place, resource=RESOURCE) for name in ("a", "b"))
    names = {
        each["metadata"]["name"][0]: each["metadata"]["name"] for each in world.kubernetes.list_pods(world.namespace)
    }
    world.source.working.add(names["a"])
    world.policies.policy = suspend_policy(on_pressure=True)
    world.put_to_work([names["b"]])
    world.rest(minutes=10)
    world.rows.clear()
    world.rest(minutes=75)
    waiting = pod("small", world.kubernetes.add_namespace("waiting"), gpus=1)
    waiting["spec"]["nodeSelector"] = place
    waiting["spec"]["containers"][0]["resources"] = {"limits": {RESOURCE: "1"}}
    world.kubernetes.apply(waiting)
    for _ in range(14):
        world.cycle()
    assert [read_replicas(world, item) for item in (held, other)] == [1, 0], world.explain()


def test_nothing_is_taken_for_a_pending_pod_when_what_it_needs_besides_works_on_its_host(world: World) -> None:
    node = world.kubernetes.add_node()
    place = {"kubernetes.io/hostname": node}
    about = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}
    room = {RESOURCE: "2"}
    world.kubernetes.set_status(about, {"capacity": room, "allocatable": room})
    items = [start(world, name, selector=place, resource=RESOURCE) for name in ("a", "b")]
    [busy] = [
        each["metadata"]["name"]
        for each in world.kubernetes.list_pods(world.namespace)
        if each["metadata"]["name"].startswith("b")
    ]
    world.policies.policy = suspend_policy(on_pressure=True)
    world.rest(minutes=65)
    for _ in range(10):
        world.cycle()
    world.source.hosts = {busy: HostUse(cpu_cores=2.0)}
    waiting = pod("both", world.kubernetes.add_namespace("waiting"), gpus=2)
    waiting["spec"]["nodeSelector"] = place
    waiting["spec"]["containers"][0]["resources"] = {"limits": {RESOURCE: "2"}}
    world.kubernetes.apply(waiting)
    for _ in range(3):
        world.cycle()
        assert [read_replicas(world, item) for item in items] == [1, 1], world.explain()
    world.source.hosts = {}
    for _ in range(2):
        world.cycle()
    assert [read_replicas(world, item) for item in items] == [0, 0], world.explain()


def test_an_autoscaler_leaves_a_suspended_deployment_alone_and_goes_on_after_a_restore(world: World, node: str) -> None:
    item = start(world)
    scaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": world.namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 1,
            "maxReplicas": 3,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
                }
            ],
        },
    }
    path = f"/apis/autoscaling/v2/namespaces/{world.namespace}/horizontalpodautoscalers"
    world.kubernetes.request("POST", path, scaler)
    [action] = world.run_until_acted()

    def is_disabled() -> bool:
        status = world.kubernetes.request("GET", f"{path}/web").get("status", {})
        return any(each.get("reason") == "ScalingDisabled" for each in status.get("conditions") or ())

    wait_for(is_disabled, 90)
    assert read_replicas(world, item) == 0
    world.cycle()
    assert world.list_actions()[0].state is ActionState.VERIFIED
    world.reclaimer.restore(action.id, by="alice")
    assert read_replicas(world, item) == 1
