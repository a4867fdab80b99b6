"""A machine without Kubernetes: a GPU is attributed to the processes running on it."""

import getpass
from dataclasses import replace
from pathlib import Path

from gpusteward.agent.attribution import assign_process_holders
from gpusteward.agent.collector_runner import CollectorRunner
from gpusteward.agent.node_source import NodeProviders, NodeSource
from gpusteward.agent.nvml import Nvml
from gpusteward.agent.processes import ProcessIdentity, ProcessTable
from gpusteward.core.node.containers import Workload
from gpusteward.core.node.gpus import GpuProcess, Place, Share
from gpusteward.core.node.snapshots import Snapshot
from gpusteward.core.node.usage_split import SPLIT_SIGNALS, split_usage
from tests.fakes.machines import NODE, write_process
from tests.fakes.nvml_library import FakeNvml
from tests.fakes.nvml_scenarios import crowd

IN_DOCKER = "/system.slice/docker-{}.scope"
ALICE = ProcessIdentity(name="/usr/bin/python3", place=Place.HOST, user="alice")
BOB = ProcessIdentity(name="train", place=Place.HOST, user="bob")
BOXED = ProcessIdentity(name="python3", place=Place.CONTAINER, container_id="c0ffee" * 10, user="root")


def assign(*placed: tuple[str, ProcessIdentity]):
    processes = [GpuProcess(pid, gpu) for pid, (gpu, _) in enumerate(placed)]
    return assign_process_holders(processes, {pid: identity for pid, (_, identity) in enumerate(placed)})


def test_a_user_alone_on_a_gpu_holds_all_of_it_under_the_name_of_the_program():
    (process,), (held,) = assign(("GPU-0", ALICE))
    assert (held.container.namespace, held.container.pod, held.share) == ("alice", "python3", Share.EXCLUSIVE)
    assert held.container.workload == Workload("Program", "alice", "python3")
    assert process.container == held.container


def test_several_holders_of_a_gpu_share_it_and_several_processes_of_one_are_one_holder():
    _, held = assign(("GPU-0", ALICE), ("GPU-0", ALICE), ("GPU-0", BOB), ("GPU-1", BOB))
    assert [(each.gpu_uuid, each.container.namespace, each.share) for each in held] == [
        ("GPU-0", "alice", Share.TIME_SLICED),
        ("GPU-0", "bob", Share.TIME_SLICED),
        ("GPU-1", "bob", Share.EXCLUSIVE),
    ]


def test_a_program_name_that_ends_with_a_slash_is_kept():
    _, (held,) = assign(("GPU-0", replace(BOB, name="hidden/")))
    assert held.container.pod == "hidden/"


def test_a_container_is_known_by_its_short_id():
    _, (held,) = assign(("GPU-0", BOXED))
    assert held.container.workload == Workload("Container", "root", "c0ffeec0ffee")


def test_a_process_without_identity_stays_unattributed():
    (process,), held = assign(("GPU-0", ProcessIdentity()))
    assert (process.place, process.container, held) == (Place.UNKNOWN, None, ())


def test_a_machine_without_a_kubelet_is_exported_and_its_parts_sum_to_the_device(fake_nvml: FakeNvml, tmp_path: Path):
    pids = [2001, 2002, 2003, 2004]
    fake_nvml.change(crowd(2, 4, pids=pids))
    for pid in pids[:2]:
        write_process(tmp_path, pid, cgroup="/user.slice/user-1000.slice/session-1.scope", argv0="/opt/bin/train")
    for pid in pids[2:]:
        write_process(tmp_path, pid, cgroup=IN_DOCKER.format("ab" * 32), argv0="/usr/bin/python3")
    source = NodeSource(
        NODE, Nvml(NODE, event_wait_milliseconds=10), NodeProviders(ProcessTable(tmp_path), holders_are_processes=True)
    )
    try:
        snapshot: Snapshot = source.read(SPLIT_SIGNALS, now=1.0, runner=CollectorRunner())
    finally:
        source.close()
    assert snapshot.allocations_known
    assert snapshot.holders_are_processes
    assert {(each.container.namespace, each.container.pod) for each in snapshot.allocations} == {
        (getpass.getuser(), "train"),
        (getpass.getuser(), "abababababab"),
    }
    for split in split_usage(snapshot):
        assert sum(part.memory_bytes for part in split.parts) == split.memory_used_bytes
        assert not split.parts[-1].memory_bytes or split.parts[-1].by is Place.UNKNOWN


def test_without_kubernetes_no_advice_about_pods_is_given(fake_nvml: FakeNvml, tmp_path: Path):
    scenario = crowd(2, 1, pids=[2001])  # on the first GPU; the second has memory in use without processes
    fake_nvml.change(scenario)
    source = NodeSource(
        NODE, Nvml(NODE, event_wait_milliseconds=10), NodeProviders(ProcessTable(tmp_path), holders_are_processes=True)
    )
    try:
        snapshot: Snapshot = source.read(SPLIT_SIGNALS | {"memory_reserved_bytes"}, now=1.0, runner=CollectorRunner())
    finally:
        source.close()
    assert [failure.collector for failure in snapshot.failures] == ["processes", "proc"]
    for failure in snapshot.failures:
        assert "hostPID" not in failure.reason
        assert "--pid=host if it is in a container" in failure.reason
