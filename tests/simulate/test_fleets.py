"""Properties of simulated fleets."""

from collections import defaultdict
from functools import cache

from gpusteward.core.node.gpus import Share
from gpusteward.core.node.signals import PROFILING
from gpusteward.core.node.snapshots import Snapshot
from gpusteward.simulate.fleets import STALLED_SECONDS, fleet
from gpusteward.simulate.models import MODELS
from gpusteward.simulate.nodes import SimulatedNode
from gpusteward.simulate.workloads import START_DISK_BYTES, Kind
from tests.simulate.single_workload import DAY, HOUR, KINDS_OF_ANY_FLEET, NOW

FLEET = fleet(40, seed=1)


@cache
def snapshots(nodes: int = 40) -> list[Snapshot]:
    return [node.snapshot(NOW) for node in fleet(nodes, seed=1)]


def test_the_same_seed_makes_the_same_fleet():
    assert [node.snapshot(NOW) for node in fleet(12, seed=1)] == snapshots()[:12]
    assert [node.snapshot(NOW) for node in fleet(12, seed=2)] != snapshots()[:12]


def test_a_fleet_has_every_model_sharing_mode_and_kind_of_workload():
    assert {node.model.name for node in FLEET} == {model.name for model in MODELS.values()}
    assert {allocation.share for each in snapshots() for allocation in each.allocations} == set(Share)
    assert {truth.kind for node in FLEET for truth in node.truths(NOW).values()} == KINDS_OF_ANY_FLEET


def test_ten_nodes_already_show_every_sharing_mode_and_kind_within_a_week():
    few = fleet(10, seed=9)
    moments = [NOW + number * DAY for number in range(7)]
    assert {one.share for node in few for at in moments for one in node.snapshot(at).allocations} == set(Share)
    assert {truth.kind for node in few for at in moments for truth in node.truths(at).values()} == KINDS_OF_ANY_FLEET


def test_many_teams_deploy_in_many_ways():
    containers = [allocation.container for each in snapshots() for allocation in each.allocations]
    assert len({container.namespace for container in containers}) >= 6
    kinds = {container.workload.kind for container in containers}
    assert kinds == {"Deployment", "StatefulSet", "Notebook", "Job", "PyTorchJob"}
    assert all(dict(container.pod_labels)["team"] for container in containers)


def test_node_names_and_uuids_are_unique():
    assert len({each.node for each in snapshots(200)}) == 200
    uuids = [reading.gpu.uuid for each in snapshots(200) for reading in each.readings]
    assert len(uuids) == len(set(uuids))


def test_pids_are_unique_and_below_the_limit_of_the_kernel():
    pids = [process.pid for each in snapshots(200) for process in each.processes]
    assert len(pids) == len(set(pids))
    assert 1 < min(pids) < max(pids) < 4_194_304


def test_pods_are_unique_and_stay_on_one_node():
    nodes_of = defaultdict(set)
    names_of = defaultdict(set)
    for each in snapshots(200):
        for allocation in each.allocations:
            container = allocation.container
            nodes_of[container.pod_uid].add(each.node)
            names_of[container.namespace, container.pod].add(container.pod_uid)
    assert all(len(found) == 1 for found in nodes_of.values())
    assert all(len(found) == 1 for found in names_of.values())


def test_some_workloads_span_several_gpus_and_several_nodes():
    gpus_of, nodes_of = defaultdict(set), defaultdict(set)
    for number in range(3):  # between two runs of a job there is a gap
        for node in FLEET:
            for allocation in node.snapshot(NOW + number * DAY).allocations:
                gpus_of[allocation.container.workload].add(allocation.gpu_uuid)
                nodes_of[allocation.container.workload].add(node.name)
    big = [workload for workload, nodes in nodes_of.items() if len(nodes) == 2 and len(gpus_of[workload]) == 16]
    assert any(workload.kind == "PyTorchJob" for workload in big)
    spread = [workload for workload, nodes in nodes_of.items() if workload.kind == "Deployment" and len(nodes) > 1]
    assert spread


def test_ranks_of_one_job_start_and_stop_together():
    first, second = FLEET[0], FLEET[1]
    for number in range(200):
        at = NOW + number * DAY / 7
        assert len(first.snapshot(at).allocations) == len(second.snapshot(at).allocations)


def test_a_fleet_changes_with_time_but_long_lived_pods_stay():
    def pods(at: float) -> set[str]:
        return {one.container.pod_uid for node in FLEET for one in node.snapshot(at).allocations}

    now, soon, later = pods(NOW), pods(NOW + DAY), pods(NOW + 60 * DAY)
    assert len(now & soon) > 0.7 * len(now)
    assert not now & later


def test_everybody_works_in_one_or_two_namespaces():
    namespaces: dict[str, set[str]] = {}
    for node in FLEET:
        for allocation in node.snapshot(NOW).allocations:
            namespaces.setdefault(allocation.container.user, set()).add(allocation.container.namespace)
    assert max(map(len, namespaces.values())) <= 2
    assert len(namespaces) > 10


