"""What the UI requests from a source, and the results. Sources: an analyzer, or the agent of one machine."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gpusteward.cli.api.workloads import WorkloadReference
from gpusteward.cli.json_access import Row
from gpusteward.cli.output.quantities import UNKNOWN, memory, percent
from gpusteward.cli.output.terminal_text import Line
from gpusteward.cli.top.columns import View, ViewColumn
from gpusteward.core.messages import Language, Message

PROCESS = Message(
    "{pid} {name} on {place}: SM {sm}, {memory}{note}", "{pid} {name}（{place}）：SM {sm}，显存 {memory}{note}"
)
HOLDS_ANOTHER_GPU = Message(" (another GPU is allocated to it)", "（分配的是另一张 GPU）")

FIRST_ROWS = 100
MAX_ROWS = 2000
"""Rows further down are found by search, filter and sort."""
MAX_PROCESSES = 64


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Which rows, and in which order."""

    view: View
    sort: str = ""
    verdict: str = ""
    namespace: str = ""
    words: tuple[str, ...] = ()
    rows: int = FIRST_ROWS  # at most


@dataclass(frozen=True, slots=True)
class ItemList:
    """The first rows of a list, and a summary of the source."""

    items: Sequence[Row]
    total: int
    summary: Sequence[tuple[str, str]] = ()  # text, and the word that selects its colour
    at: float | None = None  # time of the data
    warning: str = ""
    stamp: Row = field(default_factory=Row)  # of the result of an analyzer


@dataclass(frozen=True, slots=True)
class LineChart:
    """Time series of one measure. Points that are further apart than usual have a gap between them."""

    label: str
    points: Sequence[tuple[float, float]]  # unix seconds, value
    top: float | None = None  # None: the highest value
    last_value: str = ""  # formatted


@dataclass(frozen=True, slots=True)
class Charts:
    """All that have data."""

    charts: Sequence[LineChart]
    seconds: float
    at: float | None  # the end


@dataclass(frozen=True, slots=True)
class Detail:
    """What is known about a workload itself."""

    lines: Sequence[Line]
    evidence: Sequence[Line] = ()  # shown below the processes


class ItemSource(Protocol):
    """Called in threads; every method may raise SourceError.

    What an opened workload shows is read in three parts: charts and processes may take longer than the rest.
    """

    title: str
    has_verdicts: bool
    columns: Mapping[View, Sequence[ViewColumn]]
    first_sorts: Mapping[View, str]

    def read(self, request: ListRequest) -> ItemList: ...

    def find_workloads(self, view: View, item: Row) -> Sequence[WorkloadReference]:
        """The workloads of a row."""

    def read_detail(self, workload: WorkloadReference) -> Detail: ...

    def read_charts(self, workload: WorkloadReference, seconds: float) -> Charts: ...

    def read_processes(self, workload: WorkloadReference) -> Sequence[Line]: ...


def describe_processes(
    processes: Sequence[Mapping[str, Any]], language: Language, *, total: int | None = None
) -> Iterator[Line]:
    """One line per process, from rows with pid, process, gpu, sm_ratio, memory_bytes, and node if there are several.

    `total`: if there are more than these.
    """
    shown = processes[:MAX_PROCESSES]
    for row in shown:
        yield Line(_describe_process(row, language), is_bullet=True)
    if left := (total or len(processes)) - len(shown):
        yield Line(Message("and {count} more", "另有 {count} 个").text(language, count=left))


def _describe_process(row: Mapping[str, Any], language: Language) -> str:
    if row.get("works_for"):
        note = Message(" (used by {pod})", "（由 {pod} 使用）").text(language, pod=row.get("pod") or UNKNOWN)
    else:
        note = HOLDS_ANOTHER_GPU.text(language) if row.get("outside_allocation") else ""
    return PROCESS.text(
        language,
        pid=row["pid"],
        name=str(row["process"] or UNKNOWN),
        place=f"{row.get('node', '')} GPU {row['gpu']}".strip(),
        sm=percent(row["sm_ratio"]),
        memory=memory(row["memory_bytes"]),
        note=note,
    )
