"""The agent as a process in a real cluster, with the token, the authority and the rights of its manifest."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.test_agent_process import fails, free_port, running
from tests.fakes import nvml_scenarios as nvml
from tests.fakes.kubelet import FakeKubelet, device_claim, response
from tests.fakes.machines import write_process
from tests.fakes.nvml_library import environment
from tests.kubernetes.agent_node import AgentNode
from tests.kubernetes.cluster import Cluster, Json, pod

pytestmark = pytest.mark.slow

PEAK_LIMIT_KB = 45_000


def make_uid(namespace: str, number: int) -> str:
    """Of one pod only: a scheduler that sees a uid again on another node ends."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{number}.{namespace}"))


def make_pods(node: AgentNode, count: int, *, size: int) -> Iterator[Json]:
    """Running pods of about this size, as they are stored."""
    annotations = {"example.com/notes": "x" * (size - 900)}
    for number in range(count):
        uid = make_uid(node.namespace, number)
        about = {"uid": uid, "creationTimestamp": "2026-11-15T20:00:00Z", "annotations": annotations}
        item = pod(f"trainer-{number}", node.namespace, node=node.name, **about)
        item["spec"] |= {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"}
        status = {"name": "main", "image": "cuda", "imageID": "", "ready": True, "restartCount": 0}
        state = {"containerID": f"containerd://{uid}", "state": {"running": {"startedAt": "2026-11-15T20:00:00Z"}}}
        yield {**item, "status": {"phase": "Running", "containerStatuses": [status | state]}}


def write_gpu_process(folder: Path, pid: int, uid: str) -> None:
    """A process in the cgroup of a pod."""
    scope = f"cri-containerd-{'a' * 64}.scope"
    cgroup = f"/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/{scope}"
    write_process(folder, pid, cgroup=cgroup, argv0="/usr/bin/python3")


def read_peak_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


@pytest.mark.parametrize(("count", "size"), [(7_700, 8_900), (64, 250_000)], ids=["many", "large"])
def test_all_pods_of_the_node_are_known_with_a_small_peak_of_memory(
    kubernetes: Cluster, tmp_path: Path, count: int, size: int
) -> None:
    """The pods are written to etcd: 7,700 requests take most of a minute. The server serves them like all others."""
    node = AgentNode.create(kubernetes, is_managed=False)
    kubernetes.store_pods(node.namespace, make_pods(node, count, size=size))
    nvml.a100x8().write(tmp_path / "scenario")
    chosen = [count - 1 - number * (count // 8) for number in range(8)]
    for pid, number in enumerate(chosen, 1000):
        write_gpu_process(tmp_path / "proc", pid, make_uid(node.namespace, number))
    wanted = [f'pod="trainer-{number}"' for number in chosen]
    flags = (*node.flags, f"--proc={tmp_path / 'proc'}")
    with running(*flags, env=environment(tmp_path / "scenario"), command=node.command) as agent:
        agent.wait_for(lambda it: all(name in it.get("/metrics")[1] for name in wanted), 60)
        assert read_peak_kb(agent.process.pid) < PEAK_LIMIT_KB


def test_all_sources_of_a_node_work_through_the_command_line(kubernetes: Cluster, tmp_path: Path) -> None:
    node = AgentNode.create(kubernetes)
    # Of a kind that no test defines: the garbage collector deletes pods of an owner that it knows to be absent.
    owner = {"apiVersion": "example.com/v1", "kind": "TrainingRun", "name": "bert", "uid": "o", "controller": True}
    scenario = nvml.a100x8()
    scenario.write(tmp_path / "scenario")
    uid = node.add("bert-worker-0", ownerReferences=[owner])["metadata"]["uid"]
    write_gpu_process(tmp_path / "proc", 1000, uid)
    claim = device_claim(node.namespace, "bert-worker-0", "main", scenario.gpus[0].uuid)
    with FakeKubelet(tmp_path / "kubelet.sock", response(claim)) as kubelet:
        flags = (*node.flags, f"--proc={tmp_path / 'proc'}", f"--pod-resources-kubelet-socket={kubelet.path}")
        with running(*flags, env=environment(tmp_path / "scenario"), command=node.command) as agent:
            agent.wait_for(lambda it: 'workload="bert"' in it.get("/metrics")[1])
            page = agent.get("/metrics")[1]
    assert 'DCGM_FI_DEV_GPU_UTIL{gpu="0",' in page
    assert 'pod="bert-worker-0"} 50' in page
    assert 'nvidia_pid_pod{pid="1000",process_name="/usr/bin/python3",pod_name="bert-worker-0"' in page
    assert "hunter2" not in page
    events = kubernetes.read_audit(node.account.user)
    assert {event["responseStatus"]["code"] for event in events} == {200}
    assert {event["verb"] for event in events} == {"list", "watch"}


def test_a_config_map_that_cannot_be_read_is_one_clear_message(kubernetes: Cluster) -> None:
    node = AgentNode.create(kubernetes)
    flags = (*node.flags, f"-m={node.namespace}:fields")
    forbidden = fails(*flags, code=1, command=node.command)
    kubernetes.grant(node.account, [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}])
    absent = fails(*flags, code=1, command=node.command)
    unreachable = fails(*flags, f"--kubernetes-api=https://127.0.0.1:{free_port()}", code=1, command=node.command)
    for stderr, reason in ((forbidden, "403"), (absent, "not found"), (unreachable, "refused")):
        assert stderr.startswith(f"gpusteward: ConfigMap {node.namespace}:fields cannot be read: ")
        assert reason in stderr
        assert len(stderr.splitlines()) == 1
