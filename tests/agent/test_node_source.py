"""A whole node through its misfortunes: each costs its own part, and what was known stays known for a while."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpusteward.agent.collector_runner import CollectorRunner
from gpusteward.agent.kubernetes.kubelet import PodResources
from gpusteward.agent.kubernetes.pod_watch import PodWatch
from gpusteward.agent.node_source import CLAIMS_CHECKED_SECONDS, CLAIMS_KEPT_SECONDS, NodeProviders, NodeSource
from gpusteward.agent.nvml import Nvml
from gpusteward.agent.proc.process_table import ProcessTable
from gpusteward.core.snapshots import Snapshot
from gpusteward.core.usage_split import DIVIDED_SIGNALS
from gpusteward.kubernetes.api import ApiServer
from tests.fakes.apiserver import wait_until
from tests.fakes.kubelet import Misfortune
from tests.fakes.machine_examples import exclusive, time_sliced
from tests.fakes.machines import NODE, Machine, Standing
from tests.fakes.nvml_library import NvmlWorld

WANTED = DIVIDED_SIGNALS
START = 1_800_000_000.0


class Node:
    """A source with its guard and a clock that the test moves."""

    def __init__(self, source: NodeSource, standing: Standing) -> None:
        self.source = source
        self.standing = standing
        self.runner = CollectorRunner()
        self.now = START

    def read(self, *, after: float = 5.0) -> Snapshot:
        self.now += after
        self.runner.start_cycle()
        return self.source.read(WANTED, now=self.now, runner=self.runner)


@contextmanager
def standing_node(machine: Machine, folder: Path, *, watch_pods: bool = True) -> Iterator[Node]:
    with machine.stand(folder) as standing:
        pods = PodWatch(ApiServer(standing.api.url), NODE) if watch_pods else None
        neighbours = NodeProviders(ProcessTable(standing.proc), PodResources(standing.kubelet.path), pods)
        source = NodeSource(NODE, Nvml(NODE, event_wait_milliseconds=10), neighbours)
        try:
            if pods is not None:
                pods.start()  # the first read waits for its list
            yield Node(source, standing)
        finally:
            source.close()


@pytest.fixture
def node(nvml_world: NvmlWorld, tmp_path: Path) -> Iterator[Node]:
    machine = exclusive()
    nvml_world.begin(machine.world)
    with standing_node(machine, tmp_path) as one:
        yield one


def test_a_silent_kubelet_keeps_its_word_for_a_minute_then_holders_are_unknown(node: Node):
    assert len(node.read().allocations) == 7
    node.standing.kubelet.misfortune = Misfortune.REFUSES
    kept = node.read(after=CLAIMS_CHECKED_SECONDS)
    assert (len(kept.allocations), kept.allocations_known) == (7, True)
    assert [failure.collector for failure in kept.failures] == ["kubelet"]
    lost = node.read(after=CLAIMS_KEPT_SECONDS)
    assert (lost.allocations, lost.allocations_known) == ((), False)
    assert not any(process.outside_allocation for process in lost.processes)
    node.standing.kubelet.misfortune = Misfortune.NONE
    assert node.read().allocations_known


def test_the_kubelet_is_not_asked_again_while_no_pod_has_changed(node: Node):
    for _cycle in range(3):
        node.read(after=CLAIMS_CHECKED_SECONDS / 5)
    assert node.standing.kubelet.questions == 1
    node.read(after=CLAIMS_CHECKED_SECONDS)
    assert node.standing.kubelet.questions == 2


def test_a_changed_pod_makes_it_ask_the_kubelet_at_once(node: Node):
    node.read()
    newcomer = exclusive().tenants[1]
    newcomer.pod = "newcomer-0"
    node.standing.api.add_pod(newcomer.as_json())
    watch = node.source._ask.pods
    assert watch is not None
    wait_until(lambda: any(pod.name == "newcomer-0" for pod in watch.pods.values()))
    node.read(after=1)
    assert node.standing.kubelet.questions == 2


def test_without_the_api_server_the_kubelet_is_asked_in_every_cycle(nvml_world: NvmlWorld, tmp_path: Path):
    machine = exclusive()
    nvml_world.begin(machine.world)
    with standing_node(machine, tmp_path, watch_pods=False) as node:
        snapshots = [node.read(after=1) for _cycle in range(3)]
        assert node.standing.kubelet.questions == 3
    trainer = [process for process in snapshots[-1].processes if process.pid == 1000]
    assert [(each.container.pod, each.outside_allocation) for each in trainer] == [("bert-worker-0", False)]


def test_without_the_kubelet_processes_are_still_named_by_their_cgroups(nvml_world: NvmlWorld, tmp_path: Path):
    machine = time_sliced()
    nvml_world.begin(machine.world)
    with standing_node(machine, tmp_path) as node:
        node.standing.kubelet.misfortune = Misfortune.CLOSES
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


def test_a_terminated_pod_holds_nothing_although_the_kubelet_still_lists_it(nvml_world: NvmlWorld, tmp_path: Path):
    machine = exclusive()
    machine.tenants[1].phase = "Succeeded"
    nvml_world.begin(machine.world)
    with standing_node(machine, tmp_path) as node:
        assert {allocation.container.pod for allocation in node.read().allocations} == {"bert-worker-0"}


def test_while_nvml_is_released_nothing_is_measured_and_then_it_comes_back(node: Node, nvml_world: NvmlWorld):
    node.read()
    node.source.release(seconds=30)
    assert nvml_world.open_handles == 0
    released = node.read(after=10)
    assert released.readings == ()
    assert "released" in released.failures[0].reason
    assert nvml_world.open_handles == 0
    assert node.read(after=25).readings == ()
    assert len(node.read(after=5).readings) == 8


def test_a_clock_set_back_does_not_prolong_the_release(node: Node):
    node.source.release(seconds=30)
    assert node.read().readings == ()
    assert len(node.read(after=-3600).readings) == 8
