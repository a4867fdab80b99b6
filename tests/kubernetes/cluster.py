"""The `kubernetes` fixture: a real control plane, shared by all tests of a run, and what tests do with it.

    def test_it(kubernetes: Cluster) -> None:
        namespace = kubernetes.add_namespace()
        node = kubernetes.add_node(gpus=8)
        kubernetes.apply(pod("trainer", namespace, node=node))
        kubernetes.wait_for_pods(namespace, 1)

Every test uses its own namespaces and nodes, since other tests use the cluster at the same time. Pods become Running on
nodes that kwok manages; on the others nothing happens that the test does not do itself.
"""

import base64
import fcntl
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from gpusteward.kubernetes.api import ApiServer
from tests.conftest import give_up
from tests.kubernetes import control_plane, kept_connections
from tests.waiting import wait_until

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
RBAC = "rbac.authorization.k8s.io/v1"
TRIES = 10
TRANSACTION_SIZE = 500  # objects
NOT_MANAGED = "tests/not-managed"
"""The taint of nodes that kwok does not manage."""


class ApiError(Exception):
    """The API server refused a request of the test."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{status}: {reason}")
        self.status = status


@dataclass(frozen=True)
class Account:
    """A service account: its user name, and the folder that a kubelet would mount into its pods."""

    user: str
    folder: Path
    role: Json = field(default_factory=dict)  # empty if it was not made by `add_account`


@dataclass(frozen=True)
class Cluster:
    """A running control plane. All requests of its methods are those of an administrator."""

    programs: Path
    folder: Path  # of the control plane: logs, credentials
    accounts: Path  # folder for the tokens of this test process
    address: str
    port: int = control_plane.API_PORT
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def url(self) -> str:
        return f"https://{self.address}:{self.port}"

    @property
    def ca_path(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def environ(self) -> Mapping[str, str]:
        """What a pod finds in its environment."""
        return {"KUBERNETES_SERVICE_HOST": self.address, "KUBERNETES_SERVICE_PORT": str(self.port)}

    def connect(self, account: Account) -> ApiServer:
        """The API server as the product sees it in a pod of this account."""
        return ApiServer.from_cluster(self.environ, account=account.folder)

    def request(self, method: str, path: str, body: Json | None = None, *, media: str = "application/json") -> Json:
        """Raises ApiError. "Too many requests" is tried again as kubectl does: a server that has just learned of a
        custom kind answers so."""
        for _ in range(TRIES - 1):
            try:
                return self._request(method, path, body, media)
            except ApiError as error:
                if error.status != HTTPStatus.TOO_MANY_REQUESTS:
                    raise
            time.sleep(1)
        return self._request(method, path, body, media)

    def _request(self, method: str, path: str, body: Json | None, media: str) -> Json:
        headers = {"Authorization": f"Bearer {control_plane.ADMIN_TOKEN}", "Content-Type": media}
        data = None if body is None else json.dumps(body).encode()
        server = (self.address, self.port, self.ca_path)
        try:
            status, answer = kept_connections.send(server, method, path, body=data, headers=headers)
        except OSError as error:
            if (reason := self.folder / "failed").exists():
                raise RuntimeError(reason.read_text()) from error
            raise
        if status >= HTTPStatus.BAD_REQUEST:
            raise ApiError(status, answer.decode(errors="replace")[:1000])
        return dict(json.loads(answer))

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """Run kubectl. Takes a third of a second: `apply` and `request` are faster."""
        command = [str(self.programs / "kube"), "kubectl", f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def apply(self, *objects: Json) -> list[Json]:
        """Create these objects, or change them to be so; as they are then. Raises ApiError."""
        query = "?fieldManager=tests&force=true"
        media = "application/apply-patch+yaml"
        return [self.request("PATCH", path_of(each) + query, each, media=media) for each in objects]

    def set_status(self, item: Json, status: Json) -> Json:
        """Merge these fields into an object's status, as a kubelet or controller does."""
        media = "application/merge-patch+json"
        return self.request("PATCH", f"{path_of(item)}/status", {"status": status}, media=media)

    def delete(self, item: Json, *, propagation: str = "Background") -> None:
        """Delete at once. `propagation`: `Background`, `Foreground` or `Orphan`. Raises ApiError."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation, "gracePeriodSeconds": 0}
        self.request("DELETE", path_of(item), body)

    def exists(self, item: Json) -> bool:
        try:
            self.request("GET", path_of(item))
        except ApiError as error:
            if error.status != 404:
                raise
            return False
        return True

    def add_namespace(self, prefix: str = "test") -> str:
        """A new namespace in which pods can be created."""
        name = self.make_name(prefix)
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}
        wait_for(lambda: self.exists(account))
        return name

    def add_node(self, *, gpus: int = 0, is_managed: bool = True, labels: Mapping[str, str] | None = None) -> str:
        """A new node. Pods become Running only where kwok manages it. On others only pods are scheduled that tolerate
        its taint, so that no test waits for a pod on the node of another one."""
        name = self.make_name("node")
        room = {"cpu": "1k", "memory": "4Ti", "pods": "100k", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
        annotations = {"kwok.x-k8s.io/node": "fake"} if is_managed else {}
        metadata = {
            "name": name,
            "annotations": annotations,
            "labels": {"kubernetes.io/hostname": name, **(labels or {})},
        }
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": metadata,
            "spec": {} if is_managed else {"taints": [{"key": NOT_MANAGED, "effect": "NoSchedule"}]},
            "status": {"capacity": room, "allocatable": room},
        }
        self.request("POST", "/api/v1/nodes", node)
        return name

    def add_account(self, namespace: str, rules: Sequence[Json], *, is_cluster_wide: bool = True) -> Account:
        """A new service account with exactly these RBAC rules."""
        name = self.make_name("account")
        kind = "ClusterRole" if is_cluster_wide else "Role"
        about = {"name": f"{namespace}-{name}"} if is_cluster_wide else {"name": name, "namespace": namespace}
        role = {"apiVersion": RBAC, "kind": kind, "metadata": about}
        self.apply(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}},
            {
                "apiVersion": RBAC,
                "kind": f"{kind}Binding",
                "metadata": about,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": about["name"]},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
            },
        )
        account = replace(self.use_account(namespace, name), role=role)
        self.grant(account, rules)
        return account

    def grant(self, account: Account, rules: Sequence[Json]) -> None:
        """Replace the rules of an account made by `add_account`."""
        self.apply({**account.role, "rules": list(rules)})

    def use_account(self, namespace: str, name: str) -> Account:
        """A token for an account that exists, for instance one of a manifest."""
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        folder = self.accounts / f"{namespace}-{name}"
        folder.mkdir(exist_ok=True)
        (folder / "token").write_text(self.request("POST", path, request)["status"]["token"])
        (folder / "namespace").write_text(namespace)
        (folder / "ca.crt").write_bytes(self.ca_path.read_bytes())
        return Account(f"system:serviceaccount:{namespace}:{name}", folder)

    def list_pods(self, namespace: str) -> list[Json]:
        return list(self.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"])

    def wait_for_pods(self, namespace: str, count: int, *, phase: str = "Running") -> list[Json]:
        """The pods of a namespace, as soon as exactly so many of them are in this phase."""
        found: list[Json] = []

        def is_so() -> bool:
            found[:] = [pod for pod in self.list_pods(namespace) if pod["status"].get("phase") == phase]
            return len(found) == count

        wait_for(is_so)
        return found

    def read_audit(self, user: str) -> list[Json]:
        """The audit events of a user so far: `verb`, `requestURI`, `responseStatus`, `userAgent` and more.

        A watch has an event when it starts and another one when it ends.
        """
        lines = (self.folder / f"audit-{self.port}.log").read_text().splitlines()
        events = (json.loads(line) for line in lines if user in line)
        return [event for event in events if event["user"]["username"] == user]

    def store_pods(self, namespace: str, pods: Iterable[Json]) -> None:
        """Write thousands of pods into an empty namespace, past defaults, checks and admission: straight into etcd.

        A pod needs all that the server would have set: `uid`, `creationTimestamp`. Returns when the server knows all.
        """
        count, groups = 0, iter(pods)
        while group := list(itertools.islice(groups, TRANSACTION_SIZE)):
            self.ask_etcd("/v3/kv/txn", {"success": [{"requestPut": _etcd_pair(item)} for item in group]})
            count += len(group)
        wait_for(lambda: self._count_pods(namespace) == count)
        # Pods of one transaction have one version, at which a cache may be incomplete: the next one is beyond doubt.
        self.add_namespace()

    def _count_pods(self, namespace: str) -> int:
        page = self.request("GET", f"/api/v1/namespaces/{namespace}/pods?limit=1")
        return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))

    def ask_etcd(self, path: str, body: Json) -> Json:
        """A request to etcd's JSON gateway, such as `/v3/kv/compaction`."""
        url = f"http://{self.address}:{control_plane.ETCD_PORT}{path}"
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode()), timeout=60) as response:
            return dict(json.load(response))

    @contextmanager
    def another_api_server(self, *flags: str) -> Iterator["ApiServerProcess"]:
        """A second API server on the same etcd, which the test may end and start again, with more flags."""
        port = control_plane.API_PORT + 1 + os.getpid() % 20000 + next(self._numbers)
        server = ApiServerProcess(replace(self, port=port), flags)
        try:
            server.start()
            yield server
        finally:
            server.stop()

    def make_name(self, prefix: str) -> str:
        """A name that no other test of the run has."""
        return f"{prefix}-{os.getpid()}-{next(self._numbers)}"


