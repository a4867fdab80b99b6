"""`gpusteward ps`: the processes on a machine's GPUs with their pods, from its agent or through the analyzer."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from gpusteward.cli import flags
from gpusteward.cli.api.processes import list_holders_without_process, list_node_rows, list_processes, read_snapshot
from gpusteward.cli.output import quantities
from gpusteward.cli.output.tables import Column, write_rows
from gpusteward.cli.program import EXIT_OK, is_plugin
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.messages import Language, Message

HOLDS_ANOTHER_GPU = Message("{name} (another GPU is allocated to it)", "{name}（分配的是另一张 GPU）")
USED_BY_POD = Message("{name} (used by {pod})", "{name}（由 {pod} 使用）")
USED_BY_POD_WITHOUT_PROCESSES = Message("{name} (used by {pod}, no processes)", "{name}（由 {pod} 使用，无进程）")
NO_PROCESSES = Message("No processes on the GPUs of {node}.", "{node} 的 GPU 上没有进程。")

KEYS = (
    *("node", "gpu", "gpu_uuid", "model", "pid", "process", "place", "namespace", "pod", "container", "workload"),
    *("memory_bytes", "sm_ratio", "outside_allocation", "works_for"),
)
COLUMNS = (
    Column("gpu", Message("gpu", "GPU")),
    Column("pid", Message("pid", "进程号"), to_right=True),
    Column("process", Message("process", "进程"), lambda name: str(name or "-").rpartition("/")[2]),
    Column("sm_ratio", Message("sm", "SM"), quantities.percent, to_right=True),
    Column("memory_bytes", Message("memory", "显存"), quantities.memory, to_right=True),
    Column("owner", Message("pod", "Pod"), is_flexible=True),
)
PROCESS_HOLDER_COLUMNS = (*COLUMNS[:-1], replace(COLUMNS[-1], title=Message("holder", "占用者")))
"""Without Kubernetes: the holder is a user with a program or container."""
PLACES = {"host": Message("(host)", "（宿主机）"), "unattributed": Message("(unknown)", "（未知）")}


def build_parser() -> flags.FlagParser:
    parser = flags.make_parser(
        "ps",
        "List the processes on the GPUs of a node with their pods."
        if is_plugin()
        else "List the processes on a machine's GPUs with their pods, as its agent reports them (--agent), or on"
        " a node of the cluster, through the analyzer (--node).",
    )
    parser.add_argument(
        "--all", "-a", action="store_true", help="also list pods that hold a GPU without a process on it"
    )
    parser.add_argument(
        "--gpu", "-g", action="append", metavar="GPU", help="only the GPU with this index or UUID; may be repeated"
    )
    where = "" if is_plugin() else " (--server)"
    parser.add_argument("--node", metavar="NODE", help=f"the processes of pods on this node of the cluster{where}")
    flags.add_namespace_flag(parser)
    flags.add_output_flags(parser)
    flags.add_language_flag(parser)
    flags.add_agent_flags(parser)
    flags.add_server_flags(parser)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, and SourceError if the agent cannot be reached."""
    options = build_parser().parse(arguments)
    language = flags.language_of(options)
    _check(options)
    listed = _read_node(options) if options.node else _read_agent(options)
    rows = [row for row in listed.rows if _is_wanted(row, options.gpu, options.namespace)]
    rows.sort(key=lambda row: (*_order(row["gpu"]), row.get("pid") or 0))
    if not rows and options.output == "table":
        print(NO_PROCESSES.text(language, node=listed.node), file=sys.stderr)
        return EXIT_OK
    for row in rows:
        row["owner"] = _name_owner(row, language)
    write_rows(rows, listed.columns, keys=KEYS, output=options.output, language=language)
    return EXIT_OK


def _check(options: argparse.Namespace) -> None:
    if is_plugin() and not options.node:
        raise ConfigurationError("choose a node with --node NODE; kubectl gpusteward top --view gpus lists them")
    if options.node and options.agent:
        raise ConfigurationError(
            "--agent and --node are both set: one asks the agent of a machine, the other the analyzer"
        )
    if not options.node and (options.server or options.token_file):
        raise ConfigurationError(
            "--server and --token-file are for the analyzer: choose one of its nodes with --node NODE"
        )


class _Listed(NamedTuple):
    """Processes, and holders without one if wanted."""

    node: str
    rows: list[dict[str, Any]]
    columns: Sequence[Column] = COLUMNS


def _read_node(options: argparse.Namespace) -> _Listed:
    rows = list_node_rows(flags.make_analyzer_client(options), options.node, all_holders=options.all)
    return _Listed(options.node, rows)


def _read_agent(options: argparse.Namespace) -> _Listed:
    snapshot = read_snapshot(flags.make_agent_client(options))
    for failure in snapshot.failures:
        print(f"gpusteward: {failure}", file=sys.stderr)
    rows = [*list_processes(snapshot), *(list_holders_without_process(snapshot) if options.all else ())]
    columns = PROCESS_HOLDER_COLUMNS if snapshot.holders_are_processes else COLUMNS
    return _Listed(snapshot.node, [{"node": snapshot.node, **row} for row in rows], columns)


def _order(gpu: str) -> tuple[int, str]:
    index = gpu.partition("/")[0]
    return int(index) if index.isdigit() else sys.maxsize, gpu


def _is_wanted(row: dict[str, Any], gpus: Sequence[str] | None, namespaces: Sequence[str] | None) -> bool:
    names = {row["gpu"], row["gpu"].partition("/")[0], row["gpu_uuid"]}
    return (not gpus or not names.isdisjoint(gpus)) and (not namespaces or row["namespace"] in namespaces)


def _name_owner(row: dict[str, Any], language: Language) -> str:
    if not row["pod"]:
        return PLACES.get(row["place"], PLACES["unattributed"]).text(language)
    name = f"{row['namespace']}/{row['pod']}"
    if "pid" not in row:
        if other := row.get("used_by"):
            return USED_BY_POD_WITHOUT_PROCESSES.text(language, name=name, pod=other)
        return Message("{name} (no processes)", "{name}（无进程）").text(language, name=name)
    if holder := row["works_for"]:
        return USED_BY_POD.text(language, name=f"{row['namespace']}/{holder}", pod=row["pod"])
    return HOLDS_ANOTHER_GPU.text(language, name=name) if row["outside_allocation"] else name
