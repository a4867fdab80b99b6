"""Root owners of pods from the API server: read once, cached, and never a reason to stop a cycle."""

from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np
import pytest

from gpusteward.analyzer.ledger.identities import make_allocation_id
from gpusteward.analyzer.sources.owners import cluster_owners
from gpusteward.analyzer.sources.owners.cluster_owners import (
    CACHE_SECONDS,
    REQUESTS_PER_CYCLE,
    SECONDS_PER_CYCLE,
    ClusterOwners,
    open_owners,
)
from gpusteward.analyzer.sources.owners.owner_resolver import CACHE_SECONDS as OWNER_SECONDS
from gpusteward.analyzer.sources.owners.owner_resolver import RETRY_SECONDS
from gpusteward.analyzer.sources.owners.pods_by_name import is_on_node
from gpusteward.analyzer.sources.owners.settings import KubernetesSettings
from gpusteward.analyzer.sources.usage.inference_servers import join_servers
from gpusteward.analyzer.tables import EndedHolder, ServerPod, UsageTable
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.node.containers import Container, OwnerEvidence, Workload
from gpusteward.core.usages import AllocationKey, Measure, Stat
from gpusteward.kubernetes.api import ApiServer
from gpusteward.messages.unknown_reasons import NO_CURRENT_SAMPLE
from tests.fakes.kubernetes_objects import FakeObjects

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster() -> Iterator[FakeObjects]:
    fake = FakeObjects()
    yield fake
    fake.close()


def table(*pods: str, workload: Workload | None = None, node: str = "node-1", cluster: str = "") -> UsageTable:
    """Without uids, as dcgm-exporter has them."""
    containers = [Container("ml", pod, "", "main", workload=workload, cluster=cluster) for pod in pods]
    allocations = [AllocationKey(f"GPU-{cluster}{one.pod}", "", one, node) for one in containers]
    return UsageTable(1.0, 600.0, allocations, {}, np.ones(len(allocations)))


def workloads(found: UsageTable) -> list[Workload | None]:
    return [allocation.container.workload for allocation in found.allocations]


def resolve(cluster: FakeObjects, usage: UsageTable) -> list[Workload | None]:
    return workloads(ClusterOwners(ApiServer(cluster.url)).resolve_owners(usage))


POD, REPLICA_SET = "/api/v1/namespaces/ml/pods/web-1", "/apis/apps/v1/namespaces/ml/replicasets/web-5d"


def test_owner_references_are_followed_to_the_root_owner(cluster: FakeObjects):
    cluster.add(POD, "apps/v1", "ReplicaSet", "web-5d")
    cluster.add(REPLICA_SET, "apps/v1", "Deployment", "web")
    cluster.add("/apis/apps/v1/namespaces/ml/deployments/web", "serving.kserve.io/v1beta1", "InferenceService", "llm")
    cluster.add("/apis/serving.kserve.io/v1beta1/namespaces/ml/inferenceservices/llm")
    found = ClusterOwners(ApiServer(cluster.url)).resolve_owners(table("web-1"))
    assert workloads(found) == [Workload("InferenceService", "ml", "llm")]


def test_a_pod_without_an_owner_is_its_own_workload(cluster: FakeObjects):
    cluster.add(POD)
    assert resolve(cluster, table("web-1")) == [Workload("Pod", "ml", "web-1")]


def test_an_owner_that_may_not_be_read_ends_the_search_with_what_is_known(cluster: FakeObjects):
    cluster.add(POD, "apps/v1", "ReplicaSet", "web-5d", labels={"pod-template-hash": "5d"})
    cluster.forbidden.add(REPLICA_SET)
    assert resolve(cluster, table("web-1")) == [Workload("Deployment", "ml", "web")]


def test_a_cached_pod_costs_no_second_request(cluster: FakeObjects):
    cluster.add(POD)
    now = [0.0]
    owners = ClusterOwners(ApiServer(cluster.url), clock=lambda: now[0])
    for _cycle in range(3):
        owners.resolve_owners(table("web-1"))
    assert cluster.requests == [POD]
    now[0] = OWNER_SECONDS + 1
    owners.resolve_owners(table("web-1"))
    assert cluster.requests == [POD, POD], "its uid is not known: it may be another one by now"


