"""`gpusteward ps`: the processes on a machine's GPUs with their pods, from its agent or through the analyzer."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from gpusteward.cli import flags
from gpusteward.cli.api.processes import (
    SNAPSHOT_PATH,
    list_failures,
    list_holders_without_process,
    list_node_rows,
    list_processes,
)
from gpusteward.cli.json_access import Row
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
    node, columns = options.node, COLUMNS
    if node:
        found = list_node_rows(flags.make_analyzer_client(options), node, all_holders=options.all)
    else:
        snapshot = flags.make_agent_client(options).read(SNAPSHOT_PATH)
        for failure in list_failures(snapshot):
            print(f"gpusteward: {failure}", file=sys.stderr)
        node = snapshot.text("node")
        columns = PROCESS_HOLDER_COLUMNS if snapshot.get("holders_are_processes") is True else COLUMNS
        holders = list_holders_without_process(snapshot) if options.all else ()
        found = [Row(each, node=node) for each in (*list_processes(snapshot), *holders)]
    rows = sorted((row for row in found if _is_wanted(row, options)), key=_order)
    if not rows and options.output == "table":
        print(NO_PROCESSES.text(language, node=node), file=sys.stderr)
        return EXIT_OK
    for row in rows:
        row["owner"] = _name_owner(row, language)
    write_rows(rows, columns, keys=KEYS, output=options.output, language=language)
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


def _order(row: Row) -> tuple[int, str, int]:
    index = row["gpu"].partition("/")[0]
    return int(index) if index.isdigit() else sys.maxsize, row["gpu"], row.count("pid")


def _is_wanted(row: Row, options: argparse.Namespace) -> bool:
    names = {row["gpu"], row["gpu"].partition("/")[0], row["gpu_uuid"]}
    is_on_gpu = not options.gpu or not names.isdisjoint(options.gpu)
    return is_on_gpu and (not options.namespace or row["namespace"] in options.namespace)


def _name_owner(row: Row, language: Language) -> str:
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
