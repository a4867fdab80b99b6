"""The agent on a node with very many or very large pods: all are known, and its memory stays small.

The pods are written to etcd directly: 7,700 requests would take most of a minute. The API server reads and serves them
like all others.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.test_agent_process import running
from tests.fakes import nvml_scenarios as nvml
from tests.fakes.machines import write_process
from tests.fakes.nvml_library import environment
from tests.kubernetes.agent_node import AgentNode
from tests.kubernetes.cluster import Cluster, Json, pod

pytestmark = pytest.mark.slow

PEAK_LIMIT_KB = 45_000
# The agent's command; only the folder of the service account is another one.
COMMAND = (
    sys.executable,
    "-c",
    "import sys\nfrom pathlib import Path\nfrom gpusteward.agent import app\n"
    "app.SERVICE_ACCOUNT = Path(sys.argv.pop(1))\n"
    "from gpusteward.cli.main import main\nsys.exit(main(sys.argv[1:]))",
)


def make_uid(number: int) -> str:
    return f"0a1b2c3d-0000-4000-8000-{number:012d}"


def make_pods(node: AgentNode, count: int, *, size: int) -> Iterator[Json]:
    """Running pods of about this size, as they are stored."""
    annotations = {"example.com/notes": "x" * (size - 900)}
    for number in range(count):
        uid = make_uid(number)
        about = {"uid": uid, "creationTimestamp": "2026-11-15T20:00:00Z", "annotations": annotations}
        item = pod(f"trainer-{number}", node.namespace, node=node.name, **about)
        item["spec"] |= {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"}
        status = {"name": "main", "image": "cuda", "imageID": "", "ready": True, "restartCount": 0}
        state = {"containerID": f"containerd://{uid}", "state": {"running": {"startedAt": "2026-11-15T20:00:00Z"}}}
        yield {**item, "status": {"phase": "Running", "containerStatuses": [status | state]}}


@pytest.mark.parametrize(("count", "size"), [(7_700, 8_900), (220, 250_000)], ids=["many", "large"])
def test_all_pods_are_known_with_a_small_peak_of_memory(
    kubernetes: Cluster, tmp_path: Path, count: int, size: int
) -> None:
    node = AgentNode.create(kubernetes, is_managed=False)
    kubernetes.store(make_pods(node, count, size=size))
    scenario = nvml.a100x8()
    scenario.write(tmp_path / "scenario")
    last = f"/kubepods.slice/kubepods-pod{make_uid(count - 1).replace('-', '_')}.slice/cri-containerd-{'a' * 64}.scope"
    write_process(tmp_path / "proc", 1000, cgroup=last, argv0="/usr/bin/python3")
    flags = ("--kubernetes=true", f"--kubernetes-api={kubernetes.url}", f"--node-name={node.name}")
    command = (*COMMAND, str(node.account.folder))
    with running(
        *flags, f"--proc={tmp_path / 'proc'}", env=environment(tmp_path / "scenario"), command=command
    ) as agent:
        agent.wait_for(lambda it: f'pod="trainer-{count - 1}"' in it.get("/metrics")[1])
        peak_kb = read_peak_kb(agent.process.pid)
    assert peak_kb < PEAK_LIMIT_KB


def read_peak_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
