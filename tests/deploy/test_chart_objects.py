"""Every object that the chart renders is accepted by a real API server, and no pod asks for more than it should."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

import pytest

from deploy.chart.manifests import DASHBOARDS, MANIFESTS
from tests.deploy.conftest import VALUE_SETS
from tests.deploy.helm import ROOT
from tests.kubernetes.cluster import ApiError, Cluster, Json, path_of
from tests.yaml_texts import read_all_yaml

pytestmark = pytest.mark.slow

CLUSTER_WIDE = ("Namespace", "ClusterRole", "ClusterRoleBinding", "SecurityContextConstraints")
LEVEL = "pod-security.kubernetes.io/enforce"
EXAMPLES = [ROOT / "deploy/autoscaling/hpa.yaml"]  # those of loads have tests of their own


def check(cluster: Cluster, item: Json) -> Json:
    """What the server would store, all fields checked, whether it exists already or not. Raises ApiError."""
    query = "?dryRun=All&fieldValidation=Strict&fieldManager=tests&force=true"
    return cluster.request("PATCH", path_of(item) + query, item, media="application/apply-patch+yaml")


def place(item: Json, namespace: str) -> Json:
    """The object in a namespace that exists, unless it is cluster-wide."""
    if item["kind"] in CLUSTER_WIDE:
        return item
    return {**item, "metadata": {**item["metadata"], "namespace": namespace}}


@pytest.fixture(scope="module")
def namespace(extended: Cluster) -> str:
    return add_accounts(extended, extended.add_namespace("objects"))


def add_accounts(cluster: Cluster, namespace: str) -> str:
    """Pods are only accepted with accounts that exist."""
    for name in ("gpusteward-agent", "gpusteward-analyzer"):
        about = {"name": name, "namespace": namespace}
        cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about})
    return namespace


def find_refused(cluster: Cluster, objects: Sequence[Json]) -> list[str]:
    refused = []
    for item in objects:
        try:
            check(cluster, item)
        except ApiError as error:
            refused.append(f"{item['kind']} {item['metadata']['name']}: {error}")
    return refused


@pytest.mark.parametrize("name", VALUE_SETS)
def test_the_api_server_accepts_every_object_with_strict_field_validation(
    name: str, rendered: dict[str, list[Json]], extended: Cluster, namespace: str
):
    assert find_refused(extended, [place(each, namespace) for each in rendered[name]]) == []


@pytest.mark.parametrize("path", sorted(MANIFESTS.glob("*.yaml")), ids=lambda path: path.name)
def test_the_api_server_accepts_every_object_of_a_plain_manifest(path, extended: Cluster, namespace: str):
    objects = read_all_yaml(path.read_text())
    assert find_refused(extended, [place(each, namespace) for each in objects]) == []


def test_the_api_server_accepts_the_dashboards_that_kustomize_makes(extended: Cluster, namespace: str):
    objects = read_all_yaml(extended.kubectl("kustomize", str(DASHBOARDS.parent)))
    assert len(objects) == len(list(DASHBOARDS.parent.glob("*.json")))
    assert find_refused(extended, [place(each, namespace) for each in objects]) == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_api_server_accepts_every_object_of_an_example(path, extended: Cluster, namespace: str):
    objects = read_all_yaml(path.read_text())
    assert find_refused(extended, [place(each, namespace) for each in objects]) == []


def test_a_field_that_does_not_exist_is_refused_in_every_kind(
    rendered: dict[str, list[Json]], extended: Cluster, namespace: str
):
    """Otherwise the tests above would prove nothing."""
    kinds = {each["kind"]: place(each, namespace) for objects in rendered.values() for each in objects}
    assert {"ServiceMonitor", "PodMonitor", "PrometheusRule", "HTTPRoute", "SecurityContextConstraints"} <= kinds.keys()
    for item in kinds.values():
        broken = deepcopy(item)
        broken["spec" if "spec" in broken else "metadata"]["unknownField"] = 1
        with pytest.raises(ApiError, match="unknownField"):
            check(extended, broken)


def set_in(item: Json, path: str, value: object) -> Json:
    """A copy of the object with this value at `spec/template/...`; numbers are places in lists."""
    changed = deepcopy(item)
    *parents, key = path.split("/")
    part: Any = changed
    for each in parents:
        part = part[int(each)] if each.isdigit() else part[each]
    part[key] = value
    return changed


REFUSED_BY_THE_SERVER = {
    "DaemonSet": [
        ("spec/updateStrategy/rollingUpdate", {"maxUnavailable": "10%", "maxSurge": 1}),
        ("spec/updateStrategy/rollingUpdate", {"maxUnavailable": 0, "maxSurge": 0}),
        ("spec/template/metadata/labels", {"app.kubernetes.io/component": "exporter"}),
        ("spec/template/metadata/labels/team", "x" * 64),
        ("spec/template/spec/tolerations", [{"key": "gpu", "operator": "Exists", "value": "yes"}]),
        ("spec/template/spec/containers/0/resources/limits/memory", "32Mi"),
        ("spec/template/spec/containers/0/securityContext/privileged", True),
        ("spec/template/spec/containers/0/livenessProbe/periodSeconds", -1),
    ],
    "Service": [("spec/type", "NodePort"), ("metadata/name", "1_gpus")],
    "Ingress": [("spec/rules/0/host", "https://a"), ("spec/rules/0/http/paths/0/path", "gpus")],
}
"""What the chart refuses because of it, as single changes of its own objects; `test_chart_values.py` has the values."""


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [(kind, *change) for kind, changes in REFUSED_BY_THE_SERVER.items() for change in changes],
)
def test_the_api_server_refuses_what_the_chart_refuses_for_it(
    kind: str, path: str, value: object, rendered: dict[str, list[Json]], extended: Cluster, namespace: str
):
    objects = [*rendered["default"], *rendered["ingress"]]
    item = next(place(each, namespace) for each in objects if each["kind"] == kind)
    check(extended, item)
    with pytest.raises(ApiError) as refused:
        check(extended, set_in(item, path, value))
    assert refused.value.status == 422


def list_pods(objects: Sequence[Json], component: str, namespace: str) -> Iterator[Json]:
    """The pods that the objects of a component lead to."""
    for item in objects:
        labels = item["metadata"].get("labels", {})
        if labels.get("app.kubernetes.io/component") != component:
            continue
        if item["kind"] == "Pod":
            yield place(item, namespace)
        elif item["kind"] in ("DaemonSet", "Deployment"):
            template = item["spec"]["template"]
            about = {**template["metadata"], "name": component, "namespace": namespace}
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": template["spec"]}


@pytest.fixture(scope="module")
def restricted(extended: Cluster) -> str:
    """A namespace in which Pod Security enforces the level `restricted`."""
    name = extended.add_namespace("restricted")
    about = {"name": name, "labels": {LEVEL: "restricted"}}
    extended.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": about})
    return add_accounts(extended, name)


@pytest.mark.parametrize("component", ["analyzer", "test"])
def test_pods_of_the_analyzer_and_of_helm_test_run_under_the_level_restricted(
    component: str, rendered: dict[str, list[Json]], extended: Cluster, restricted: str
):
    pods = [pod for objects in rendered.values() for pod in list_pods(objects, component, restricted)]
    assert len(pods) > 8
    assert find_refused(extended, pods) == []


def test_the_agent_is_refused_there_for_the_node_it_reads_and_for_root(
    rendered: dict[str, list[Json]], extended: Cluster, restricted: str
):
    (pod,) = list_pods(rendered["default"], "agent", restricted)
    with pytest.raises(ApiError) as refused:
        check(extended, pod)
    text = str(refused.value)
    assert all(
        reason in text for reason in ("host namespaces (hostPID=true)", "hostPath", "runAsNonRoot", "runAsUser=0")
    )
    assert not any(reason in text for reason in ("capabilities", "seccomp", "allowPrivilegeEscalation", "privileged ("))
