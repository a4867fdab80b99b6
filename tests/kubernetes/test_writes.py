"""Writes on a real API server: preconditions, dry runs, and what each refusal is called."""

import pytest

from gpusteward.core.errors import SourceError
from gpusteward.kubernetes.writes import (
    ApiWriter,
    BusyError,
    ConflictError,
    ForbiddenError,
    MissingError,
    RejectedError,
    ReplacedError,
    WriteError,
)
from tests.analyzer.sources.owners.test_real_owners import make_set
from tests.kubernetes.cluster import Account, Cluster, Json, path_of, pod

pytestmark = pytest.mark.slow


@pytest.fixture
def namespace(kubernetes: Cluster) -> str:
    return kubernetes.add_namespace()


@pytest.fixture
def account(kubernetes: Cluster, namespace: str) -> Account:
    rules = [
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["pods/eviction", "events"], "verbs": ["create"]},
    ]
    return kubernetes.add_account(namespace, rules)


@pytest.fixture
def api(kubernetes: Cluster, account: Account) -> ApiWriter:
    return ApiWriter.from_cluster(kubernetes.environ, account=account.folder)


@pytest.fixture
def item(kubernetes: Cluster, namespace: str) -> Json:
    [created] = kubernetes.apply(make_set("Deployment", "web", namespace))
    return created


def test_a_patch_owns_its_field(kubernetes: Cluster, api: ApiWriter, item: Json) -> None:
    changed = api.patch(path_of(item), {"metadata": {"uid": item["metadata"]["uid"]}, "spec": {"replicas": 0}})
    assert changed["spec"]["replicas"] == 0
    managers = {each["manager"] for each in kubernetes.request("GET", path_of(item))["metadata"]["managedFields"]}
    assert "gpusteward" in managers


def test_a_dry_run_changes_nothing_and_shows_in_the_audit_log(
    kubernetes: Cluster, api: ApiWriter, account: Account, item: Json
) -> None:
    assert api.patch(path_of(item), {"spec": {"replicas": 0}}, dry_run=True)["spec"]["replicas"] == 0
    assert kubernetes.request("GET", path_of(item))["spec"]["replicas"] == 1
    [event] = kubernetes.read_audit(account.user)
    assert "dryRun=All" in event["requestURI"]


def test_every_refusal_has_its_class_and_means_that_nothing_has_changed(
    kubernetes: Cluster, api: ApiWriter, namespace: str, item: Json
) -> None:
    path, replicas = path_of(item), {"spec": {"replicas": 0}}
    refused: dict[type[WriteError], tuple[str, Json]] = {
        ReplacedError: (path, {"metadata": {"uid": "another"}, **replicas}),
        ConflictError: (path, {"metadata": {"resourceVersion": "1"}, **replicas}),
        MissingError: (path + "x", replicas),
        ForbiddenError: (path.replace("deployments", "statefulsets"), replicas),
        RejectedError: (path, {"spec": {"replicas": -1}}),
    }
    for kind, (where, body) in refused.items():
        with pytest.raises(kind) as raised:
            api.patch(where, body)
        assert type(raised.value) is kind
    assert kubernetes.request("GET", path)["spec"]["replicas"] == 1


def test_an_eviction_that_a_budget_forbids_is_busy(kubernetes: Cluster, api: ApiWriter, namespace: str) -> None:
    node = kubernetes.add_node(gpus=1)
    [created] = kubernetes.apply(pod("one", namespace, node=node, labels={"app": "one"}))
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "one", "namespace": namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "one"}}},
    }
    kubernetes.wait_for_pods(namespace, 1)
    kubernetes.request("POST", f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets", budget)
    with pytest.raises(BusyError):
        api.evict(namespace, "one", uid=created["metadata"]["uid"])
    assert kubernetes.exists(created)


def test_the_rights_to_reclaim_are_not_rights_to_anything_else(kubernetes: Cluster, namespace: str, item: Json) -> None:
    from tests.analyzer.reclaim.world import enforce_rules

    account = kubernetes.add_account(namespace, enforce_rules())
    api = ApiWriter.from_cluster(kubernetes.environ, account=account.folder)
    api.patch(path_of(item), {"metadata": {"annotations": {"x": "y"}}})
    forbidden = [
        f"/api/v1/namespaces/{namespace}/configmaps/x",
        f"/api/v1/namespaces/{namespace}/secrets/x",
        f"/api/v1/namespaces/{namespace}",
        "/api/v1/nodes/x",
        f"/apis/apps/v1/namespaces/{namespace}/daemonsets/x",
        f"/apis/batch/v1/namespaces/{namespace}/cronjobs/x",
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles/x",
    ]
    for path in forbidden:
        with pytest.raises(ForbiddenError):
            api.patch(path, {"metadata": {"annotations": {"x": "y"}}})
    for resource in ("pods", "configmaps", "serviceaccounts"):
        with pytest.raises(ForbiddenError):
            api.create(f"/api/v1/namespaces/{namespace}/{resource}", {"metadata": {"name": "x"}})


def test_a_server_that_does_not_respond_leaves_it_open(tmp_path: object) -> None:
    with pytest.raises(SourceError) as raised:
        ApiWriter("http://127.0.0.1:1", timeout_seconds=1).patch("/api/v1/x", {})
    assert not isinstance(raised.value, WriteError)
