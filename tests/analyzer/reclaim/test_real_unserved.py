"""A kind whose API version is not served any more while an object of it is suspended, on a real control plane."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpusteward.analyzer.reclaim.execution.journal import ActionState, ReclaimError
from gpusteward.analyzer.reclaim.kinds.objects import ACTION
from gpusteward.core.kinds import KINDS
from tests.analyzer.reclaim.custom_kinds import add_pods, create, custom
from tests.analyzer.reclaim.world import World
from tests.kubernetes.cluster import ApiError, Cluster, Json, path_of, wait_for

pytestmark = pytest.mark.slow

GROUP, KIND = "kaiwo.silogen.ai", "KaiwoJob"
"""Of no other test: custom resource definitions belong to the whole cluster."""


@pytest.fixture(autouse=True)
def kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the world, whose account has the rights of all kinds."""
    kind = replace(KINDS["ray.io", "RayCluster"], group=GROUP, name=KIND)
    monkeypatch.setitem(KINDS, (GROUP, KIND), kind)  # type: ignore[arg-type]


def serve(cluster: Cluster, **versions: bool) -> None:
    """The definition with these versions, of which some are served. Returns when the server does."""
    plural, everything = f"{KIND.lower()}s", {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": KIND.lower(), "kind": KIND, "listKind": f"{KIND}List"},
            "versions": [
                {"name": name, "served": served, "storage": name == "v1", "schema": {"openAPIV3Schema": everything}}
                for name, served in versions.items()
            ],
        },
    }
    cluster.apply(definition)

    def is_served(version: str) -> bool:
        try:
            cluster.request("GET", f"/apis/{GROUP}/{version}/namespaces/default/{plural}")
        except ApiError:
            return False
        return True

    wait_for(lambda: {name: is_served(name) for name in versions} == versions)


@pytest.fixture
def job(kubernetes: Cluster, node: str, world: World) -> Iterator[Json]:
    """A job whose pods run. Its owner made it in v1beta1."""
    serve(kubernetes, v1=True, v1beta1=True)
    item = create(kubernetes, custom(f"{GROUP}/v1beta1", KIND, "train", world.namespace, {"image": "cuda"}))
    add_pods(kubernetes, item)
    kubernetes.wait_for_pods(world.namespace, 2)
    yield item
    serve(kubernetes, v1=True, v1beta1=True)


def test_never_closes_the_action_of_an_object_whose_version_is_not_served_any_more(
    kubernetes: Cluster, world: World, job: Json
) -> None:
    [action] = world.run_until_acted()
    serve(kubernetes, v1=False, v1beta1=False)
    for _ in range(3):
        world.cycle()
    assert [each.state for each in world.list_actions()] == [ActionState.ACTED], world.explain()
    with pytest.raises(ReclaimError, match=f"404.*kubectl patch kaiwojobs.{GROUP} train"):
        world.reclaimer.restore(action.id, by="alice")
    assert [each.is_open for each in world.list_actions()] == [True]
    serve(kubernetes, v1=True, v1beta1=True)
    restored = world.reclaimer.restore(action.id, by="alice")
    assert restored.state is ActionState.RESTORED
    assert "suspend" not in kubernetes.request("GET", path_of(job))["spec"]


def test_restores_in_another_version_what_was_suspended_in_one_that_was_dropped(
    kubernetes: Cluster, world: World, job: Json
) -> None:
    [action] = world.run_until_acted()
    assert action.target is not None
    assert "/v1beta1/" in action.target.path
    serve(kubernetes, v1=True, v1beta1=False)
    world.cycle()
    assert [each.state for each in world.list_actions()] == [ActionState.ACTED], world.explain()
    assert world.reclaimer.restore(action.id, by="alice").state is ActionState.RESTORED
    after = kubernetes.request("GET", path_of({**job, "apiVersion": f"{GROUP}/v1"}))
    assert after["spec"] == {"image": "cuda"}
    assert ACTION not in (after["metadata"].get("annotations") or {})


def test_an_object_that_was_deleted_ends_its_action_also_where_its_version_was_dropped(
    kubernetes: Cluster, world: World, job: Json
) -> None:
    world.run_until_acted()
    kubernetes.delete(job)
    serve(kubernetes, v1=True, v1beta1=False)
    world.cycle()
    assert [each.state for each in world.list_actions()] == [ActionState.ENDED], world.explain()
