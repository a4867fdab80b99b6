"""Autoscaling on GPU metrics, end to end: real HPA controller, prometheus-adapter, Prometheus, and the shipped files.

The pods run on nodes that kwok plays, and their pages come from the agent's dialects on simulated GPUs. With
GPUSTEWARD_WRITE_RESULTS=1 the timeline is written to bench/results/autoscaling.md.
"""

import base64
import json
import os
import platform
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from deploy.chart.manifests import MANIFESTS
from gpusteward.local.demo_servers import serve_fleet
from tests.agent.test_agent_process import free_port
from tests.analyzer.engines import find_program, run_engine
from tests.conftest import give_up
from tests.deploy.gpu_pods import GPU, GPUS, SHARED, GpuNode
from tests.kubernetes.cluster import ApiError, Cluster, Json, wait_for
from tests.kubernetes.control_plane import run_program
from tests.yaml_texts import read_all_yaml, read_yaml

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FILES = ROOT / "deploy" / "autoscaling"
RESULT = ROOT / "bench" / "results" / "autoscaling.md"
WINDOW = "4s"  # instead of 2m: these pages are scraped every second
METRICS = "/apis/custom.metrics.k8s.io/v1beta1"
TARGET = 60  # of hpa.yaml


def read_file(name: str) -> Any:
    return read_yaml((FILES / name).read_text())


def find_built(script: str) -> Path:
    """The folder of a component that `make components` builds or downloads."""
    where = subprocess.run([ROOT / ".ci" / script, "path"], capture_output=True, text=True, check=True)
    folder = Path(where.stdout.strip())
    if not folder.is_dir() or not any(folder.iterdir()):
        give_up(f"{script} is missing; `make components` installs it")
    return folder


@dataclass
class Site:
    """A node with GPUs, a Prometheus that scrapes it, and prometheus-adapter behind the API server."""

    kubernetes: Cluster
    namespace: str
    node: GpuNode
    prometheus: str  # address
    monitoring: str  # namespace of the exporter, where its page is scraped without honor_labels
    utilization: dict[str, float] = field(default_factory=dict)  # by workload

    def step(self) -> list[Json]:
        """The pods of the namespace, after the pages show them."""
        pods = self.kubernetes.list_pods(self.namespace)
        self.node.update(pods, self.utilization)
        return pods

    def read_metric(self, name: str, namespace: str = "") -> dict[str, float]:
        """A custom metric by pod; empty if no pod has it."""
        path = f"{METRICS}/namespaces/{namespace or self.namespace}/pods/*/{name}"
        try:
            items = self.kubernetes.request("GET", path)["items"]
        except ApiError as error:
            if error.status != 404:
                raise
            return {}
        return {item["describedObject"]["name"]: read_quantity(item["value"]) for item in items}

    def wait_for_metric(self, name: str, pods: set[str]) -> dict[str, float]:
        found: dict[str, float] = {}

        def is_known() -> bool:
            self.step()
            found.clear()
            found.update(self.read_metric(name))
            return pods <= found.keys()

        wait_for(is_known, 30)
        return found

    def query(self, expression: str) -> list[float]:
        """An instant query."""
        url = f"{self.prometheus}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        with urllib.request.urlopen(url, timeout=10) as response:
            return [float(each["value"][1]) for each in json.load(response)["data"]["result"]]


def read_quantity(text: str) -> float:
    """`58500m` is 58.5."""
    factors = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
    return float(text[:-1]) * factors[text[-1]] if text[-1] in factors else float(text)


@pytest.fixture(scope="module")
def site(kubernetes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    adapter = find_built("prometheus-adapter")
    folder = tmp_path_factory.mktemp("autoscaling")
    namespace, monitoring = kubernetes.add_namespace("autoscaling"), kubernetes.add_namespace("monitoring")
    name = kubernetes.add_node(gpus=GPUS, labels={"tests/namespace": namespace})
    room = {SHARED: "4"}
    kubernetes.set_status(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}, {"capacity": room, "allocatable": room}
    )
    node = GpuNode(name)
    with (
        serve_fleet(node.fleet) as (target,),
        running_prometheus(folder, target, monitoring) as prometheus,
        running_adapter(kubernetes, namespace, program=adapter, folder=folder, prometheus=prometheus),
    ):
        use = {"alone": 0.5, "shared-a": 0.6, "shared-b": 0.1}
        pods = {"alone": GPU, "shared-a": SHARED, "shared-b": SHARED}
        kubernetes.apply(make_pod("exporter", monitoring, name))
        kubernetes.apply(*(make_pod(pod, namespace, name, gpu) for pod, gpu in pods.items()))
        yield Site(kubernetes, namespace, node, prometheus, monitoring, use)


