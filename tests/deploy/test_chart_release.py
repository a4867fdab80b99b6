"""A release of the chart on a real API server: install, upgrade from the previous chart, rollback, uninstall, notes.

`charts/` has the previous chart as helm packages it: the one of the last release, and until there is one, the chart as
it first was.
"""

import base64
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from tests.deploy.helm import CHART, Helm, HelmError
from tests.kubernetes.cluster import NOT_MANAGED, Cluster, Json, path_of, wait_for

pytestmark = pytest.mark.slow

HASH = "$2b$10$FS9RK.HwT66xTaMSERlJB.eEnYC2IvKSjUbNj5cFSdgeWgCoRT9vC"  # of change-me
(PREVIOUS,) = (Path(__file__).parent / "charts").glob("gpusteward-*.tgz")
OF_EVERY_NAMESPACE = {("serviceaccounts", "default"), ("configmaps", "kube-root-ca.crt")}
SHORT_LIVED = {"events", "leases", "pods", "endpoints", "endpointslices", "controllerrevisions", "replicasets"}
"""Owned by other objects, and removed with them by the garbage collector, or of no release."""


@dataclass(frozen=True)
class Release:
    """A release of its own in a namespace of its own, with a node for its pods and a volume for its ledger."""

    cluster: Cluster
    helm: Helm
    namespace: str
    chosen_name: str = ""

    @property
    def name(self) -> str:
        return self.chosen_name or f"gpusteward-{self.namespace}"

    @property
    def prefix(self) -> str:
        """Of the names of its objects."""
        return self.name if "gpusteward" in self.name else f"{self.name}-gpusteward"

    @property
    def values(self) -> Json:
        """Whatever other tests have in the cluster, the result is the same."""
        here = {"tests/namespace": self.namespace}
        return {
            "agent": {"nodeSelector": here},
            "analyzer": {
                "nodeSelector": here,
                "tolerations": [{"key": NOT_MANAGED, "operator": "Exists"}],
                "persistence": {"storageClass": self.namespace},
            },
            "serviceMonitor": {"enabled": True},
            "prometheusRule": {"enabled": True},
            "openshift": {"enabled": False},
        }

    def add_volume(self) -> None:
        """For the claim of the ledger. No process mounts it."""
        volume: Json = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": self.namespace}}
        volume["spec"] = {
            "capacity": {"storage": "5Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": self.namespace,
            "hostPath": {"path": "/nowhere"},
        }
        self.cluster.apply(volume)

    def run(self, command: str, *words: str | Path, values: Json | None = None) -> str:
        return self.helm.run(command, self.name, *words, "--namespace", self.namespace, values=values)

    def read(self, plural: str, name: str, *, group: str = "api/v1") -> Json:
        return self.cluster.request("GET", f"/{group}/namespaces/{self.namespace}/{plural}/{name}")

    def read_claim(self) -> Json:
        return self.read("persistentvolumeclaims", f"{self.prefix}-analyzer")

    def read_tokens(self) -> dict[str, str]:
        return dict(self.read("secrets", f"{self.prefix}-analyzer")["data"])

    def list_objects(self) -> set[tuple[str, str]]:
        """All of the namespace and all cluster-wide ones of the release, without what others own."""
        return set(self._list_objects()) - OF_EVERY_NAMESPACE

    def _list_objects(self) -> Iterator[tuple[str, str]]:
        for base, resource in list_resources(self.cluster):
            plural = resource["name"]
            if plural in SHORT_LIVED:
                continue
            if resource["namespaced"]:
                path = f"{base}/namespaces/{self.namespace}/{plural}"
            else:
                path = f"{base}/{plural}?labelSelector=app.kubernetes.io%2Finstance%3D{self.name}"
            for item in self.cluster.request("GET", path)["items"]:
                yield plural, item["metadata"]["name"]


def list_resources(cluster: Cluster) -> Iterator[tuple[str, Json]]:
    """The path of every group, and each of its resources that can be listed."""
    groups = cluster.request("GET", "/apis")["groups"]
    for base in ("/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)):
        if "metrics.k8s.io" in base:  # of an API server behind this one, in another test
            continue
        for resource in cluster.request("GET", base)["resources"]:
            if "/" not in resource["name"] and {"list", "create"} <= set(resource["verbs"]):
                yield base, resource


@pytest.fixture
def release(extended: Cluster, helm: Helm) -> Release:
    namespace = extended.add_namespace("release")
    extended.add_node(gpus=1, labels={"tests/namespace": namespace, "nvidia.com/gpu.present": "true"})
    made = Release(extended, helm.using(extended), namespace)
    made.add_volume()
    return made


@pytest.mark.parametrize("name", ["gpusteward", "gpusteward-prod", "gpu"])
def test_a_release_of_any_name_is_installed_upgraded_rolled_back_and_uninstalled(release: Release, name: str):
    named = replace(release, chosen_name=name)
    before = named.list_objects()
    named.run("install", CHART, "--wait", "--timeout=120s", values=named.values)
    claim, tokens, objects = named.read_claim(), named.read_tokens(), named.list_objects()
    check_kept(named, claim, tokens)
    changed = merge(named.values, {"agent": {"interval": 7}, "reclaim": {"rights": True}})
    named.run("upgrade", CHART, "--wait", "--timeout=120s", values=changed)
    check_kept(named, claim, tokens)
    agent = named.read("daemonsets", f"{named.prefix}-agent", group="apis/apps/v1")
    assert "--interval=7" in agent["spec"]["template"]["spec"]["containers"][0]["args"]
    named.run("rollback", "1", "--wait", "--timeout=120s")
    check_kept(named, claim, tokens)
    history = {("secrets", f"sh.helm.release.v1.{name}.v{number}") for number in (2, 3)}
    assert named.list_objects() == objects | history
    named.run("uninstall", "--wait")
    wait_for(lambda: named.list_objects() == before | {("persistentvolumeclaims", f"{named.prefix}-analyzer")})
    wait_for(lambda: named.cluster.list_pods(named.namespace) == [])


def test_it_is_upgraded_from_the_previous_chart_and_rolled_back_with_its_claim_and_tokens(release: Release):
    release.run("install", PREVIOUS, "--wait", "--timeout=120s", values=release.values)
    claim, tokens, objects = release.read_claim(), release.read_tokens(), release.list_objects()
    assert claim["status"]["phase"] == "Bound"
    assert {"viewer", "operator", "admin", "tokens.yaml"} <= tokens.keys()

    release.run("upgrade", CHART, "--reset-then-reuse-values", "--wait", "--timeout=120s")
    check_kept(release, claim, tokens)
    added = release.list_objects() - objects
    assert ("roles", "gpusteward-viewer") in added, "it is the chart of this checkout"
    assert ("configmaps", f"{release.name}-dashboard-node") in added

    release.run("rollback", "1", "--wait", "--timeout=120s")
    check_kept(release, claim, tokens)
    history = {("secrets", f"sh.helm.release.v1.{release.name}.v{number}") for number in (2, 3)}
    assert release.list_objects() == objects | history

    release.run("upgrade", CHART, "--reset-then-reuse-values", "--wait", "--timeout=120s")
    check_kept(release, claim, tokens)


def check_kept(release: Release, claim: Json, tokens: dict[str, str]) -> None:
    now = release.read_claim()
    assert (now["metadata"]["uid"], now["status"]["phase"]) == (claim["metadata"]["uid"], "Bound")
    assert release.read_tokens() == tokens
    for plural, name in (("deployments", "analyzer"), ("daemonsets", "agent")):
        wait_for(lambda plural=plural, name=name: is_ready(release, plural, name))  # helm waits for no only analyzer


def is_ready(release: Release, plural: str, name: str) -> bool:
    status = release.read(plural, f"{release.prefix}-{name}", group="apis/apps/v1")["status"]
    return bool(status.get("readyReplicas") or status.get("numberReady"))


def test_an_upgrade_that_leaves_out_new_values_says_what_to_do_and_changes_nothing(release: Release):
    release.run("install", PREVIOUS, values=release.values)
    before = release.list_objects()
    with pytest.raises(
        HelmError, match=r"(?s)These values are missing: reclaim, kubectl,.*Use --reset-then-reuse-values"
    ):
        release.run("upgrade", CHART, "--reuse-values")
    assert release.list_objects() == before


EVERYTHING: Json = {
    "networkPolicy": {"enabled": True},
    "reclaim": {"rights": True},
    "agent": {"ratioFile": "0.5\n", "basicAuth": {"users": {"prometheus": HASH}}},
    "prometheus": {"url": "http://prometheus.monitoring:9090"},
    "analyzer": {"secrets": {"control.secret": "x"}, "ingress": {"enabled": True, "hosts": ["gpus.example.com"]}},
}


@pytest.mark.parametrize("is_kept", [True, False])
def test_uninstall_leaves_the_claim_unless_told_otherwise_and_nothing_else(release: Release, is_kept: bool):
    values = merge(release.values, EVERYTHING, {"analyzer": {"persistence": {"keep": is_kept}}})
    before = release.list_objects()
    release.run("install", CHART, "--wait", "--timeout=120s", values=values)
    assert len(release.list_objects()) > 30
    release.run("uninstall", "--wait")
    claim = {("persistentvolumeclaims", f"{release.name}-analyzer")} if is_kept else set()
    wait_for(lambda: release.list_objects() == before | claim)
    wait_for(lambda: release.cluster.list_pods(release.namespace) == [])


def merge(*parts: Json) -> Json:
    merged: Json = {}
    for part in parts:
        for key, value in part.items():
            is_section = isinstance(value, dict) and isinstance(merged.get(key), dict)
            merged[key] = merge(merged[key], value) if is_section else value
    return merged


def test_the_roles_of_reclaim_follow_its_namespaces(release: Release):
    first, second = (release.cluster.add_namespace("team") for _ in range(2))
    name = f"{release.name}-analyzer-{release.namespace}-reclaim"

    def list_roles() -> set[tuple[str, str]]:
        paths = {
            (namespace, resource): f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/{resource}"
            for namespace in (first, second)
            for resource in ("roles", "rolebindings")
        }
        found = {key: release.cluster.request("GET", path)["items"] for key, path in paths.items()}
        return {key for key, items in found.items() if [each["metadata"]["name"] for each in items] == [name]}

    def make_limited(*namespaces: str) -> Json:
        reclaim = {"mode": "enforce", "rights": True, "namespaces": list(namespaces)}
        return merge(release.values, {"reclaim": reclaim})

    assert f"may change workloads in these namespaces only: {first}, {second}" in release.run(
        "install", CHART, values=make_limited(first, second)
    )
    both = {(namespace, kind) for namespace in (first, second) for kind in ("roles", "rolebindings")}
    assert list_roles() == both
    notes = release.run("upgrade", CHART, values=make_limited(second))
    assert "`gpusteward restore` prints the kubectl command" in notes
    assert list_roles() == {each for each in both if each[0] == second}
    release.run("uninstall")
    assert list_roles() == set()


def test_an_installation_again_takes_the_claim_that_was_left(release: Release):
    release.run("install", CHART, values=release.values)
    claim = release.read_claim()
    release.run("uninstall", "--wait")
    release.run("install", CHART, "--wait", "--timeout=120s", values=release.values)
    assert release.read_claim()["metadata"]["uid"] == claim["metadata"]["uid"]


def shared(release: Release, *, can_start: bool = True) -> Json:
    """Two analyzers on PostgreSQL."""
    node = {} if can_start else {"nodeSelector": {"tests/namespace": "of-no-node"}}
    url = "postgresql://u:p@postgresql.db/gpusteward"
    return merge(release.values, {"analyzer": {"replicas": 2, "postgresql": {"url": url}, **node}})


def broken(release: Release) -> Json:
    """One analyzer that cannot start."""
    return merge(release.values, {"analyzer": {"nodeSelector": {"tests/namespace": "of-no-node"}}})


def read_analyzers(release: Release) -> tuple[int, int]:
    """Ready and updated pods of the analyzer."""
    status = release.read("deployments", f"{release.name}-analyzer", group="apis/apps/v1")["status"]
    return status.get("readyReplicas", 0), status.get("updatedReplicas", 0)


def test_from_one_analyzer_to_two_and_back_with_upgrades_that_fail_in_between(release: Release):
    release.run("install", CHART, "--wait", "--timeout=120s", values=release.values)
    claim, tokens = release.read_claim(), release.read_tokens()
    with pytest.raises(HelmError):  # pods that cannot start
        release.run("upgrade", CHART, "--wait", "--timeout=5s", values=shared(release, can_start=False))
    release.run("rollback", "1", "--wait", "--timeout=60s")
    check_kept(release, claim, tokens)
    with pytest.raises(HelmError, match="rolled back"):
        release.run("upgrade", CHART, "--atomic", "--timeout=20s", values=shared(release, can_start=False))
    check_kept(release, claim, tokens)
    wait_for(lambda: read_analyzers(release) == (1, 1))

    release.run("upgrade", CHART, "--wait", "--timeout=120s", values=shared(release))
    check_kept(release, claim, {**tokens, "ledger.url": release.read_tokens()["ledger.url"]})
    assert read_analyzers(release) == (2, 2)
    with pytest.raises(HelmError, match="rolled back"):
        release.run("upgrade", CHART, "--atomic", "--timeout=20s", values=shared(release, can_start=False))
    wait_for(lambda: read_analyzers(release) == (2, 2))
    release.run("upgrade", CHART, values=broken(release))  # one analyzer that cannot start
    wait_for(lambda: read_analyzers(release) == (0, 1))
    release.run("rollback", "--wait", "--timeout=120s")  # to the two
    wait_for(lambda: read_analyzers(release) == (2, 2))
    check_kept(release, claim, {**tokens, "ledger.url": release.read_tokens()["ledger.url"]})
    release.run("upgrade", CHART, "--atomic", "--timeout=120s", values=release.values)
    wait_for(lambda: read_analyzers(release) == (1, 1))
    release.run("upgrade", CHART, values=broken(release))
    wait_for(lambda: read_analyzers(release) == (0, 1))
    release.run("rollback", "--wait", "--timeout=120s")
    check_kept(release, claim, tokens)
    wait_for(lambda: read_analyzers(release) == (1, 1))


def test_a_ledger_that_begins_in_postgresql_has_no_claim_that_an_installation_would_wait_for(release: Release):
    """Most classes make a volume for the first pod of a claim; here no volume is made at all."""
    nowhere = {"analyzer": {"persistence": {"storageClass": f"{release.namespace}-of-no-volume"}}}
    release.run("install", CHART, "--atomic", "--timeout=60s", values=merge(shared(release), nowhere))
    assert read_analyzers(release) == (2, 2)
    assert "persistentvolumeclaims" not in {plural for plural, _ in release.list_objects()}
    assert "an earlier release" not in release.run("upgrade", CHART, values=merge(shared(release), nowhere))
    release.run("upgrade", CHART, "--wait", "--timeout=120s", values=release.values)
    claim = release.read_claim()
    copied = "What an earlier release recorded is still in the claim"
    assert copied in release.run("upgrade", CHART, "--wait", "--timeout=120s", values=shared(release))
    assert release.read_claim()["metadata"]["uid"] == claim["metadata"]["uid"]


def test_server_side_apply_goes_from_one_analyzer_to_two_and_back(release: Release):
    """As Argo CD and helm 4 apply, without taking fields from others by force."""
    release.run("install", CHART, "--wait", "--timeout=120s", values=release.values)
    release.run("uninstall", "--wait")
    given = {"analyzer": {"tokens": {"viewer": "viewer-0123456789abcdef"}}}  # none is created without a cluster
    steps = (
        (release.values, (1, 1)),
        (shared(release, can_start=False), None),
        (shared(release), (2, 2)),
        (broken(release), (0, 1)),
        (shared(release), (2, 2)),
        (release.values, (1, 1)),
    )
    for values, expected in steps:
        words = ("--namespace", release.namespace)
        for item in release.helm.template(CHART, merge(values, given), *words, release=release.name):
            if item["metadata"]["name"] == f"{release.name}-analyzer" and item["metadata"].get("namespace"):
                path = f"{path_of(item)}?fieldManager=argocd"
                release.cluster.request("PATCH", path, item, media="application/apply-patch+yaml")
        if expected:  # what is there meanwhile of pods that cannot start does not matter
            wait_for(lambda expected=expected: read_analyzers(release) == expected)
        assert release.read_claim()


def read_notes(release: Release, values: Json) -> str:
    """The notes of an installation, without one."""
    text = release.run("install", CHART, "--dry-run=server", values=merge(release.values, values))
    return re.sub(r"\s+", " ", text.partition("NOTES:")[2])


def test_the_notes_name_the_next_commands_and_warn_of_nothing_where_nothing_is_missing(release: Release):
    notes = read_notes(release, {})
    assert "WARNING" not in notes
    for command in (
        f"kubectl -n {release.namespace} rollout status daemonset/{release.name}-agent",
        f"kubectl -n {release.namespace} port-forward service/{release.name}-analyzer 8080:80",
        f"helm test {release.name} --namespace {release.namespace}",
        "The analyzer reads the agents directly",
    ):
        assert command in notes


SOURCES: dict[str, tuple[Json, str]] = {
    "agents": ({}, "the agents directly; set prometheus.url to use Prometheus."),
    "address": ({"prometheus": {"url": "http://thanos:9090"}}, "http://thanos:9090."),
    "label": (
        {"prometheus": {"serviceSelector": "app=prometheus", "serviceNamespace": "monitoring"}},
        "the engine whose Service has the labels app=prometheus, in the namespace monitoring; its log",
    ),
    "any namespace": (
        {"prometheus": {"serviceSelector": "app=prometheus"}},
        "the engine whose Service has the labels app=prometheus, in any namespace; its log",
    ),
    "several": (
        {"prometheus": {"url": "http://a:9090 http://b:9090"}},
        "http://a:9090 http://b:9090.",
    ),
    "exporters": (
        {"agent": {"enabled": False}, "analyzer": {"config": {"scrape": {"selector": "app=dcgm"}}}},
        "the exporters of analyzer.config.scrape.",
    ),
}


NOTES_AS_OBJECT = """
apiVersion: v1
kind: ConfigMap
metadata: {name: notes}
data:
  notes: |
    {{- include (print .Template.BasePath "/NOTES.txt") . | nindent 4 }}
"""


@pytest.fixture(scope="module")
def chart_with_notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`helm template` prints no notes: here they are an object too."""
    copy = shutil.copytree(CHART, tmp_path_factory.mktemp("chart") / "gpusteward")
    (copy / "templates/notes.yaml").write_text(NOTES_AS_OBJECT)
    return copy


def render_notes(helm: Helm, chart: Path, values: Json, *words: str) -> str:
    """The notes where nothing is known of the cluster."""
    (item,) = helm.template(chart, values, "--show-only", "templates/notes.yaml", *words)
    return str(item["data"]["notes"])


@pytest.mark.parametrize("source", SOURCES)
def test_the_notes_say_where_the_analyzer_reads_from(source: str, helm: Helm, chart_with_notes: Path):
    values, text = SOURCES[source]
    assert f"The analyzer reads {text}" in render_notes(helm, chart_with_notes, values)


def test_the_notes_warn_of_a_cluster_without_the_prometheus_operator(helm: Helm, chart_with_notes: Path):
    """The control plane of the tests has its definitions; `helm template` knows none."""
    notes = render_notes(helm, chart_with_notes, {})
    assert "WARNING: the Prometheus Operator is not installed (no ServiceMonitor CRD)" in notes
    assert "WARNING: no node" not in notes, "nothing is looked up without a cluster"
    annotated = render_notes(helm, chart_with_notes, {"scrapeAnnotations": {"enabled": True}})
    assert "WARNING" not in annotated
    given = {"analyzer": {"tokens": {"existingSecret": "gpusteward-tokens"}}}
    assert "WARNING" not in render_notes(helm, chart_with_notes, given, "--api-versions", "monitoring.coreos.com/v1")


def test_the_notes_warn_of_a_cluster_without_gpu_nodes(release: Release):
    notes = read_notes(release, {"agent": {"nodeSelector": {"tests/namespace": "of-no-node"}}})
    assert "WARNING: no node has the label nvidia.com/gpu.present=true tests/namespace=of-no-node, so no agent" in notes


def test_the_notes_warn_of_a_runtime_class_that_does_not_exist(release: Release):
    name = f"runtime-{release.namespace}"
    values = {"agent": {"runtimeClassName": name}}
    notes = read_notes(release, values)
    assert f"WARNING: the RuntimeClass {name} does not exist, so no pod of the agent will be created" in notes
    about = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": "nvidia"}
    release.cluster.request("POST", "/apis/node.k8s.io/v1/runtimeclasses", about)
    try:
        assert "WARNING" not in read_notes(release, values)
    finally:
        release.cluster.request("DELETE", f"/apis/node.k8s.io/v1/runtimeclasses/{name}")


def test_the_notes_warn_of_a_dcgm_exporter_that_profiles_too(release: Release):
    labels = {"app.kubernetes.io/name": "dcgm-exporter"}
    nowhere = {"tests/namespace": "of-no-node"}  # the nodes are those of other tests too
    spec = {"containers": [{"name": "exporter", "image": "exporter"}], "nodeSelector": nowhere}
    template = {"metadata": {"labels": labels}, "spec": spec}
    release.cluster.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "dcgm-exporter", "namespace": release.namespace},
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        }
    )
    named = f"WARNING: the dcgm-exporter {release.namespace}/dcgm-exporter profiles GPUs, too"
    assert named not in release.run("install", CHART, values=release.values)
    profiling = {"agent": {"profiling": {"hostengine": "sidecar"}}}
    assert named in release.run("upgrade", CHART, values=merge(release.values, profiling))
    assert named not in release.run("upgrade", CHART, values=release.values)


def test_users_that_are_removed_from_the_values_leave_the_cluster(release: Release):
    def read_users(users: Json) -> str | None:
        values = merge(
            release.values, {"agent": {"basicAuth": {"users": users}}, "prometheus": {"url": "http://p:9090"}}
        )
        release.run("upgrade", "--install", CHART, values=values)
        name = f"{release.name}-agent-web-config"
        if ("secrets", name) not in release.list_objects():
            return None
        return base64.b64decode(release.read("secrets", name)["data"]["web-config.yaml"]).decode()

    assert "former" in str(read_users({"former": HASH, "prometheus": HASH}))
    assert "former" not in str(read_users({"prometheus": HASH}))
    assert read_users({}) is None


def test_tokens_that_are_removed_from_the_values_are_valid_no_more_and_created_ones_are_kept(release: Release):
    def read_tokens(**tokens: str | bool) -> dict[str, str]:
        release.run("upgrade", "--install", CHART, values=merge(release.values, {"analyzer": {"tokens": tokens}}))
        return {role: base64.b64decode(text).decode() for role, text in release.read_tokens().items()}

    leaked = "leaked-0123456789abcdef"
    first = read_tokens(admin=leaked)
    assert first["admin"] == leaked
    second = read_tokens()
    assert leaked not in "".join(second.values())
    assert len(second["admin"]) == 48
    assert {**second, "admin": "", "tokens.yaml": ""} == {**first, "admin": "", "tokens.yaml": ""}
    assert read_tokens() == second
    assert read_tokens(admin=leaked, generate=False) == first
    assert {role for role in read_tokens(generate=False) if role != "tokens.yaml"} == {"viewer", "operator"}


def test_the_notes_warn_of_a_prometheus_that_selects_other_labels(release: Release):
    about = {"name": "stack", "namespace": release.namespace}
    spec = {"serviceMonitorSelector": {"matchLabels": {"release": release.name}}}
    prometheus = {"apiVersion": "monitoring.coreos.com/v1", "kind": "Prometheus", "metadata": about, "spec": spec}
    path = f"/apis/monitoring.coreos.com/v1/namespaces/{release.namespace}/prometheuses"
    release.cluster.request("POST", path, prometheus)
    try:
        expected = (
            f"WARNING: Prometheus {release.namespace}/stack selects monitors with the label release={release.name}"
        )
        assert expected in read_notes(release, {})
        labels = {"serviceMonitor": {"additionalLabels": {"release": release.name}}}
        assert "WARNING" not in read_notes(release, labels)
    finally:
        release.cluster.request("DELETE", f"{path}/stack")


def test_the_notes_warn_of_a_pod_security_level_that_refuses_the_agents(release: Release):
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    about = {"name": release.namespace, "labels": labels}
    release.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": about})
    assert "enforces the Pod Security level restricted, which refuses the agents" in read_notes(release, {})
    alone = {"agent": {"enabled": False}, "prometheus": {"url": "http://prometheus.monitoring:9090"}}
    assert "WARNING" not in read_notes(release, alone)


def test_the_notes_warn_of_an_ingress_without_sign_in_and_of_a_ledger_that_is_lost(release: Release):
    analyzer = {"ingress": {"enabled": True, "hosts": ["x.example.com"]}, "persistence": {"enabled": False}}
    notes = read_notes(release, {"analyzer": analyzer})
    assert "WARNING: nobody can sign in through the Ingress" in notes
    assert "WARNING: the ledger is lost with the pod" in notes


def test_two_releases_do_not_disturb_each_other(release: Release, extended: Cluster, helm: Helm):
    other = Release(extended, helm.using(extended), extended.add_namespace("release"))
    for each in (release, other):
        each.run("install", CHART, values=each.values)
    before = other.list_objects()
    release.run("uninstall", "--wait")
    assert other.list_objects() == before


def test_two_releases_of_one_name_are_installed_in_two_namespaces(release: Release, extended: Cluster):
    name, other = release.name, extended.add_namespace("release")
    for namespace in (release.namespace, other):
        values = merge(release.values, {"dashboards": {"namespace": release.namespace}})
        release.helm.run("install", name, CHART, "--namespace", namespace, values=values)
    before = release.list_objects()
    release.helm.run("uninstall", name, "--namespace", other, "--wait")
    gone = before - release.list_objects()
    assert {plural for plural, _ in gone} == {"clusterroles", "clusterrolebindings", "configmaps"}
    assert all(other in each for _, each in gone)


def test_a_second_release_in_a_namespace_is_told_what_cannot_be_there_twice(release: Release):
    release.run("install", CHART, values=release.values)
    second = f"second-{release.name}"
    with pytest.raises(
        HelmError, match=rf"(?s)gpusteward-viewer.*belongs to the release {release.name}.*kubectl.enabled"
    ):
        release.helm.run("install", second, CHART, "--namespace", release.namespace, values=release.values)
    values = merge(release.values, {"kubectl": {"enabled": False}})
    release.helm.run("install", second, CHART, "--namespace", release.namespace, values=values)
    release.helm.run("uninstall", second, "--namespace", release.namespace)


def test_the_previous_chart_is_another_one():
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert PREVIOUS.name != f"gpusteward-{about['version']}.tgz"
