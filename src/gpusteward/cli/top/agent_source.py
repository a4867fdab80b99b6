"""Source: the agent of one machine. Charts show the history since the UI was started."""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gpusteward.cli.api.client import Client
from gpusteward.cli.api.processes import SNAPSHOT_PATH, list_failures, list_processes, name_gpu, owner_of
from gpusteward.cli.api.workloads import WorkloadReference, name_of
from gpusteward.cli.json_access import Row
from gpusteward.cli.output import words
from gpusteward.cli.output.quantities import memory, percent
from gpusteward.cli.output.terminal_text import Line
from gpusteward.cli.top.columns import FIRST_NODE_SORTS, NODE, View
from gpusteward.cli.top.item_source import Charts, Detail, ItemList, LineChart, ListRequest, describe_processes
from gpusteward.core.messages import Language, Message

PROCESSES = Message("{count} {count:|process|processes}", "{count} 个进程")
SM = Message("SM", "SM")
HOLDS_NOTHING = Message("It no longer holds a GPU here.", "该工作负载在此已不再占用 GPU。")

UTILIZATION = ("utilization_ratio", "gr_engine_ratio")  # of a device, of a MIG instance
SIGNALS = ("memory_used_bytes", "memory_total_bytes", "power_watts", "temperature_celsius")
SORTS = {
    "gpu": "order",
    "util": "utilization_ratio",
    "temp": "temperature_celsius",
    "power": "power_watts",
    "sm": "sm_ratio",
}


def list_gpus(snapshot: Row) -> list[Row]:
    holders: dict[str, list[Row]] = defaultdict(list)
    for allocation in snapshot.objects("allocations"):
        holders[allocation.text("gpu_uuid")].append(allocation.object("container"))
    rows = []
    for reading in snapshot.objects("readings"):
        gpu, signals = reading.object("gpu"), reading.object("signals")
        uuid, mig = gpu.text("uuid"), gpu.object("mig")
        rows.append(
            Row(
                {name: signals.number(name) for name in SIGNALS},
                utilization_ratio=signals.number(UTILIZATION[1] if mig else UTILIZATION[0]),
                key=uuid,
                id=uuid,
                gpu=name_gpu(gpu),
                order=(gpu.count("index"), mig.count("gpu_instance_id")),
                model=gpu.text("model"),
                holders=holders[uuid],
                namespaces={one.text("namespace") for one in holders[uuid]},
                workloads_held=[owner_of(one) for one in holders[uuid]],
            )
        )
    return rows


def list_workloads(snapshot: Row) -> list[Row]:
    """All that hold a GPU or have a process on one."""
    held: dict[WorkloadReference, set[str]] = defaultdict(set)
    running: dict[WorkloadReference, list[Row]] = defaultdict(list)
    for allocation in snapshot.objects("allocations"):
        held[owner_of(allocation.object("container"))].add(allocation.text("gpu_uuid"))
    for process in list_processes(snapshot):
        running[process["owned_by"]].append(process)
    return [
        Row(
            name._asdict(),
            key=name,
            gpus=len(held[name]),
            processes=len(running[name]),
            sm_ratio=_sum(row["sm_ratio"] for row in running[name]),
            memory_bytes=_sum(row["memory_bytes"] for row in running[name]),
        )
        for name in dict.fromkeys((*held, *running))
    ]


def list_tenants(snapshot: Row) -> list[Row]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for workload in list_workloads(snapshot):
        groups[workload["namespace"]].append(workload)
    return [
        Row(
            key=namespace,
            namespace=namespace,
            workloads=len(rows),
            gpus=sum(row["gpus"] for row in rows),
            processes=sum(row["processes"] for row in rows),
            sm_ratio=_sum(row["sm_ratio"] for row in rows if row["processes"]),
            memory_bytes=_sum(row["memory_bytes"] for row in rows if row["processes"]),
        )
        for namespace, rows in groups.items()
    ]


def _sum(values: Iterable[float | None]) -> float | None:
    """Unknown if any value is; 0 without values."""
    known = list(values)
    return None if any(value is None for value in known) else sum(value for value in known if value is not None)


LISTS: dict[View, Callable[[Row], list[Row]]] = {
    View.GPUS: list_gpus,
    View.WORKLOADS: list_workloads,
    View.TENANTS: list_tenants,
}


def list_rows(snapshot: Row, request: ListRequest) -> list[Row]:
    """The requested rows in order; unknown values come last in both directions."""
    rows = [row for row in LISTS[request.view](snapshot) if _passes(row, request)]
    sort = request.sort.removeprefix("-")
    known = [row for row in rows if _sort_value(row, sort) is not None]
    unknown = [row for row in rows if _sort_value(row, sort) is None]
    known.sort(key=lambda row: (_sort_value(row, sort), row["key"]), reverse=request.sort.startswith("-"))
    return [*known, *unknown]


def _passes(row: Row, request: ListRequest) -> bool:
    if request.namespace and request.namespace not in (row.get("namespace"), *row.get("namespaces", ())):
        return False
    pods = (f"{one.text('namespace')}/{one.text('pod')}" for one in row.get("holders", ()))
    names = " ".join((str(row["key"]), row.text("gpu"), row.text("model"), *pods)).lower()
    return all(word.lower() in names for word in request.words)