@contextmanager
def running_prometheus(folder: Path, target: str, namespace: str) -> Iterator[str]:
    """It scrapes the page twice: as the ServiceMonitor of the chart does, and as one without honorLabels and without
    relabelings. The Prometheus Operator sets labels of the exporter's own pod on both targets."""
    parts = urllib.parse.urlsplit(target)
    job = {"scrape_interval": "1s", "metrics_path": parts.path}
    write_queue(folder, 30)
    exporter = {"namespace": namespace, "pod": "exporter", "container": "agent", "service": "a", "endpoint": "metrics"}
    targets = {"static_configs": [{"targets": [parts.netloc], "labels": exporter}]}
    objects = read_all_yaml((MANIFESTS / "agent.yaml").read_text())
    ((endpoint,),) = (each["spec"]["endpoints"] for each in objects if each["kind"] == "ServiceMonitor")
    monitored = {"honor_labels": endpoint["honorLabels"], "relabel_configs": endpoint["relabelings"]}
    settings = {
        "global": {"evaluation_interval": "1s"},
        "rule_files": [str(folder / "queue.yaml")],
        "scrape_configs": [
            {"job_name": "agent", **targets, **monitored, **job},
            {"job_name": "renamed", **targets, **job},
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
    address = f"127.0.0.1:{free_port()}"
    command = [
        find_program("prometheus"),
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address={address}",
        "--web.enable-lifecycle",
        "--log.level=error",
    ]
    with run_engine(command, f"http://{address}", "/-/ready"):
        yield f"http://{address}"


def write_queue(folder: Path, waiting: int) -> None:
    """How many requests wait, from when Prometheus reads its files again."""
    rules = [{"record": "rabbitmq_queue_messages_ready", "expr": f"vector({waiting})", "labels": {"queue": "llm"}}]
    (folder / "queue.yaml").write_text(yaml.safe_dump({"groups": [{"name": "queue", "rules": rules}]}))


@contextmanager
def running_adapter(
    kubernetes: Cluster, namespace: str, *, program: Path, folder: Path, prometheus: str
) -> Iterator[None]:
    import trustme

    authority, service = trustme.CA(), "prometheus-adapter"
    authority.issue_cert(f"{service}.{namespace}.svc").private_key_and_cert_chain_pem.write_to_path(
        str(folder / "adapter.pem")
    )
    (folder / "adapter.yaml").write_text(yaml.safe_dump({"rules": make_rules()}))
    port = free_port()
    command = [
        str(program / "prometheus-adapter"),
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        f"--tls-cert-file={folder}/adapter.pem",
        f"--tls-private-key-file={folder}/adapter.pem",
        f"--prometheus-url={prometheus}",
        f"--config={folder}/adapter.yaml",
        *(f"--{use}-kubeconfig={kubernetes.kubeconfig}" for use in ("lister", "authentication", "authorization")),
        "--metrics-relist-interval=2s",
        "--metrics-max-age=10s",
    ]
    with run_program(folder, "adapter", command), ExitStack() as removed:
        objects = make_api_service(service, namespace, port=port, certificate=authority.cert_pem.bytes())
        for each in objects:
            kubernetes.apply(each)
            removed.callback(kubernetes.delete, each)  # the APIService first: others discover the APIs of this server
        wait_for(lambda: is_available(kubernetes, objects[-1]), 30)
        yield


def make_api_service(
    service: str, namespace: str, *, port: int, certificate: bytes, group: str = "custom.metrics.k8s.io"
) -> list[Json]:
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": service, "namespace": namespace},
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"v1beta1.{group}"},
            "spec": {
                "group": group,
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "service": {"name": service, "namespace": namespace, "port": port},
                "caBundle": base64.b64encode(certificate).decode(),
            },
        },
    ]


