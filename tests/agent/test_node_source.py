"""A node with faults: each affects only its own part, and known data stays valid for a while."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpusteward.agent.collector_runner import CollectorRunner
from gpusteward.agent.host_use import READ_SECONDS, HostUseReader
from gpusteward.agent.kubernetes.kubelet import (
    CLAIMS_REFRESH_SECONDS,
    CLAIMS_VALID_SECONDS,
    TIMEOUT_SECONDS,
    KubeletClient,
)
from gpusteward.agent.kubernetes.pod_watch import PodWatch
from gpusteward.agent.node_source import NodeProviders, NodeSource
from gpusteward.agent.nvml import Nvml
from gpusteward.agent.processes import ProcessTable
from gpusteward.core.node.containers import Container
from gpusteward.core.node.snapshots import PodHostUse, Snapshot
from gpusteward.core.node.usage_split import SPLIT_SIGNALS, split_usage
from gpusteward.kubernetes.api import ApiServer
from tests.fakes.kubelet import Fault
from tests.fakes.machine_examples import exclusive, time_sliced
from tests.fakes.machines import NODE, Machine, NodePod, RunningMachine, write_process
from tests.fakes.nvml_library import FakeNvml
from tests.fakes.nvml_scenarios import mps
from tests.waiting import wait_until

WANTED = SPLIT_SIGNALS
START = 1_800_000_000.0
SERVER_PROGRAM = "/usr/bin/nvidia-cuda-mps-server"


class Node:
    """A source with its runner and a clock that the test controls."""

    def __init__(self, source: NodeSource, running: RunningMachine, pods: PodWatch | None) -> None:
        self.source = source
        self.pods = pods
        self.running = running
        self.runner = CollectorRunner()
        self.now = START

    def read(self, *, after: float = 5.0) -> Snapshot:
        self.now += after
        self.runner.start_cycle()
        return self.source.read(WANTED, now=self.now, runner=self.runner)


@contextmanager
def running_node(
    machine: Machine, folder: Path, *, watch_pods: bool = True, api_url: str | None = None
) -> Iterator[Node]:
    with machine.start(folder) as running:
        pods = PodWatch(ApiServer(api_url or running.api.url), NODE) if watch_pods else None
        kubelet, host_use = KubeletClient(running.kubelet.path), HostUseReader(running.cgroup, running.proc)
        providers = NodeProviders(ProcessTable(running.proc), kubelet, pods, host_use=host_use)
        source = NodeSource(NODE, Nvml(NODE, event_wait_milliseconds=10), providers)
        try:
            if pods is not None:
                pods.start()  # the first read waits for its list
            yield Node(source, running, pods)
        finally:
            source.close()


@pytest.fixture
def node(fake_nvml: FakeNvml, tmp_path: Path) -> Iterator[Node]:
    machine = exclusive()
    fake_nvml.load(machine.scenario)
    with running_node(machine, tmp_path) as one:
        yield one


def test_claims_stay_valid_for_a_minute_without_the_kubelet_then_they_are_unknown(node: Node):
    assert len(node.read().allocations) == 7
    node.running.kubelet.fault = Fault.REFUSES
    kept = node.read(after=CLAIMS_REFRESH_SECONDS)
    assert (len(kept.allocations), kept.allocations_known) == (7, True)
    assert [failure.collector for failure in kept.failures] == ["kubelet"]
    lost = node.read(after=CLAIMS_VALID_SECONDS)
    assert (lost.allocations, lost.allocations_known) == ((), False)
    assert not any(process.outside_allocation for process in lost.processes)
    node.running.kubelet.fault = Fault.NONE
    assert node.read().allocations_known


def test_a_kubelet_that_hangs_costs_one_timeout_and_not_one_per_cycle(node: Node):
    node.read()
    node.running.kubelet.fault = Fault.HANGS
    node.read(after=CLAIMS_REFRESH_SECONDS)
    started = time.monotonic()
    for cycle in range(1, 4):
        kept = node.read(after=5)
        assert (len(kept.allocations), kept.allocations_known) == (7, True)
        assert [failure.collector for failure in kept.failures] == ["kubelet"]
        assert node.runner.error_counts["kubelet"] == cycle + 1
    assert time.monotonic() - started < TIMEOUT_SECONDS
    assert node.running.kubelet.requests == 2


def test_the_kubelet_is_not_queried_again_while_no_pod_changes(node: Node):
    for _cycle in range(3):
        node.read(after=CLAIMS_REFRESH_SECONDS / 5)
    assert node.running.kubelet.requests == 1
    node.read(after=CLAIMS_REFRESH_SECONDS)
    assert node.running.kubelet.requests == 2


def test_a_changed_pod_triggers_a_query_of_the_kubelet(node: Node):
    node.read()
    added = exclusive().pods[1]
    added.pod = "added-0"
    node.running.api.add_pod(added.as_json())
    watch = node.pods
    assert watch is not None
    wait_until(lambda: any(pod.name == "added-0" for pod in watch.pods.values()))
    node.read(after=1)
    assert node.running.kubelet.requests == 2


def test_without_the_api_server_the_kubelet_is_queried_in_every_cycle(fake_nvml: FakeNvml, tmp_path: Path):
    machine = exclusive()
    fake_nvml.load(machine.scenario)
    with running_node(machine, tmp_path, watch_pods=False) as node:
        snapshots = [node.read(after=1) for _cycle in range(3)]
        assert node.running.kubelet.requests == 3
    trainer = [process for process in snapshots[-1].processes if process.pid == 1000]
    assert [(each.container.pod, each.outside_allocation) for each in trainer] == [("bert-worker-0", False)]
    uids = {each.container.pod: each.container.pod_uid for each in snapshots[-1].allocations}
    assert uids == {"bert-worker-0": machine.pods[0].uid, "notebook-0": ""}


def test_without_the_api_server_a_foreign_process_is_not_credited_to_the_holder(fake_nvml: FakeNvml, tmp_path: Path):
    machine = exclusive()
    foreign, machine.pods[0].pids = NodePod("foreign", pids=[1000]), list(range(1001, 1006))
    machine.pods.append(foreign)
    fake_nvml.load(machine.scenario)
    with running_node(machine, tmp_path, watch_pods=False) as node:
        snapshot = node.read()
    assert {each.container for each in snapshot.processes if each.pid == 1000} == {Container(pod_uid=foreign.uid)}
    assert {each.container.pod_uid for each in snapshot.allocations} == {""}


def test_without_the_kubelet_processes_are_attributed_by_their_cgroups(fake_nvml: FakeNvml, tmp_path: Path):
    machine = time_sliced()
    fake_nvml.load(machine.scenario)
    with running_node(machine, tmp_path) as node:
        node.running.kubelet.fault = Fault.CLOSES
        snapshot = node.read()
    pods = {process.pid: process.container.pod for process in snapshot.processes if process.container}
    assert pods == {
        2000: "api-7d9f8b6c5d-x2x4k",
        2001: "api-7d9f8b6c5d-x2x4k",
        2002: "batch-x",
        2003: "batch-x",
        2004: "intruder",
    }
    assert not snapshot.allocations_known


def test_a_terminated_pod_holds_nothing_although_the_kubelet_still_lists_it(fake_nvml: FakeNvml, tmp_path: Path):
    machine = exclusive()
    machine.pods[1].phase = "Succeeded"
    fake_nvml.load(machine.scenario)
    with running_node(machine, tmp_path) as node:
        assert {allocation.container.pod for allocation in node.read().allocations} == {"bert-worker-0"}


def test_nothing_is_measured_while_nvml_is_released_and_reads_resume_afterwards(node: Node, fake_nvml: FakeNvml):
    node.read()
    node.source.release(seconds=30)
    assert fake_nvml.open_handles == 0
    released = node.read(after=10)
    assert released.readings == ()
    assert "released" in released.failures[0].reason
    assert fake_nvml.open_handles == 0
    assert node.read(after=25).readings == ()
    assert len(node.read(after=5).readings) == 8


def test_a_clock_set_back_does_not_prolong_the_release(node: Node):
    node.source.release(seconds=30)
    assert node.read().readings == ()
    assert len(node.read(after=-3600).readings) == 8


@pytest.mark.parametrize("percent", [51, 0])
def test_holders_behind_an_mps_server_that_hides_its_clients_are_unknown_and_not_0(
    fake_nvml: FakeNvml, tmp_path: Path, percent: int
):
    scenario = mps()
    gpu, server = scenario.gpus[1], 3100
    gpu.numbers["gpu_percent"] = percent
    gpu.uses(server, percent)
    machine = Machine(scenario, [NodePod(f"client-{i}", [f"{gpu.uuid}::{i}"]) for i in range(2)])
    fake_nvml.load(scenario)
    with running_node(machine, tmp_path) as node:
        for pid in (3000, server):
            write_process(node.running.proc, pid, cgroup="/system.slice/mps.service", argv0=SERVER_PROGRAM)
        node.read()
        split = split_usage(node.read())[1]
    assert [part.container.pod for part in split.parts[:2] if part.container] == ["client-0", "client-1"]
    for holder in split.parts[:2]:
        assert (holder.processes, holder.memory_bytes) == (None, None)
        assert holder.utilization_ratio == (None if percent else 0), "nobody works on a GPU that does nothing"
    assert split.utilization_ratio == percent / 100
    assert not split.is_used_outside, "the server works for the holders"


def test_cpu_disk_and_network_are_those_of_the_pods_that_hold_gpus(fake_nvml: FakeNvml, tmp_path: Path):
    machine = time_sliced()
    fake_nvml.load(machine.scenario)
    with running_node(machine, tmp_path) as node:
        found = {each.pod.pod: each for each in node.read().pod_host_use}
    assert found.keys() == {"api-7d9f8b6c5d-x2x4k", "batch-x", "silent-0"}, "the intruder holds nothing"
    batch = machine.pods[1]
    assert found["batch-x"] == PodHostUse(Container("research", "batch-x", batch.uid), 2.25, 2_004_096, 1_004_002)
    assert found["silent-0"].network_bytes is None, "it has no process"


def test_cpu_disk_and_network_are_read_every_thirty_seconds_and_not_in_every_cycle(node: Node):
    def read_cpu(*, after: float) -> list[float | None]:
        return [each.cpu_seconds for each in node.read(after=after).pod_host_use]

    assert read_cpu(after=5) == [1.25, 2.25]
    for file in node.running.cgroup.rglob("cpu.stat"):
        file.write_text("usage_usec 9000000\n")
    assert read_cpu(after=5) == [1.25, 2.25]
    assert read_cpu(after=READ_SECONDS - 6) == [1.25, 2.25]
    assert read_cpu(after=1) == [9.0, 9.0]


def test_a_file_of_a_pod_that_cannot_be_read_is_a_failure_until_it_is_read_again(node: Node):
    stat = next(node.running.cgroup.rglob("io.stat"))
    text = stat.read_bytes()
    stat.write_bytes(b"259:0 rbytes=\xff\n")
    for cycle in (1, 2):
        snapshot = node.read()
        assert [each.disk_bytes for each in snapshot.pod_host_use].count(None) == 1
        assert [failure.collector for failure in snapshot.failures] == ["host_use"]
        assert node.runner.error_counts["host_use"] == cycle
    stat.write_bytes(text)
    assert node.read(after=READ_SECONDS).failures == ()


def test_a_pod_that_no_longer_holds_a_gpu_is_not_shown_until_the_next_reading(node: Node):
    assert len(node.read().pod_host_use) == 2
    machine = exclusive()
    node.running.kubelet.response = machine.claims(without=machine.pods[1])
    machine.pods[1].phase = "Succeeded"
    node.running.api.add_pod(machine.pods[1].as_json())
    watch = node.pods
    assert watch is not None
    wait_until(lambda: any(pod.is_finished for pod in watch.pods.values()))
    assert [each.pod.pod for each in node.read(after=1).pod_host_use] == ["bert-worker-0"]


def test_without_the_api_server_a_pod_is_known_by_the_uid_of_its_processes(fake_nvml: FakeNvml, tmp_path: Path):
    machine = exclusive()
    fake_nvml.load(machine.scenario)
    with running_node(machine, tmp_path, watch_pods=False) as node:
        (found,) = node.read().pod_host_use
    assert (found.pod, found.cpu_seconds) == (Container("research", "bert-worker-0", machine.pods[0].uid), 1.25)