def _sort_value(row: Row, sort: str) -> Any:
    if sort == "memory":
        return row.get("memory_used_bytes", row.get("memory_bytes"))
    return row.get(SORTS.get(sort, sort))


MAX_POINTS = 1800  # an hour at a refresh every two seconds
HISTORY_SECONDS = 3600.0


class AgentSource:
    """Used from several threads: a lock protects the history."""

    has_verdicts = False
    columns = NODE
    first_sorts = FIRST_NODE_SORTS

    def __init__(self, client: Client, language: Language) -> None:
        self._client = client
        self._language = language
        self._lock = threading.Lock()
        self._history: dict[str, deque[tuple[float, float]]] = defaultdict(lambda: deque(maxlen=MAX_POINTS))
        self._last: Row | None = None
        self.title = client.url

    def read(self, request: ListRequest) -> ItemList:
        """Raises SourceError."""
        snapshot = self._client.read(SNAPSHOT_PATH)
        self._record(snapshot)
        rows = list_rows(snapshot, request)
        whole = [reading for reading in snapshot.objects("readings") if not reading.object("gpu").object("mig")]
        gpus = Message("{count} {count:|GPU|GPUs}", "{count} 张 GPU").text(self._language, count=len(whole))
        processes = PROCESSES.text(self._language, count=len(snapshot.objects("processes")))
        return ItemList(
            rows[: request.rows],
            len(rows),
            summary=[(text, "") for text in (snapshot.text("node"), gpus, processes)],
            at=snapshot.number("taken_at"),
            warning="; ".join(list_failures(snapshot)),
        )

    def _record(self, snapshot: Row) -> None:
        with self._lock:
            self._last = snapshot
            at = snapshot.number("taken_at") or time.time()
            for row in list_gpus(snapshot):
                self._add_point(f"{row['key']} core", at, row["utilization_ratio"])
            for row in list_workloads(snapshot):
                self._add_point(f"{row['key']} sm", at, row["sm_ratio"])
                self._add_point(f"{row['key']} memory", at, row["memory_bytes"])
            for line in [
                line for line, points in self._history.items() if not points or points[-1][0] < at - HISTORY_SECONDS
            ]:
                del self._history[line]  # a series without recent points

    def _add_point(self, line: str, at: float, value: float | None) -> None:
        points = self._history[line]
        if value is not None and (not points or at > points[-1][0]):
            points.append((at, value))

    def find_workloads(self, view: View, item: Row) -> Sequence[WorkloadReference]:
        if view is View.WORKLOADS:
            return [name_of(item)]
        return list(dict.fromkeys(item.get("workloads_held", ()))) if view is View.GPUS else []

    def _read_last(self) -> Row:
        """Raises SourceError."""
        with self._lock:
            last = self._last
        return last or self._client.read(SNAPSHOT_PATH)

    def read_detail(self, workload: WorkloadReference) -> Detail:
        """Raises SourceError."""
        held = [row for row in list_gpus(self._read_last()) if workload in row["workloads_held"]]
        title = Message("holds", "占用").text(self._language)
        lines = [Line(f"GPU {row['gpu']} {row['model']} ({row['id']})", title) for row in held]
        return Detail(lines or [Line(HOLDS_NOTHING.text(self._language))])

    def read_processes(self, workload: WorkloadReference) -> Sequence[Line]:
        """Raises SourceError."""
        running = [row for row in list_processes(self._read_last()) if row["owned_by"] == workload]
        lines = list(describe_processes(running, self._language))
        return lines or [Line(words.NO_PROCESSES.text(self._language))]

    def read_charts(self, workload: WorkloadReference, seconds: float) -> Charts:
        """Raises SourceError."""
        del seconds  # the history is limited to the time since the start
        snapshot = self._read_last()
        with self._lock:
            kept = {line: list(points) for line, points in self._history.items() if points}
        began = min((points[0][0] for points in kept.values()), default=0.0)
        ended = max((points[-1][0] for points in kept.values()), default=0.0)
        charts = list(self._list_charts(workload, snapshot, kept))
        return Charts(charts, max(60.0, ended - began), snapshot.number("taken_at"))

    def _list_charts(
        self, workload: WorkloadReference, snapshot: Row, kept: Mapping[str, Sequence[tuple[float, float]]]
    ) -> Iterator[LineChart]:
        for line, label, top, show in (("sm", SM, 1.0, percent), ("memory", words.MEMORY, None, memory)):
            points = kept.get(f"{workload} {line}", [])
            if points:
                yield LineChart(label.text(self._language), points, top, show(points[-1][1]))
        for row in list_gpus(snapshot):
            points = kept.get(f"{row['key']} core", [])
            if workload in row["workloads_held"] and points:
                yield LineChart(
                    f"{words.CORE.text(self._language)} GPU {row['gpu']}", points, 1.0, percent(points[-1][1])
                )
