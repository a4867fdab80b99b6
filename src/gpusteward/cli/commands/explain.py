"""`gpusteward explain WORKLOAD`: the verdict on one workload with its reasons and evidence."""

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from gpusteward.cli import flags
from gpusteward.cli.api.client import Client
from gpusteward.cli.api.workload_facts import read_plan_facts
from gpusteward.cli.api.workloads import WorkloadReference, find_workload, label_workloads
from gpusteward.cli.json_access import Row
from gpusteward.cli.output.tables import write_json, write_rows
from gpusteward.cli.output.terminal_text import Line, clean, write_paragraphs
from gpusteward.cli.output.verdict_texts import describe_ended, describe_evidence, describe_verdict, warn_stale
from gpusteward.cli.program import EXIT_OK
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Language, Message
from gpusteward.core.verdicts import Signature

REFUSED = Message("not reclaimed", "不回收")
"""Before the answer of a guard that refuses, beside a verdict."""
PLANNED = Message("reclaim", "回收")
"""Before what an action stops besides, beside a verdict."""

KEYS = (
    *("namespace", "pod", "container", "gpu", "node", "index", "model", "share", "activity", "state", "signature"),
    *("score", "doubt", "idle_since", "coverage", "core_mean_ratio", "core_peak_ratio", "memory_used_bytes"),
    *("memory_total_bytes", "power_watts", "reasons", "opinion_status", "opinion_confidence", "opinion_reason"),
    "proof",
)


ENDED_KEYS = (
    *("namespace", "kind", "name", "first_ms", "ended_ms", "devices", "users", "models", "nodes", "currency"),
    *("allocated_gpu_ms", "active_gpu_ms", "idle_gpu_ms", "unknown_gpu_ms"),
    *("active_cost_micros", "idle_cost_micros", "unknown_cost_micros"),
    *("effective_gpu_ms", "ineffective_gpu_ms", "effective_cost_micros", "ineffective_cost_micros"),
)
"""Of a workload that has ended."""


def build_parser() -> flags.FlagParser:
    parser = flags.make_parser(
        "explain",
        "Show the verdict on one workload: reasons, evidence, and the opinion of a language model if any; "
        "of a workload that has ended its GPU-hours and cost.",
    )
    parser.add_argument("workload", metavar="WORKLOAD", help=flags.WORKLOAD_FORMS)
    flags.add_workload_flags(parser)
    flags.add_request_flags(parser)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, and SourceError for an unreachable analyzer or an unknown workload."""
    options = build_parser().parse(arguments)
    client, language = flags.make_analyzer_client(options), flags.language_of(options)
    name, ended = find_workload(client, options.workload, namespace=options.namespace, cluster=options.cluster)
    if ended is not None:
        if options.output == "json":
            write_json(ended)
        elif options.output == "csv":
            write_rows([{**ended, **ended.object("amounts")}], (), keys=ENDED_KEYS, output="csv")
        else:
            title = Line(str(name), is_title=True)
            write_paragraphs([title, *describe_ended(ended, language, now=time.time())], sys.stdout)
        return EXIT_OK
    detail = client.read(name.path, [*name.query, ("language", language)])
    if options.output in ("json", "csv"):
        warn_stale(detail.object("result"), language)
    if options.output == "json":
        write_json(detail)
    elif options.output == "csv":
        write_rows(list(_rows(detail)), (), keys=KEYS, output="csv")
    else:
        title = Line(label_workloads(client, [name])[name], is_title=True)
        plan = read_plan_facts(client, name, language)
        refusals = [Line(reason, REFUSED.text(language)) for reason in plan.refusals]
        refusals += [Line(reason, PLANNED.text(language)) for reason in plan.also_stops]
        label = Message("seen now", "当前情况").text(language)
        seen = [Line(clean(fact), label) for fact in _read_live_facts(client, name, detail, language)]
        verdict = [*describe_verdict(detail, language), *describe_evidence(detail, language)]
        write_paragraphs([title, *seen, *verdict, *refusals], sys.stdout)
    return EXIT_OK


def _rows(detail: Row) -> Iterator[dict[str, Any]]:
    """One row per allocation."""
    for judged in detail.objects("allocations"):
        opinion = judged.object("opinion")
        yield {
            **judged.object("allocation"),
            "reasons": " ".join(judged.texts("reasons")),
            "opinion_status": opinion.text("status"),
            "opinion_confidence": opinion.get("confidence"),
            "opinion_reason": opinion.text("reason"),
        }


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


def _read_live_facts(client: Client, name: WorkloadReference, detail: Row, language: Language) -> list[str]:
    """What is seen now of a workload that is stalled (the XIDs of its GPUs, the processes on them) or kept busy
    artificially (names of known tools); empty for other signatures. `detail`: the workload as the API has it."""
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
