"""Whole nodes: deterministic snapshots, and parts that add up to the whole."""

from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusteward.core.errors import ConfigurationError
from gpusteward.core.node.gpus import Place, Share
from gpusteward.core.node.usage_split import split_usage
from gpusteward.simulate.assembly import GpuPlan
from gpusteward.simulate.devices import WINDOW_SECONDS
from gpusteward.simulate.fleets import default_node, fleet
from gpusteward.simulate.ground_truth import allocation_key
from gpusteward.simulate.models import H100, MODELS
from gpusteward.simulate.nodes import SimulatedNode
from gpusteward.simulate.workloads import Kind
from tests.simulate.single_workload import (
    DAY,
    HOUR,
    KINDS_OF_ANY_FLEET,
    NOW,
    only_reading,
    single_application,
    single_workload_node,
)

NODES = [default_node(1), *fleet(10, seed=2)]
nodes = st.sampled_from(NODES)
moments = st.floats(NOW - 400 * DAY, NOW + 400 * DAY)


def test_the_same_seed_makes_the_same_node():
    assert default_node(7).snapshot(NOW) == default_node(7).snapshot(NOW)
    assert default_node(7).snapshot(NOW) != default_node(8).snapshot(NOW)


def test_the_order_of_snapshots_does_not_matter():
    moments = [NOW - 40 * DAY + 31_337.3 * number for number in range(80)]
    node = default_node(7)
    forth = {at: node.snapshot(at) for at in moments}
    back = {at: node.snapshot(at) for at in reversed(moments)}
    afresh = {at: default_node(7).snapshot(at) for at in moments[::10]}
    assert forth == back == back | afresh


@given(node=nodes, at=moments)
@settings(max_examples=150, deadline=None)
def test_memory_used_free_and_reserved_add_up_to_the_total(node, at):
    snapshot = node.snapshot(at)
    for reading in snapshot.readings:
        used, free = (reading.signals[f"memory_{name}_bytes"] for name in ("used", "free"))
        assert used + free + reading.signals["memory_reserved_bytes"] == reading.signals["memory_total_bytes"]
        assert free >= 0
        held = sum(each.memory_bytes for each in snapshot.processes if each.gpu_uuid == reading.gpu.uuid)
        assert reading.is_mig_parent or 0 <= used - held <= 64 << 20


@given(node=nodes, at=moments)
@settings(max_examples=150, deadline=None)
def test_processes_add_up_to_the_device(node, at):
    now, before = node.snapshot(at), node.snapshot(at - WINDOW_SECONDS)
    for reading in now.readings:
        ratios = ratios_on(now, reading.gpu.uuid)
        # A pod that ended within the window has left its work behind, but no process.
        if "utilization_mean_ratio" in reading.signals and ratios.keys() == ratios_on(before, reading.gpu.uuid).keys():
            off = abs(sum(ratios.values()) - reading.signals["utilization_mean_ratio"])
            assert off <= 0.005 * (len(ratios) + 1) + 1e-9


def ratios_on(snapshot, uuid):
    return {process.pid: process.sm_ratio for process in snapshot.processes if process.gpu_uuid == uuid}


@given(node=nodes, at=moments)
@settings(max_examples=150, deadline=None)
def test_divided_parts_add_up_to_the_device(node, at):
    snapshot = node.snapshot(at)
    splits = split_usage(snapshot)
    assert len(splits) == sum(not reading.is_mig_parent for reading in snapshot.readings)
    for split in splits:
        memory = [part.memory_bytes for part in split.parts]
        assert sum(memory) == pytest.approx(split.memory_used_bytes)
        if split.utilization_ratio is not None:
            ratios = [part.utilization_ratio or 0.0 for part in split.parts]
            assert sum(ratios) == pytest.approx(split.utilization_ratio)


@pytest.mark.parametrize("kind", [Kind.TRAINING, Kind.INFERENCE, Kind.STARVED, Kind.HUNG, Kind.PARKED, Kind.STALLED])
def test_energy_is_the_integral_of_power(kind):
    node = single_workload_node(kind, 5)
    readings = [only_reading(node, NOW + second).signals for second in range(601)]
    drawn = readings[-1]["energy_joules_total"] - readings[0]["energy_joules_total"]
    assert drawn == pytest.approx(600 * mean(each["power_watts"] for each in readings[1:]), abs=0.5)


