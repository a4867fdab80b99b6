"""The chart's pods as real processes on a real API server: agent, analyzer and `helm test`, each with its own account.

The previous chart is installed first, with the ledger that it left; the upgrade starts the analyzer of this checkout.
"""

import json
import sqlite3
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import trustme

from gpusteward.analyzer.ledger.database.db_engine import open_engine
from gpusteward.analyzer.ledger.database.schema import allocations
from gpusteward.analyzer.ledger.database.schema_version import create_tables
from tests.deploy.helm import CHART, Helm, HelmError
from tests.deploy.pod_processes import PodNode, check_mounts
from tests.deploy.test_chart_release import HASH, PREVIOUS, Release, is_ready, merge
from tests.fakes import nvml_scenarios as nvml
from tests.fakes.kubelet import FakeKubelet, device_claim, response
from tests.fakes.machines import write_process
from tests.fakes.nvml_library import build_library
from tests.kubernetes.cluster import Cluster, Json, wait_for

pytestmark = pytest.mark.slow

PID = 4242
NODE_PATHS = ("/proc", "/var/lib/kubelet/pod-resources", "/sys/fs/cgroup")
"""What the agent mounts."""


@dataclass(frozen=True)
class Installation:
    """A release whose pods run here, and the workload that its agent sees."""

    release: Release
    node: PodNode
    tenant: str  # namespace of a Deployment `trainer` with one GPU
    claim: Json  # before the upgrade

    def get(self, path: str, token: str) -> Any:
        return get(self.node, path, token)

    def find_events(self, component: str) -> list[Json]:
        """What the API server was asked for by the account of this component."""
        cluster, about = self.release.cluster, self.node.find_pod(component).pod
        account = about["spec"]["serviceAccountName"]
        return cluster.read_audit(f"system:serviceaccount:{self.release.namespace}:{account}")

    @property
    def viewer(self) -> str:
        secret = self.node.read_secret(f"{self.release.name}-analyzer")
        return secret["viewer"].decode()


def get(node: PodNode, path: str, token: str) -> Any:
    """From the analyzer."""
    url = f"http://{node.find_pod('analyzer').address}:8080{path}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def make_values(release: Release) -> Json:
    """With a short window verdicts need a minute. Without kube-proxy the Service has the port of the pod."""
    config = {
        "prometheus": {"time_window_min": 1},
        "scheduler": {"interval": 10},
        "scrape": {"interval": 2},
    }
    tolerations = [{"operator": "Exists"}]
    analyzer = {"config": config, "tolerations": tolerations, "service": {"port": 8080}}
    return merge(release.values, {"agent": {"interval": 1}, "analyzer": analyzer})


