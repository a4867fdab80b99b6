"""The kubelet's pod-resources socket: who was given which GPU."""

import socket
from collections.abc import Iterator
from pathlib import Path

from gpusteward.cli.doctor.findings import Finding, Status
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message

SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
TIMEOUT_SECONDS = 3.0

NO_KUBELET = Message("no kubelet on this machine", "此机器没有 kubelet")
OUTSIDE = Message("nothing, unless this is a node of a cluster", "无需处理，除非此机器是集群节点")
NO_SOCKET = Message("{path} is not there", "{path} 不存在")
MOUNT = Message(
    "mount /var/lib/kubelet/pod-resources of the host into the pod, or name the socket with --kubelet-socket",
    "请将宿主机的 /var/lib/kubelet/pod-resources 挂载进 Pod，或用 --kubelet-socket 指定",
)
NO_ANSWER = Message("{path} does not answer: {reason}", "{path} 无响应：{reason}")
AS_ROOT = Message(
    "it belongs to root: run the agent as root, and see that the kubelet runs",
    "该套接字属于 root：请以 root 运行 agent，并确认 kubelet 正在运行",
)
CLAIMS = Message(
    "it answers, {claims} GPU {claims:|claim|claims} on this node", "响应正常，本节点有 {claims} 个 GPU 分配"
)
LISTENS = Message(
    "it listens; ask it with pip install 'gpusteward[agent]'", "正在监听；如需查询请 pip install 'gpusteward[agent]'"
)


def check_kubelet(path: Path = SOCKET, *, is_node: bool) -> Iterator[Finding]:
    """Asks it as the agent does."""
    if not path.exists():
        status = Status.FAIL if is_node else Status.SKIP
        yield Finding(
            "kubelet", status, NO_SOCKET if is_node else NO_KUBELET, MOUNT if is_node else OUTSIDE, {"path": path}
        )
        return
    try:
        claims = _count_claims(path)
    except (OSError, SourceError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        yield Finding("kubelet", Status.FAIL, NO_ANSWER, AS_ROOT, {"path": path, "reason": reason})
        return
    yield Finding("kubelet", Status.OK, LISTENS if claims is None else CLAIMS, facts={"claims": claims})


def _count_claims(path: Path) -> int | None:
    """None where the libraries to ask are missing, and somebody listens. Raises OSError, SourceError."""
    try:
        from gpusteward.agent.kubernetes.kubelet import PodResources
    except ModuleNotFoundError:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT_SECONDS)
            connection.connect(str(path))
        return None
    kubelet = PodResources(path, timeout_seconds=TIMEOUT_SECONDS)
    try:
        return len(kubelet.read())
    finally:
        kubelet.close()