def test_energy_is_the_integral_of_power_on_a_shared_gpu_and_with_mig():
    node = default_node(3)
    snapshots = [node.snapshot(NOW + second) for second in range(121)]
    for each in zip(*(snapshot.readings for snapshot in snapshots), strict=True):
        if each[0].gpu.mig is None:
            drawn = each[-1].signals["energy_joules_total"] - each[0].signals["energy_joules_total"]
            assert drawn == pytest.approx(sum(one.signals["power_watts"] for one in each[1:]), abs=0.5)


@given(node=nodes, at=moments, step=st.floats(0.001, 30 * DAY) | st.floats(0.001, 10))
@settings(max_examples=150, deadline=None)
def test_energy_grows_until_the_driver_is_loaded_again(node, at, step):
    if node.booted_at(at) != node.booted_at(at + step):
        return
    for before, after in zip(node.snapshot(at).readings, node.snapshot(at + step).readings, strict=True):
        if before.gpu.mig is None:
            assert after.signals["energy_joules_total"] > before.signals["energy_joules_total"] - 1e-9
            most = before.signals["energy_joules_total"] + node.model.power_limit_watts * step + 0.01
            assert after.signals["energy_joules_total"] <= most


def test_energy_starts_at_zero_when_the_driver_is_loaded():
    node = default_node(3)
    boot = node.booted_at(NOW)
    assert only_device(node, boot).signals["energy_joules_total"] == 0
    assert only_device(node, boot - 1).signals["energy_joules_total"] > 1e6


def only_device(node, at):
    return node.snapshot(at).readings[0]


@given(node=nodes, at=moments)
@settings(max_examples=100, deadline=None)
def test_every_allocation_has_a_truth_and_every_truth_an_allocation(node, at):
    keys = [allocation_key(allocation) for allocation in node.snapshot(at).allocations]
    assert set(keys) == set(node.truths(at))
    assert len(keys) == len(set(keys))


@given(node=nodes, at=moments)
@settings(max_examples=100, deadline=None)
def test_processes_are_in_containers_that_hold_their_gpu(node, at):
    snapshot = node.snapshot(at)
    claims = {(allocation.gpu_uuid, allocation.container) for allocation in snapshot.allocations}
    for process in snapshot.processes:
        if process.place is Place.CONTAINER:
            assert (process.gpu_uuid, process.container) in claims
            assert process.pod_uid == process.container.pod_uid
            assert len(process.container_id) == 64
        else:
            assert process.name == "nvidia-cuda-mps-server"
    assert all(allocation.container.started_at <= at for allocation in snapshot.allocations)


@given(seed=st.integers(0, 1000), at=moments)
@settings(max_examples=50, deadline=None)
def test_the_default_node_always_shows_every_sharing_mode_and_every_kind_of_workload(seed, at):
    node = default_node(seed)
    snapshot = node.snapshot(at)
    assert {allocation.share for allocation in snapshot.allocations} == set(Share)
    assert {truth.kind for truth in node.truths(at).values()} == KINDS_OF_ANY_FLEET
    assert sum(reading.gpu.mig is None for reading in snapshot.readings) == 8
    assert [reading.gpu.index for reading in snapshot.readings if reading.is_mps] == [4]


def test_allocations_have_the_values_of_their_sharing_system():
    found = {allocation.share: allocation for node in NODES for allocation in node.snapshot(NOW).allocations}
    assert found[Share.EXCLUSIVE].resource == "nvidia.com/gpu"
    assert found[Share.EXCLUSIVE].memory_limit_bytes is None
    assert found[Share.MIG].resource.startswith("nvidia.com/mig-1g.")
    assert found[Share.TIME_SLICED].replica.isdigit()
    assert found[Share.TIME_SLICED].memory_limit_bytes is None
    assert all(found[share].memory_limit_bytes for share in (Share.MPS, Share.HAMI, Share.RATIO, Share.FRACTION))
    assert 0 < found[Share.HAMI].core_limit_ratio <= 1


