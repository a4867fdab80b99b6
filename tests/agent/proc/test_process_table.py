"""The identity of a process, from a fake /proc and from the real one."""

import getpass
import os
from pathlib import Path

import pytest

from gpusteward.agent.processes import ProcessIdentity, ProcessTable
from gpusteward.core.node.gpus import Place
from tests.fakes.unprivileged_user import as_unprivileged_user

UID = "2c48913c-b29f-11e7-9350-020968147796"
ID = "9bca8d63d5fa610783847915bcff0ecac1273e5b4bed3f6fa1b07350e0135961"
HOST_PID_ADVICE = f"0::/kubepods/burstable/pod{UID}/{ID}\n"
ON_HOST = "0::/system.slice/sshd.service\n"
ME = getpass.getuser()
HOST_NAMESPACE, OWN_NAMESPACE = "cgroup:[4026531835]", "cgroup:[4026532621]"


class FakeProc:
    """A /proc of plain files."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(
        self, pid: int, *, cgroup: str, cmdline: bytes = b"python\0", comm: str = "python", start: int = 77
    ) -> Path:
        home = self.root / str(pid)
        home.mkdir(exist_ok=True)
        after = "S 1 1 1 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0"
        (home / "stat").write_text(f"{pid} ({comm}) {after} {start} 1000 10\n")
        (home / "cgroup").write_text(cgroup)
        (home / "cmdline").write_bytes(cmdline)
        return home

    def read_in_namespace(self, name: str) -> None:
        (self.root / "self" / "ns").mkdir(parents=True)
        (self.root / "self" / "ns" / "cgroup").symlink_to(name)


@pytest.fixture
def proc(tmp_path):
    return FakeProc(tmp_path)


def test_a_process_in_a_pod_is_named_with_pod_and_container(proc):
    proc.add(7, cgroup=HOST_PID_ADVICE, cmdline=b"/usr/bin/python3\0train.py\0")
    assert ProcessTable(proc.root).identify(7) == ProcessIdentity("/usr/bin/python3", Place.CONTAINER, UID, ID, ME)


def test_a_process_outside_of_containers_is_on_the_host(proc):
    proc.add(7, cgroup=ON_HOST)
    assert ProcessTable(proc.root).identify(7) == ProcessIdentity("python", Place.HOST, user=ME)


@pytest.mark.parametrize(
    ("cmdline", "name"),
    [
        (b"python\0--token\0s3cret\0", "python"),
        (b"ray::train --token s3cret", "ray::train"),
        (b"  python  --token s3cret\0", "python"),
        (b"", "worker (1)"),
        (b"\0\0--token\0s3cret", "worker (1)"),
        (b"\xff\xfepy\0", "\ufffd\ufffdpy"),
        (b"p" * 100_000 + b"\0", "p" * 256),
    ],
)
def test_the_name_is_the_program_and_never_an_argument(proc, cmdline, name):
    proc.add(7, cgroup=ON_HOST, cmdline=cmdline, comm="worker (1)")
    identity = ProcessTable(proc.root).identify(7)
    assert identity.name == name
    assert "s3cret" not in repr(identity)


def test_brackets_and_blanks_in_a_name_do_not_shift_the_start_time(proc):
    table = ProcessTable(proc.root)
    proc.add(7, cgroup=ON_HOST, comm=") S 1 1 (", start=1)
    table.identify(7)
    proc.add(7, cgroup=HOST_PID_ADVICE, comm=") S 1 1 (", start=2)
    assert table.identify(7).place is Place.CONTAINER


def test_a_missing_pid_is_unknown(proc):
    proc.root.joinpath("8").mkdir()
    table = ProcessTable(proc.root)
    assert [table.identify(pid) for pid in (7, 8, 0, -1)] == [ProcessIdentity()] * 4


@pytest.mark.parametrize("stat", [b"", b"7 (python", b"7 (python) S 1", b"\xff\0"])
def test_an_invalid_stat_file_is_unknown(proc, stat):
    (proc.add(7, cgroup=HOST_PID_ADVICE) / "stat").write_bytes(stat)
    assert ProcessTable(proc.root).identify(7).place is Place.UNKNOWN


def test_an_ended_process_is_removed_from_the_cache(proc):
    home = proc.add(7, cgroup=HOST_PID_ADVICE)
    table = ProcessTable(proc.root)
    assert table.identify(7).place is Place.CONTAINER
    (home / "stat").unlink()
    assert table.identify(7) == ProcessIdentity()


def test_an_unreadable_process_is_unknown(proc):
    (proc.add(7, cgroup=HOST_PID_ADVICE) / "cgroup").chmod(0)
    with as_unprivileged_user():
        assert ProcessTable(proc.root).identify(7) == ProcessIdentity()


def test_an_unreadable_cgroup_is_unknown_and_read_again(proc):
    home = proc.add(7, cgroup=HOST_PID_ADVICE)
    (home / "cgroup").unlink()
    (home / "cgroup").mkdir()
    table = ProcessTable(proc.root)
    assert table.identify(7).place is Place.UNKNOWN
    (home / "cgroup").rmdir()
    proc.add(7, cgroup=HOST_PID_ADVICE)
    assert table.identify(7).place is Place.CONTAINER


def test_a_cached_process_costs_one_stat_call(proc):
    home = proc.add(7, cgroup=HOST_PID_ADVICE)
    table = ProcessTable(proc.root)
    first = table.identify(7)
    for file in ("cgroup", "cmdline"):
        (home / file).unlink()
    assert table.identify(7) is first


def test_a_reused_pid_is_read_again(proc):
    table = ProcessTable(proc.root)
    proc.add(7, cgroup=HOST_PID_ADVICE, start=77)
    table.identify(7)
    proc.add(7, cgroup=ON_HOST, start=78)
    assert table.identify(7).place is Place.HOST


def test_unused_cache_entries_are_dropped(proc):
    table = ProcessTable(proc.root)
    homes = {pid: proc.add(pid, cgroup=HOST_PID_ADVICE) for pid in (7, 8)}
    for pid in homes:
        table.identify(pid)
    table.forget_except({8, 9})
    for home in homes.values():
        (home / "cgroup").write_text(ON_HOST)
    assert [table.identify(pid).place for pid in homes] == [Place.HOST, Place.CONTAINER]


@pytest.mark.parametrize(
    ("namespace", "cgroup", "place"),
    [
        (HOST_NAMESPACE, "0::/\n", Place.HOST),
        (HOST_NAMESPACE, "2:cpu:/\n1:name=systemd:/\n0::/\n", Place.HOST),
        (OWN_NAMESPACE, "0::/\n", Place.UNKNOWN),
        (OWN_NAMESPACE, "0::/../../../..\n", Place.HOST),
        (OWN_NAMESPACE, "0::/../../../../system.slice/sshd.service\n", Place.HOST),
        (OWN_NAMESPACE, f"0::/../../pod{UID}/{ID}\n", Place.CONTAINER),
        (OWN_NAMESPACE, "", Place.UNKNOWN),
    ],
)
def test_the_root_cgroup_is_the_host_only_in_the_hosts_cgroup_namespace(proc, namespace, cgroup, place):
    proc.read_in_namespace(namespace)
    proc.add(7, cgroup=cgroup)
    assert ProcessTable(proc.root).identify(7).place is place


def test_this_process_is_found_in_the_real_proc():
    table = ProcessTable()
    identity = table.identify(os.getpid())
    assert "python" in identity.name or "pytest" in identity.name
    assert table.identify(os.getpid()) is identity
    assert " " not in identity.name
