"""deploy/autoscaling/keda.yaml under KEDA's own operator and metrics API server, on a control plane of its own.

Others define ScaledObjects of the same group on the shared one. Shorter than shipped: the rate window is 4 s instead of
2 min, triggers are read every second instead of 15, the last pod goes after 5 s instead of 15 min, and the HPA removes
a pod every 2 s after 4 s instead of every 2 min after 10 min. Targets have the labels that a ServiceMonitor gives them.
"""

import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import trustme

from gpusteward.local.demo_servers import serve_fleet
from tests.agent.test_agent_process import free_port
from tests.deploy.gpu_pods import GPUS, GpuNode
from tests.deploy.test_autoscaling import (
    WINDOW,
    Site,
    deployment,
    find_built,
    is_available,
    is_of_llm,
    make_api_service,
    read_file,
    running_prometheus,
    write_queue,
)
from tests.kubernetes.cluster import Cluster, Json, find_programs, using_control_plane, wait_for
from tests.kubernetes.control_plane import run_program
from tests.yaml_texts import read_yaml

pytestmark = [pytest.mark.slow, pytest.mark.system]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    programs, accounts = find_programs(), tmp_path / "accounts"
    accounts.mkdir()
    with using_control_plane(programs, tmp_path / "kubernetes") as address:
        yield Cluster(programs, tmp_path / "kubernetes", accounts, address)


@contextmanager
def running_keda(cluster: Cluster, folder: Path, namespace: str) -> Iterator[None]:
    """Operator, metrics API server and the APIService of external metrics."""
    programs, authority, service = find_built("keda"), trustme.CA(), "keda-metrics-apiserver"
    certificate = authority.issue_cert("localhost", "127.0.0.1", f"{service}.{namespace}.svc")
    authority.cert_pem.write_to_path(str(folder / "ca.crt"))
    certificate.cert_chain_pems[0].write_to_path(str(folder / "tls.crt"))
    certificate.private_key_pem.write_to_path(str(folder / "tls.key"))
    for path in sorted((programs / "definitions").glob("*.yaml")):
        cluster.apply(read_yaml(path.read_text()))
    grpc, secure, plain = free_port(), free_port(), free_port()
    names = ("WATCH_NAMESPACE", "POD_NAMESPACE", "KEDA_CLUSTER_OBJECT_NAMESPACE")
    variables = ["env", *(f"{name}={namespace}" for name in names)]
    kubeconfig = f"--kubeconfig={cluster.kubeconfig}"
    operator = [
        *(*variables, str(programs / "operator"), kubeconfig, f"--cert-dir={folder}"),
        *(f"--metrics-service-bind-address=127.0.0.1:{grpc}", "--enable-prometheus-metrics=false"),
        *("--health-probe-bind-address=0", "--zap-log-level=info"),
    ]
    adapter = [
        *(*variables, str(programs / "adapter"), kubeconfig, f"--lister-kubeconfig={cluster.kubeconfig}"),
        *(f"--{use}-kubeconfig={cluster.kubeconfig}" for use in ("authentication", "authorization")),
        *(f"--secure-port={secure}", "--bind-address=127.0.0.1", f"--cert-dir={folder}", f"--port={plain}"),
        *(f"--tls-cert-file={folder}/tls.crt", f"--tls-private-key-file={folder}/tls.key"),
        *(f"--client-ca-file={folder}/ca.crt", f"--metrics-service-address=localhost:{grpc}"),
    ]
    with run_program(folder, "operator", operator), run_program(folder, "adapter", adapter), ExitStack() as removed:
        pem = authority.cert_pem.bytes()
        objects = make_api_service(service, namespace, port=secure, certificate=pem, group="external.metrics.k8s.io")
        for each in objects:
            cluster.apply(each)
            removed.callback(cluster.delete, each)
        wait_for(lambda: is_available(cluster, objects[-1]), 60)
        yield


def make_scaled_object(namespace: str, prometheus: str) -> Json:
    scaled: Json = read_file("keda.yaml")
    scaled["metadata"]["namespace"] = namespace
    spec = scaled["spec"]
    spec["pollingInterval"], spec["cooldownPeriod"] = 1, 5
    down = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
    down["stabilizationWindowSeconds"] = 4
    for policy in down["policies"]:
        policy["periodSeconds"] = 2
    for trigger in spec["triggers"]:
        about = trigger["metadata"]
        about["serverAddress"] = prometheus
        about["query"] = about["query"].replace("[2m]", f"[{WINDOW}]").replace('"inference"', f'"{namespace}"')
    return scaled


def wait_for_pods(site: Site, count: int, *, load: float, seconds: float = 120) -> None:
    """Until so many pods of the Deployment run, each with its part of a load of so many GPUs."""
    seen: list[int] = []

    def is_so() -> bool:
        pods = [pod for pod in site.step() if is_of_llm(pod) and pod["status"].get("phase") == "Running"]
        site.utilization["llm"] = min(load / max(len(pods), 1), 1.0)
        seen.append(len(pods))
        time.sleep(0.3)
        return len(pods) == count

    try:
        wait_for(is_so, seconds)
    except AssertionError:
        pytest.fail(f"pods: {seen}")


@pytest.mark.timeout(400)
def test_work_that_waits_starts_the_first_pod_use_decides_on_their_number_and_the_end_of_both_removes_all(
    cluster: Cluster, tmp_path: Path
):
    namespace, monitoring = cluster.add_namespace("keda"), cluster.add_namespace("monitoring")
    name = cluster.add_node(gpus=GPUS, labels={"tests/namespace": namespace})
    node = GpuNode(name)
    with (
        serve_fleet(node.fleet) as (target,),
        running_prometheus(tmp_path, target, monitoring) as prometheus,
        running_keda(cluster, tmp_path, namespace),
    ):
        site = Site(cluster, namespace, node, prometheus, monitoring)
        idle = deployment(namespace)
        idle["spec"]["replicas"] = 0
        cluster.apply(idle, make_scaled_object(namespace, prometheus))
        wait_for_pods(site, 2, load=0.2)  # 30 requests wait, 20 per pod
        wait_for_pods(site, 4, load=2.3)  # 230 % of a GPU, 60 per pod
        write_queue(tmp_path, 0)
        urllib.request.urlopen(f"{prometheus}/-/reload", data=b"", timeout=10).close()
        wait_for_pods(site, 0, load=0.0)
