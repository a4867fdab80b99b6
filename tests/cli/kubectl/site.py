"""An analyzer behind a Service of a real API server, and people with kubeconfigs.

The API server forwards requests only to addresses that are not on the loopback. The pod therefore has an address of no
machine, and the API server connects to it through a proxy on the loopback (its egress selector), which leads to the
analyzer.
"""

import contextlib
import json
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme
import yaml

from gpusteward.analyzer.api.http.token_verifiers import ServiceAccountVerifier
from gpusteward.analyzer.settings.settings import Settings
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import Api, running_api
from tests.kubernetes.cluster import RBAC, Account, ApiError, Cluster, Json, pod, wait_for

ADDRESS = "198.51.100.7"  # of no machine (RFC 5737)
LABELS = {"app.kubernetes.io/name": "gpusteward", "app.kubernetes.io/component": "analyzer"}
ROLES = ("gpusteward-viewer", "gpusteward-operator", "gpusteward-kubectl")
MANIFEST = Path(__file__).parents[3] / "deploy/manifests/analyzer.yaml"
EGRESS = """
apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
  - name: cluster
    connection:
      proxyProtocol: HTTPConnect
      transport: {{uds: {{udsName: {path}}}}}
"""


class ConnectProxy:
    """An HTTP proxy for CONNECT. `targets`: where an address really is; others are not connected to."""

    def __init__(self, path: Path | None = None) -> None:
        """Listens on a Unix socket, or on a free port of the loopback."""
        self.targets: dict[str, tuple[str, int]] = {}
        self.connected: list[str] = []
        self.forwarded: list[bytes] = []  # to the servers
        is_unix = path is not None
        self._listener = socket.socket(socket.AF_UNIX if is_unix else socket.AF_INET)
        self._listener.bind(str(path) if is_unix else ("127.0.0.1", 0))
        self._listener.listen()
        self.port = 0 if is_unix else self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(1)
            wanted = head.split()[1].decode()
            self.connected.append(wanted)
            if wanted not in self.targets:
                client.sendall(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
                return
            with socket.create_connection(self.targets[wanted]) as server:
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                back = threading.Thread(target=_forward, args=(server, client), daemon=True)
                back.start()
                _forward(client, server, self.forwarded)
                back.join()


def _forward(source: socket.socket, target: socket.socket, seen: list[bytes] | None = None) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            if seen is not None:
                seen.append(data)
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@dataclass
class Site:
    """A cluster with an analyzer in `namespace`, and what tests do with it."""

    cluster: Cluster
    namespace: str
    api: Api
    proxy: ConnectProxy  # between API server and analyzer
    authority: trustme.CA  # of client certificates that the API server accepts
    folder: Path
    kubectl: Path  # folder of the real kubectl

    def write_kubeconfig(
        self,
        name: str,
        user: Mapping[str, Any],
        *,
        namespace: str = "",
        cluster: Mapping[str, Any] | None = None,
    ) -> Path:
        server = {"server": self.cluster.url, "certificate-authority": str(self.cluster.ca_path), **(cluster or {})}
        context = {"cluster": "c", "user": name, **({"namespace": namespace} if namespace else {})}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": "c", "cluster": {key: value for key, value in server.items() if value is not None}}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": name, "context": context}],
        }
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(json.dumps(config))
        return path

    def add_person(self, *roles: str, namespace: str = "", rules: Sequence[Json] = ()) -> tuple[Account, Path]:
        """Somebody with these Roles of the analyzer's namespace, and with more rules in `namespace`."""
        account = self.cluster.add_account(namespace or self.namespace, rules, is_cluster_wide=False)
        for role in roles:
            self.bind(role, account.user)
        token = (account.folder / "token").read_text()
        return account, self.write_kubeconfig(self.cluster.make_name("person"), {"token": token}, namespace=namespace)

    def bind(self, role: str, user: str) -> None:
        name = self.cluster.make_name("binding")
        subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
        self.cluster.apply(
            {
                "apiVersion": RBAC,
                "kind": "RoleBinding",
                "metadata": {"name": name, "namespace": self.namespace},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
                "subjects": [subject],
            }
        )

    def add_viewer_account(self, namespace: str) -> None:
        about = {"name": "gpusteward-viewer", "namespace": namespace}
        self.cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about})

    def create_token(self, namespace: str, name: str, *, audience: str = "gpusteward", seconds: int = 600) -> str:
        spec = {"audiences": [audience], "expirationSeconds": seconds}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        return str(self.cluster.request("POST", path, body)["status"]["token"])


