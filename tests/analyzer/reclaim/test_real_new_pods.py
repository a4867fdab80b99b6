"""A new pod is a new spell, on a real control plane: warnings, sightings and idle time belong to the uids of pods.

Metrics of dcgm-exporter name a pod without its uid and its start, so that one which was created again under the same
name, on the same GPU, looks like the one before.
"""

from datetime import UTC, datetime

import pytest

from gpusteward.analyzer.reclaim.execution.journal import ActionState
from gpusteward.analyzer.reclaim.plan import Outcome
from tests.analyzer.reclaim.world import World
from tests.analyzer.sources.owners.test_real_owners import make_set
from tests.kubernetes.cluster import Json, path_of, wait_for

pytestmark = pytest.mark.slow

POD = "/api/v1/namespaces/{}/pods/lab-0"


def start(world: World) -> Json:
    """A notebook as JupyterHub or a StatefulSet has it: its pod always has the same name."""
    item = make_set("StatefulSet", "lab", world.namespace)
    item["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    [created] = world.kubernetes.apply(item)
    world.kubernetes.wait_for_pods(world.namespace, 1)
    return created


def restart(world: World) -> str:
    """Its owner deletes the pod; the next one starts now, in the time of the world. Its uid."""
    [before] = world.kubernetes.list_pods(world.namespace)
    world.kubernetes.request("DELETE", POD.format(world.namespace))

    def is_new() -> bool:
        pods = world.kubernetes.list_pods(world.namespace)
        return any(
            each["metadata"]["uid"] != before["metadata"]["uid"] and each["status"].get("phase") == "Running"
            for each in pods
        )

    wait_for(is_new)
    [after] = world.kubernetes.list_pods(world.namespace)
    assert after["metadata"]["name"] == before["metadata"]["name"]
    set_start(world, datetime.fromtimestamp(world.now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    return str(after["metadata"]["uid"])


def set_start(world: World, at: str | None) -> None:
    path = f"{POD.format(world.namespace)}/status"
    body = {"status": {"startTime": at}}
    world.kubernetes.request("PATCH", path, body, media="application/merge-patch+json")


def read_replicas(world: World, item: Json) -> int:
    return int(world.kubernetes.request("GET", path_of(item))["spec"]["replicas"])


def warn(world: World) -> None:
    world.rest(minutes=65)
    for _ in range(2):
        world.cycle()
    assert world.sender.kinds() == ["warning"], world.explain()


@pytest.mark.parametrize("has_uids", [False, True])
def test_never_a_pod_that_was_created_again_after_the_warning(world: World, node: str, *, has_uids: bool) -> None:
    """Before, a notebook that its owner restarted was suspended 80 s later."""
    world.has_uids = has_uids
    item = start(world)
    warn(world)
    world.now += 1500
    uid = restart(world)
    if has_uids:
        world.started_at = world.now
    began = world.now
    while world.now < began + 3600:
        world.cycle()
        assert read_replicas(world, item) == 1, world.explain()
        assert world.sender.kinds() == ["warning"], "the new one has not been idle for its window"
    assert [each.state for each in world.list_actions()] == [ActionState.ENDED], world.explain()
    for _ in range(12):
        world.cycle()
    assert world.sender.kinds()[:2] == ["warning", "warning"]
    second, first = world.list_actions()
    assert second.pod_uids == {uid} != first.pod_uids
    assert second.acted_at is not None
    assert second.acted_at - began >= 3600 + 1800, "its own window, and its own grace period"
    assert read_replicas(world, item) == 0


def test_never_a_pod_whose_start_is_not_known(world: World, node: str) -> None:
    """The most is a notice."""
    world.has_uids = False
    item = start(world)
    set_start(world, None)
    world.rest(minutes=65)
    for _ in range(12):
        assert world.cycle() in ({"lab": Outcome.REFUSE}, {"lab-0": Outcome.REFUSE}), world.explain()
    assert "pods" in world.list_failed("lab")
    assert world.list_writes() == []
    assert world.sender.kinds() == []
    assert read_replicas(world, item) == 1
