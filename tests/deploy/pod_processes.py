"""A kubelet of the tests: runs the containers of real pods as processes on this machine.

A process gets what the pod says: arguments, variables, ConfigMaps, Secrets, claims and the token of its service
account at their paths, below a root of its own. Differences to a pod: the user is root, the image is this checkout,
paths of the node are folders of the test, and `--address=:PORT` becomes the pod's own address, one of the loopback.

    with PodNode(cluster, namespace, folder).running() as node:
        helm.run("install", ..., "--wait")
"""

import base64
import itertools
import os
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import give_up
from tests.kubernetes.cluster import ApiError, Cluster, Json

POLL_SECONDS = 0.2
HEARTBEAT_SECONDS = 10.0
NO_MOUNTS = 97
NUMBERS = itertools.count()  # of the pods of all nodes of this process, for their addresses
IN_A_POD = f"""
root=$1 mounts=$2; shift 2
mount --make-rprivate / && mount -t tmpfs -o mode=755 none "$root" || exit {NO_MOUNTS}
for each in /*; do
  case $each in /etc|/run|/var|/host) continue;; esac
  if [ -L "$each" ]; then cp -P "$each" "$root/"
  elif [ -d "$each" ]; then mkdir "$root$each" && mount --rbind "$each" "$root$each" || exit {NO_MOUNTS}; fi
done
cp -a /etc "$root/" 2>/dev/null
mkdir -p "$root/run" "$root/var/lib" && ln -s ../run "$root/var/run"
while IFS='	' read -r source target mode; do
  if [ -d "$source" ]; then mkdir -p "$root$target"; else mkdir -p "$(dirname "$root$target")"; touch "$root$target"; fi
  mount --bind "$source" "$root$target" && mount -o "remount,bind,$mode" "$root$target" || exit {NO_MOUNTS}
done <"$mounts"
mount -o remount,ro "$root" || exit {NO_MOUNTS}
exec chroot "$root" env -i "$@"
"""


@dataclass
class PodProcess:
    """A pod, and the process of its only container."""

    pod: Json
    address: str
    folder: Path
    process: subprocess.Popen[bytes]
    is_ready: bool = False

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def stop(self) -> None:
        if self.process.poll() is None:
            with suppress(PermissionError):  # where it was started with sudo
                self.process.terminate()
            if os.getuid():
                subprocess.run(["sudo", "-n", "kill", str(self.process.pid)], check=False)
        self.process.wait(30)


