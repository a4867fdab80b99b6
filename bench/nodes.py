"""The node both exporters watch: live processes, and a fake driver, kubelet and API server with consistent data."""

import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme

from tests.fakes.machines import NODE, Machine, NodePod, RunningMachine
from tests.fakes.nvml_library import environment
from tests.fakes.nvml_scenarios import Scenario, crowd

PODS = 64

_SLEEPERS = """
import os, sys
pids = []
for _ in range(int(sys.argv[1])):
    if not (pid := os.fork()):
        os.read(0, 1)
        os._exit(0)
    pids.append(pid)
print(*pids, flush=True)
os.read(0, 1)
"""
"""Forks children that wait for the end of standard input and end with their parent."""


@dataclass(frozen=True, slots=True)
class Node:
    """A started node."""

    gpus: int
    pids: list[int]
    scenario: Path
    running: RunningMachine

    @property
    def environment(self) -> dict[str, str]:
        """Only the paths of programs from this shell: no settings, no Python switches."""
        kept = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "FAKE_NVML_SCENARIO")
        own = {name: value for name, value in environment(self.scenario).items() if name in kept}
        return own | {"SSL_CERT_FILE": str(self.scenario.with_name("ca.crt"))}

    @property
    def agent_flags(self) -> list[str]:
        """Flags of the agent for this node, with all data sources."""
        return [
            f"--node-name={NODE}",
            "--kubernetes=true",
            f"--proc={self.running.proc}",
            f"--cgroup={self.running.cgroup}",
            f"--pod-resources-kubelet-socket={self.running.kubelet.path}",
            f"--kubernetes-api={self.running.api.url}",
        ]


@contextmanager
def start_node(folder: Path, gpus: int, *, processes: int) -> Iterator[Node]:
    """Start a node whose pods share its GPUs; everything stops when the `with` block ends."""
    folder.mkdir()
    with _live_processes(processes) as pids:
        scenario = crowd(gpus, processes, pids=pids)
        scenario.write(folder / "scenario")
        with Machine(scenario, create_pods(scenario, pids)).start(folder, tls=_make_tls(folder / "ca.crt")) as running:
            _use_live_stats(running.proc, pids)
            yield Node(gpus, pids, folder / "scenario", running)


def create_pods(scenario: Scenario, pids: list[int]) -> list[NodePod]:
    """64 pods in the order of the processes, which `crowd` deals out to the GPUs in turn: each pod has one GPU."""
    return [
        create_pod(scenario, slot, name=f"api-{slot}-7d9f8b6c5d-x2x4k", pids=pids[slot::PODS]) for slot in range(PODS)
    ]


def create_pod(scenario: Scenario, slot: int, *, name: str, pids: list[int]) -> NodePod:
    """A pod of a Deployment with a time slice of a GPU."""
    gpus = len(scenario.gpus)
    return NodePod(
        name,
        [f"{scenario.gpus[slot % gpus].uuid}::{slot // gpus}"],
        pids,
        resource="nvidia.com/gpu.shared",
        owner=("ReplicaSet", name.rpartition("-")[0]),
        labels={"app": name.partition("-7d")[0], "pod-template-hash": "7d9f8b6c5d"},
    )


def _make_tls(ca_file: Path) -> ssl.SSLContext:
    """Of the API server; the agent trusts the authority, as that of a cluster, by this file."""
    authority, context = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(ca_file))
    return context


@contextmanager
def _live_processes(count: int) -> Iterator[list[int]]:
    """Processes that do nothing: nvitop reads every pid from the real /proc."""
    command = [sys.executable, "-c", _SLEEPERS, str(count)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as parent:
        assert parent.stdout is not None
        yield [int(pid) for pid in parent.stdout.readline().split()]


def _use_live_stats(proc: Path, pids: list[int]) -> None:
    """The agent reads each `stat` every cycle: from the real /proc, which costs more than a file."""
    for pid in pids:
        (proc / str(pid) / "stat").unlink()
        (proc / str(pid) / "stat").symlink_to(f"/proc/{pid}/stat")