class ApiServerProcess:
    """An API server of its own for one test. `cluster` is the cluster as seen through it."""

    def __init__(self, cluster: Cluster, flags: Sequence[str] = ()) -> None:
        self.cluster = cluster
        self._flags = flags
        self._running = ExitStack()

    def start(self) -> None:
        folder, port = self.cluster.folder, self.cluster.port
        command = [*control_plane.api_server_command(self.cluster.programs, folder, port), *self._flags]
        process = self._running.enter_context(control_plane.run_program(folder, f"apiserver-{port}", command))
        control_plane.wait_until_ready(folder, port, process)
        self._pid = process.pid

    def pause(self) -> None:
        """It answers nothing, but its connections stay, and take what is sent."""
        os.kill(self._pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._pid, signal.SIGCONT)

    def stop(self) -> None:
        """Kill it: its connections end without a word, new ones are refused."""
        self._running.close()


def path_of(item: Json) -> str:
    """The path of an object in the API; one with a namespace is not cluster-wide."""
    version, about = item["apiVersion"], item["metadata"]
    start = f"/apis/{version}" if "/" in version else f"/api/{version}"
    where = f"/namespaces/{about['namespace']}" if "namespace" in about else ""
    return f"{start}{where}/{_plural(item['kind'])}/{about['name']}"