def is_available(kubernetes: Cluster, api_service: Json) -> bool:
    path = f"/apis/apiregistration.k8s.io/v1/apiservices/{api_service['metadata']['name']}"
    conditions = kubernetes.request("GET", path).get("status", {}).get("conditions", [])
    return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)


def make_rules() -> list[Json]:
    """The shipped rules with a shorter window, and the first one as the file says for renamed labels."""
    rules = read_yaml((FILES / "prometheus-adapter-config.yaml").read_text().replace("[2m]", f"[{WINDOW}]"))["rules"]
    renamed = yaml.safe_dump(rules[0]).replace("namespace", "exported_namespace").replace("pod:", "exported_pod:")
    renamed = renamed.replace("pod!=", "exported_pod!=").replace("resource: exported_namespace", "resource: namespace")
    other = read_yaml(renamed)
    other["name"]["as"] = "renamed_gpu_container_utilization"
    return [*rules, other]


def make_pod(name: str, namespace: str, node: str, *resources: str) -> Json:
    container = {"name": "main", "image": "cuda", "resources": {"limits": dict.fromkeys(resources, "1")}}
    spec = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def deployment(namespace: str) -> Json:
    """What hpa.yaml scales, on the node with the GPUs."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "llm", "namespace": namespace},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "llm"}},
            "template": {
                "metadata": {"labels": {"app": "llm"}},
                "spec": {
                    "nodeSelector": {"tests/namespace": namespace},
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "main", "image": "llm", "resources": {"limits": {GPU: "1"}}}],
                },
            },
        },
    }


def make_hpa(namespace: str) -> Json:
    """The shipped one, which decides faster: windows and periods of minutes become seconds."""
    hpa: Json = read_file("hpa.yaml")
    hpa["metadata"]["namespace"] = namespace
    for direction in hpa["spec"]["behavior"].values():
        direction["stabilizationWindowSeconds"] = min(direction["stabilizationWindowSeconds"], 4)
        for policy in direction["policies"]:
            policy["periodSeconds"] = 2
    return hpa


def is_of_llm(pod: Json) -> bool:
    return bool(pod["metadata"].get("labels", {}).get("app") == "llm")


class Moment(NamedTuple):
    """A row of the timeline."""

    seconds: float
    offered: float  # GPUs' worth of requests
    replicas: int
    desired: int
    running: int
    metric: float | None  # as the HPA sees it


class Scaling:
    """Requests for a Deployment, spread over its pods, and what the HPA makes of it."""

    def __init__(self, site: Site, hpa: Json) -> None:
        self.timeline: list[Moment] = []
        self.offered = 0.0
        self._site, self._hpa, self._start = site, hpa, time.monotonic()

    def step(self) -> Moment:
        pods = [pod for pod in self._site.step() if is_of_llm(pod) and pod["status"].get("phase") == "Running"]
        self._site.utilization["llm"] = min(self.offered / max(len(pods), 1), 1.0)
        about = self._hpa["metadata"]
        path = f"/apis/autoscaling/v2/namespaces/{about['namespace']}/horizontalpodautoscalers/{about['name']}"
        status = self._site.kubernetes.request("GET", path).get("status", {})
        seen = [each["pods"]["current"] for each in status.get("currentMetrics") or () if "pods" in each]
        moment = Moment(
            time.monotonic() - self._start,
            self.offered,
            status.get("currentReplicas", 0),
            status.get("desiredReplicas", 0),
            len(pods),
            read_quantity(seen[0]["averageValue"]) if seen else None,
        )
        self.timeline.append(moment)
        return moment

    def wait_until_steady(self, *, replicas: int, metric: float, seconds: float = 90) -> None:
        """Until the HPA has so many replicas, wants no others, and sees about this utilization."""

        def is_steady() -> bool:
            now = self.step()
            time.sleep(0.2)
            is_settled = now.desired == now.replicas == now.running == replicas
            return is_settled and now.metric is not None and abs(now.metric - metric) < 5

        try:
            wait_for(is_steady, seconds)
        except AssertionError:
            pytest.fail("\n".join(map(str, self.timeline)))


@pytest.mark.timeout(240)
def test_the_hpa_adds_pods_when_the_load_rises_and_removes_them_when_it_ends(site: Site):
    kubernetes, hpa = site.kubernetes, make_hpa(site.namespace)
    kubernetes.apply(deployment(site.namespace), hpa)
    scaling = Scaling(site, hpa)
    scaling.offered = 0.3
    scaling.wait_until_steady(replicas=1, metric=30)
    scaling.offered = 2.3
    scaling.wait_until_steady(replicas=4, metric=57.5)
    assert len([name for name in site.read_metric("gpu_utilization") if name.startswith("llm-")]) == 4
    check_keda_triggers(site, replicas=4)
    scaling.offered = 0.0
    scaling.wait_until_steady(replicas=1, metric=0)
    kubernetes.delete(hpa)
    write_result(kubernetes, scaling.timeline)


def check_keda_triggers(site: Site, *, replicas: int) -> None:
    """What KEDA would do: the sum over all pods divided by the threshold, as the HPA that it creates does."""
    queue, gpu = (trigger["metadata"] for trigger in read_file("keda.yaml")["spec"]["triggers"])
    query = gpu["query"].replace("[2m]", f"[{WINDOW}]")
    assert site.query(query) == [], "no pod in the namespace of the example: no series"
    (use,) = site.query(query.replace('"inference"', f'"{site.namespace}"'))
    assert round(use / float(gpu["threshold"])) == replicas
    assert use > float(gpu["activationThreshold"])
    (waiting,) = site.query(queue["query"])
    assert waiting > float(queue["activationThreshold"]), "starts the first pod although none exists"


def test_pods_that_share_a_gpu_have_their_own_use_and_no_share_of_the_device(site: Site):
    pods = {"shared-a", "shared-b"}
    own = site.wait_for_metric("gpu_container_utilization", pods)
    assert {name: round(own[name], -1) for name in pods} == {"shared-a": 60, "shared-b": 10}
    memory = site.wait_for_metric("gpu_container_memory_bytes", pods)
    assert all(memory[name] > 1e9 for name in pods)
    for metric in ("gpu_utilization", "gpu_engine_active", "gpu_tensor_active", "gpu_memory_used_bytes"):
        assert not site.read_metric(metric).keys() & pods, "70 % of the device belongs to neither"


def test_a_pod_with_a_gpu_of_its_own_has_every_metric(site: Site):
    percent = {"gpu_container_utilization": 50, "gpu_utilization": 50, "gpu_engine_active": 50, "gpu_tensor_active": 12}
    for name, value in percent.items():
        assert site.wait_for_metric(name, {"alone"})["alone"] == pytest.approx(value, abs=3)
    memory = ("gpu_container_memory_bytes", "gpu_memory_used_bytes")
    own, device = (site.wait_for_metric(name, {"alone"})["alone"] for name in memory)
    assert 1e9 < own <= device < own + 2e9


def test_the_service_monitor_of_the_chart_names_the_exporter_as_the_holder_of_nothing(site: Site):
    site.wait_for_metric("gpu_container_utilization", {"alone"})

    def count(query: str) -> int:
        with urllib.request.urlopen(f"{site.prometheus}/api/v1/query?query={urllib.parse.quote(query)}") as answer:
            return len(json.load(answer)["data"]["result"])

    assert count('{job="agent",pod="alone"}') > 0
    assert count('{job="agent",__name__=~"gpusteward_gpu.*",pod=""}') > 0, "of GPUs, not of holders"
    assert count('{job="renamed",pod="exporter"}') > 0
    assert count('{job="agent",pod="exporter"}') == 0


def test_without_honor_labels_the_use_belongs_to_the_exporter_unless_the_rules_name_the_renamed_labels(site: Site):
    site.wait_for_metric("gpu_container_utilization", {"alone"})
    assert site.read_metric("gpu_container_utilization", site.monitoring)["exporter"] > 0, "which has no GPU"
    renamed = site.wait_for_metric("renamed_gpu_container_utilization", {"alone"})
    assert renamed["alone"] == pytest.approx(50, abs=3)
    assert site.read_metric("renamed_gpu_container_utilization", site.monitoring) == {}


def test_a_metric_without_a_rule_is_not_found(site: Site):
    with pytest.raises(ApiError, match="404"):
        site.kubernetes.request("GET", f"{METRICS}/namespaces/{site.namespace}/pods/*/gpu_power")


def test_the_values_of_the_chart_have_the_rules_of_the_plain_file():
    values, plain = (read_file(f"prometheus-adapter-{each}.yaml") for each in ("values", "config"))
    assert values["rules"]["custom"] == plain["rules"]


def test_the_scaled_object_fits_kedas_own_definition(kubernetes: Cluster):
    folder, scaled = find_built("keda"), read_file("keda.yaml")
    definition = read_yaml((folder / "definitions/keda.sh_scaledobjects.yaml").read_text())
    namespace = scaled["metadata"]["namespace"] = kubernetes.add_namespace("keda")
    # In a group of its own: other tests of this control plane have ScaledObjects, and the definition is deleted below.
    group = definition["spec"]["group"] = "definition.keda.sh"
    definition["metadata"]["name"] = f"scaledobjects.{group}"
    scaled["apiVersion"] = f"{group}/v1alpha1"
    kubernetes.apply(definition)
    path = f"/apis/{group}/v1alpha1/namespaces/{namespace}/scaledobjects"
    try:
        wait_for(lambda: can_list(kubernetes, path), 30)
        kubernetes.request("POST", f"{path}?fieldValidation=Strict", scaled)
        with pytest.raises(ApiError, match="unknown field"):
            kubernetes.request(
                "POST", f"{path}?fieldValidation=Strict", {**scaled, "spec": {**scaled["spec"], "min": 0}}
            )
    finally:
        kubernetes.delete(definition)
    check_trigger_metadata(scaled, json.loads((folder / "triggers.json").read_text()))


def can_list(kubernetes: Cluster, path: str) -> bool:
    try:
        kubernetes.request("GET", path)
    except ApiError:
        return False
    return True


def check_trigger_metadata(scaled: Json, schema: Mapping[str, Any]) -> None:
    (known,) = (each["parameters"] for each in schema["scalers"] if each["type"] == "prometheus")
    names = {each["name"] for each in known}
    required = {each["name"] for each in known if not each.get("optional") and "default" not in each}
    for trigger in scaled["spec"]["triggers"]:
        assert trigger["type"] == "prometheus"
        assert required <= trigger["metadata"].keys() <= names
        assert all(isinstance(value, str) for value in trigger["metadata"].values())


def write_result(kubernetes: Cluster, timeline: list[Moment]) -> None:
    if os.environ.get("GPUSTEWARD_WRITE_RESULTS") != "1":
        return
    changes = [
        now
        for before, now in zip([None, *timeline], timeline, strict=False)
        if before is None or now[1:5] != before[1:5] or now is timeline[-1]
    ]
    version = kubernetes.request("GET", "/version")["gitVersion"]
    lines = [
        "# Autoscaling on GPU use, end to end",
        "",
        f"`make bench-autoscaling` on {platform.machine()} with {os.cpu_count()} cores: API server, HPA controller and",
        f"scheduler of Kubernetes {version}, prometheus-adapter v0.12.0 behind an APIService, Prometheus, and the",
        "files of deploy/autoscaling. The pods run on a node that kwok plays; their pages come from the agent's",
        "dialects on 8 simulated H100. Faster than in production: scrapes every 1 s, a rate window of 4 s instead of",
        "2 min, HPA decisions every 2 s instead of 15 s, stabilization of 4 s instead of 10 min.",
        "",
        f"Requests worth some GPUs are spread over the pods; the target of hpa.yaml is {TARGET} %. A row per change.",
        "",
        "| seconds | requests, in GPUs | pods Running | replicas | desired | `gpu_container_utilization` |",
        "|---|---|---|---|---|---|",
        *(
            f"| {each.seconds:.1f} | {each.offered:g} | {each.running} | {each.replicas} | {each.desired} | "
            f"{'unknown' if each.metric is None else f'{each.metric:.1f} %'} |"
            for each in changes
        ),
    ]
    RESULT.write_text("\n".join(lines) + "\n")