def test_replicas_of_a_time_sliced_gpu_have_different_numbers():
    snapshot = default_node(1).snapshot(NOW)
    sliced = [each for each in snapshot.allocations if each.share is Share.TIME_SLICED]
    assert len({each.gpu_uuid for each in sliced}) == 1
    assert [each.replica for each in sliced] == ["0", "1", "2", "3"]


def test_memory_of_a_pod_stays_below_its_limit():
    for node in NODES:
        snapshot = node.snapshot(NOW)
        for allocation in snapshot.allocations:
            held = sum(
                each.memory_bytes
                for each in snapshot.processes
                if (each.container, each.gpu_uuid) == (allocation.container, allocation.gpu_uuid)
            )
            assert allocation.memory_limit_bytes is None or held <= allocation.memory_limit_bytes


@pytest.mark.parametrize("count", [0, 17])
def test_a_node_has_one_to_sixteen_gpus(count):
    with pytest.raises(ConfigurationError, match="plan 1 to 16"):
        SimulatedNode("n", [GpuPlan()] * count, model=H100, seed=1)


def test_sixteen_free_gpus_are_sixteen_idle_readings():
    snapshot = SimulatedNode("n", [GpuPlan()] * 16, model=MODELS["l4"], seed=1).snapshot(NOW)
    assert [reading.gpu.index for reading in snapshot.readings] == list(range(16))
    assert {reading.signals["utilization_ratio"] for reading in snapshot.readings} == {0}
    assert len({reading.gpu.pci_bus_id for reading in snapshot.readings}) == 16


def rates_of_host_use(kind: Kind, seed: int, *, at: float = NOW, seconds: float = HOUR) -> tuple[float, float, float]:
    """CPU, disk and network of the only pod per second."""
    node = single_workload_node(kind, seed)
    (before,), (after,) = (node.snapshot(moment).pod_host_use for moment in (at, at + seconds))
    assert before.pod == after.pod
    pairs = ((each.cpu_seconds, each.disk_bytes, each.network_bytes) for each in (before, after))
    cpu, disk, network = ((end or 0) - (start or 0) for start, end in zip(*pairs, strict=True))
    return cpu / seconds, disk / seconds, network / seconds


def is_one_pod(kind: Kind, seed: int) -> bool:
    """Whether the pod at NOW runs for the next hour, and an hour already."""
    lifetimes = single_application(kind, seed).lifetimes
    into = (NOW - lifetimes.phase) % lifetimes.period
    return HOUR < into < lifetimes.duration - 2 * HOUR


@pytest.mark.parametrize("kind", [Kind.TRAINING, Kind.STARVED])
def test_a_working_pod_uses_cpu_disk_and_network_of_its_node(kind: Kind):
    seed = next(seed for seed in range(100) if is_one_pod(kind, seed))
    cpu, disk, network = rates_of_host_use(kind, seed)
    assert 1 < cpu < 32
    assert 1e6 < disk < 1e9
    assert 1e6 < network < 1e9


@pytest.mark.parametrize("kind", [Kind.PARKED, Kind.EMPTY, Kind.KEEP_ALIVE])
def test_an_idle_pod_uses_next_to_nothing_of_its_node(kind: Kind):
    seed = next(seed for seed in range(100) if is_one_pod(kind, seed))
    cpu, disk, network = rates_of_host_use(kind, seed)
    assert 0 < cpu < 0.1
    assert disk == 0
    assert 0 < network < 1000


@given(node=nodes, at=moments, later=st.floats(0, 40 * DAY))
@settings(max_examples=100, deadline=None)
def test_the_host_use_of_a_pod_never_decreases(node, at, later):
    before, after = ({each.pod: each for each in node.snapshot(each).pod_host_use} for each in (at, at + later))
    for pod in before.keys() & after.keys():
        first, second = before[pod], after[pod]
        assert 0 <= first.cpu_seconds <= second.cpu_seconds
        assert 0 <= first.disk_bytes <= second.disk_bytes
        assert 0 <= first.network_bytes <= second.network_bytes
