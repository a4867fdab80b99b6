"""`gpusteward ps`: the processes on this machine's GPUs, with the pods they belong to."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpusteward.cli.api.snapshots import Snapshot, list_processes, list_silent_holders, read_snapshot
from gpusteward.cli.exit_codes import EXIT_OK, describe_exits
from gpusteward.cli.flags import (
    FlagParser,
    add_agent_flags,
    add_language_flag,
    add_output_flags,
    language_of,
    open_agent,
)
from gpusteward.cli.output import quantities
from gpusteward.cli.output.formats import Column, write_rows
from gpusteward.core.messages import Language, Message

KEYS = (
    *("node", "gpu", "gpu_uuid", "model", "pid", "process", "place", "namespace", "pod", "container", "workload"),
    *("memory_bytes", "sm_ratio", "outside_allocation"),
)
COLUMNS = (
    Column("gpu", Message("gpu", "GPU")),
    Column("pid", Message("pid", "进程号"), to_right=True),
    Column("process", Message("process", "进程"), lambda name: str(name or "-").rpartition("/")[2]),
    Column("sm_ratio", Message("sm", "SM"), quantities.percent, to_right=True),
    Column("memory_bytes", Message("memory", "显存"), quantities.memory, to_right=True),
    Column("owner", Message("pod", "Pod"), is_flexible=True),
)
RESIDENT_COLUMNS = (*COLUMNS[:-1], replace(COLUMNS[-1], title=Message("holder", "占用者")))
"""Without Kubernetes a user and a program or container."""
OUTSIDE = Message("{name} (holds another GPU)", "{name}（分配的是另一张 GPU）")
SILENT = Message("{name} (runs nothing)", "{name}（无进程）")
PLACES = {"host": Message("(host)", "（宿主机）"), "unattributed": Message("(unknown)", "（未知）")}
NOTHING = Message("No process runs on a GPU of {node}.", "{node} 的 GPU 上没有进程。")


def build_parser() -> FlagParser:
    parser = FlagParser(
        prog="gpusteward ps",
        description="List the processes on a machine's GPUs with the pods they belong to, as its agent sees them.",
        epilog=describe_exits("ps"),
    )
    parser.add_argument("--all", "-a", action="store_true", help="also pods that hold a GPU and run nothing on it")
    parser.add_argument("--gpu", "-g", action="append", metavar="GPU", help="only this index or UUID; may be repeated")
    parser.add_argument("--namespace", "-n", action="append", metavar="NAME", help="only these; may be repeated")
    add_output_flags(parser)
    add_language_flag(parser)
    add_agent_flags(parser)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, and SourceError where no agent answers."""
    given = build_parser().parse(arguments)
    language = language_of(given)
    snapshot = read_snapshot(open_agent(given))
    for failure in snapshot.failures:
        print(f"gpusteward: {failure}", file=sys.stderr)
    rows = [row for row in _list(snapshot, all_holders=given.all) if _is_wanted(row, given.gpu, given.namespace)]
    if not rows and given.output == "table":
        print(NOTHING.text(language, node=snapshot.node), file=sys.stderr)
        return EXIT_OK
    for row in rows:
        row["owner"] = _name_owner(row, language)
    columns = RESIDENT_COLUMNS if snapshot.holders_are_processes else COLUMNS
    write_rows(rows, columns, keys=KEYS, output=given.output, language=language)
    return EXIT_OK


def _list(snapshot: Snapshot, *, all_holders: bool) -> list[dict[str, Any]]:
    rows = [*list_processes(snapshot), *(list_silent_holders(snapshot) if all_holders else ())]
    rows.sort(key=lambda row: (*_order(row["gpu"]), row.get("pid") or 0))
    return [{"node": snapshot.node, **row} for row in rows]


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
        return SILENT.text(language, name=name)
    return OUTSIDE.text(language, name=name) if row["outside_allocation"] else name
