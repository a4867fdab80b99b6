"""The source that is one machine's agent. The history is what was seen while the screen was open."""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence

from gpusteward.cli.api.client import Client
from gpusteward.cli.api.snapshots import Snapshot, list_processes, read_snapshot
from gpusteward.cli.api.workloads import WorkloadName, name_of
from gpusteward.cli.json_access import inner
from gpusteward.cli.output.paragraphs import Line
from gpusteward.cli.output.quantities import memory, percent
from gpusteward.cli.top.labels import CORE, MEMORY, SM
from gpusteward.cli.top.node_rows import list_gpus, list_rows, list_workloads
from gpusteward.cli.top.running import NOTHING, TITLE, describe_processes
from gpusteward.cli.top.source_protocol import Asked, Chart, Detail, Given, Item, View
from gpusteward.core.messages import Language, Message

HISTORY = 1800  # an hour of looks every two seconds
HISTORY_SECONDS = 3600.0

GPUS = Message("{count} {count:|GPU|GPUs}", "{count} 张 GPU")
PROCESSES = Message("{count} {count:|process|processes}", "{count} 个进程")
HOLDS = Message("holds", "占用")
GONE = Message("It holds no GPU here any more.", "它在此已不再占用 GPU。")


class NodeSource:
    """Asked from several threads: the history is behind a lock."""

    answers_apart = False
    has_verdicts = False

    def __init__(self, client: Client, language: Language) -> None:
        self._client = client
        self._language = language
        self._lock = threading.Lock()
        self._history: dict[str, deque[tuple[float, float]]] = defaultdict(lambda: deque(maxlen=HISTORY))
        self._last: Snapshot | None = None
        self.title = client.url

    def read(self, asked: Asked) -> Given:
        """Raises SourceError."""
        snapshot = read_snapshot(self._client)
        self._remember(snapshot)
        rows = list_rows(snapshot, asked)
        return Given(
            rows[: asked.rows],
            len(rows),
            summary=[(snapshot.node, ""), *self._sum_up(snapshot)],
            at=snapshot.taken_at,
            warning="; ".join(snapshot.failures),
        )

    def _sum_up(self, snapshot: Snapshot) -> Iterator[tuple[str, str]]:
        whole = [reading for reading in snapshot.readings if not inner(inner(reading, "gpu"), "mig")]
        yield GPUS.text(self._language, count=len(whole)), ""
        yield PROCESSES.text(self._language, count=len(snapshot.processes)), ""

    def _remember(self, snapshot: Snapshot) -> None:
        with self._lock:
            self._last = snapshot
            moment = snapshot.taken_at or time.time()
            for row in list_gpus(snapshot):
                self._note(f"{row['key']} core", moment, row["utilization_ratio"])
            for row in list_workloads(snapshot):
                self._note(f"{row['key']} sm", moment, row["sm_ratio"])
                self._note(f"{row['key']} memory", moment, row["memory_bytes"])
            self._forget(moment - HISTORY_SECONDS)

    def _note(self, line: str, moment: float, value: float | None) -> None:
        points = self._history[line]
        if value is not None and (not points or moment > points[-1][0]):
            points.append((moment, value))

    def _forget(self, before: float) -> None:
        """Whoever has gone."""
        for line in [line for line, points in self._history.items() if not points or points[-1][0] < before]:
            del self._history[line]

    def find_workloads(self, view: View, item: Item) -> Sequence[WorkloadName]:
        if view is View.WORKLOADS:
            return [name_of(item)]
        return list(dict.fromkeys(item.get("workloads_held", ()))) if view is View.GPUS else []

    def open(self, workload: WorkloadName) -> Detail:
        """Raises SourceError."""
        with self._lock:
            snapshot = self._last
        snapshot = snapshot or read_snapshot(self._client)
        charts = list(self._charts(workload, snapshot))
        return Detail(list(self._describe(workload, snapshot)), charts, seconds=self._length(), at=snapshot.taken_at)

    def read_charts(self, workload: WorkloadName, seconds: float) -> Detail:
        """Raises SourceError."""
        del seconds  # what was seen is what there is
        return self.open(workload)

    def read_processes(self, workload: WorkloadName) -> Sequence[Line]:
        """They are among the lines of the workload already."""
        del workload
        return ()

    def _length(self) -> float:
        with self._lock:
            moments = [points[0][0] for points in self._history.values() if points]
            last = [points[-1][0] for points in self._history.values() if points]
        return max(60.0, max(last) - min(moments)) if moments else 60.0

    def _charts(self, workload: WorkloadName, snapshot: Snapshot) -> Iterator[Chart]:
        with self._lock:
            kept = {line: list(points) for line, points in self._history.items() if points}
        for line, label, top, show in (("sm", SM, 1.0, percent), ("memory", MEMORY, None, memory)):
            points = kept.get(f"{workload} {line}", [])
            if points:
                yield Chart(label.text(self._language), points, top, show(points[-1][1]))
        for row in list_gpus(snapshot):
            points = kept.get(f"{row['key']} core", [])
            if workload in row["workloads_held"] and points:
                yield Chart(f"{CORE.text(self._language)} GPU {row['gpu']}", points, 1.0, percent(points[-1][1]))

    def _describe(self, workload: WorkloadName, snapshot: Snapshot) -> Iterator[Line]:
        held = [row for row in list_gpus(snapshot) if workload in row["workloads_held"]]
        if not held:
            yield Line(GONE.text(self._language))
        for row in held:
            yield Line(f"GPU {row['gpu']} {row['model']} ({row['id']})", HOLDS.text(self._language))
        yield Line("")
        yield Line(TITLE.text(self._language), is_title=True)
        running = [row for row in list_processes(snapshot) if row["owned_by"] == workload]
        if not running:
            yield Line(NOTHING.text(self._language))
        yield from describe_processes(running, self._language)
