"""The node: containerd, a kubelet and device plugins as processes, all in one folder, and what its containers are.

It runs in the mount and PID namespaces that `.ci/kubelet` has made: what is mounted or left running ends with them.
"""

import io
import json
import os
import socket
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tests.kubernetes.cluster import Cluster, Json, wait_for
from tests.kubernetes.control_plane import run_program

NAME = "gpu-node"
IMAGE = "gpusteward.invalid/gpunode:1"
KUBELET = Path("/var/lib/kubelet")  # the device plugins' directory below it is fixed
CGROUP = os.environ.get("GPUSTEWARD_KUBELET_CGROUP", "")

CONTAINERD_CONFIG = """
version = 2
root = "{folder}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{image}"
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{folder}/cni"
conf_dir = "{folder}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "{runc}"
"""


@dataclass(frozen=True)
class Programs:
    """The programs that `.ci/kubelet` has found or built."""

    kube: Path
    gpunode: Path
    containerd: Path  # folder with containerd, its shim, ctr and runc

    @classmethod
    def from_environment(cls) -> "Programs":
        return cls(*(Path(os.environ[f"GPUSTEWARD_KUBELET_{name}"]) for name in ("KUBE", "GPUNODE", "CONTAINERD")))

    def read_version(self, name: str) -> str:
        command = [str(self.kube), "kubelet", "--version"] if name == "kubelet" else [self.find(name), "--version"]
        words = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[0].split()
        return next(word for word in words if word.lstrip("v")[:1].isdigit())

    def find(self, name: str) -> str:
        return str(self.containerd / name)


class RealNode:
    """A running node. The kubelet uses an API server of its own, which a test may stop."""

    def __init__(self, cluster: Cluster, programs: Programs, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self._programs = programs
        self._kubelet = ExitStack()

    @contextmanager
    def run(self, devices: Mapping[str, Sequence[str]]) -> Iterator["RealNode"]:
        """Start everything; the device plugins have these ids by resource."""
        with ExitStack() as running:
            self._start_containerd(running)
            running.callback(self.stop_kubelet)
            self.start_kubelet()
            for resource, ids in devices.items():
                command = [str(self._programs.gpunode), "plugin", resource, *ids]
                running.enter_context(run_program(self.folder, f"plugin-{resource.replace('/', '-')}", command))
            wait_for(lambda: self._read_capacity() == {name: len(ids) for name, ids in devices.items()})
            yield self

    def start_kubelet(self) -> None:
        """Start it, or start it again after `stop_kubelet`."""
        config = self.folder / "kubelet.json"
        config.write_text(json.dumps(self._configure_kubelet()))
        command = [
            *(str(self._programs.kube), "kubelet", f"--config={config}", f"--hostname-override={NAME}"),
            *(f"--kubeconfig={self._write_kubeconfig()}", f"--root-dir={KUBELET}", f"--cert-dir={self.folder}/pki"),
        ]
        self._kubelet.enter_context(run_program(self.folder, "kubelet", command))
        wait_for((KUBELET / "pod-resources/kubelet.sock").exists)

    def stop_kubelet(self) -> None:
        self._kubelet.close()
        (KUBELET / "pod-resources/kubelet.sock").unlink(missing_ok=True)

    def _start_containerd(self, running: ExitStack) -> None:
        config = self.folder / "containerd.toml"
        runc = self._programs.find("runc")
        config.write_text(CONTAINERD_CONFIG.format(folder=self.folder, image=IMAGE, runc=runc))
        os.environ["PATH"] = f"{self._programs.containerd}:{os.environ['PATH']}"  # where it looks for its shim
        command = [self._programs.find("containerd"), "--config", str(config)]
        running.enter_context(run_program(self.folder, "containerd", command))
        wait_for(lambda: _accepts_connections(self.folder / "containerd.sock"))
        image = self.folder / "image.tar"
        write_image(image, self._programs.gpunode)
        ctr = [self._programs.find("ctr"), "--address", f"{self.folder}/containerd.sock", "--namespace", "k8s.io"]
        subprocess.run([*ctr, "images", "import", "--snapshotter", "native", str(image)], check=True, timeout=60)

    def _configure_kubelet(self) -> Json:
        """Settings that a machine with hybrid cgroups needs, and none that could touch it beyond this node."""
        never = dict.fromkeys(("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available"), "0%")
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{self.folder}/containerd.sock",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": CGROUP,
            "enforceNodeAllocatable": ["none"],
            "failCgroupV1": False,
            "failSwapOn": False,
            "localStorageCapacityIsolation": False,
            "makeIPTablesUtilChains": False,
            "oomScoreAdj": 0,
            "evictionHard": never,
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "address": "127.0.0.1",
            "port": _find_port(),
            "healthzPort": 0,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "podLogsDir": f"{self.folder}/pod-logs",
            "volumePluginDir": f"{self.folder}/volume-plugins",
            "resolvConf": "",
            "syncFrequency": "5s",
        }

    def _write_kubeconfig(self) -> Path:
        path = self.folder / "kubeconfig"
        usual, own = f":{type(self.cluster).port}", f":{self.cluster.port}"
        path.write_text(self.cluster.kubeconfig.read_text().replace(usual, own))
        return path

    def _read_capacity(self) -> dict[str, int]:
        nodes = self.cluster.request("GET", "/api/v1/nodes")["items"]
        status = next((node["status"] for node in nodes if node["metadata"]["name"] == NAME), {})
        allocatable = status.get("allocatable", {})
        return {name: int(count) for name, count in allocatable.items() if name.startswith("nvidia.com/")}


def write_image(path: Path, program: Path) -> None:
    """An OCI image with one program."""
    layer = _make_tar({"gpunode": program.read_bytes()}, mode=0o755)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/gpunode"], "Cmd": ["sleep"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(layer).hexdigest()}"]},
    }
    blobs: dict[str, bytes] = {}

    def add(data: bytes, media: str, **more: Json) -> Json:
        digest = sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(data), **more}

    start = "application/vnd.oci.image"
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{start}.manifest.v1+json",
        "config": add(json.dumps(config).encode(), f"{start}.config.v1+json"),
        "layers": [add(layer, f"{start}.layer.v1.tar")],
    }
    named = add(
        json.dumps(manifest).encode(), f"{start}.manifest.v1+json", annotations={"io.containerd.image.name": IMAGE}
    )
    blobs["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [named]}).encode()
    blobs["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
    path.write_bytes(_make_tar(blobs))


def _make_tar(files: Mapping[str, bytes], *, mode: int = 0o644) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in files.items():
            about = tarfile.TarInfo(name)
            about.size, about.mode = len(data), mode
            tar.addfile(about, io.BytesIO(data))
    return out.getvalue()


def _find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _accepts_connections(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0
