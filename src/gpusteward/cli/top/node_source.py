"""Source: the agent of one machine. Charts show the history since the UI was started."""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence

from gpusteward.cli.api.client import Client
from gpusteward.cli.api.snapshots import Snapshot, list_processes, read_snapshot
from gpusteward.cli.api.workloads import WorkloadName, name_of
from gpusteward.cli.json_access import get_object
from gpusteward.cli.output.paragraphs import Line
from gpusteward.cli.output.quantities import memory, percent
from gpusteward.cli.top.node_rows import list_gpus, list_rows, list_workloads
from gpusteward.cli.top.source_protocol import Chart, Detail, Item, Listing, ListRequest, View, describe_processes
from gpusteward.core.messages import Language
from gpusteward.messages.cli import top as messages

MAX_POINTS = 1800  # an hour at a refresh every two seconds
HISTORY_SECONDS = 3600.0


class NodeSource:
    """Used from several threads: a lock protects the history."""

    reads_details_separately = False
    has_verdicts = False

    def __init__(self, client: Client, language: Language) -> None:
        self._client = client
        self._language = language
        self._lock = threading.Lock()
        self._history: dict[str, deque[tuple[float, float]]] = defaultdict(lambda: deque(maxlen=MAX_POINTS))
        self._last: Snapshot | None = None
        self.title = client.url

    def read(self, request: ListRequest) -> Listing:
        """Raises SourceError."""
        snapshot = read_snapshot(self._client)
        self._record(snapshot)
        rows = list_rows(snapshot, request)
        return Listing(
            rows[: request.rows],
            len(rows),
            summary=[(snapshot.node, ""), *self._summarize(snapshot)],
            at=snapshot.taken_at,
            warning="; ".join(snapshot.failures),
        )

    def _summarize(self, snapshot: Snapshot) -> Iterator[tuple[str, str]]:
        whole = [reading for reading in snapshot.readings if not get_object(get_object(reading, "gpu"), "mig")]
        yield messages.GPUS.text(self._language, count=len(whole)), ""
        yield messages.PROCESSES.text(self._language, count=len(snapshot.processes)), ""

    def _record(self, snapshot: Snapshot) -> None:
        with self._lock:
            self._last = snapshot
            at = snapshot.taken_at or time.time()
            for row in list_gpus(snapshot):
                self._add_point(f"{row['key']} core", at, row["utilization_ratio"])
            for row in list_workloads(snapshot):
                self._add_point(f"{row['key']} sm", at, row["sm_ratio"])
                self._add_point(f"{row['key']} memory", at, row["memory_bytes"])
            self._remove_ended(at - HISTORY_SECONDS)

    def _add_point(self, line: str, at: float, value: float | None) -> None:
        points = self._history[line]
        if value is not None and (not points or at > points[-1][0]):
            points.append((at, value))

    def _remove_ended(self, before: float) -> None:
        """Series without recent points."""
        for line in [line for line, points in self._history.items() if not points or points[-1][0] < before]:
            del self._history[line]

    def find_workloads(self, view: View, item: Item) -> Sequence[WorkloadName]:
        if view is View.WORKLOADS:
            return [name_of(item)]
        return list(dict.fromkeys(item.get("workloads_held", ()))) if view is View.GPUS else []

    def read_detail(self, workload: WorkloadName) -> Detail:
        """Raises SourceError."""
        with self._lock:
            snapshot = self._last
        snapshot = snapshot or read_snapshot(self._client)
        charts = list(self._charts(workload, snapshot))
        return Detail(list(self._describe(workload, snapshot)), charts, seconds=self._length(), at=snapshot.taken_at)

    def read_charts(self, workload: WorkloadName, seconds: float) -> Detail:
        """Raises SourceError."""
        del seconds  # the history is limited to the time since the start
        return self.read_detail(workload)

    def read_processes(self, workload: WorkloadName) -> Sequence[Line]:
        """They are part of the detail."""
        del workload
        return ()

    def _length(self) -> float:
        with self._lock:
            first = [points[0][0] for points in self._history.values() if points]
            last = [points[-1][0] for points in self._history.values() if points]
        return max(60.0, max(last) - min(first)) if first else 60.0

    def _charts(self, workload: WorkloadName, snapshot: Snapshot) -> Iterator[Chart]:
        with self._lock:
            kept = {line: list(points) for line, points in self._history.items() if points}
        for line, label, top, show in (("sm", messages.SM, 1.0, percent), ("memory", messages.MEMORY, None, memory)):
            points = kept.get(f"{workload} {line}", [])
            if points:
                yield Chart(label.text(self._language), points, top, show(points[-1][1]))
        for row in list_gpus(snapshot):
            points = kept.get(f"{row['key']} core", [])
            if workload in row["workloads_held"] and points:
                yield Chart(
                    f"{messages.CORE.text(self._language)} GPU {row['gpu']}", points, 1.0, percent(points[-1][1])
                )

    def _describe(self, workload: WorkloadName, snapshot: Snapshot) -> Iterator[Line]:
        held = [row for row in list_gpus(snapshot) if workload in row["workloads_held"]]
        if not held:
            yield Line(messages.HOLDS_NOTHING.text(self._language))
        for row in held:
            yield Line(f"GPU {row['gpu']} {row['model']} ({row['id']})", messages.HOLDS.text(self._language))
        yield Line("")
        yield Line(messages.PROCESS_TITLE.text(self._language), is_title=True)
        running = [row for row in list_processes(snapshot) if row["owned_by"] == workload]
        if not running:
            yield Line(messages.NO_PROCESSES.text(self._language))
        yield from describe_processes(running, self._language)