def test_the_api_is_preferred_to_the_workload_that_metrics_name(cluster: FakeObjects):
    """An agent reads pods only: a pod of a RayJob names its RayCluster."""
    ray, reported = "/apis/ray.io/v1/namespaces/ml", Workload("RayCluster", "ml", "rj-x")
    for pod in ("ray-1", "ray-2"):
        cluster.add(f"/api/v1/namespaces/ml/pods/{pod}", "ray.io/v1", "RayCluster", "rj-x")
    cluster.add(f"{ray}/rayclusters/rj-x", "ray.io/v1", "RayJob", "rj")
    cluster.add(f"{ray}/rayjobs/rj")
    owners = ClusterOwners(ApiServer(cluster.url))
    for _cycle in range(2):
        assert (
            workloads(owners.resolve_owners(table("ray-1", "ray-2", workload=reported)))
            == [Workload("RayJob", "ml", "rj")] * 2
        )
    assert len(cluster.requests) == 4  # each pod and each owner once


def test_the_workload_that_metrics_name_stays_if_the_api_cannot_confirm_it(cluster: FakeObjects):
    reported = Workload("Job", "ml", "night")
    for url in (cluster.url, "http://127.0.0.1:9"):
        assert workloads(ClusterOwners(ApiServer(url)).resolve_owners(table("web-1", workload=reported))) == [reported]


def test_an_owner_that_was_created_anew_under_its_name_is_not_the_owner(cluster: FakeObjects):
    """Its garbage collector deletes such a pod soon; until then nothing may happen to the new owner."""
    cluster.add(POD, "apps/v1", "StatefulSet", "db", "old")
    path = "/apis/apps/v1/namespaces/ml/statefulsets/db"
    for uid, evidence in (("old", OwnerEvidence.READ), ("new", OwnerEvidence.REFERENCE)):
        cluster.add(path, uid=uid)
        [owner] = resolve(cluster, table("web-1"))
        assert owner == Workload("StatefulSet", "ml", "db")
        assert owner.evidence is evidence
        assert owner.uid == "old"


def test_labels_are_used_where_owners_may_not_be_read(cluster: FakeObjects):
    labels = {"ray.io/originated-from-crd": "RayJob", "ray.io/originated-from-cr-name": "rj"}
    cluster.add(POD, "ray.io/v1", "RayCluster", "rj-x", labels=labels)
    [owner] = resolve(cluster, table("web-1"))
    assert owner == Workload("RayJob", "ml", "rj")
    assert owner.evidence is OwnerEvidence.DERIVED


def test_a_pod_that_cannot_be_read_affects_no_other(cluster: FakeObjects):
    names = [f"web-{number}" for number in range(20)]
    for name in names:
        cluster.add(f"/api/v1/namespaces/ml/pods/{name}")
    gone = [f"gone-{number}" for number in range(20)]
    owners = ClusterOwners(ApiServer(cluster.url))
    found = workloads(owners.resolve_owners(table(*gone, *names)))
    assert found == [None] * 20 + [Workload("Pod", "ml", name) for name in names]


def test_an_unreadable_pod_is_requested_again_after_a_while(cluster: FakeObjects):
    now = [0.0]
    owners = ClusterOwners(ApiServer(cluster.url), clock=lambda: now[0])
    for _cycle in range(3):
        owners.resolve_owners(table("web-1"))
    assert cluster.requests == [POD]
    cluster.add(POD)
    now[0] = RETRY_SECONDS + 1
    assert workloads(owners.resolve_owners(table("web-1"))) == [Workload("Pod", "ml", "web-1")]


def test_more_unreadable_pods_than_requests_do_not_delay_the_others_for_ever(cluster: FakeObjects):
    gone = [f"gone-{number}" for number in range(REQUESTS_PER_CYCLE + 50)]
    now = [0.0]
    owners = ClusterOwners(ApiServer(cluster.url), clock=lambda: now[0])
    for cycle in range(3):
        now[0] = cycle * (RETRY_SECONDS + 1)  # each time all unreadable pods are due again
        owners.resolve_owners(table(*gone))
    cluster.add(POD)
    now[0] += RETRY_SECONDS + 1
    assert workloads(owners.resolve_owners(table(*gone, "web-1")))[-1] == Workload("Pod", "ml", "web-1")


