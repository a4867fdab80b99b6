"""An owner's server-side apply wins before, during and after a suspension, on a real control plane: we own no field."""

from pathlib import Path

import pytest

from gpusteward.analyzer.reclaim.cluster import DELETION_COST
from gpusteward.analyzer.reclaim.execution.journal import ActionState
from gpusteward.analyzer.reclaim.policies.pool_rule import KeepRule
from gpusteward.kubernetes.writes import FIELD_MANAGER
from tests.analyzer.reclaim.custom_kinds import add_pods, custom, define
from tests.analyzer.reclaim.test_real_recovery import Killed, Killer
from tests.analyzer.reclaim.world import World, pool_policy
from tests.analyzer.sources.owners.test_real_owners import make_job, make_set
from tests.kubernetes.cluster import Cluster, Json, path_of, wait_for

pytestmark = pytest.mark.slow

FIELDS = {"Deployment": "replicas", "Job": "suspend", "RayCluster": "suspend"}
"""By kind: the field that suspends it."""


def apply_as_owner(world: World, item: Json) -> Json:
    """Server-side, without force. Raises ApiError (409) where somebody else owns a field."""
    path = f"{path_of(item)}?fieldManager=owner"
    return world.kubernetes.request("PATCH", path, item, media="application/apply-patch+yaml")


def start_as_owner(world: World, kind: str) -> Json:
    """What the owner applies; its pods run."""
    if kind == "Deployment":
        item = make_set(kind, "one", world.namespace)
    elif kind == "Job":
        item = make_job("one", world.namespace)
        item["spec"]["suspend"] = False
    else:
        define(world.kubernetes, "ray.io", kind)
        item = custom("ray.io/v1", kind, "one", world.namespace, {"headGroupSpec": {}, "suspend": False})
    created = apply_as_owner(world, item)
    if kind == "RayCluster":
        add_pods(world.kubernetes, created, count=1)
    world.kubernetes.wait_for_pods(world.namespace, 1)
    return item


def list_managers(world: World, item: Json) -> set[str]:
    found = world.kubernetes.request("GET", path_of(item))["metadata"]["managedFields"]
    return {entry["manager"] for entry in found}


def read_field(world: World, item: Json) -> object:
    return world.kubernetes.request("GET", path_of(item))["spec"].get(FIELDS[item["kind"]])


@pytest.mark.parametrize("kind", FIELDS)
def test_an_owner_can_apply_before_and_during_a_suspension_and_that_is_a_revert(
    world: World, node: str, kind: str
) -> None:
    item = start_as_owner(world, kind)
    before = read_field(world, item)
    world.work()
    world.rest(minutes=75)
    world.cycle()
    world.cycle()
    assert world.sender.kinds() == ["warning"], world.explain()
    apply_as_owner(world, item)
    world.run_until_acted()
    assert read_field(world, item) != before
    assert FIELD_MANAGER not in list_managers(world, item)
    assert "owner" in list_managers(world, item), "the entries of others stay"
    apply_as_owner(world, item)
    assert read_field(world, item) == before
    world.cycle()
    assert len(world.list_actions(ActionState.REVERTED)) == 1, world.explain()
    assert FIELD_MANAGER not in list_managers(world, item), "nor do we own annotations that were taken off"


@pytest.mark.parametrize("kind", FIELDS)
def test_never_owns_a_field_after_a_restore(world: World, node: str, kind: str) -> None:
    item = start_as_owner(world, kind)
    [action] = world.run_until_acted()
    world.reclaimer.restore(action.id, by="alice")
    assert FIELD_MANAGER not in list_managers(world, item)
    wanted = 3 if kind == "Deployment" else True
    item["spec"][FIELDS[kind]] = wanted
    apply_as_owner(world, item)
    assert read_field(world, item) == wanted


@pytest.mark.parametrize("step", ["patched", "unpatched"])
def test_a_process_that_ends_right_after_its_patch_gives_the_fields_up_later(
    kubernetes: Cluster, tmp_path: Path, node: str, step: str
) -> None:
    world = World(kubernetes, tmp_path, on_step=Killer(step))
    item = start_as_owner(world, "Deployment")
    if step == "unpatched":
        [action] = world.run_until_acted()
        with pytest.raises(Killed):
            world.reclaimer.restore(action.id, by="alice")
    else:
        with pytest.raises(Killed):
            world.run_until_acted()
    assert FIELD_MANAGER in list_managers(world, item)
    world.start()
    for _ in range(2):
        world.cycle()
    assert FIELD_MANAGER not in list_managers(world, item)
    item["spec"]["replicas"] = 3
    apply_as_owner(world, item)
    assert read_field(world, item) == 3
    world.close()


def test_never_owns_the_deletion_costs_of_pods(world: World, node: str) -> None:
    item = make_set("Deployment", "pool", world.namespace)
    item["spec"]["replicas"] = 6
    world.kubernetes.apply(item)
    pods = world.kubernetes.wait_for_pods(world.namespace, 6)
    world.policies.policy = pool_policy(KeepRule(3600.0, headroom=1.25, patience_seconds=600.0))
    world.put_to_work(sorted(each["metadata"]["name"] for each in pods)[:2])
    found: list[Json] = []
    world.on_step = lambda step, _action: (
        found.extend(world.kubernetes.list_pods(world.namespace)) if step == "costs_set" else None
    )
    world.start()
    for _ in range(16):
        world.cycle()
    costly = [each for each in found if DELETION_COST in each["metadata"].get("annotations", {})]
    assert len(costly) == 2, world.explain()
    managers = {entry["manager"] for each in costly for entry in each["metadata"]["managedFields"]}
    assert FIELD_MANAGER not in managers
    wait_for(lambda: len(world.kubernetes.list_pods(world.namespace)) == 4)
