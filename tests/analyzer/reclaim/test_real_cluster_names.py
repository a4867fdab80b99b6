"""The name of a cluster is a label of its series, on a real control plane: it may appear or change at any time, and
what is known of a workload stays with it."""

from dataclasses import replace

import numpy as np
import pytest

from gpusteward.analyzer.reclaim.execution.journal import ActionState
from gpusteward.analyzer.reclaim.plan import Outcome
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.node.containers import Container, WorkloadKey
from gpusteward.core.usages import AllocationKey
from tests.analyzer.reclaim.test_real_giving_back import lower, read_replicas, start_pool
from tests.analyzer.reclaim.test_real_new_pods import start
from tests.analyzer.reclaim.world import EMPTY, World
from tests.analyzer.sources.owners.test_real_owners import make_set
from tests.analyzer.usage_tables import working
from tests.kubernetes.cluster import wait_for

pytestmark = pytest.mark.slow


def add_twin(world: World, cluster: str) -> None:
    """A pod of the same name in another cluster, whose series are in the same engine: it is idle."""
    twin = Container(world.namespace, "lab-0", "", "main", cluster=cluster)
    key = AllocationKey("GPU-west", "", twin, "west-1", "0", "NVIDIA H100", "exclusive")
    own = world.read_usage

    def read() -> UsageTable:
        table = own()
        values = {name: np.array([*table.stats.get(name, ()), value]) for name, value in EMPTY.items()}
        both = [*table.allocations, key]
        return replace(table, allocations=both, stats=values, coverage=np.ones(len(both)))

    world.read_usage = read  # type: ignore[method-assign]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_never_a_twin_of_an_idle_pod_in_another_cluster(world: World, node: str, *, is_restarted: bool) -> None:
    """East and west are in one Thanos, and the analyzer runs in east, with dcgm-exporter and without
    `kubernetes.cluster`. When the exporters of east were down for an hour, west was the only cluster: its pods were
    looked up in east, and the twin at work there was suspended."""
    world.has_uids, world.cluster_name = False, "east"
    item = start(world)
    world.put_to_work(["lab-0"])
    add_twin(world, "west")
    world.cycle()
    world.hidden.add("lab-0")  # the exporters of east
    if is_restarted:
        world.start()
    world.rest(minutes=65)
    for _ in range(12):
        assert Outcome.WARN not in world.cycle().values(), world.explain()
    assert world.result is not None
    codes = [one.code for one in world.result.verdicts.usage.findings]
    assert codes == ["pods-not-confirmed" if is_restarted else "owners-not-looked-up"]
    assert world.sender.kinds() == []
    assert world.list_writes() == []
    assert read_replicas(world, item) == 1


def test_never_a_twin_on_another_node_where_series_name_no_cluster(world: World, node: str) -> None:
    """West is also read, and only the pod on this node is ours."""
    world.has_uids = False
    item = start(world)
    [other] = world.kubernetes.apply(make_set("StatefulSet", "busy", world.namespace))
    world.kubernetes.wait_for_pods(world.namespace, 2)
    world.put_to_work(["busy-0"])
    world.hidden.add("lab-0")
    add_twin(world, "")
    world.rest(minutes=65)
    for _ in range(12):
        assert Outcome.WARN not in world.cycle().values(), world.explain()
    assert world.result is not None
    assert [one.code for one in world.result.verdicts.usage.findings] == ["pods-elsewhere"]
    assert world.list_writes() == []
    assert read_replicas(world, item) == read_replicas(world, other) == 1


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
    """Not within its cool-down."""
    item = start(world)
    [action] = world.run_until_acted()
    world.reclaimer.restore(action.id, by="alice")
    world.kubernetes.wait_for_pods(world.namespace, 1)
    world.cycle()
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
    wait_for(lambda: len(world.kubernetes.list_pods(world.namespace)) == 4)
    world.cycle()
    assert [each.state for each in world.list_actions()] == [ActionState.VERIFIED]
    assert read_replicas(world, item) == 4
    world.cluster_name = "prod"
    world.rows = {each["metadata"]["name"]: working() for each in world.kubernetes.list_pods(world.namespace)}
    world.cycle()
    assert read_replicas(world, item) == 6, world.explain()
    assert world.list_actions()[0].state is ActionState.RESTORED
