"""CPU, disk and network of pods, from fake trees of cgroups and processes."""

import os
import time
from pathlib import Path

import pytest

from gpusteward.agent.host_use import MOST_BYTES, READ_SECONDS, HostUseReader
from gpusteward.core.node.containers import Container
from gpusteward.core.node.snapshots import PodHostUse
from tests.fakes.machines import NET_DEV, write_process

UID = "2c48913c-b29f-11e7-9350-020968147796"
STATIC_UID = "0123456789abcdef0123456789abcdef"
ID = "9bca8d63d5fa610783847915bcff0ecac1273e5b4bed3f6fa1b07350e0135961"
POD = Container("research", "trainer-0", UID)
UNIT = f"kubepods-burstable-pod{UID.replace('-', '_')}.slice"
HOMES = {
    "systemd": f"kubepods.slice/kubepods-burstable.slice/{UNIT}",
    "systemd, guaranteed": f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice",
    "cgroupfs": f"kubepods/burstable/pod{UID}",
    "cgroupfs, guaranteed": f"kubepods/pod{UID}",
    "nested, systemd": f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
    f"kubelet-kubepods-besteffort-pod{UID.replace('-', '_')}.slice",
    "kind, cgroupfs": f"docker/{ID}/kubelet/kubepods/besteffort/pod{UID}",
}
PID = 4321


class Tree:
    """A cgroup root, version 2 unless it is asked for the other, and a /proc with the host's first process."""

    def __init__(self, folder: Path, home: str = HOMES["systemd"], *, version: int = 2) -> None:
        self.cgroup, self.proc = folder / "cgroup", folder / "proc"
        hierarchies = (self.cgroup,) if version == 2 else (self.cgroup / "cpuacct", self.cgroup / "blkio")
        self.pod, self.disk = hierarchies[0] / home, hierarchies[-1] / home
        for hierarchy in hierarchies:
            (hierarchy / home / ID).mkdir(parents=True)
            (hierarchy / "system.slice/sshd.service").mkdir(parents=True)
        if version == 2:
            (self.cgroup / "cgroup.controllers").write_text("cpu io\n")
            (self.pod / "cpu.stat").write_text("usage_usec 12500000\nuser_usec 9\n")
            (self.pod / "io.stat").write_text(
                "259:0 rbytes=1000 wbytes=200 rios=1 wios=2 dbytes=5\n8:0 rbytes=30 wbytes=4\n"
            )
        else:
            (self.pod / "cpuacct.usage").write_text("12500000000\n")
            (self.disk / "blkio.throttle.io_service_bytes_recursive").write_text(
                "259:0 Read 1030\n259:0 Write 204\n259:0 Sync 1234\n259:0 Total 1234\nTotal 1234\n"
            )
        write_process(self.proc, 1, cgroup="/init.scope", argv0="init")
        write_process(self.proc, PID, cgroup="/ignored", argv0="python")
        (self.pod / ID / "cgroup.procs").write_text(f"{PID}\n{PID + 1}\n")
        (self.proc / str(PID) / "net/dev").write_text(NET_DEV.format(received=5000, sent=600))

    def reader(self) -> HostUseReader:
        return HostUseReader(self.cgroup, self.proc)

    def read(self) -> tuple[PodHostUse, tuple[str, ...]]:
        reader = self.reader()
        reader.read({UID: POD}, now=0.0)
        (found,) = reader.found
        return found, reader.failures


ALL = PodHostUse(POD, 12.5, 1234, 5600)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("home", HOMES.values(), ids=HOMES)
def test_a_pod_is_read_on_both_versions_and_drivers(home: str, version: int, tmp_path: Path):
    assert Tree(tmp_path, home, version=version).read() == (ALL, ())


def test_a_static_pod_is_found_by_the_uid_of_its_cgroup(tmp_path: Path):
    tree = Tree(tmp_path, f"kubepods/burstable/pod{STATIC_UID}")
    reader = tree.reader()
    reader.read({STATIC_UID: POD}, now=0.0)
    assert reader.found == (ALL,)


def test_an_old_kernel_counts_disk_bytes_for_each_container(tmp_path: Path):
    tree = Tree(tmp_path, version=1)
    (tree.disk / "blkio.throttle.io_service_bytes_recursive").unlink()
    (tree.disk / "blkio.throttle.io_service_bytes").write_text("Total 0\n")
    (tree.disk / ID / "blkio.throttle.io_service_bytes").write_text("8:0 Read 7\n8:0 Write 2\n8:0 Total 9\nTotal 9\n")
    assert tree.read()[0].disk_bytes == 9


