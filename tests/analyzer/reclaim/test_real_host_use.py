"""What pods do on their hosts holds warnings and actions back, on a real control plane."""

from pathlib import Path

import pytest

from gpusteward.analyzer.reclaim.execution.journal import ActionState, ReclaimError
from gpusteward.analyzer.reclaim.plan import Outcome
from gpusteward.analyzer.sources.live_readings import HostUse
from gpusteward.core.node.containers import WorkloadKey
from tests.analyzer.reclaim.test_real_freshness import wait_until_due
from tests.analyzer.reclaim.test_real_prohibitions import expect_nothing, read_replicas, start
from tests.analyzer.reclaim.test_real_whole_owner import start_ray_cluster
from tests.analyzer.reclaim.world import World, suspend_policy
from tests.kubernetes.cluster import Cluster, Json

pytestmark = pytest.mark.slow

CPU, DISK, NETWORK = HostUse(cpu_cores=1.5), HostUse(disk_bytes_per_second=5e6), HostUse(network_bytes_per_second=2e6)


def list_pods(world: World) -> set[str]:
    return {each["metadata"]["name"] for each in world.kubernetes.list_pods(world.namespace)}


def expect_refusals(world: World, item: Json, use: HostUse, signal: str) -> None:
    """Neither before the warning nor after it; when the work ends, it is acted on."""
    [pod] = list_pods(world)
    world.source.hosts = {pod: use}
    world.work()
    world.rest(minutes=75)
    for _ in range(3):
        world.cycle()
    assert world.sender.kinds() == [], world.explain()
    assert world.list_failed("web") == ["host", "warned"]
    assert world.reclaimer.describe()[f"refused_by_{signal}"] == 1
    world.source.hosts = {pod: HostUse(0.2, 5e3, 5e3)}
    world.cycle()
    assert world.sender.kinds() == ["warning"], world.explain()
    world.rest(minutes=35)
    world.source.hosts = {pod: use}
    for _ in range(3):
        assert world.cycle() == {"web": Outcome.REFUSE}, world.explain()
    assert world.list_failed("web") == ["host"]
    assert pod in world.decision("web").failed[0].reason.en
    assert (read_replicas(world, item), world.list_writes()) == (1, [])
    world.source.hosts = {}
    world.cycle()
    assert read_replicas(world, item) == 0, world.explain()
    assert world.reclaimer.describe()[f"refused_by_{signal}"] == 0


def test_never_warns_or_suspends_while_a_pod_uses_the_cpu(world: World, node: str) -> None:
    expect_refusals(world, start(world), CPU, "cpu")


def test_never_warns_or_suspends_while_a_pod_reads_or_writes_a_disk(world: World, node: str) -> None:
    expect_refusals(world, start(world), DISK, "disk")


def test_never_warns_or_suspends_while_a_pod_sends_or_receives(world: World, node: str) -> None:
    expect_refusals(world, start(world), NETWORK, "network")


def test_signals_that_are_not_there_do_not_refuse_and_the_journal_says_so(world: World, node: str) -> None:
    item = start(world, replicas=2)
    world.source.hosts = {min(list_pods(world)): HostUse(cpu_cores=0.1)}
    [action] = world.run_until_acted()
    assert read_replicas(world, item) == 0
    [answer] = [each for each in action.evidence["guards"] if each["guard"] == "host"]
    assert answer["passed"] is True
    assert "CPU: 0.10 cores (unknown of 1 of 2 pods); disk: unknown, no signal" in str(answer["reason"])


def test_never_while_hosts_cannot_be_read(world: World, node: str) -> None:
    """The signals may be there: the next cycle asks again."""
    item = start(world)
    world.source.host_failure = "connection refused"
    world.work()
    world.rest(minutes=75)
    expect_nothing(world, item, "host", cycles=4)
    assert world.sender.kinds() == []
    world.source.host_failure = ""
    world.run_until_acted()
    assert read_replicas(world, item) == 0


def test_never_while_a_pod_without_gpus_of_the_owner_works(world: World, node: str) -> None:
    item = start_ray_cluster(world)
    world.policies.policy = suspend_policy(stops_other_pods=True)
    world.source.hosts = {"one-head": CPU}
    world.work()
    world.rest(minutes=75)
    expect_nothing(world, item, "host", cycles=4)
    assert world.source.host_reads[-1] == list_pods(world)
    assert world.sender.kinds() == []


def test_all_that_are_due_are_read_in_one_call_and_a_refused_one_does_not_keep_others_back(
    world: World, node: str
) -> None:
    for name in ("web", "api"):
        start(world, name)
    pods = list_pods(world)
    wait_until_due(world, warnings=2)
    assert world.source.host_reads == [pods], "both warnings"
    world.source.hosts = {pod: CPU for pod in pods if pod.startswith("web")}
    outcomes = world.cycle()
    assert world.source.host_reads[1:] == [pods]
    assert outcomes == {"web": Outcome.REFUSE, "api": Outcome.ACT}, world.explain()


def test_a_person_is_refused_too_and_a_preview_says_why(world: World, node: str) -> None:
    item = start(world)
    [pod] = list_pods(world)
    world.work()
    world.rest(minutes=75)
    world.cycle()
    world.cycle()
    world.source.hosts = {pod: NETWORK}
    key = WorkloadKey("Deployment", world.namespace, "web")
    assert "host" in [each.guard for each in world.reclaimer.preview(key).failed]
    with pytest.raises(ReclaimError, match=r"network: 2\.00 MB/s"):
        world.reclaimer.suspend(key, by="anna")
    assert read_replicas(world, item) == 1
    world.source.hosts = {}
    assert world.reclaimer.suspend(key, by="anna").state is ActionState.ACTED


def test_observe_says_it_too(kubernetes: Cluster, tmp_path: Path, node: str) -> None:
    world = World(kubernetes, tmp_path, mode="observe")
    start(world)
    [pod] = list_pods(world)
    world.source.hosts = {pod: CPU}
    world.work()
    world.rest(minutes=75)
    world.cycle()
    world.cycle()
    assert world.list_failed("web") == ["host", "warned"]
    world.close()
