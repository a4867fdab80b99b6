"""The processes of an opened workload, as lines."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpusteward.cli.output.paragraphs import Line
from gpusteward.cli.output.quantities import UNKNOWN, memory, percent
from gpusteward.core.messages import Language, Message

TITLE = Message("processes", "进程")
NOTHING = Message("It runs nothing on its GPUs.", "其 GPU 上没有进程。")
ONE = Message(
    "{pid} {name} on {place}: SM {sm}, {memory}{note}", "{pid} {name}（{place}）：SM {sm}，显存 {memory}{note}"
)
OUTSIDE = Message(" (holds another GPU)", "（分配的是另一张 GPU）")
MORE = Message("and {count} more", "另有 {count} 个")
MOST_LINES = 64


def describe_processes(
    processes: Sequence[Mapping[str, Any]], language: Language, *, total: int | None = None
) -> Iterator[Line]:
    """Rows with pid, process, gpu, sm_ratio, memory_bytes, and node where there are several. `total`: if there are more
    than these."""
    shown = processes[:MOST_LINES]
    for row in shown:
        yield Line(_describe(row, language), is_bullet=True)
    if left := (total or len(processes)) - len(shown):
        yield Line(MORE.text(language, count=left))


def _describe(row: Mapping[str, Any], language: Language) -> str:
    return ONE.text(
        language,
        pid=row["pid"],
        name=str(row["process"] or UNKNOWN),
        place=f"{row.get('node', '')} GPU {row['gpu']}".strip(),
        sm=percent(row["sm_ratio"]),
        memory=memory(row["memory_bytes"]),
        note=OUTSIDE.text(language) if row.get("outside_allocation") else "",
    )