@contextlib.contextmanager
def running_site(kubernetes: Cluster, folder: Path, **components: Any) -> Iterator[Site]:
    """With the service accounts and roles that an installation makes. `components`: of the analyzer."""
    path = Path(tempfile.mkdtemp()) / "egress"  # the path of a socket must be short
    proxy, authority = ConnectProxy(path), trustme.CA()
    egress, clients = folder / "egress.yaml", folder / "clients.pem"
    egress.write_text(EGRESS.format(path=path))
    clients.write_bytes(authority.cert_pem.bytes())
    flags = [f"--egress-selector-config-file={egress}", f"--client-ca-file={clients}"]
    with contextlib.closing(proxy), kubernetes.another_api_server(*flags) as server:
        cluster = server.cluster
        namespace = cluster.add_namespace("analyzer")
        own = cluster.add_account(namespace, [])
        environ = {**cluster.environ, "POD_NAMESPACE": namespace}
        settings = Settings.model_validate({"auth": {"kubernetes": {"enabled": True}}})
        verifier = ServiceAccountVerifier(environ, account=own.folder)
        components = {"settings": settings, "service_accounts": verifier, **components}
        with running_api(small_result(), **components) as api:
            proxy.targets[f"{ADDRESS}:8080"] = "127.0.0.1", int(api.url.rpartition(":")[2])
            cluster.apply(*list_roles(namespace))
            add_analyzer(cluster, namespace)
            yield Site(cluster, namespace, api, proxy, authority, folder, link_kubectl(cluster, folder))


def link_kubectl(cluster: Cluster, folder: Path) -> Path:
    """A folder for the PATH."""
    program = folder / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {cluster.programs / "kube"} kubectl "$@"\n')
    program.chmod(0o755)
    return program.parent


def list_roles(namespace: str) -> list[Json]:
    """The service accounts and Roles of the manifest that people use, in another namespace."""
    objects = [each for each in yaml.safe_load_all(MANIFEST.read_text()) if each and each["metadata"]["name"] in ROLES]
    assert [each["kind"] for each in objects] == ["ServiceAccount"] * 2 + ["Role"] * 3
    return [{**each, "metadata": {**each["metadata"], "namespace": namespace}} for each in objects]


def add_analyzer(cluster: Cluster, namespace: str, name: str = "gpusteward-analyzer") -> None:
    """A pod at ADDRESS and a Service in front of it. Returns when the Service has its endpoint."""
    node = cluster.add_node(is_managed=False)
    own = {"test-pod": name}
    (created,) = cluster.apply(pod(name, namespace, node=node, labels=own))
    is_ready = {"type": "Ready", "status": "True"}
    status = {"phase": "Running", "podIP": ADDRESS, "podIPs": [{"ip": ADDRESS}], "conditions": [is_ready]}
    cluster.set_status(created, status)
    about = {"name": name, "namespace": namespace}
    ports = [{"name": "http", "port": 80, "targetPort": 8080}]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {**about, "labels": LABELS}}
    cluster.apply({**service, "spec": {"selector": own, "ports": ports}})
    wait_for(lambda: has_endpoint(cluster, namespace, name))


def has_endpoint(cluster: Cluster, namespace: str, name: str) -> bool:
    try:
        subsets = cluster.request("GET", f"/api/v1/namespaces/{namespace}/endpoints/{name}").get("subsets", ())
        return any(each.get("addresses") for each in subsets)
    except ApiError as error:
        if error.status != 404:
            raise
        return False
