"""Values that a node cannot read are unknown, never 0, and the reason is logged once."""

import logging
from pathlib import Path

import pytest

from gpusteward.core.node.gpus import Share
from gpusteward.core.node.snapshots import Snapshot
from gpusteward.core.node.usage_split import Part, split_usage
from tests.agent.test_node_source import running_node
from tests.fakes.kubelet import dra_claim, response
from tests.fakes.machine_examples import exclusive, mig, time_sliced
from tests.fakes.nvml_library import FakeNvml
from tests.fakes.nvml_scenarios import no_driver
from tests.waiting import wait_until


def held_parts(snapshot: Snapshot) -> dict[str, Part]:
    """The part of every pod that holds a GPU."""
    holders = {allocation.container for allocation in snapshot.allocations}
    parts = [part for split in split_usage(snapshot) for part in split.parts]
    return {part.container.pod: part for part in parts if part.container and part.container in holders}


def test_without_the_api_server_sharers_of_a_busy_gpu_are_unknown_not_idle(fake_nvml: FakeNvml, tmp_path: Path):
    machine = time_sliced()
    fake_nvml.load(machine.scenario)
    with running_node(machine, tmp_path, watch_pods=False) as node:
        parts = held_parts(node.read())
    assert parts.keys() == {"api-7d9f8b6c5d-x2x4k", "batch-x", "silent-0"}
    for part in parts.values():
        assert (part.utilization_ratio, part.memory_bytes, part.power_watts) == (None, None, None)


def test_processes_that_nvml_hides_leave_sharers_unknown_not_idle(fake_nvml: FakeNvml, tmp_path: Path):
    machine = time_sliced()
    machine.scenario.gpus[0].lines.clear()  # as in a container without hostPID
    fake_nvml.load(machine.scenario)
    with running_node(machine, tmp_path) as node:
        snapshot = node.read()
    assert {part.utilization_ratio for part in held_parts(snapshot).values()} == {None}
    assert [failure.collector for failure in snapshot.failures] == ["processes"]


def test_a_proc_mount_without_the_gpu_processes_is_a_failure(fake_nvml: FakeNvml, tmp_path: Path):
    machine = time_sliced()
    fake_nvml.load(machine.scenario)
    for pod in machine.pods:
        pod.pids = []
    machine.host_pids = []
    with running_node(machine, tmp_path) as node:
        snapshot = node.read()
    assert [failure.collector for failure in snapshot.failures] == ["proc"]
    assert "hostPID" in snapshot.failures[0].reason


def test_known_pods_are_used_while_the_api_server_is_down_and_a_failure_is_recorded(
    fake_nvml: FakeNvml, tmp_path: Path
):
    machine = exclusive()
    fake_nvml.load(machine.scenario)
    with running_node(machine, tmp_path) as node:
        watch = node.pods
        assert watch is not None
        wait_until(lambda: node.running.api.open_watches == 1)
        with node.running.api.down():
            wait_until(lambda: watch.failure is not None)
            away = node.read()
        assert [failure.collector for failure in away.failures] == ["pods"]
        assert {allocation.container.pod_uid for allocation in away.allocations} <= watch.pods.keys()


def test_an_unresolved_device_id_is_logged_once(fake_nvml: FakeNvml, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "gpusteward")
    machine = exclusive()
    machine.pods[1].gpus = ["GPU-of-another-node"]
    fake_nvml.load(machine.scenario)
    with running_node(machine, tmp_path) as node:
        for _cycle in range(4):
            node.read()
    events = [record.message for record in caplog.records if record.message.startswith("collector_")]
    assert events == ["collector_failed"]


def test_without_a_driver_device_ids_are_not_reported_as_unresolved(fake_nvml: FakeNvml, tmp_path: Path):
    fake_nvml.load(no_driver())
    with running_node(exclusive(), tmp_path) as node:
        assert [failure.collector for failure in node.read().failures] == ["nvml"]


def test_an_ambiguous_claim_on_two_equal_instances_flags_no_process(fake_nvml: FakeNvml, tmp_path: Path):
    machine = mig()
    fake_nvml.load(machine.scenario)
    with running_node(machine, tmp_path) as node:
        large, small = ("gpu-0-mig-3g40gb-9-0", "gpu-0-mig-1g10gb-19-4")
        node.running.kubelet.response = response(
            dra_claim("research", "infer-0", "main", large), dra_claim("research", "infer-1", "main", small)
        )
        snapshot = node.read()
    assert [(each.container.pod, each.share) for each in snapshot.allocations] == [("infer-0", Share.MIG)]
    assert not any(process.outside_allocation for process in snapshot.processes)