def _plural(kind: str) -> str:
    name = kind.lower()
    if name.endswith("constraints"):  # SecurityContextConstraints: a plural already
        return name
    if name.endswith("y"):
        return f"{name[:-1]}ies"
    return f"{name}es" if re.search("(s|x|ch)$", name) else f"{name}s"


def _etcd_pair(pod: Json) -> Json:
    key = f"/registry/pods/{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    return {"key": _base64(key.encode()), "value": _base64(json.dumps(pod).encode())}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def pod(name: str, namespace: str, *, node: str = "", gpus: int = 0, **metadata: Any) -> Json:
    """A pod with one container; `metadata`: `labels`, `annotations`, `ownerReferences` and so on."""
    room = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}} if gpus else {}
    spec: Json = {"containers": [{"name": "main", "image": "cuda", **room}], "terminationGracePeriodSeconds": 0}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": spec | ({"nodeName": node} if node else {}),
    }


def wait_for(condition: Callable[[], bool], seconds: float = 150.0) -> None:
    """Wait for a condition of the cluster."""
    wait_until(condition, seconds, lambda: f"not so after {seconds:.0f} s")


def find_programs() -> Path:
    """The folder that `make components` fills; without it the test is skipped, or fails in CI."""
    where = subprocess.run([ROOT / ".ci/kubernetes", "path"], capture_output=True, text=True, check=True)
    folder = Path(where.stdout.strip())
    if not all((folder / name).exists() for name in ("kube", "kwok")):
        give_up("Kubernetes is not built; `make components` builds it")
    return folder


@contextmanager
def using_control_plane(programs: Path, folder: Path) -> Iterator[str]:
    """The address of the folder's control plane, started if nobody uses it yet. It ends with its last user."""
    folder.mkdir(exist_ok=True)
    with (folder / "users").open("a") as users:
        with (folder / "starting").open("w") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX)
            fcntl.flock(users, fcntl.LOCK_SH)  # waits for the end of one that has lost its last user
            if not (folder / "ready").exists():
                _start_control_plane(programs, folder)
        yield (folder / "address").read_text()


def _start_control_plane(programs: Path, folder: Path) -> None:
    failed = folder / "failed"
    failed.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.kubernetes.control_plane", str(programs), str(folder)]
    with (folder / "control-plane.log").open("ab") as log:
        subprocess.run(["setsid", "--fork", *command], cwd=ROOT, stdout=log, stderr=log, check=True)
    wait_for(lambda: (folder / "ready").exists() or failed.exists(), control_plane.START_SECONDS + 10)
    if failed.exists():
        raise RuntimeError(failed.read_text())


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane shared by all tests of a run, also by those of other xdist workers."""
    programs = find_programs()
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    with using_control_plane(programs, shared / "kubernetes") as address:
        yield Cluster(programs, shared / "kubernetes", tmp_path_factory.mktemp("accounts"), address)
