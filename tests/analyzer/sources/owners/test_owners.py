"""Pod -> root owner through the API server: walked once, remembered, and never a reason to stop."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from gpusteward.analyzer.sources.owners.cluster_owners import (
    QUESTIONS_PER_CYCLE,
    SECONDS_PER_CYCLE,
    ClusterOwners,
    open_owners,
)
from gpusteward.analyzer.sources.owners.owner_resolver import KEPT_SECONDS, RETRY_SECONDS
from gpusteward.analyzer.sources.owners.settings import KubernetesSettings
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.containers import Container, Workload
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.usages import AllocationKey
from gpusteward.kubernetes.api import ApiServer


class FakeObjects:
    """An API server that knows some objects and refuses others."""

    def __init__(self) -> None:
        self.objects: dict[str, dict] = {}
        self.forbidden: set[str] = set()
        self.broken: set[str] = set()  # 500
        self.asked: list[str] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def add(self, path: str, *owner: str, labels: dict[str, str] | None = None) -> None:
        """An object, controlled by (apiVersion, kind, name) if given."""
        references = [dict(zip(("apiVersion", "kind", "name"), owner, strict=True), controller=True)] if owner else []
        self.objects[path] = {"metadata": {"labels": labels or {}, "ownerReferences": references}}

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                fake.asked.append(self.path)
                code = 200 if self.path in fake.objects else 404
                code = 500 if self.path in fake.broken else 403 if self.path in fake.forbidden else code
                body = json.dumps(fake.objects.get(self.path, {"message": "no"})).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        return Handler


@pytest.fixture
def cluster() -> Iterator[FakeObjects]:
    fake = FakeObjects()
    yield fake
    fake.close()


def table(*pods: str, workload: Workload | None = None) -> UsageTable:
    allocations = [AllocationKey(f"GPU-{pod}", "", Container("ml", pod, "", "main", workload=workload)) for pod in pods]
    return UsageTable(1.0, 600.0, allocations, {}, np.ones(len(allocations)))


def workloads(found: UsageTable) -> list[Workload | None]:
    return [allocation.container.workload for allocation in found.allocations]


POD, REPLICA_SET = "/api/v1/namespaces/ml/pods/web-1", "/apis/apps/v1/namespaces/ml/replicasets/web-5d"


def test_the_walk_ends_at_the_outermost_controller(cluster: FakeObjects):
    cluster.add(POD, "apps/v1", "ReplicaSet", "web-5d")
    cluster.add(REPLICA_SET, "apps/v1", "Deployment", "web")
    cluster.add("/apis/apps/v1/namespaces/ml/deployments/web", "serving.kserve.io/v1beta1", "InferenceService", "llm")
    cluster.add("/apis/serving.kserve.io/v1beta1/namespaces/ml/inferenceservices/llm")
    found = ClusterOwners(ApiServer(cluster.url)).name(table("web-1"))
    assert workloads(found) == [Workload("InferenceService", "ml", "llm")]


def test_a_pod_nobody_owns_is_its_own_workload(cluster: FakeObjects):
    cluster.add(POD)
    assert workloads(ClusterOwners(ApiServer(cluster.url)).name(table("web-1"))) == [Workload("Pod", "ml", "web-1")]


def test_an_owner_that_may_not_be_read_ends_the_walk_with_what_is_known(cluster: FakeObjects):
    cluster.add(POD, "apps/v1", "ReplicaSet", "web-5d", labels={"pod-template-hash": "5d"})
    cluster.forbidden.add(REPLICA_SET)
    assert workloads(ClusterOwners(ApiServer(cluster.url)).name(table("web-1"))) == [
        Workload("Deployment", "ml", "web")
    ]


def test_a_pod_that_is_known_costs_no_second_question(cluster: FakeObjects):
    cluster.add(POD)
    now = [0.0]
    owners = ClusterOwners(ApiServer(cluster.url), clock=lambda: now[0])
    for _cycle in range(3):
        owners.name(table("web-1"))
    assert cluster.asked == [POD]
    now[0] = KEPT_SECONDS + 1
    owners.name(table("web-1"))
    assert cluster.asked == [POD, POD]


def test_above_what_the_metrics_tell_the_api_has_the_last_word(cluster: FakeObjects):
    """An agent reads pods only: a pod of a RayJob names its RayCluster."""
    ray, told = "/apis/ray.io/v1/namespaces/ml", Workload("RayCluster", "ml", "rj-x")
    for pod in ("ray-1", "ray-2"):
        cluster.add(f"/api/v1/namespaces/ml/pods/{pod}", "ray.io/v1", "RayCluster", "rj-x")
    cluster.add(f"{ray}/rayclusters/rj-x", "ray.io/v1", "RayJob", "rj")
    cluster.add(f"{ray}/rayjobs/rj")
    owners = ClusterOwners(ApiServer(cluster.url))
    for _cycle in range(2):
        assert workloads(owners.name(table("ray-1", "ray-2", workload=told))) == [Workload("RayJob", "ml", "rj")] * 2
    assert len(cluster.asked) == 3  # one of the pods, and each owner once


def test_a_told_deployment_is_asked_about_without_its_pods(cluster: FakeObjects):
    cluster.add("/apis/apps/v1/namespaces/ml/deployments/web", "serving.kserve.io/v1beta1", "InferenceService", "llm")
    told = Workload("Deployment", "ml", "web")
    found = ClusterOwners(ApiServer(cluster.url)).name(table("web-1", "web-2", workload=told))
    assert workloads(found) == [Workload("InferenceService", "ml", "llm")] * 2
    assert len(cluster.asked) == 2


def test_what_the_metrics_tell_stands_where_the_api_cannot_confirm_it(cluster: FakeObjects):
    told = Workload("Job", "ml", "night")
    for url in (cluster.url, "http://127.0.0.1:9"):
        assert workloads(ClusterOwners(ApiServer(url)).name(table("web-1", workload=told))) == [told]


def test_labels_that_tell_more_than_the_owners_that_may_be_read_are_believed(cluster: FakeObjects):
    labels = {"ray.io/originated-from-crd": "RayJob", "ray.io/originated-from-cr-name": "rj"}
    cluster.add(POD, "ray.io/v1", "RayCluster", "rj-x", labels=labels)
    assert workloads(ClusterOwners(ApiServer(cluster.url)).name(table("web-1"))) == [Workload("RayJob", "ml", "rj")]


def test_a_pod_that_cannot_be_read_costs_only_its_own_name(cluster: FakeObjects):
    names = [f"web-{number}" for number in range(20)]
    for name in names:
        cluster.add(f"/api/v1/namespaces/ml/pods/{name}")
    gone = [f"gone-{number}" for number in range(20)]
    owners = ClusterOwners(ApiServer(cluster.url))
    found = workloads(owners.name(table(*gone, *names)))
    assert found == [None] * 20 + [Workload("Pod", "ml", name) for name in names]


def test_a_refusal_is_remembered_for_a_while_and_then_asked_about_again(cluster: FakeObjects):
    now = [0.0]
    owners = ClusterOwners(ApiServer(cluster.url), clock=lambda: now[0])
    for _cycle in range(3):
        owners.name(table("web-1"))
    assert cluster.asked == [POD]
    cluster.add(POD)
    now[0] = RETRY_SECONDS + 1
    assert workloads(owners.name(table("web-1"))) == [Workload("Pod", "ml", "web-1")]


def test_more_unreadable_pods_than_questions_do_not_keep_the_others_waiting_for_ever(cluster: FakeObjects):
    gone = [f"gone-{number}" for number in range(QUESTIONS_PER_CYCLE + 50)]
    now = [0.0]
    owners = ClusterOwners(ApiServer(cluster.url), clock=lambda: now[0])
    for cycle in range(3):
        now[0] = cycle * (RETRY_SECONDS + 1)  # each time all refusals are due again
        owners.name(table(*gone))
    cluster.add(POD)
    now[0] += RETRY_SECONDS + 1
    assert workloads(owners.name(table(*gone, "web-1")))[-1] == Workload("Pod", "ml", "web-1")


def test_a_name_that_was_learnt_outlives_a_later_refusal(cluster: FakeObjects):
    """A workload that changed its name with every fault of the API server would be judged and booked as two."""
    cluster.add(POD, "apps/v1", "ReplicaSet", "web-5d")
    cluster.add(REPLICA_SET, "apps/v1", "Deployment", "web")
    now = [0.0]
    owners = ClusterOwners(ApiServer(cluster.url), clock=lambda: now[0])
    owners.name(table("web-1"))
    cluster.forbidden |= {POD}
    now[0] = 2 * KEPT_SECONDS
    assert workloads(owners.name(table("web-1"))) == [Workload("Deployment", "ml", "web")]


def test_a_server_that_fails_halfway_up_leaves_no_half_name(cluster: FakeObjects):
    cluster.add(POD, "apps/v1", "ReplicaSet", "web-5d")
    cluster.add(REPLICA_SET, "apps/v1", "Deployment", "web")
    cluster.broken.add(REPLICA_SET)
    owners = ClusterOwners(ApiServer(cluster.url))
    assert workloads(owners.name(table("web-1"))) == [None]
    cluster.broken.clear()
    assert workloads(owners.name(table("web-1"))) == [Workload("Deployment", "ml", "web")]


def test_a_server_that_cannot_be_asked_is_not_asked_about_every_pod(cluster: FakeObjects):
    pods = [f"web-{number}" for number in range(20)]
    cluster.broken |= {f"/api/v1/namespaces/ml/pods/{pod}" for pod in pods}
    assert set(workloads(ClusterOwners(ApiServer(cluster.url)).name(table(*pods)))) == {None}
    assert len(cluster.asked) == 1


def test_a_slow_server_holds_a_cycle_up_for_a_bounded_time(cluster: FakeObjects):
    pods = [f"web-{number}" for number in range(20)]
    now = [0.0]

    def clock() -> float:
        now[0] += SECONDS_PER_CYCLE / 10
        return now[0]

    ClusterOwners(ApiServer(cluster.url), clock=clock).name(table(*pods))
    assert 1 <= len(cluster.asked) <= 10


def test_without_rights_or_a_server_the_table_stays_as_it_is(cluster: FakeObjects):
    cluster.forbidden.add(POD)
    assert workloads(ClusterOwners(ApiServer(cluster.url)).name(table("web-1"))) == [None]
    assert workloads(ClusterOwners(None).name(table("web-1"))) == [None]
    assert workloads(ClusterOwners(ApiServer("http://127.0.0.1:9")).name(table("web-1"))) == [None]


def test_a_ring_of_owners_ends(cluster: FakeObjects):
    cluster.add(POD, "apps/v1", "ReplicaSet", "web-5d")
    cluster.add(REPLICA_SET, "apps/v1", "ReplicaSet", "web-5d")
    assert workloads(ClusterOwners(ApiServer(cluster.url)).name(table("web-1"))) == [
        Workload("ReplicaSet", "ml", "web-5d")
    ]


def test_owners_are_asked_for_where_there_is_an_api_server_and_only_then(cluster: FakeObjects):
    cluster.add(POD)
    here = open_owners(KubernetesSettings(api_url=cluster.url), {})
    assert workloads(here.name(table("web-1"))) == [Workload("Pod", "ml", "web-1")]
    for settings in (KubernetesSettings(), KubernetesSettings(owners="never", api_url=cluster.url)):
        assert workloads(open_owners(settings, {}).name(table("web-1"))) == [None]


def test_owners_that_must_be_asked_for_need_somebody_to_ask():
    with pytest.raises(ConfigurationError, match=r"kubernetes\.api_url"):
        open_owners(KubernetesSettings(owners="always"), {})
