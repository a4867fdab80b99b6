"""Several clusters on one ledger, on a real control plane: an analyzer that does not lead the ledger gives back in its
own cluster, and begins nothing."""

from pathlib import Path

import pytest

from gpusteward.analyzer.reclaim.execution.journal import Action, ActionState, ReclaimError
from gpusteward.analyzer.reclaim.kinds.objects import ACTION
from gpusteward.core.errors import SourceError
from gpusteward.core.node.containers import WorkloadKey
from tests.analyzer.reclaim.test_real_giving_back import MODES, list_costs, lower, start_pool
from tests.analyzer.reclaim.test_real_prohibitions import patch, read_replicas, start
from tests.analyzer.reclaim.world import World, read_rules
from tests.analyzer.usage_tables import working
from tests.kubernetes.cluster import Cluster, Json, path_of, wait_for

pytestmark = pytest.mark.slow


class Killed(BaseException):
    """The process ends here."""


def lose_ledger(world: World, mode: str = "enforce") -> None:
    """From now on the analyzer of another cluster leads the ledger; this one was restarted."""
    world.settings = world.make_settings(mode)
    world.on_step = lambda _step, _action: None
    world.leads = False
    world.minutes = dict(world.result.pools) if world.result else {}  # it recorded them until now
    world.start()


def act_and_restore(world: World) -> None:
    [action] = world.run_until_acted()
    world.reclaimer.restore(action.id, by="alice")


def read_lease(world: World) -> Json:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{world.own}/leases/gpusteward-reclaim"
    return dict(world.kubernetes.request("GET", path)["spec"])


@pytest.mark.parametrize("mode", MODES)
def test_a_lowered_pool_is_scaled_up_again_by_an_analyzer_that_does_not_lead_the_ledger(
    world: World, node: str, mode: str
) -> None:
    item, _ = start_pool(world)
    lower(world)
    wait_for(lambda: len(world.kubernetes.list_pods(world.namespace)) == 4)
    lose_ledger(world, mode)
    world.cycle()
    assert world.reclaimer.suspended == (1, 2.0)
    world.rows = {each["metadata"]["name"]: working() for each in world.kubernetes.list_pods(world.namespace)}
    world.cycle()
    assert read_replicas(world, item) == 6, world.explain()
    assert world.list_actions()[0].state is ActionState.RESTORED
    assert list_costs(world) == {}
    assert world.reclaimer.suspended == (0, 0.0)


@pytest.mark.parametrize("step", ["journalled", "patched", "restoring"])
def test_an_interrupted_action_is_continued_by_an_analyzer_that_does_not_lead_the_ledger(
    kubernetes: Cluster, tmp_path: Path, node: str, step: str
) -> None:
    def end(reached: str, _action: Action) -> None:
        if reached == step:
            raise Killed

    world = World(kubernetes, tmp_path, on_step=end)
    item = start(world)
    with pytest.raises(Killed):
        act_and_restore(world)
    lose_ledger(world)
    for _ in range(3):
        world.cycle()
    [action] = world.list_actions()
    states = {"journalled": ActionState.WARNED, "patched": ActionState.VERIFIED, "restoring": ActionState.RESTORED}
    assert action.state is states[step], world.explain()
    assert read_replicas(world, item) == (0 if step == "patched" else 1)
    world.close()


def test_a_revert_is_noticed_by_an_analyzer_that_does_not_lead_the_ledger(world: World, node: str) -> None:
    item = start(world)
    world.run_until_acted()
    lose_ledger(world)
    patch(world, item, {"spec": {"replicas": 1}})
    world.cycle()
    assert [each.state for each in world.list_actions()] == [ActionState.REVERTED]
    assert ACTION not in world.kubernetes.request("GET", path_of(item))["metadata"].get("annotations", {})


def test_a_restored_workload_is_followed_by_an_analyzer_that_does_not_lead_the_ledger(world: World, node: str) -> None:
    start(world)
    [action] = world.run_until_acted()
    lose_ledger(world)
    assert world.reclaimer.restore(action.id, by="alice").waiting_gpus == 1.0
    wait_for(lambda: len(world.kubernetes.list_pods(world.namespace)) == 1)
    world.kubernetes.wait_for_pods(world.namespace, 1)
    world.cycle()
    assert [each.waiting_gpus for each in world.list_actions()] == [None]


def test_never_begins_anything_while_it_does_not_lead_the_ledger(world: World, node: str) -> None:
    """Neither a warning, nor what was warned about before, nor what a person asks for."""
    warned = start(world, "warned")
    world.rest(minutes=75)
    for _ in range(3):
        world.cycle()
    assert world.sender.kinds() == ["warning"]
    lose_ledger(world)
    start(world, "new")
    for _ in range(24):
        world.cycle()
    assert world.sender.kinds() == ["warning"]
    assert world.list_writes() == []
    assert read_replicas(world, warned) == 1
    assert world.reclaimer.last_plan is None
    with pytest.raises(ReclaimError):
        world.reclaimer.suspend(WorkloadKey("Deployment", world.namespace, "warned"), by="alice")


def test_never_continues_what_another_analyzer_of_the_cluster_holds_the_lease_for(world: World, node: str) -> None:
    """Two analyzers of one cluster: the one that leads the ledger, and acts, and a reader."""
    item, _ = start_pool(world)
    lower(world)
    wait_for(lambda: len(world.kubernetes.list_pods(world.namespace)) == 4)
    world.rows = {each["metadata"]["name"]: working() for each in world.kubernetes.list_pods(world.namespace)}
    before, leader = world.list_actions(), world.reclaimer
    lose_ledger(world)
    world.start(holder="analyzer-1")
    world.cycle()
    assert read_replicas(world, item) == 4
    assert world.list_actions() == before
    assert world.reclaimer.suspended is None, "the leader counts it"
    leader.reclaim(world.judge())
    assert read_replicas(world, item) == 6


def test_a_reader_does_not_keep_the_lease_from_the_analyzer_that_may_act(world: World, node: str) -> None:
    start(world)
    [action] = world.run_until_acted()
    leader = world.reclaimer
    leader.close()  # it is restarted, and the reader was faster
    lose_ledger(world)
    world.start(holder="analyzer-1")
    world.cycle()
    assert not read_lease(world).get("holderIdentity")
    world.leads = True
    world.start(holder="analyzer-2")
    world.cycle()
    assert read_lease(world)["holderIdentity"] == "analyzer-2"
    assert world.reclaimer.describe()["is_holder"]
    assert world.list_actions()[0].id == action.id


def test_what_is_open_in_other_clusters_costs_no_lease(
    world: World, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(world)
    world.run_until_acted()
    lose_ledger(world)
    monkeypatch.setattr(world.cluster, "_uid", "another-cluster")
    before = read_lease(world)
    world.cycle()
    assert read_lease(world) == before
    assert world.reclaimer.suspended == (0, 0.0)


def test_says_so_where_open_actions_cannot_be_continued_for_want_of_a_right(world: World, node: str) -> None:
    start(world)
    world.run_until_acted()
    readers = [*read_rules(), {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}]
    without = world.kubernetes.add_account(world.own, readers)
    lose_ledger(world)
    world.start(account=without)
    with pytest.raises(SourceError, match="leases"):
        world.cycle()
    assert "leases" in str(world.reclaimer.describe()["error"])
