"""The simulated API server: the checks of a real one, and simulated nodes that follow its objects."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from gpusteward.analyzer.sources.owners.owner_resolver import Budget, OwnerResolver, PodName
from gpusteward.core.node.containers import OwnerEvidence, Workload
from gpusteward.kubernetes.api import ApiServer
from gpusteward.local.api_requests import MERGE_PATCH, ApiRequest
from gpusteward.local.demo_servers import DirectApi, serve_cluster
from gpusteward.local.demo_settings import OWN_NAMESPACE, open_loopback_socket, url_of
from gpusteward.local.simulated_cluster import SimulatedCluster
from gpusteward.local.simulated_fleet import SimulatedFleet
from gpusteward.simulate.fleets import fleet as simulate_fleet

Json = dict[str, Any]
NOW = 1_790_000_000.0
PATHS = {
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments/{}",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets/{}",
    "Job": "/apis/batch/v1/namespaces/{}/jobs/{}",
    "PyTorchJob": "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs/{}",
    "Notebook": "/apis/kubeflow.org/v1/namespaces/{}/notebooks/{}",
}
SUSPENDED: dict[str, Json] = {
    "Deployment": {"spec": {"replicas": 0}},
    "StatefulSet": {"spec": {"replicas": 0}},
    "Job": {"spec": {"suspend": True}},
    "PyTorchJob": {"spec": {"runPolicy": {"suspend": True}}},
    "Notebook": {"metadata": {"annotations": {"kubeflow-resource-stopped": "2026-01-01T00:00:00Z"}}},
}
RESTORED: dict[str, Json] = {
    "Job": {"spec": {"suspend": False}},
    "PyTorchJob": {"spec": {"runPolicy": {"suspend": False}}},
    "Notebook": {"metadata": {"annotations": {"kubeflow-resource-stopped": None}}},
}
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{OWN_NAMESPACE}/leases"


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


class Client:
    """Requests to a simulated cluster, without HTTP."""

    def __init__(self, nodes: int = 12) -> None:
        self.clock = Clock()
        self.fleet = SimulatedFleet(simulate_fleet(nodes, 7), ready_timeout_seconds=1)
        self.cluster = SimulatedCluster(self.fleet, clock=self.clock)

    def send(self, method: str, path: str, body: Json | None = None, media: str = MERGE_PATCH) -> tuple[int, Json]:
        content = b"" if body is None else json.dumps(body).encode()
        response = self.cluster.handle(ApiRequest(method, path, content, media))
        return int(response.status), json.loads(response.body)

    def get(self, path: str) -> Json:
        status, body = self.send("GET", path)
        assert status == 200, body
        return body

    def patch(self, path: str, body: Json) -> Json:
        status, answer = self.send("PATCH", path, body)
        assert status == 200, answer
        return answer

    def workloads(self, kind: str = "") -> list[Workload]:
        held = {
            each.allocation.container.workload for node in self.fleet.nodes for each in node.ownerships(self.clock.now)
        }
        return sorted((each for each in held if each.kind == kind or not kind), key=lambda each: each.name)

    def count_gpus(self, workload: Workload) -> int:
        return sum(
            each.allocation.container.workload == workload
            for node in self.fleet.nodes
            for each in node.ownerships(self.clock.now)
        )


@pytest.fixture
def client() -> Client:
    return Client()


def path_of(workload: Workload) -> str:
    return PATHS[workload.kind].format(workload.namespace, workload.name)


@pytest.mark.parametrize("kind", PATHS)
def test_a_suspended_workload_leaves_its_gpus_and_comes_back(client: Client, kind: str):
    workload = client.workloads(kind)[0]
    before = client.get(path_of(workload))
    gpus = client.count_gpus(workload)
    assert gpus
    client.patch(path_of(workload), SUSPENDED[kind])
    assert client.count_gpus(workload) == 0
    pods = client.get(f"/api/v1/namespaces/{workload.namespace}/pods")["items"]
    assert not any(each["metadata"]["name"].startswith(workload.name) for each in pods)
    client.clock.now += 3600
    assert client.get(path_of(workload))["metadata"]["uid"] == before["metadata"]["uid"], "it stays"
    restored = RESTORED.get(kind) or {"spec": {"replicas": before["spec"]["replicas"]}}
    after = client.patch(path_of(workload), restored)
    assert after["spec"] == before["spec"]
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"]
    assert client.count_gpus(workload) == gpus


def test_a_dry_run_changes_nothing_and_shows_the_result(client: Client):
    workload = client.workloads("Deployment")[0]
    before = client.get(path_of(workload))
    answer = client.patch(f"{path_of(workload)}?dryRun=All&fieldManager=gpusteward", SUSPENDED["Deployment"])
    assert answer["spec"]["replicas"] == 0
    assert client.get(path_of(workload)) == before
    assert client.count_gpus(workload)
    assert not client.cluster.writes
    assert client.send("PATCH", f"{path_of(workload)}?dryRun=Some", {})[0] == 400


def test_preconditions_are_checked_like_those_of_a_real_server(client: Client):
    path = path_of(client.workloads("Deployment")[0])
    version = client.get(path)["metadata"]["resourceVersion"]
    status, wrong = client.send("PATCH", path, {"metadata": {"uid": "other"}, "spec": {"replicas": 0}})
    assert (status, wrong["details"]["causes"][0]["field"]) == (422, "metadata.uid")
    client.patch(path, {"metadata": {"annotations": {"a": "b"}, "resourceVersion": version}})
    status, stale = client.send("PATCH", path, {"metadata": {"resourceVersion": version}, "spec": {"replicas": 0}})
    assert (status, stale["reason"]) == (409, "Conflict")
    assert client.get(path)["spec"]["replicas"] > 0


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/namespaces/none", 404),
        ("GET", "/apis/apps/v1/namespaces/vision/deployments/none", 404),
        ("GET", "/apis/keda.sh/v1alpha1/namespaces/vision/scaledobjects", 404),
        ("GET", "/", 404),
        ("GET", "/api/v1/pods/a/b/c", 404),
        ("DELETE", "/api/v1/namespaces/kube-system", 405),
        ("POST", "/apis/apps/v1/namespaces/vision/deployments", 405),
    ],
)
def test_everything_else_is_refused_as_a_status(client: Client, method: str, path: str, status: int):
    answered, body = client.send(method, path, {})
    assert (answered, body["kind"], body["code"]) == (status, "Status", status)


def test_a_404_names_the_object_that_does_not_exist_and_nothing_else(client: Client):
    _, absent = client.send("GET", "/apis/apps/v1/namespaces/vision/deployments/none", {})
    assert absent["details"] == {"name": "none", "kind": "deployments"}
    _, unserved = client.send("GET", "/apis/keda.sh/v1alpha1/namespaces/vision/scaledobjects/none", {})
    assert unserved["details"] == {}


def test_other_patches_are_refused(client: Client):
    path = path_of(client.workloads("Job")[0])
    assert client.send("PATCH", path, {}, "application/json-patch+json")[0] == 415
    assert int(client.cluster.handle(ApiRequest("PATCH", path, b"{", MERGE_PATCH)).status) == 400


def test_the_longest_idle_pod_goes_first_where_deletion_costs_say_so(client: Client):
    pool = next(each for each in client.workloads("Deployment") if client.get(path_of(each))["spec"]["replicas"] == 3)
    pods = f"/api/v1/namespaces/{pool.namespace}/pods"
    (first, *_) = names = [
        each["metadata"]["name"]
        for each in client.get(pods)["items"]
        if each["metadata"]["name"].startswith(f"{pool.name}-")
    ]
    client.patch(f"{pods}/{first}", {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-9"}}})
    client.patch(path_of(pool), {"spec": {"replicas": 2}})
    left = {each["metadata"]["name"] for each in client.get(pods)["items"]}
    assert left.isdisjoint({first})
    assert left >= set(names) - {first}


def test_owners_are_read_to_the_root_with_their_uid(client: Client):
    api = DirectApi(client.cluster, "http://127.0.0.1:1")
    resolver = OwnerResolver(api, clock=client.clock)
    for node in client.fleet.nodes:
        for each in node.ownerships(NOW):
            container = each.allocation.container
            budget = Budget(100, 100)
            pod = resolver.read_pod(PodName(container.namespace, container.pod, container.pod_uid), budget)
            owner = resolver.follow_owners(pod, budget).workload
            assert owner == container.workload
            assert owner.evidence is OwnerEvidence.READ
            assert owner.uid == client.get(path_of(owner))["metadata"]["uid"]


def test_a_job_that_ends_is_gone_and_the_next_one_is_there(client: Client):
    before = {each.name for each in client.workloads("Job")}
    client.clock.now += 6 * 86_400
    after = {each.name for each in client.workloads("Job")}
    assert after - before
    found = {each["metadata"]["name"] for each in client.get("/apis/batch/v1/jobs")["items"]}
    assert found == after


def test_a_lease_is_taken_once(client: Client):
    body = {"metadata": {"name": "gpusteward-reclaim"}, "spec": {"holderIdentity": "a"}}
    assert client.send("POST", LEASE, body, "application/json")[0] == 201
    assert client.send("POST", LEASE, body, "application/json")[0] == 409
    one = f"{LEASE}/gpusteward-reclaim"
    version = client.get(one)["metadata"]["resourceVersion"]
    renewed = {"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": "b"}}
    client.patch(one, renewed)
    assert client.send("PATCH", one, renewed)[0] == 409


def test_an_event_is_kept_and_needs_a_namespace(client: Client):
    event = {"metadata": {"generateName": "suspended-"}, "reason": "Suspended"}
    assert client.send("POST", "/api/v1/namespaces/none/events", event, "application/json")[0] == 404
    path = f"/api/v1/namespaces/{OWN_NAMESPACE}/events"
    assert client.send("POST", path, event, "application/json")[0] == 201
    assert [each["reason"] for each in client.get(path)["items"]] == ["Suspended"]


@pytest.fixture
def url(client: Client) -> Iterator[str]:
    listening = open_loopback_socket()
    with serve_cluster(client.cluster, listening):
        yield url_of(listening)


def test_it_is_reached_over_http(client: Client, url: str):
    workload = client.workloads("Deployment")[0]
    found = ApiServer(url).read_json(path_of(workload), dict)
    assert found["metadata"]["name"] == workload.name


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded"])
def test_a_web_page_can_never_write(url: str, content_type: str):
    request = urllib.request.Request(
        f"{url}/api/v1/namespaces/{OWN_NAMESPACE}/events", b"{}", {"Content-Type": content_type}
    )
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(request, timeout=10)
    assert raised.value.code == 400
    raised.value.close()