def test_a_resolved_owner_is_kept_when_it_cannot_be_read_later(cluster: FakeObjects):
    """A workload whose name changed with every fault of the API server would be recorded as two."""
    cluster.add(POD, "apps/v1", "ReplicaSet", "web-5d")
    cluster.add(REPLICA_SET, "apps/v1", "Deployment", "web")
    now = [0.0]
    owners = ClusterOwners(ApiServer(cluster.url), clock=lambda: now[0])
    owners.resolve_owners(table("web-1"))
    cluster.forbidden |= {POD}
    now[0] = 2 * CACHE_SECONDS
    assert workloads(owners.resolve_owners(table("web-1"))) == [Workload("Deployment", "ml", "web")]


def test_a_server_that_fails_between_two_owners_leaves_no_intermediate_owner(cluster: FakeObjects):
    cluster.add(POD, "apps/v1", "ReplicaSet", "web-5d")
    cluster.add(REPLICA_SET, "apps/v1", "Deployment", "web")
    cluster.broken.add(REPLICA_SET)
    owners = ClusterOwners(ApiServer(cluster.url))
    assert workloads(owners.resolve_owners(table("web-1"))) == [None]
    cluster.broken.clear()
    assert workloads(owners.resolve_owners(table("web-1"))) == [Workload("Deployment", "ml", "web")]


def test_a_failing_server_gets_one_request_and_not_one_per_pod(cluster: FakeObjects):
    pods = [f"web-{number}" for number in range(20)]
    cluster.broken |= {f"/api/v1/namespaces/ml/pods/{pod}" for pod in pods}
    assert set(resolve(cluster, table(*pods))) == {None}
    assert len(cluster.requests) == 1


def test_a_slow_server_delays_a_cycle_for_a_limited_time(cluster: FakeObjects):
    pods = [f"web-{number}" for number in range(20)]
    now = [0.0]

    def clock() -> float:
        now[0] += SECONDS_PER_CYCLE / 10
        return now[0]

    ClusterOwners(ApiServer(cluster.url), clock=clock).resolve_owners(table(*pods))
    assert 1 <= len(cluster.requests) <= 10


def test_without_permission_or_a_server_the_table_stays_as_it_is(cluster: FakeObjects):
    cluster.forbidden.add(POD)
    assert resolve(cluster, table("web-1")) == [None]
    assert workloads(ClusterOwners(None).resolve_owners(table("web-1"))) == [None]
    assert workloads(ClusterOwners(ApiServer("http://127.0.0.1:9")).resolve_owners(table("web-1"))) == [None]


def test_a_cycle_of_owner_references_ends(cluster: FakeObjects):
    cluster.add(POD, "apps/v1", "ReplicaSet", "web-5d")
    cluster.add(REPLICA_SET, "apps/v1", "ReplicaSet", "web-5d")
    assert resolve(cluster, table("web-1")) == [Workload("ReplicaSet", "ml", "web-5d")]


def test_owners_are_read_only_where_there_is_an_api_server(cluster: FakeObjects):
    cluster.add(POD)
    owners = open_owners(KubernetesSettings(api_url=cluster.url), {})
    assert workloads(owners.resolve_owners(table("web-1"))) == [Workload("Pod", "ml", "web-1")]
    for settings in (KubernetesSettings(), KubernetesSettings(owners="never", api_url=cluster.url)):
        assert workloads(open_owners(settings, {}).resolve_owners(table("web-1"))) == [None]


def test_required_owners_need_an_api_server():
    with pytest.raises(ConfigurationError, match=r"kubernetes\.api_url"):
        open_owners(KubernetesSettings(owners="always"), {})


