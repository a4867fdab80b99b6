"""Root owners of pods on a real control plane, with the rights of the analyzer's manifest: evidence, never a guess."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from gpusteward.analyzer.sources.owners.cluster_owners import ClusterOwners, open_owners
from gpusteward.analyzer.sources.owners.owner_resolver import CACHE_SECONDS
from gpusteward.analyzer.sources.owners.settings import KubernetesSettings
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.kinds import OWNERS
from gpusteward.core.node.containers import Container, OwnerEvidence, Workload
from gpusteward.core.usages import AllocationKey
from tests.kubernetes.cluster import Account, ApiError, Cluster, Json, pod, wait_for

pytestmark = pytest.mark.slow

MANIFEST = Path(__file__).parents[4] / "deploy/manifests/analyzer.yaml"
READ, REFERENCE, DERIVED = OwnerEvidence.READ, OwnerEvidence.REFERENCE, OwnerEvidence.DERIVED


def read_rules() -> list[Json]:
    """The cluster-wide rights of the manifest."""
    objects = yaml.safe_load_all(MANIFEST.read_text())
    return next(list(each["rules"]) for each in objects if each["kind"] == "ClusterRole")


@pytest.fixture
def namespace(kubernetes: Cluster) -> str:
    return kubernetes.add_namespace()


@pytest.fixture
def account(kubernetes: Cluster, namespace: str) -> Account:
    return kubernetes.add_account(namespace, read_rules())


@pytest.fixture
def node(kubernetes: Cluster) -> str:
    return kubernetes.add_node(gpus=64)


def open_account(kubernetes: Cluster, account: Account, **options: Any) -> ClusterOwners:
    return ClusterOwners(kubernetes.connect(account), **options)


def table_of(pods: list[Json], workload: Workload | None = None) -> UsageTable:
    """A table of these pods, as an agent reports them with their uid."""
    abouts = [each["metadata"] for each in pods]
    containers = [Container(each["namespace"], each["name"], each["uid"], "main", workload) for each in abouts]
    allocations = [AllocationKey(f"GPU-{number}", "", each) for number, each in enumerate(containers)]
    return UsageTable(1.0, 600.0, allocations, {}, np.ones(len(allocations)))


def resolve(owners: ClusterOwners, pods: list[Json], workload: Workload | None = None) -> list[Workload]:
    found = owners.resolve_owners(table_of(pods, workload)).allocations
    return [each.container.workload for each in found if each.container.workload]


def describe(found: list[Workload]) -> list[tuple[str, str, OwnerEvidence]]:
    return [(each.kind, each.name, each.evidence) for each in found]


def make_set(kind: str, name: str, namespace: str, **labels: str) -> Json:
    """A Deployment, ReplicaSet or StatefulSet with one pod."""
    template = pod("unused", namespace, gpus=1)
    labels = {"app": name, **labels}
    spec: Json = {
        "replicas": 1,
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": template["spec"]["containers"]}},
    }
    if kind == "StatefulSet":
        spec["serviceName"] = name
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def make_job(name: str, namespace: str) -> Json:
    containers = pod("unused", namespace, gpus=1)["spec"]["containers"]
    template = {"spec": {"restartPolicy": "Never", "containers": containers}}
    about = {"name": name, "namespace": namespace}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": {"template": template}}


def reference_to(item: Json) -> Json:
    about = item["metadata"]
    return {
        **{key: item[key] for key in ("apiVersion", "kind")},
        "name": about["name"],
        "uid": about["uid"],
        "controller": True,
    }


def test_a_deployment_is_found_with_its_uid(kubernetes: Cluster, namespace: str, account: Account, node: str) -> None:
    [deployment] = kubernetes.apply(make_set("Deployment", "web", namespace))
    pods = kubernetes.wait_for_pods(namespace, 1)
    [owner] = resolve(open_account(kubernetes, account), pods)
    assert describe([owner]) == [("Deployment", "web", READ)]
    assert owner.uid == deployment["metadata"]["uid"]


def test_a_job_that_is_named_like_one_of_a_cron_job_is_a_job(
    kubernetes: Cluster, namespace: str, account: Account, node: str
) -> None:
    """Also if the agent, which reads pods only, reports a CronJob, and one of that name exists."""
    job = make_job("train-28399999", namespace)
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "train", "namespace": namespace},
        "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job["spec"]}},
    }
    kubernetes.apply(job, cron)
    pods = kubernetes.wait_for_pods(namespace, 1)
    reported = Workload("CronJob", namespace, "train", evidence=DERIVED)
    assert describe(resolve(open_account(kubernetes, account), pods, reported)) == [("Job", "train-28399999", READ)]


def test_a_replica_set_without_its_deployment_is_its_own_root(
    kubernetes: Cluster, namespace: str, account: Account, node: str
) -> None:
    [deployment] = kubernetes.apply(make_set("Deployment", "web", namespace))
    pods = kubernetes.wait_for_pods(namespace, 1)
    now = [0.0]
    owners = open_account(kubernetes, account, clock=lambda: now[0])
    reported = Workload("Deployment", namespace, "web", evidence=DERIVED)
    assert describe(resolve(owners, pods, reported)) == [("Deployment", "web", READ)]
    kubernetes.delete(deployment, propagation="Orphan")
    sets = f"/apis/apps/v1/namespaces/{namespace}/replicasets"
    wait_for(lambda: not kubernetes.request("GET", sets)["items"][0]["metadata"].get("ownerReferences"))
    now[0] += CACHE_SECONDS + 1
    [owner] = resolve(owners, pods, reported)
    assert (owner.kind, owner.evidence) == ("ReplicaSet", READ)


def test_a_deployment_that_is_created_anew_is_another_one(
    kubernetes: Cluster, namespace: str, account: Account, node: str
) -> None:
    owners = open_account(kubernetes, account)
    uids = []
    for _ in range(2):
        [deployment] = kubernetes.apply(make_set("Deployment", "web", namespace))
        [owner] = resolve(owners, kubernetes.wait_for_pods(namespace, 1))
        assert owner.uid == deployment["metadata"]["uid"]
        uids.append(owner.uid)
        kubernetes.delete(deployment)
        kubernetes.wait_for_pods(namespace, 0)
    assert uids[0] != uids[1]


def test_a_pod_that_was_replaced_under_its_name_keeps_what_was_reported(
    kubernetes: Cluster, namespace: str, account: Account
) -> None:
    [created] = kubernetes.apply(pod("bare", namespace))
    created["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000"
    reported = Workload("Deployment", namespace, "web", evidence=DERIVED)
    assert describe(resolve(open_account(kubernetes, account), [created], reported)) == [("Deployment", "web", DERIVED)]


def test_a_static_pod_belongs_to_no_workload(kubernetes: Cluster, namespace: str, account: Account, node: str) -> None:
    about = kubernetes.request("GET", f"/api/v1/nodes/{node}")["metadata"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": about["uid"], "controller": True}
    [created] = kubernetes.apply(pod("etcd-1", namespace, node=node, ownerReferences=[owner]))
    assert describe(resolve(open_account(kubernetes, account), [created])) == [("Pod", "etcd-1", READ)]


def test_a_foreign_label_makes_no_notebook(kubernetes: Cluster, namespace: str, account: Account, node: str) -> None:
    kubernetes.apply(make_set("StatefulSet", "db", namespace, **{"notebook-name": "db"}))
    reported = Workload("Notebook", namespace, "db", evidence=DERIVED)
    pods = kubernetes.wait_for_pods(namespace, 1)
    assert describe(resolve(open_account(kubernetes, account), pods, reported)) == [("StatefulSet", "db", READ)]


def test_what_may_not_be_read_is_marked_as_derived(kubernetes: Cluster, namespace: str, node: str) -> None:
    only_pods = kubernetes.add_account(namespace, [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}])
    kubernetes.apply(make_set("Deployment", "web", namespace))
    pods = kubernetes.wait_for_pods(namespace, 1)
    assert describe(resolve(open_account(kubernetes, only_pods), pods)) == [("Deployment", "web", DERIVED)]


def make_definition(group: str, kind: str) -> Json:
    """A custom resource definition that allows everything."""
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def list_custom_kinds() -> Iterator[tuple[str, str]]:
    return ((kind.group, kind.name) for kind in OWNERS if kind.group not in ("", "apps", "batch"))


def test_every_kind_can_be_read_with_the_rights_of_the_manifest_and_nothing_is_written(
    kubernetes: Cluster, namespace: str, account: Account
) -> None:
    kinds = list(list_custom_kinds())
    kubernetes.apply(*(make_definition(*each) for each in kinds))
    references = [reference_to(custom(kubernetes, group, kind, namespace)) for group, kind in kinds]
    pods = kubernetes.apply(
        *(pod(f"pod-{number}", namespace, ownerReferences=[each]) for number, each in enumerate(references))
    )
    found = resolve(open_owners_of(kubernetes, account), pods)
    expected = [(each["kind"], each["name"], READ) for each in references]
    assert describe(found) == expected
    events = kubernetes.read_audit(account.user)
    assert {event["verb"] for event in events} == {"get"}
    assert [event["requestURI"] for event in events if event["responseStatus"]["code"] == 403] == []
    assert {event["userAgent"] for event in events} == {"gpusteward-analyzer"}


def custom(kubernetes: Cluster, group: str, kind: str, namespace: str) -> Json:
    """An object of this kind, as soon as its definition is in force."""
    item: Json = {
        "apiVersion": f"{group}/v1",
        "kind": kind,
        "metadata": {"name": f"{kind.lower()}-{group.partition('.')[0]}", "namespace": namespace},
    }
    created: list[Json] = []

    def is_created() -> bool:
        try:
            created[:] = kubernetes.apply(item)
        except ApiError as error:
            if error.status != 404:
                raise
        return bool(created)

    wait_for(is_created)
    return created[0]


def open_owners_of(kubernetes: Cluster, account: Account) -> ClusterOwners:
    """As the analyzer opens them in a pod of this account, with the address of the server in its settings."""
    return open_owners(KubernetesSettings(api_url=kubernetes.url), {}, account=account.folder)


def test_the_token_of_the_service_account_is_used_also_for_an_address_of_the_settings(
    kubernetes: Cluster, namespace: str, account: Account
) -> None:
    [created] = kubernetes.apply(pod("bare", namespace))
    assert describe(resolve(open_owners_of(kubernetes, account), [created])) == [("Pod", "bare", READ)]