def test_a_personal_workload_is_named_after_its_user():
    containers = [allocation.container for node in FLEET for allocation in node.snapshot(NOW).allocations]
    personal = [each for each in containers if each.workload and each.workload.name.startswith(("lab-", "workbench-"))]
    named = [each for each in personal if each.workload.name.split("-")[1] not in ("unused", "overnight")]
    assert named
    assert all(each.workload.name.split("-")[1] == each.user for each in named)


def test_a_demo_adds_two_workloads_and_changes_no_other():
    plain, demo = (
        {allocation.container.pod: allocation for node in nodes for allocation in node.snapshot(NOW).allocations}
        for nodes in (fleet(10, 7), fleet(10, 7, demo_at=NOW))
    )
    assert plain.items() <= demo.items()
    started = sorted(demo[pod].container.started_at for pod in demo.keys() - plain.keys())
    assert len(started) == 2
    assert started[-1] == round(NOW - 60)


def test_the_second_group_of_a_demo_has_a_pair_of_pods():
    snapshots = [node.snapshot(NOW) for node in fleet(20, 7, demo_at=NOW)]
    [(held, taken)] = [(one, each) for each in snapshots for one in each.allocations if one.used_by]
    running = [one for one in taken.processes if one.gpu_uuid == held.gpu_uuid]
    assert running
    for process in running:
        assert process.container.pod == held.used_by != held.container.pod
        assert process.container.namespace == held.container.namespace
        assert process.pod_uid == process.container.pod_uid != held.container.pod_uid
        assert (process.works_for, process.outside_allocation) == (held.container, False)
    assert not any(one.container.pod == held.used_by for each in snapshots for one in each.allocations)
    plain = [node.snapshot(NOW) for node in fleet(20, 7)]
    assert not any(one.used_by for each in plain for one in each.allocations)
    assert not any(one.works_for for each in plain for one in each.processes)


def find_stalled_node() -> SimulatedNode:
    kinds = {each: {truth.kind for truth in each.truths(NOW).values()} for each in fleet(20, 7, demo_at=NOW)}
    [node] = [each for each, found in kinds.items() if Kind.STALLED in found]
    assert kinds[node] == {Kind.STALLED}
    return node


def test_the_second_group_of_a_demo_has_a_job_whose_gpus_spin_at_little_power_while_one_is_silent():
    node = find_stalled_node()
    snapshot = node.snapshot(NOW)
    assert len({one.container for one in snapshot.allocations}) == 1
    signals = [reading.signals for reading in snapshot.readings]
    assert sorted(each["utilization_ratio"] for each in signals) == [0] + 7 * [1]
    idle = node.model.idle_watts + node.model.context_watts
    links = (f"{link}_{way}_bytes_per_second" for link in ("pcie", "nvlink") for way in ("rx", "tx"))
    names = ("memory_copy_ratio", "dram_ratio", "tensor_ratio", "fp32_ratio", *links)
    for each in signals:
        is_spinning = each["utilization_ratio"] == 1
        assert 10 * is_spinning <= each["power_watts"] - idle <= 40 * is_spinning, "as published nvidia-smi outputs"
        assert each["sm_clock_hertz"] == each["max_sm_clock_hertz"]
        assert each["sm_active_ratio"] == (0.15 if is_spinning else 0)
        assert not any(each[name] for name in names)
    [host] = snapshot.pod_host_use
    assert host.cpu_seconds > 7 * 2 * DAY, "threads of NCCL ask all the time"
    assert host.disk_bytes == START_DISK_BYTES, "nothing since it started"
    used = [
        [one.signals["memory_used_bytes"] for one in node.snapshot(NOW + HOUR * hour).readings] for hour in range(5)
    ]
    assert all(each == used[0] for each in used)


def test_the_stalled_job_of_the_demo_was_training_before_it_was_restarted():
    node = find_stalled_node()
    before = node.snapshot(NOW - STALLED_SECONDS - HOUR)
    now = node.snapshot(NOW)
    assert all(one.signals["power_watts"] > 0.7 * node.model.power_limit_watts for one in before.readings)
    workloads = {one.container.workload for one in (*before.allocations, *now.allocations)}
    assert len(before.allocations) == len(now.allocations) == 8
    assert len(workloads) == 2, "a run each"
    assert len({each.name.rpartition("-")[0] for each in workloads}) == 1


def test_in_the_demo_every_second_node_with_instances_has_a_hostengine():
    plain, demo = fleet(20, seed=1), fleet(20, seed=1, demo_at=NOW - 14 * DAY)
    known = {}
    for before, after in zip(plain, demo, strict=True):
        readings = zip(before.snapshot(NOW).readings, after.snapshot(NOW).readings, strict=True)
        for old, new in ((old, new) for old, new in readings if old.gpu.mig and not before.model.has_gpm):
            known[after.name] = PROFILING & new.signals.keys()
            assert not PROFILING & old.signals.keys()
            assert {name: value for name, value in new.signals.items() if name not in PROFILING} == old.signals
    assert [bool(signals) for signals in known.values()] == [True, False], "two A100 nodes"