def in_clusters(*clusters: str) -> UsageTable:
    """The same pod in each."""
    containers = [Container("ml", "web-1", "", "main", cluster=each) for each in clusters]
    allocations = [AllocationKey(f"GPU-{number}", "", one, "node-1") for number, one in enumerate(containers)]
    return UsageTable(1.0, 600.0, allocations, {}, np.ones(len(allocations)))


@pytest.mark.parametrize(
    ("own", "clusters", "resolved"),
    [
        ("", ["", ""], ["", ""]),
        ("", ["east"], ["east"]),  # the only one
        ("east", ["", ""], ["", ""]),  # the series name none
        ("east", ["east", "west"], ["east"]),
        ("east", ["west"], []),
        ("", ["east", "west"], []),
        ("", ["east", ""], []),
    ],
)
def test_owners_are_read_for_pods_of_the_own_cluster_only(
    own: str, clusters: list[str], resolved: list[str], cluster: FakeObjects
):
    cluster.add(POD, "batch/v1", "Job", "web")
    owners = ClusterOwners(ApiServer(cluster.url), own_cluster=own)
    found = [one for one in workloads(owners.resolve_owners(in_clusters(*clusters))) if one]
    assert found == [Workload("Job", "ml", "web", each) for each in resolved]
    assert owners.read_notify_annotation("ml", "web-1", "elsewhere") == ""


def codes(found: UsageTable) -> list[str]:
    return [one.code for one in found.findings]


@pytest.mark.parametrize("own", ["", "east"])
def test_never_the_last_cluster_that_reports_is_taken_for_the_only_one(own: str, cluster: FakeObjects):
    """The exporters of east are down for an hour, and its rows are gone: those of west must not be looked up there."""
    cluster.add(POD, "batch/v1", "Job", "web", uid="uid-east")
    owners = ClusterOwners(ApiServer(cluster.url), own_cluster=own)
    for names in (["east", "west"], ["west"], ["west"]):
        found = owners.resolve_owners(in_clusters(*names))
        west = next(one.container for one in found.allocations if one.cluster == "west")
        assert (west.pod_uid, west.workload) == ("", None)
        assert codes(found) == ([] if own else ["owners-not-looked-up"])
    assert owners.read_notify_annotation("ml", "web-1", "west") == ""


def test_never_the_only_cluster_after_a_restart_if_the_ledger_has_another(cluster: FakeObjects):
    cluster.add(POD, "batch/v1", "Job", "web")
    owners = ClusterOwners(ApiServer(cluster.url))
    is_broken = [True]

    def read(present: Collection[str]) -> list[tuple[str, str]]:
        assert set(present) == {"west"}
        if is_broken[0]:
            raise SourceError("no database")
        return [("east", "GPU-9"), ("west", "GPU-0")]

    owners.use_ledger(read)
    owners.resolve_owners(in_clusters("west"))  # nothing is done without the database
    is_broken[0] = False
    for _cycle in range(2):
        found = owners.resolve_owners(in_clusters("west"))
        assert workloads(found) == [None]
        assert "east, west" in found.findings[0].message.en


def test_never_series_without_a_name_once_the_own_cluster_has_one(cluster: FakeObjects):
    cluster.add(POD, "batch/v1", "Job", "web")
    owners = ClusterOwners(ApiServer(cluster.url), own_cluster="east")
    for names, resolved in (["east", ""], 1), ([""], 0):
        assert len([one for one in workloads(owners.resolve_owners(in_clusters(*names))) if one]) == resolved


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_cluster_that_gets_a_name_is_the_same_by_its_gpus(cluster: FakeObjects, *, is_restarted: bool):
    cluster.add(POD, "batch/v1", "Job", "web")
    owners = ClusterOwners(ApiServer(cluster.url))
    if is_restarted:
        owners.use_ledger(lambda _: [("", "GPU-0"), ("", "GPU-1")])
    else:
        owners.resolve_owners(in_clusters(""))
    for _cycle in range(2):
        found = owners.resolve_owners(in_clusters("prod"))
        assert workloads(found) == [Workload("Job", "ml", "web", "prod")]
        assert codes(found) == []
    named = replace(in_clusters("west"), allocations=[replace(in_clusters("west").allocations[0], gpu_uuid="node-1,0")])
    owners.resolve_owners(named)
    found = owners.resolve_owners(replace(named, allocations=[*in_clusters("prod").allocations]))
    assert workloads(found) == [None], "node and index are no identity: west is another cluster"