@dataclass
class PodNode:
    """A node that runs the pods of one namespace."""

    cluster: Cluster
    namespace: str
    folder: Path
    host_paths: Mapping[str, Path] = field(default_factory=dict)  # path of the node -> folder of the test
    environ: Mapping[str, str] = field(default_factory=dict)  # for every process: the driver of the test
    hosts: dict[str, str] = field(default_factory=dict)  # component -> name of its Service
    name: str = ""
    pods: dict[str, PodProcess] = field(default_factory=dict)  # by name
    ended: dict[str, PodProcess] = field(default_factory=dict)  # the last one of each name
    errors: list[str] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator["PodNode"]:
        labels = {"tests/namespace": self.namespace, "nvidia.com/gpu.present": "true"}
        self.name = self.cluster.add_node(gpus=8, is_managed=False, labels=labels)
        stopping = threading.Event()
        thread = threading.Thread(target=self._run, args=(stopping,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            stopping.set()
            thread.join(60)
            for each in self.pods.values():
                each.stop()
        assert self.errors == []

    def find_pod(self, component: str) -> PodProcess:
        """The running pod of a component of the chart."""
        (found,) = [each for each in list(self.pods.values()) if _component_of(each.pod) == component]
        return found

    def find_claim(self, name: str) -> Path:
        """The folder of a claim."""
        path = f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims/{name}"
        folder = self.folder / "claims" / self.cluster.request("GET", path)["metadata"]["uid"]
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _run(self, stopping: threading.Event) -> None:
        beat_at = 0.0
        while not stopping.is_set():
            try:
                if time.monotonic() >= beat_at:
                    beat_at = time.monotonic() + HEARTBEAT_SECONDS
                    self._set_node_ready()
                self._synchronize()
            except Exception as error:  # noqa: BLE001 - the test that waits for the pod shall see it
                self.errors.append(repr(error))
            stopping.wait(POLL_SECONDS)

    def _set_node_ready(self) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}}
        self.cluster.set_status(node, {"conditions": [{"type": "Ready", "status": "True", "reason": "Test", **times}]})

    def _synchronize(self) -> None:
        pods = {
            each["metadata"]["name"]: {"apiVersion": "v1", "kind": "Pod", **each}
            for each in self.cluster.list_pods(self.namespace)
            if each["spec"].get("nodeName") == self.name
        }
        for name in self.pods.keys() - pods.keys():
            self.pods.pop(name).stop()
        for name, pod in pods.items():
            if "deletionTimestamp" in pod["metadata"]:
                self._delete(name, pod)
            elif name not in self.pods and pod["status"].get("phase") == "Pending":
                self.pods[name] = self._start(pod)
                self._report(self.pods[name])
            elif name in self.pods:
                self._check(self.pods[name])

    def _delete(self, name: str, pod: Json) -> None:
        if name in self.pods:
            self.ended[name] = self.pods.pop(name)
            self.ended[name].stop()
        with suppress(ApiError):  # it is gone already
            self.cluster.delete(pod)

    def _check(self, running: PodProcess) -> None:
        name, code = running.pod["metadata"]["name"], running.process.poll()
        is_ready = code is None and _is_ready(running)
        has_ended = code is not None and self.ended.get(name) is not running
        if has_ended:
            self.ended[name] = running
        if has_ended or is_ready != running.is_ready:
            running.is_ready = is_ready
            self._report(running)

    def _report(self, running: PodProcess) -> None:
        """Set the status of a pod as a kubelet does."""
        code, (container,) = running.process.poll(), running.pod["spec"]["containers"]
        phase = "Running" if code is None else "Failed" if code else "Succeeded"
        if running.pod["spec"]["restartPolicy"] != "Never":
            phase = "Running"
        ready = {"status": str(running.is_ready), "lastTransitionTime": "2026-01-01T00:00:00Z"}
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        state = {"running": {"startedAt": now}} if code is None else {"terminated": {"exitCode": code}}
        status = {
            "phase": phase,
            "hostIP": "127.0.0.1",
            "podIP": running.address,
            "podIPs": [{"ip": running.address}],
            "conditions": [{"type": each, **ready} for each in ("Ready", "ContainersReady")],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "containerID": f"containerd://{running.pod['metadata']['uid']}",
                    "ready": running.is_ready,
                    "restartCount": 0,
                    "state": state,
                }
            ],
        }
        with suppress(ApiError):  # it was deleted meanwhile
            self.cluster.set_status(running.pod, status)

    def _start(self, pod: Json) -> PodProcess:
        number, pid = next(NUMBERS), os.getpid()
        address = f"127.{208 + number % 40}.{pid // 256 % 256}.{pid % 254 + 1}"
        folder = self.folder / "pods" / f"{pod['metadata']['name']}-{number}"
        (folder / "root").mkdir(parents=True)
        (container,) = pod["spec"]["containers"]
        mounts = [*self._list_mounts(pod, folder), self._write_hosts(folder)]
        (folder / "mounts").write_text("".join(f"{source}\t{target}\t{mode}\n" for source, target, mode in mounts))
        variables = {**self.environ, **self._list_variables(pod, container, address)}
        words = [each.replace("--address=:", f"--address={address}:") for each in container["args"]]
        command = [sys.executable, "-m", "gpusteward.cli.main", *words]
        as_root = [] if os.getuid() == 0 else ["sudo", "-n"]
        inside = [*(f"{name}={value}" for name, value in variables.items()), *command]
        script = ["unshare", "-m", "sh", "-c", IN_A_POD, "sh", str(folder / "root"), str(folder / "mounts"), *inside]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(["setpriv", "--pdeathsig=KILL", *as_root, *script], stdout=log, stderr=log)
        return PodProcess(pod, address, folder, process)

    def _write_hosts(self, folder: Path) -> tuple[Path, str, str]:
        """Names of Services, as far as their pods run: what the DNS of a cluster knows."""
        known = [(self.hosts.get(_component_of(each.pod)), each.address) for each in self.pods.values()]
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in known if name)]
        (folder / "hosts").write_text("".join(f"{line}\n" for line in lines))
        return folder / "hosts", "/etc/hosts", "ro"

    def _list_variables(self, pod: Json, container: Json, address: str) -> dict[str, str]:
        fields = {
            "spec.nodeName": self.name,
            "metadata.name": pod["metadata"]["name"],
            "metadata.namespace": self.namespace,
            "status.podIP": address,
        }
        found = {"PATH": os.environ["PATH"], **self.cluster.environ}
        for each in container.get("env", ()):
            source = each.get("valueFrom", {})
            if "fieldRef" in source:
                found[each["name"]] = fields[source["fieldRef"]["fieldPath"]]
            elif "secretKeyRef" in source:
                keys = self.read_secret(source["secretKeyRef"]["name"])
                if source["secretKeyRef"]["key"] in keys:
                    found[each["name"]] = keys[source["secretKeyRef"]["key"]].decode()
            else:
                found[each["name"]] = each.get("value", "")
        return found

    def _list_mounts(self, pod: Json, folder: Path) -> Iterator[tuple[Path, str, str]]:
        """Folder, path in the container, and mode of every mount."""
        volumes = {each["name"]: each for each in pod["spec"].get("volumes", ())}
        for mount in pod["spec"]["containers"][0].get("volumeMounts", ()):
            source = self._make_volume(pod, volumes[mount["name"]], folder)
            yield source, mount["mountPath"], "ro" if mount.get("readOnly") else "rw"

    def _make_volume(self, pod: Json, volume: Json, folder: Path) -> Path:
        if "hostPath" in volume:
            return self.host_paths[volume["hostPath"]["path"]]
        if "persistentVolumeClaim" in volume:
            return self.find_claim(volume["persistentVolumeClaim"]["claimName"])
        if "projected" in volume:  # kube-api-access: the account's token, its namespace, the authority
            return self.cluster.use_account(self.namespace, pod["spec"]["serviceAccountName"]).folder
        made = folder / "volumes" / volume["name"]
        made.mkdir(parents=True, exist_ok=True)
        if "configMap" in volume:
            for name, text in self._read("configmaps", volume["configMap"]["name"]).get("data", {}).items():
                (made / name).write_text(text)
        elif "secret" in volume:
            self._write_secret(volume["secret"], made)
        else:
            assert "emptyDir" in volume, volume
        return made

    def _write_secret(self, volume: Json, folder: Path) -> None:
        keys = self.read_secret(volume["secretName"])
        wanted = {each["key"]: each["path"] for each in volume.get("items", ())} or {name: name for name in keys}
        for key, path in wanted.items():
            (folder / path).write_bytes(keys[key])
            (folder / path).chmod(volume["defaultMode"])

    def read_secret(self, name: str) -> dict[str, bytes]:
        return {key: base64.b64decode(text) for key, text in self._read("secrets", name).get("data", {}).items()}

    def _read(self, plural: str, name: str) -> Json:
        return self.cluster.request("GET", f"/api/v1/namespaces/{self.namespace}/{plural}/{name}")


def _component_of(pod: Json) -> str:
    return str(pod["metadata"].get("labels", {}).get("app.kubernetes.io/component", ""))


def _is_ready(running: PodProcess) -> bool:
    """By its readiness probe; without one a container that runs is ready."""
    (container,) = running.pod["spec"]["containers"]
    if "readinessProbe" not in container:
        return True
    probe = container["readinessProbe"]["httpGet"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    url = f"{probe['scheme'].lower()}://{running.address}:{ports[probe['port']]}{probe['path']}"
    context = ssl._create_unverified_context()  # as a kubelet probes
    try:
        with urllib.request.urlopen(url, timeout=5, context=context):
            return True
    except (OSError, urllib.error.HTTPError):
        return False


def check_mounts(folder: Path) -> None:
    """Gives up where no root of its own can be made for a process."""
    (folder / "root").mkdir(parents=True)
    (folder / "mounts").write_text("")
    as_root = [] if os.getuid() == 0 else ["sudo", "-n"]
    words = ["unshare", "-m", "sh", "-c", IN_A_POD, "sh", str(folder / "root"), str(folder / "mounts"), "true"]
    done = subprocess.run([*as_root, *words], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        give_up(f"no mount namespace: {done.stderr.strip()}")
