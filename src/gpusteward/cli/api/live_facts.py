"""What `explain` reads now of a workload that is stalled (the XIDs of its GPUs, the processes on them) or kept busy
artificially (names of known tools)."""

from collections.abc import Iterator
from urllib.parse import quote

from gpusteward.cli.api.client import Client
from gpusteward.cli.api.workloads import WorkloadReference
from gpusteward.cli.json_access import Row
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Language, Message
from gpusteward.core.verdicts import Signature

XID_OF_GPU = Message("{node} GPU {gpu}: {text}", "{node} GPU {gpu}：{text}")
XIDS_UNKNOWN = Message("The XIDs of {node} could not be read.", "未能读取 {node} 的 XID。")
KNOWN_TOOL = Message(
    "{name} is the name of a tool that keeps GPUs occupied, or contains it. A name proves nothing.",
    "{name} 与已知的占卡工具同名或包含其名称。名称不能作为证据。",
)
PROCESS_OF_GPU = Message(
    "{pod} on {node} GPU {index}: {process}, pid {pid} of the node (there: py-spy dump --pid {pid})",
    "{pod}，{node} GPU {index}：{process}，节点上的 pid 为 {pid}（在节点上执行：py-spy dump --pid {pid}）",
)

NODES, PROCESSES = 16, 16
"""Nodes that are read, and processes that are shown. A gang may have more."""


KNOWN_TOOLS = (
    *("keepalive", "keep_alive", "keep-alive", "keep-gpu", "keepgpu", "gpu-keeper", "grabgpu", "scramble4gpu"),
    *("gpusnatcher", "gpu_guardian", "occupy_gpu", "occupied-gpus", "gpuoccupier", "hold_gpu", "forge_load"),
    *("forge-load", "gpusitter", "busygpu"),
)
"""Parts of names of public scripts. Most people rename them, and a job may have such a name: it proves nothing."""


def read_live_facts(client: Client, name: WorkloadReference, detail: Row, language: Language) -> list[str]:
    """`detail`: the workload as the API has it; empty for other signatures."""
    signature = detail.object("workload").text("signature")
    if signature not in (Signature.KEEP_ALIVE, Signature.STALLED):
        return []
    try:
        running = client.read(f"{name.path}/processes", name.query).objects("processes")
    except SourceError:
        running = []  # no agent reports them
    if signature == Signature.KEEP_ALIVE:
        names = {name.name, *(one.text(key) for one in running for key in ("container", "process"))}
        found = [each for each in sorted(names) if any(tool in each.lower() for tool in KNOWN_TOOLS)]
        return [KNOWN_TOOL.text(language, name=each) for each in found]
    held = [one.object("allocation") for one in detail.objects("allocations")]
    gpus = {one.text("gpu").partition("/")[0] for one in held}
    nodes = sorted({one.text("node") for one in held} - {""})
    return [
        *(line for node in nodes[:NODES] for line in _list_xids(client, node, gpus, name.query, language)),
        *(_describe_process(one, language) for one in running[:PROCESSES]),
    ]


def _list_xids(
    client: Client, node: str, gpus: set[str], query: list[tuple[str, str]], language: Language
) -> Iterator[str]:
    """One line for each GPU of the workload that has had one, or for a node that could not be read."""
    try:
        answer = client.read(f"/api/v1/nodes/{quote(node, safe='')}", [*query, ("language", language)])
    except SourceError:
        yield XIDS_UNKNOWN.text(language, node=node)
        return
    if answer.text("readings_error"):
        yield XIDS_UNKNOWN.text(language, node=node)
    for gpu in answer.objects("gpus"):
        for error in gpu.objects("errors"):
            if gpu.text("uuid") in gpus and error.text("code").startswith("xid-"):
                yield XID_OF_GPU.text(language, node=node, gpu=gpu.text("index"), text=error.text("text"))


def _describe_process(process: Row, language: Language) -> str:
    """Its pid is that of the node: a container has others."""
    values = {key: process.text(key) for key in ("pod", "node", "index", "process")}
    return PROCESS_OF_GPU.text(language, pid=process.count("pid"), **values)