@pytest.mark.parametrize(
    ("reported", "is_same"),
    [
        ("gpu-1", True),
        ("GPU-1", True),
        ("gpu-1.example.com", True),
        ("gpu-1.example.com.", True),
        ("gpu-1:9400", True),
        ("10.0.0.5", True),
        ("10.0.0.5:9400", True),
        ("[fd00::5]:9400", True),
        ("fd00::5", True),
        ("10.0.0.6", None),  # may be the address of the exporter's pod
        ("dcgm-exporter-x7k2p", None),  # its name
        ("", None),
        ("gpu-2", False),
        ("gpu-10", False),
        ("gpu-2.example.com", False),
    ],
)
def test_names_of_a_node_are_compared_where_their_form_tells_something(reported: str, is_same: bool | None):
    assert is_on_node(reported, "gpu-1", {"10.0.0.5", "fd00::5"}) is is_same
    assert is_on_node("gpu-1", "gpu-1.example.com", ()) is True
    assert is_on_node("10", "10.0.0.5", ()) is False, "no name of an address"
    assert is_on_node(reported, "", ()) is None, "it has not been scheduled yet"


def test_never_a_pod_of_the_same_name_on_another_node(cluster: FakeObjects):
    """A twin in another cluster whose series do not name it, beside a pod of this one."""
    cluster.add(POD, "batch/v1", "Job", "web", uid="uid-1", start="2026-11-18T00:00:00Z")
    lab = POD.replace("web-1", "lab-0")
    cluster.add(lab, "batch/v1", "Job", "lab", uid="uid-2", start="2026-11-18T00:00:00Z", node="east-1")
    cluster.objects[lab]["metadata"]["annotations"] = {"gpusteward.io/notify": "team-east"}
    owners = ClusterOwners(ApiServer(cluster.url))
    both = [*table("web-1").allocations, *table("lab-0", node="west-1").allocations]
    for number in range(3):
        found = owners.resolve_owners(UsageTable(1.0, 600.0, both, {}, np.ones(2)))
        assert identities(found) == [("uid-1", 1794960000.0), ("", None)]
        assert workloads(found) == [Workload("Job", "ml", "web"), None]
        assert codes(found) == (["pods-elsewhere"] if number else []), "a pod that moves is there for a moment"
    assert "ml/lab-0 (west-1)" in found.findings[0].message.en
    assert owners.read_notify_annotation("ml", "lab-0") == ""
    moved = [*both, *table("lab-0", node="east-1").allocations]
    found = owners.resolve_owners(UsageTable(1.0, 600.0, moved, {}, np.ones(3)))
    assert [uid for uid, _ in identities(found)] == ["uid-1", "", "uid-2"], "of two rows the one on its node"


def test_a_pod_that_has_moved_is_no_finding(cluster: FakeObjects):
    """Its row on the former node has no current sample, or is among those that ended."""
    cluster.add(POD, uid="uid-1")
    owners = ClusterOwners(ApiServer(cluster.url))
    rows = [*table("web-1").allocations, *table("web-1", node="node-2").allocations]
    for _cycle in range(3):
        ended = [EndedHolder(table("web-1", node="node-3").allocations[0], 1.0, 30.0, 60.0, has_worked=False)]
        usage = UsageTable(1.0, 600.0, rows, {}, np.ones(2), {1: NO_CURRENT_SAMPLE}, ended=ended)
        found = owners.resolve_owners(usage)
        assert codes(found) == []
        assert [one.allocation.container.pod_uid for one in found.ended] == [""], "it was an earlier pod"