@pytest.fixture(scope="module")
def installation(extended: Cluster, helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("pods")
    check_mounts(folder / "trial")
    namespace, tenant = extended.add_namespace("release"), extended.add_namespace("tenant")
    release = Release(extended, helm.using(extended), namespace)
    release.add_volume()
    proc, socket, scenario = folder / "proc", folder / "kubelet", nvml.a100x8()
    socket.mkdir()
    scenario.gpus[0].compute(PID, nvml.GIB)
    scenario.write(folder / "scenario")
    node = PodNode(
        extended,
        namespace,
        folder,
        host_paths=dict(zip(NODE_PATHS, (proc, socket, folder / "cgroup"), strict=True)),
        environ={"LD_LIBRARY_PATH": str(build_library().parent), "FAKE_NVML_SCENARIO": str(folder / "scenario")},
        hosts={"analyzer": f"{release.name}-analyzer"},
    )
    with node.running():
        pod = add_trainer(extended, tenant, node.name)
        cgroup = f"kubepods/pod{pod['metadata']['uid']}"
        write_process(proc, PID, cgroup=f"/{cgroup}/{'a' * 64}", argv0="python3")
        (folder / "cgroup" / cgroup).mkdir(parents=True)
        (folder / "cgroup/cgroup.controllers").touch()
        (folder / "cgroup" / cgroup / "cpu.stat").write_text("usage_usec 1500000\n")
        (folder / "cgroup" / cgroup / "io.stat").touch()
        claim = device_claim(tenant, pod["metadata"]["name"], "main", scenario.gpus[0].uuid)
        with FakeKubelet(socket / "kubelet.sock", response(claim)):
            values = make_values(release)
            release.run("install", PREVIOUS, values=merge(values, {"analyzer": {"replicas": 0}}))
            before = release.read_claim()
            leave_ledger(node.find_claim(f"{release.name}-analyzer"))
            release.run("upgrade", CHART, "--wait", "--timeout=150s", values=values)
            wait_for(lambda: is_ready(release, "deployments", "analyzer"), 150)  # helm waits for no only analyzer
            yield Installation(release, node, tenant, before)
            release.run("uninstall")


def leave_ledger(folder: Path) -> None:
    """What an analyzer has recorded before the upgrade."""
    engine = open_engine(f"sqlite:///{folder / 'gpusteward.db'}")
    create_tables(engine)
    names = {column.name: "" for column in allocations.columns if column.type.python_type is str}
    with engine.begin() as connection:
        connection.execute(allocations.insert(), {**names, "id": 1, "namespace": "team", "first_ms": 1, "last_ms": 2})
    engine.dispose()


def add_trainer(cluster: Cluster, namespace: str, node: str) -> Json:
    """The pod of a Deployment, as a kubelet would have started it."""
    labels = {"app": "trainer"}
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "cuda"}], "terminationGracePeriodSeconds": 0}
    template = {"metadata": {"labels": labels}, "spec": spec}
    about = {"name": "trainer", "namespace": namespace}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": about}
    cluster.apply({**deployment, "spec": {"selector": {"matchLabels": labels}, "template": template}})
    wait_for(lambda: len(cluster.list_pods(namespace)) == 1)
    pod = {"apiVersion": "v1", "kind": "Pod", **cluster.list_pods(namespace)[0]}
    return cluster.set_status(pod, {"phase": "Running"})


def find_workload(installation: Installation) -> Json:
    """The Deployment in the analyzer's list; empty before it is known: a cycle without any agent has no result."""
    try:
        items = installation.get("/api/v1/workloads", installation.viewer)["items"]
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != HTTPStatus.SERVICE_UNAVAILABLE:
            raise
        return {}
    return next((each for each in items if each["namespace"] == installation.tenant), {})


@pytest.mark.timeout(400)
def test_agent_and_analyzer_run_as_the_chart_says_and_judge_a_workload(installation: Installation):
    wait_for(lambda: find_workload(installation).get("activity") == "active", 240)
    found = find_workload(installation)
    assert (found["kind"], found["name"]) == ("Deployment", "trainer"), "its owners were read from the API server"


def test_an_upgrade_keeps_the_claim_and_continues_the_ledger(installation: Installation):
    release = installation.release
    assert release.read_claim()["metadata"]["uid"] == installation.claim["metadata"]["uid"]
    path = installation.node.find_claim(f"{release.name}-analyzer") / "gpusteward.db"
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        assert database.execute("SELECT count(*) FROM allocations WHERE namespace = 'team'").fetchone()[0] > 0
    database.close()
    assert "ledger_created" not in installation.node.find_pod("analyzer").log


def test_people_are_known_to_the_analyzer_by_the_service_accounts_of_the_chart(installation: Installation):
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["gpusteward"]}}
    path = f"/api/v1/namespaces/{installation.release.namespace}/serviceaccounts/gpusteward-viewer/token"
    token = installation.release.cluster.request("POST", path, body)["status"]["token"]
    assert installation.get("/api/v1/me", token)["role"] == "viewer"


def test_helm_test_finds_agents_targets_and_a_verdict(installation: Installation):
    wait_for(lambda: bool(find_workload(installation)), 120)
    text = installation.release.run("test", "--timeout=150s")
    assert "Phase:          Succeeded" in text
    log = installation.node.ended[f"{installation.release.name}-test"].log
    assert "1 of 1" in log
    assert "fail" not in log


def test_helm_test_fails_where_agents_are_not_ready(installation: Installation):
    release, node = installation.release, installation.node
    quick = merge(make_values(release), {"tests": {"waitSeconds": 0}})
    release.run("upgrade", CHART, "--wait", "--timeout=150s", values=quick)
    agent = node.find_pod("agent")
    agent.stop()
    path = f"/apis/apps/v1/namespaces/{release.namespace}/daemonsets/{release.name}-agent"
    wait_for(lambda: not release.cluster.request("GET", path)["status"].get("numberReady"))
    with pytest.raises(HelmError, match="failed"):
        release.run("test", "--timeout=150s")
    assert "0 of 1" in node.ended[f"{release.name}-test"].log


