"""A fake GPU node: driver, kubelet, API server, /proc and cgroups with consistent data, for tests of the whole agent.

machine = Machine(a100x8(), [NodePod("trainer-0", gpus=["GPU-..."], pids=[1000])])
with machine.start(tmp_path) as running: ...
"""

import contextlib
import hashlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.fakes.apiserver import FakeApiServer, Json, pod
from tests.fakes.kubelet import FakeKubelet, device_claim, response
from tests.fakes.nvml_scenarios import Scenario

NODE = "node-a"


@dataclass
class NodePod:
    """A pod with one container that holds devices and runs processes."""

    pod: str
    gpus: list[str] = field(default_factory=list)  # device ids as listed by the kubelet
    pids: list[int] = field(default_factory=list)
    namespace: str = "research"
    container: str = "main"
    resource: str = "nvidia.com/gpu"
    owner: tuple[str, str] | None = None
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    phase: str = "Running"

    @property
    def uid(self) -> str:
        digest = hashlib.md5(f"{self.namespace}/{self.pod}".encode()).hexdigest()
        return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:]))

    @property
    def container_id(self) -> str:
        return hashlib.sha256(self.uid.encode()).hexdigest()

    @property
    def cgroup(self) -> str:
        """The path of its container."""
        slice_ = f"kubepods-burstable-pod{self.uid.replace('-', '_')}.slice"
        return f"/kubepods.slice/kubepods-burstable.slice/{slice_}/cri-containerd-{self.container_id}.scope"

    def as_json(self) -> Json:
        item = pod(
            self.pod,
            namespace=self.namespace,
            uid=self.uid,
            node=NODE,
            phase=self.phase,
            labels=self.labels,
            annotations=self.annotations,
            owner=self.owner,
            containers=(self.container,),
        )
        item["status"]["containerStatuses"][0]["containerID"] = f"containerd://{self.container_id}"
        return item


@dataclass
class Machine:
    """Everything on one node."""

    scenario: Scenario
    pods: list[NodePod] = field(default_factory=list)
    host_pids: list[int] = field(default_factory=list)

    @contextlib.contextmanager
    def start(self, folder: Path, *, tls: ssl.SSLContext | None = None) -> Iterator["RunningMachine"]:
        """Start it, the API server with TLS if that is given; everything stops when the `with` block ends."""
        self._write_proc(folder / "proc")
        self._write_cgroups(folder / "cgroup")
        with FakeKubelet(folder / "kubelet.sock", self.claims()) as kubelet, FakeApiServer(tls) as api:
            for each in self.pods:
                api.add_pod(each.as_json())
            yield RunningMachine(folder / "proc", folder / "cgroup", kubelet, api)

    def claims(self, *, without: NodePod | None = None):
        """The kubelet's response, which has the pods without devices too."""
        return response(
            *(
                device_claim(
                    each.namespace,
                    each.pod,
                    each.container,
                    *each.gpus,
                    resource=each.resource,
                )
                for each in self.pods
                if each is not without
            )
        )

    def _write_proc(self, root: Path) -> None:
        write_process(root, 1, cgroup="/init.scope", argv0="/usr/lib/systemd/systemd")
        for each in self.pods:
            for pid in each.pids:
                write_process(root, pid, cgroup=each.cgroup, argv0="/usr/bin/python3")
        for pid in self.host_pids:
            write_process(root, pid, cgroup="/system.slice/display-manager.service", argv0="/usr/lib/xorg/Xorg")

    def _write_cgroups(self, root: Path) -> None:
        """Cgroups v2, with a number of its own for each pod."""
        root.mkdir()
        (root / "cgroup.controllers").write_text("cpu io memory\n")
        for number, each in enumerate(self.pods, 1):
            container = root / each.cgroup.removeprefix("/")
            container.mkdir(parents=True)
            (container / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in each.pids))
            (container.parent / "cpu.stat").write_text(f"usage_usec {number}250000\nuser_usec 1\n")
            (container.parent / "io.stat").write_text(f"259:0 rbytes={number}000000 wbytes=4096 rios=9 wios=1\n")


@dataclass
class RunningMachine:
    """A started machine."""

    proc: Path
    cgroup: Path
    kubelet: FakeKubelet
    api: FakeApiServer


NET_DEV = """\
Inter-|   Receive          |  Transmit
 face |bytes    packets ...|bytes    packets ...
    lo: 777 7 0 0 0 0 0 0 777 7 0 0 0 0 0 0
  eth0: {received} 9 0 0 0 0 0 0 {sent} 5 0 0 0 0 0 0
"""
"""/proc/PID/net/dev of a process in the network of its pod."""


def write_process(root: Path, pid: int, *, cgroup: str, argv0: str, started: int = 4242) -> None:
    folder = root / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    comm = Path(argv0).name
    (folder / "cgroup").write_text(f"0::{cgroup}\n")
    (folder / "cmdline").write_bytes(argv0.encode() + b"\0--secret=hunter2\0")
    (folder / "comm").write_text(f"{comm}\n")
    (folder / "net").mkdir(exist_ok=True)
    (folder / "net/dev").write_text(NET_DEV.format(received=1_000_000 + pid, sent=2_000))
    (folder / "stat").write_text(f"{pid} ({comm}) S {' '.join(['1'] * 18)} {started} 1 1\n")