@pytest.mark.parametrize(
    ("own", "node", "evidence"),
    [
        ("", "node-1", OwnerEvidence.READ),
        ("", "10.0.0.5:9400", OwnerEvidence.READ),
        ("", "dcgm-exporter-x7k2p", OwnerEvidence.REFERENCE),
        ("", "elsewhere", OwnerEvidence.REFERENCE),
        ("", "", OwnerEvidence.REFERENCE),
        ("prod", "dcgm-exporter-x7k2p", OwnerEvidence.READ),
    ],
)
def test_never_acts_on_a_name_alone_without_a_node_that_confirms_it(
    own: str, node: str, evidence: OwnerEvidence, cluster: FakeObjects
):
    """That the engine has the series of this very cluster is then the word of `kubernetes.cluster`, or of nobody."""
    cluster.add(POD, "batch/v1", "Job", "web", uid="uid-1", address="10.0.0.5")
    cluster.add("/apis/batch/v1/namespaces/ml/jobs/web")
    found = ClusterOwners(ApiServer(cluster.url), own_cluster=own).resolve_owners(table("web-1", node=node))
    [owner] = workloads(found)
    assert owner == Workload("Job", "ml", "web")
    assert owner.evidence is evidence
    assert [uid for uid, _ in identities(found)] == ["uid-1"]
    assert codes(found) == ([] if evidence is OwnerEvidence.READ else ["pods-not-confirmed"])


def identities(found: UsageTable) -> list[tuple[str, float | None]]:
    return [(one.container.pod_uid, one.container.started_at) for one in found.allocations]


def test_uid_and_start_come_from_the_api_server_where_metrics_have_neither(cluster: FakeObjects):
    """dcgm-exporter: a list of names and uids in every cycle, and one request for a pod that was not seen before."""
    cluster.add(POD, uid="uid-1", start="2026-11-18T00:00:00Z")
    cluster.add(POD.replace("web-1", "web-2"), uid="uid-2", start="2026-11-18T00:10:00Z")
    owners = ClusterOwners(ApiServer(cluster.url))
    for _cycle in range(3):
        found = owners.resolve_owners(table("web-1", "web-2"))
        assert identities(found) == [("uid-1", 1794960000.0), ("uid-2", 1794960600.0)]
    assert len(cluster.requests) == 2
    assert len(cluster.lists) == 3 * 2, "two pages in each cycle"
    assert [make_allocation_id(one) for one in found.allocations] == [
        make_allocation_id(one) for one in owners.resolve_owners(table("web-1", "web-2")).allocations
    ]


def test_a_pod_that_is_created_again_under_the_same_name_is_another_one_at_once(cluster: FakeObjects):
    """The cache of owners kept a name for hours."""
    cluster.add(POD, uid="uid-1", start="2026-11-18T00:00:00Z")
    owners = ClusterOwners(ApiServer(cluster.url))
    owners.resolve_owners(table("web-1"))
    cluster.add(POD, "batch/v1", "Job", "web", uid="uid-2", start="2026-11-18T00:10:00Z")
    found = owners.resolve_owners(table("web-1"))
    assert identities(found) == [("uid-2", 1794960600.0)]
    assert workloads(found) == [Workload("Job", "ml", "web")]


def test_an_ended_pod_has_the_owner_but_never_the_uid_of_the_next_one_of_its_name(cluster: FakeObjects):
    """Otherwise the ledger ends the row of the pod that is there."""
    cluster.add(POD, "apps/v1", "StatefulSet", "web", uid="uid-2", start="2026-11-18T00:10:00Z")
    cluster.add("/apis/apps/v1/namespaces/ml/statefulsets/web")
    usage, started_at = table("web-1"), 1794960600.0
    ended = [EndedHolder(usage.allocations[0], started_at + since, 30.0, 60.0, True) for since in (-60.0, 60.0)]
    found = ClusterOwners(ApiServer(cluster.url)).resolve_owners(replace(usage, ended=ended)).ended
    pods = [(each.allocation.container.pod_uid, each.allocation.container.started_at) for each in found]
    assert pods == [("", None), ("uid-2", started_at)]
    assert {each.allocation.container.workload for each in found} == {Workload("StatefulSet", "ml", "web")}