@pytest.mark.parametrize("component", ["agent", "analyzer"])
def test_no_request_to_the_api_server_was_refused_and_none_changed_anything(component: str, installation: Installation):
    wait_for(lambda: bool(find_workload(installation)), 120)
    events = installation.find_events(component)
    assert events
    refused = [each for each in events if each["responseStatus"]["code"] in (401, 403)]
    assert [each["requestURI"] for each in refused] == []
    asked = [each for each in events if "/selfsubjectaccessreviews" not in each["requestURI"]]  # they store nothing
    assert {each["verb"] for each in asked} <= {"get", "list", "watch"}


FOUND_BY_LABEL = {"serviceSelector": "tests/engine=yes", "servicePort": "web"}
RIGHTS: dict[str, tuple[Json, str]] = {
    "engine of one namespace": (
        {"prometheus": {**FOUND_BY_LABEL, "serviceNamespace": "OTHER"}},
        "/api/v1/namespaces/OTHER/services",
    ),
    "engine of any namespace": ({"prometheus": FOUND_BY_LABEL}, "/api/v1/services"),
    "exporters of another namespace": (
        {"analyzer": {"config": {"scrape": {"selector": "app=dcgm", "namespaces": ["OTHER"]}}}},
        "/api/v1/namespaces/OTHER/pods",
    ),
    "exporters of all namespaces": (
        {"analyzer": {"config": {"scrape": {"selector": "app=dcgm", "namespaces": ["*"]}}}},
        "/api/v1/pods",
    ),
}


@pytest.mark.parametrize("case", RIGHTS)
def test_the_chart_gives_the_analyzer_the_rights_that_its_settings_need_and_no_others(
    case: str, extended: Cluster, helm: Helm, tmp_path: Path
):
    check_mounts(tmp_path / "trial")
    release = Release(extended, helm.using(extended), extended.add_namespace("release"))
    other = extended.add_namespace("other")
    about = {"name": "engine", "namespace": other, "labels": {"tests/engine": "yes"}}
    spec = {"ports": [{"name": "web", "port": 9090}]}
    extended.apply({"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": spec})
    text, path = json.dumps(RIGHTS[case][0]).replace("OTHER", other), RIGHTS[case][1].replace("OTHER", other)
    alone = {"agent": {"enabled": False}, "analyzer": {"persistence": {"enabled": False}}}
    with PodNode(extended, release.namespace, tmp_path).running():
        release.run("install", CHART, values=merge(make_values(release), alone, json.loads(text)))
        user = f"system:serviceaccount:{release.namespace}:{release.name}-analyzer"
        wait_for(lambda: any(each["requestURI"].startswith(f"{path}?") for each in extended.read_audit(user)), 120)
        events = extended.read_audit(user)
        asked = [(resource, where) for resource in ("pods", "services", "secrets") for where in (other, "")]
        allowed = {(resource, where) for resource, where in asked if may_list(extended, user, resource, where)}
        release.run("uninstall")
    assert {each["responseStatus"]["code"] for each in events} == {200}
    assert {each["verb"] for each in events} <= {"get", "list"}
    resource = path.rpartition("/")[2]
    everywhere = {("pods", other), ("pods", "")}  # for their uids
    assert allowed == everywhere | {(resource, other)} | (set() if other in path else {(resource, "")})


def may_list(cluster: Cluster, user: str, resource: str, namespace: str) -> bool:
    attributes = {"verb": "list", "resource": resource, "namespace": namespace}
    spec = {
        "user": user,
        "groups": ["system:authenticated", "system:serviceaccounts"],
        "resourceAttributes": attributes,
    }
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    return bool(
        cluster.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"]
    )


def add_certificate(release: Release, secret: str, host: str) -> str:
    """A Secret as cert-manager makes it. Returns the CA."""
    authority = trustme.CA()
    certificate = authority.issue_cert(host)
    files = {
        "tls.crt": certificate.cert_chain_pems[0].bytes().decode(),
        "tls.key": certificate.private_key_pem.bytes().decode(),
        "ca.crt": authority.cert_pem.bytes().decode(),
    }
    about = {"name": secret, "namespace": release.namespace}
    release.cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": about, "stringData": files})
    return files["ca.crt"]