def test_several_devices_in_one_line_of_io_stat_are_all_counted(tmp_path: Path):
    tree = Tree(tmp_path)
    (tree.pod / "io.stat").write_text("7:7 7:6 259:0 rbytes=1 wbytes=2 8:0 rbytes=4 wbytes=8\n")
    assert tree.read() == (PodHostUse(POD, 12.5, 15, 5600), ())


def test_a_pod_that_used_no_disk_has_0_bytes(tmp_path: Path):
    tree = Tree(tmp_path)
    (tree.pod / "io.stat").write_text("")
    assert tree.read() == (PodHostUse(POD, 12.5, 0, 5600), ())


def test_a_pod_in_the_network_of_the_host_has_no_bytes_of_network(tmp_path: Path):
    tree = Tree(tmp_path)
    own = tree.proc / str(PID) / "net/dev"
    own.unlink()
    os.link(tree.proc / "1/net/dev", own)
    assert tree.read() == (PodHostUse(POD, 12.5, 1234, None), ())


def test_the_monitor_of_a_container_in_the_network_of_the_host_is_not_the_pod(tmp_path: Path):
    tree = Tree(tmp_path)
    monitor = tree.pod / f"crio-conmon-{ID}.scope"
    monitor.mkdir()
    (monitor / "cgroup.procs").write_text("1\n")
    assert tree.read() == (ALL, ())


def test_a_pod_without_a_process_has_no_bytes_of_network(tmp_path: Path):
    tree = Tree(tmp_path)
    (tree.pod / ID / "cgroup.procs").write_text("")
    assert tree.read() == (PodHostUse(POD, 12.5, 1234, None), ())


def test_a_process_that_has_just_ended_costs_nothing_while_another_one_runs(tmp_path: Path):
    tree = Tree(tmp_path)
    (tree.pod / "cgroup.procs").write_text("99\n")
    assert tree.read() == (ALL, ())


def test_processes_in_another_pid_namespace_are_a_failure_with_advice(tmp_path: Path):
    tree = Tree(tmp_path)
    (tree.pod / ID / "cgroup.procs").write_text("0\n0\n")
    found, (failure,) = tree.read()
    assert found == PodHostUse(POD, 12.5, 1234, None)
    assert failure.startswith("network bytes of pod research/trainer-0: ")
    assert "hostPID: true" in failure


