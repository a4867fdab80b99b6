"""A workload that is stopped leaves its GPUs; started again it has new pods on them."""

import pytest

from gpusteward.core.node.containers import Workload
from gpusteward.simulate.fleets import create_load_application, fleet
from gpusteward.simulate.nodes import SimulatedNode
from tests.simulate.single_workload import NOW


def workloads(node: SimulatedNode, at: float) -> dict[Workload, set[str]]:
    """The pod uids of every workload."""
    found: dict[Workload, set[str]] = {}
    for each in node.ownerships(at):
        found.setdefault(each.allocation.container.workload, set()).add(each.allocation.container.pod_uid)
    return found


def stop(node: SimulatedNode, workload: Workload, at: float) -> SimulatedNode:
    return node.with_pods_of(workload, is_running=lambda _: False, at=at)


def start(node: SimulatedNode, workload: Workload, at: float) -> SimulatedNode:
    return node.with_pods_of(workload, is_running=lambda _: True, at=at)


@pytest.mark.parametrize("number", range(10))
def test_a_stopped_workload_leaves_its_gpus_and_comes_back_with_new_pods(number: int):
    node = fleet(10, 7)[number]
    before = workloads(node, NOW)
    for workload, pods in before.items():
        stopped = stop(node, workload, NOW)
        assert set(workloads(stopped, NOW + 1)) == set(before) - {workload}
        assert not any(each.container.workload == workload for each in stopped.snapshot(NOW + 1).allocations)
        again = start(stopped, workload, NOW + 600)
        assert workload not in workloads(again, NOW + 599)
        assert workloads(again, NOW + 601)[workload].isdisjoint(pods)
        container = next(
            each.allocation.container
            for each in again.ownerships(NOW + 601)
            if each.allocation.container.workload == workload
        )
        assert container.started_at == NOW + 600


def test_energy_never_falls_when_a_workload_is_stopped_and_started():
    node, at = fleet(1, 7)[0], NOW
    (workload,) = workloads(node, at)
    energies = []
    for change in (stop, start, stop, start):
        node = change(node, workload, at)
        for _ in range(3):
            at += 30
            energies.append(sum(each.signals["energy_joules_total"] for each in node.snapshot(at).readings))
    assert energies == sorted(energies)


def test_nothing_changes_for_a_workload_that_is_in_that_state_or_elsewhere():
    node = fleet(3, 7)[2]
    workload = next(iter(workloads(node, NOW)))
    assert start(node, workload, NOW) is node
    assert stop(node, Workload("Deployment", "a", "b"), NOW) is node
    stopped = stop(node, workload, NOW)
    assert stop(stopped, workload, NOW + 5) is stopped


def test_some_pods_of_a_workload_can_be_stopped():
    node = fleet(3, 7)[2]
    gateway = next(each for each, pods in workloads(node, NOW).items() if len(pods) == 2)
    one = node.with_pods_of(gateway, is_running=lambda ordinal: ordinal == 0, at=NOW)
    assert len(workloads(one, NOW + 1)[gateway]) == 1


def test_a_pod_waits_for_a_gpu_that_another_one_got_meanwhile():
    node = fleet(1, 7)[0]
    (workload,) = workloads(node, NOW)
    stopped = stop(node, workload, NOW)
    assert stopped.devices[0].is_free(NOW + 1, NOW + 60)
    lent = stopped.with_pod(0, create_load_application(1, ratio=0.5, since=NOW + 1, until=NOW + 60))
    again = start(lent, workload, NOW + 10)
    names = [each.allocation.container.workload.name for each in again.ownerships(NOW + 20) if each.gpu.index == 0]
    assert len(names) == 1
    assert names[0].startswith("gpu-load")
    assert [each.gpu.index for each in again.ownerships(NOW + 61)] == list(range(8))
