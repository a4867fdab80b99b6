"""The control plane of the tests is a whole one, and ends with them."""

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from gpusteward.core.errors import SourceError
from tests.kubernetes.cluster import Cluster, wait_for
from tests.kubernetes.control_plane import run_program, wait_for_last_user

pytestmark = pytest.mark.slow


def test_gpu_pods_of_a_deployment_run_where_there_are_gpus(kubernetes: Cluster) -> None:
    namespace, node = kubernetes.add_namespace(), kubernetes.add_node(gpus=2)
    labels = {"app": "trainer"}
    container = {"name": "main", "image": "cuda", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    template["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    spec = {"replicas": 3, "selector": {"matchLabels": labels}, "template": template}
    about = {"name": "trainer", "namespace": namespace}
    kubernetes.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": about, "spec": spec})
    running = kubernetes.wait_for_pods(namespace, 2)
    assert {pod["spec"]["nodeName"] for pod in running} == {node}
    assert all(pod["status"]["podIP"].startswith("127.77.") for pod in running)
    assert len(kubernetes.wait_for_pods(namespace, 1, phase="Pending")) == 1
    assert f"{namespace}" in kubernetes.kubectl("get", "deployments", "--all-namespaces")


def test_an_account_has_exactly_its_rights_and_is_seen_in_the_audit_log(kubernetes: Cluster) -> None:
    namespace = kubernetes.add_namespace()
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]
    account = kubernetes.add_account(namespace, rules, is_cluster_wide=False)
    api = kubernetes.connect(account)
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    wait_for(lambda: bool(kubernetes.request("GET", path)["items"]))  # a controller writes it
    api.read_config_map(namespace, "kube-root-ca.crt")
    with pytest.raises(SourceError, match="403"):
        api.read_config_map("default", "kube-root-ca.crt")
    wait_for(lambda: len(kubernetes.read_audit(account.user)) == 2)
    assert [event["responseStatus"]["code"] for event in kubernetes.read_audit(account.user)] == [200, 403]


def test_a_program_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from tests.kubernetes.control_plane import run_program\n"
        "with run_program(Path(sys.argv[1]), 'sleep', ['sleep', '60']) as process:\n"
        "    print(process.pid, flush=True)\n"
        "    while Path(f'/proc/{process.pid}/comm').read_text() != 'sleep\\n': pass\n"  # until then it can outlive us
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    wait_for(lambda: not is_running(int(done.stdout)))


def test_a_control_plane_ends_when_one_of_its_programs_does(tmp_path: Path) -> None:
    with (tmp_path / "users").open("w") as user, (tmp_path / "users").open() as users:
        fcntl.flock(user, fcntl.LOCK_SH)
        command = ["sh", "-c", "echo the cache is corrupted; exit 3"]
        with (
            run_program(tmp_path, "scheduler", command) as scheduler,
            pytest.raises(RuntimeError, match="scheduler has ended with 3\nthe cache is corrupted"),
        ):
            wait_for_last_user(users, tmp_path, {"scheduler": scheduler})
        fcntl.flock(user, fcntl.LOCK_UN)
        wait_for_last_user(users, tmp_path, {})


def is_running(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