HOSTILE = {
    "huge": b"1" * (MOST_BYTES + 1),
    "many digits": b"usage_usec 123456789012345678901\n8:0 rbytes=123456789012345678901\n",
    "negative": b"usage_usec -5\n8:0 rbytes=-5 wbytes=1\n",
    "not a number": b"usage_usec 1_000\n8:0 rbytes=1_000\n",
    "not UTF-8": b"usage_usec \xff\xfe\n8:0 rbytes=\xff\n",
    "digits of another script": "usage_usec ٣\n8:0 rbytes=٣\n".encode(),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize(
    ("file", "left"),
    [
        ("cpu.stat", PodHostUse(POD, None, 1234, 5600)),
        ("io.stat", PodHostUse(POD, 12.5, None, 5600)),
        ("net/dev", PodHostUse(POD, 12.5, 1234, None)),
    ],
)
def test_a_file_with_hostile_content_costs_its_own_value_only(
    file: str, left: PodHostUse, content: bytes, tmp_path: Path
):
    tree = Tree(tmp_path)
    if file == "net/dev":
        content = b"one\ntwo\n  eth0: " + content.split(maxsplit=1)[-1] + b" 0" * 15
    (tree.proc / str(PID) / file if file == "net/dev" else tree.pod / file).write_bytes(content)
    found, failures = tree.read()
    assert found == left
    assert len(failures) == 1
    assert len(failures[0]) < 200


@pytest.mark.parametrize(("version", "file"), [(2, "cpu.stat"), (2, "io.stat"), (1, "cpuacct.usage")])
def test_a_value_that_the_kernel_does_not_count_is_unknown_and_no_failure(version: int, file: str, tmp_path: Path):
    tree = Tree(tmp_path, version=version)
    (tree.pod / file).unlink()
    found, failures = tree.read()
    assert [found.cpu_seconds, found.disk_bytes, found.network_bytes].count(None) == 1
    assert failures == ()


@pytest.mark.parametrize("first", [b"\xff\n", b"-1\n", b"9" * 100_000, b"../1\n"])
def test_a_malformed_list_of_processes_costs_the_network_only(first: bytes, tmp_path: Path):
    tree = Tree(tmp_path)
    (tree.pod / ID / "cgroup.procs").write_bytes(first)
    found, failures = tree.read()
    assert (found, len(failures)) == (PodHostUse(POD, 12.5, 1234, None), 1)


def test_a_root_without_cgroups_of_pods_is_one_failure_that_names_the_mount(tmp_path: Path):
    reader = HostUseReader(tmp_path, tmp_path)
    reader.read({UID: POD, STATIC_UID: POD}, now=0.0)
    assert reader.found == ()
    assert len(reader.failures) == 1
    assert "mount the host's /sys/fs/cgroup and set --cgroup" in reader.failures[0]


def test_a_pod_whose_cgroup_does_not_exist_yet_is_no_failure(tmp_path: Path):
    reader = Tree(tmp_path).reader()
    reader.read({UID: POD, STATIC_UID: POD}, now=0.0)
    assert (reader.found, reader.failures) == ((ALL,), ())


@pytest.mark.parametrize(
    "fake",
    [
        f"{HOMES['systemd']}/{ID}/kubepods.slice/kubepods-pod{STATIC_UID}.slice",
        f"{HOMES['systemd']}/pod{STATIC_UID}",
        f"user.slice/kubepods/pod{STATIC_UID}",
        f"system.slice/kubepods/pod{STATIC_UID}",
    ],
)
def test_no_cgroup_that_a_tenant_can_create_is_taken_for_that_of_another_pod(fake: str, tmp_path: Path):
    tree = Tree(tmp_path)
    (tree.cgroup / fake).mkdir(parents=True)
    (tree.cgroup / fake / "cpu.stat").write_text("usage_usec 1\n")
    reader = tree.reader()
    reader.read({UID: POD, STATIC_UID: POD}, now=0.0)
    assert (reader.found, reader.failures) == ((ALL,), ())


def test_users_cannot_pretend_to_be_the_kubelet(tmp_path: Path):
    tree = Tree(tmp_path, f"user.slice/kubepods/pod{UID}")
    reader = tree.reader()
    reader.read({UID: POD}, now=0.0)
    assert reader.found == ()


def test_it_is_due_every_thirty_seconds_and_when_the_clock_was_set_back(tmp_path: Path):
    reader = Tree(tmp_path).reader()
    assert reader.is_due(100.0)
    reader.read({UID: POD}, now=100.0)
    assert not reader.is_due(100.0)
    assert not reader.is_due(100.0 + READ_SECONDS - 1)
    assert reader.is_due(100.0 + READ_SECONDS)
    assert reader.is_due(99.0)


def test_a_directory_is_searched_once_and_forgotten_with_its_pod(tmp_path: Path):
    tree = Tree(tmp_path)
    reader = tree.reader()
    reader.read({UID: POD}, now=0.0)
    other = tree.cgroup / "kubepods.slice/kubepods-pod11111111_2222_3333_4444_555555555555.slice"
    tree.pod.rename(other)
    reader.read({UID: POD}, now=30.0)
    assert (reader.found, reader.failures) == ((), ()), "the pod has ended"
    other.rename(tree.pod)
    reader.read({UID: POD}, now=60.0)
    assert reader.found == (ALL,)
    reader.read({}, now=90.0)
    assert (reader.found, reader.failures) == ((), ())


def test_a_counter_that_begins_again_is_exported_as_it_is(tmp_path: Path):
    tree = Tree(tmp_path)
    reader = tree.reader()
    reader.read({UID: POD}, now=0.0)
    (tree.pod / "cpu.stat").write_text("usage_usec 1000000\n")
    reader.read({UID: POD}, now=30.0)
    assert [each.cpu_seconds for each in reader.found] == [1.0]


def test_a_machine_with_thousands_of_directories_is_searched_within_a_second(tmp_path: Path):
    for number in range(1000):
        (tmp_path / f"cgroup/machine-{number}.scope/a/b").mkdir(parents=True)
    started = time.monotonic()
    HostUseReader(tmp_path / "cgroup", tmp_path).read({UID: POD}, now=0.0)
    assert time.monotonic() - started < 1
