"""What reclaim never does, on a real control plane."""

import pytest

from gpusteward.analyzer.reclaim.plan import ActionState, Outcome
from tests.analyzer.reclaim.world import World
from tests.analyzer.sources.owners.test_real_owners import make_set
from tests.kubernetes.cluster import Json

pytestmark = pytest.mark.slow


def start_deployment(world: World, name: str = "web", *, replicas: int = 1, gpus: int = 1) -> Json:
    item = make_set("Deployment", name, world.namespace)
    item["spec"]["replicas"] = replicas
    item["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    [created] = world.kubernetes.apply(item)
    world.kubernetes.wait_for_pods(world.namespace, replicas)
    return created


def read_replicas(world: World, item: Json) -> int:
    from tests.kubernetes.cluster import path_of

    return int(world.kubernetes.request("GET", path_of(item))["spec"]["replicas"])


def test_an_idle_deployment_is_warned_about_and_then_suspended(world: World, node: str) -> None:
    item = start_deployment(world)
    world.rest(minutes=65)
    assert world.cycle() == {"web": Outcome.WAIT}, world.explain()
    assert world.cycle() == {"web": Outcome.WARN}, world.explain()
    assert world.sender.kinds() == ["warning"]
    assert read_replicas(world, item) == 1
    acted = world.run_until_acted()
    assert [each.state for each in acted] == [ActionState.ACTED]
    assert read_replicas(world, item) == 0