def test_an_ended_pod_and_an_unreachable_server_do_not_change_the_identity_of_a_row(cluster: FakeObjects):
    """The uid is part of the row in the ledger."""
    cluster.add(POD, "apps/v1", "ReplicaSet", "web-5d", uid="uid-1", start="2026-11-18T00:00:00Z")
    cluster.add(REPLICA_SET, "apps/v1", "Deployment", "web")
    now = [0.0]
    owners = ClusterOwners(ApiServer(cluster.url), clock=lambda: now[0])
    before = owners.resolve_owners(table("web-1"))
    del cluster.objects[POD]
    for moment in (60.0, 2 * CACHE_SECONDS):
        now[0] = moment
        after = owners.resolve_owners(table("web-1"))
        assert (identities(after), workloads(after)) == (identities(before), workloads(before))
    cluster.close()
    after = owners.resolve_owners(table("web-1"))
    assert (identities(after), workloads(after)) == (identities(before), workloads(before))


def test_without_the_right_to_list_pods_uid_and_start_stay_unknown(cluster: FakeObjects):
    cluster.add(POD, uid="uid-1", start="2026-11-18T00:00:00Z")
    cluster.may_list = False
    found = ClusterOwners(ApiServer(cluster.url)).resolve_owners(table("web-1"))
    assert identities(found) == [("", None)]
    assert workloads(found) == [Workload("Pod", "ml", "web-1")]


def test_pods_whose_metrics_name_the_uid_are_not_listed(cluster: FakeObjects):
    cluster.add(POD, uid="uid-1", start="2026-11-18T00:00:00Z")
    named = AllocationKey("GPU-1", "", Container("ml", "web-1", "uid-1", "main"))
    found = ClusterOwners(ApiServer(cluster.url)).resolve_owners(UsageTable(1.0, 600.0, [named], {}, np.ones(1)))
    assert identities(found) == [("uid-1", 1794960000.0)]
    assert cluster.lists == []


def served(usage: UsageTable, *pods: str, namespace: str = "ml") -> UsageTable:
    servers = [ServerPod("vLLM", Container(namespace, pod), requests=0, is_silent=True) for pod in pods]
    return replace(usage, servers=servers)


def test_a_leader_without_gpus_speaks_for_the_workers_of_its_group(cluster: FakeObjects):
    for pod in ("llm-0", "llm-0-1"):
        cluster.add(
            f"/api/v1/namespaces/ml/pods/{pod}", "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "llm", node="node-1"
        )
    cluster.add("/apis/leaderworkerset.x-k8s.io/v1/namespaces/ml/leaderworkersets/llm")
    found = ClusterOwners(ApiServer(cluster.url)).resolve_owners(served(table("llm-0-1"), "llm-0"))
    [server] = found.servers
    assert server.container.workload == Workload("LeaderWorkerSet", "ml", "llm")
    joined = join_servers(found)
    assert joined.column(Measure.SILENT, Stat.LOWEST).tolist() == [1.0]
    assert joined.servers == ()


def test_a_server_whose_owner_cannot_be_read_is_its_own_workload(cluster: FakeObjects):
    cluster.add("/api/v1/namespaces/ml/pods/llm-0-1", "apps/v1", "StatefulSet", "llm-0")
    found = ClusterOwners(ApiServer(cluster.url)).resolve_owners(served(table("llm-0-1"), "llm-0"))
    assert np.isnan(join_servers(found).column(Measure.SILENT, Stat.LOWEST)).all()


def test_servers_cost_no_requests_where_their_pods_hold_gpus_or_their_namespace_has_none(cluster: FakeObjects):
    cluster.add(POD)
    owners = ClusterOwners(ApiServer(cluster.url))
    owners.resolve_owners(served(table("web-1"), "web-1"))
    owners.resolve_owners(served(table("web-1"), "router", namespace="gateways"))
    assert cluster.requests == [POD]


def test_a_target_that_names_any_number_of_pods_costs_a_limited_number_of_requests(
    cluster: FakeObjects, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cluster_owners, "MOST_SERVER_PODS", 3)
    cluster.add(POD)
    names = [f"forged-{number}" for number in range(50)]
    ClusterOwners(ApiServer(cluster.url)).resolve_owners(served(table("web-1"), *names))
    assert sum("forged" in path for path in cluster.requests) == 3