def test_an_analyzer_with_https_is_probed_tested_by_helm_and_reached_as_its_certificate_says(
    extended: Cluster, helm: Helm, tmp_path: Path
):
    check_mounts(tmp_path / "trial")
    release = Release(extended, helm.using(extended), extended.add_namespace("release"))
    host = f"{release.name}-analyzer.{release.namespace}.svc"
    authority = add_certificate(release, "analyzer-tls", host)
    idle = nvml.a100(0)
    idle.numbers["gpu_percent"] = 0
    nvml.Scenario([idle]).write(tmp_path / "scenario")
    paths = dict(zip(NODE_PATHS, (tmp_path / "proc", tmp_path / "kubelet", tmp_path / "cgroup"), strict=True))
    for path in paths.values():
        path.mkdir()
    driver = {"LD_LIBRARY_PATH": str(build_library().parent), "FAKE_NVML_SCENARIO": str(tmp_path / "scenario")}
    node = PodNode(extended, release.namespace, tmp_path, host_paths=paths, environ=driver, hosts={"analyzer": host})
    with node.running(), FakeKubelet(tmp_path / "kubelet/kubelet.sock", response()):
        tls = {"enabled": True, "existingSecret": "analyzer-tls"}
        secured = {
            "analyzer": {"tlsServerConfig": tls, "persistence": {"enabled": False}},
            "tests": {"waitSeconds": 60},
        }
        values = merge(make_values(release), secured)
        release.run("install", CHART, "--wait", "--timeout=150s", values=values)
        wait_for(lambda: is_ready(release, "deployments", "analyzer"), 150)  # the probes succeed
        url = f"https://{node.find_pod('analyzer').address}:8080/livez"
        trusted = ssl.create_default_context(cadata=authority)
        trusted.check_hostname = False  # the name is that of the Service; helm test checks it
        with urllib.request.urlopen(url, timeout=30, context=trusted) as answer:
            assert answer.status == 200
        assert "Phase:          Succeeded" in release.run("test", "--timeout=150s")
        release.run("uninstall")


def test_agents_with_tls_and_a_password_are_probed_without_it_and_scraped_with_it(
    extended: Cluster, helm: Helm, tmp_path: Path
):
    check_mounts(tmp_path / "trial")
    release = Release(extended, helm.using(extended), extended.add_namespace("release"))
    add_certificate(release, "agent-tls", "gpusteward-agent")
    scrape = {"username": "prometheus", "ca_file": "/etc/agent-ca/ca.crt", "server_name": "gpusteward-agent"}
    volume = {"secretName": "agent-tls", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    tls = {"enabled": True, "existingSecret": "agent-tls"}
    secured = {
        "agent": {"tlsServerConfig": tls, "basicAuth": {"users": {"prometheus": HASH}}},
        "analyzer": {
            "config": {"scrape": scrape},
            "secrets": {"scrape.password": "change-me"},
            "extraVolumes": [{"name": "agent-ca", "secret": volume}],
            "extraVolumeMounts": [{"name": "agent-ca", "mountPath": "/etc/agent-ca", "readOnly": True}],
            "persistence": {"enabled": False},
        },
    }
    nvml.a100x8().write(tmp_path / "scenario")
    paths = dict(zip(NODE_PATHS, (tmp_path / "proc", tmp_path / "kubelet", tmp_path / "cgroup"), strict=True))
    for path in paths.values():
        path.mkdir()
    driver = {"LD_LIBRARY_PATH": str(build_library().parent), "FAKE_NVML_SCENARIO": str(tmp_path / "scenario")}
    with PodNode(extended, release.namespace, tmp_path, host_paths=paths, environ=driver).running() as node:
        values = merge(make_values(release), secured)
        release.run("install", CHART, "--wait", "--timeout=150s", values=values)  # until the probes succeed
        wait_for(lambda: is_ready(release, "deployments", "analyzer"), 150)
        viewer = node.read_secret(f"{release.name}-analyzer")["viewer"].decode()
        wait_for(lambda: get(node, "/api/v1/health", viewer)["targets_up"] == 1, 120)
        url, trusted = f"https://{node.find_pod('agent').address}:9400/metrics", ssl._create_unverified_context()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(url, timeout=30, context=trusted)
        release.run("uninstall")
