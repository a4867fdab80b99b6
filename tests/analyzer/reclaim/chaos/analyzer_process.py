"""`python -m tests.analyzer.reclaim.chaos.analyzer_process`: an analyzer's stage reclaim in a process of its own.

Its configuration and then orders come as lines of JSON on standard input, answers go to standard output. Usage, time
and owners are given with each order; everything else is real: reclaimer, Kubernetes client, ledger, journal, policy
file. It kills itself at the step of an action that an order names.
"""

import contextlib
import json
import os
import signal
import sqlite3
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.analyzer.ledger.database.db_engine import with_write_lock
from gpusteward.analyzer.ledger.ledger import Ledger
from gpusteward.analyzer.ledger.pool_hours import read_minutes, write_minutes
from gpusteward.analyzer.ledger.spells.restore_state import restore_history
from gpusteward.analyzer.notify.notices.reclaim_notices import ReclaimNotice
from gpusteward.analyzer.pool_watch import PoolWatch
from gpusteward.analyzer.reclaim.cluster import Cluster
from gpusteward.analyzer.reclaim.components import ReclaimComponents
from gpusteward.analyzer.reclaim.execution.journal import Action, ActionState, Journal
from gpusteward.analyzer.reclaim.permission import ActorLease, Switch
from gpusteward.analyzer.reclaim.policies.resolve import WatchedPolicies
from gpusteward.analyzer.reclaim.reclaimer import Reclaimer
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.live_readings import HostUse
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.analyzer.sources.usage_source import Chart, UsageSource
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.errors import GpustewardError, SourceError
from gpusteward.core.messages import Message
from gpusteward.core.node.containers import Container, OwnerEvidence, Workload
from gpusteward.core.usages import AllocationKey, Measure
from gpusteward.kubernetes.writes import ApiWriter
from tests.analyzer.usage_tables import Stats, resting, working

Order = dict[str, Any]
NO_DATA = Message("the engine does not answer", "the engine does not answer")
ROWS: Mapping[str, Stats] = {
    "idle": resting(0.0, processes=0.0, watts=60.0),
    "active": working(),
    "parked": resting(40.0),
    "unknown": {},
}


class LoggedJournal(Journal):
    """Appends every state that was stored to a file: none of them may be missing in the journal later."""

    def __init__(self, engine: Any, read_cluster_uid: Callable[[], str], path: Path) -> None:
        super().__init__(engine, read_cluster_uid)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def add(self, action: Action) -> Action:
        self._note(added := super().add(action))
        return added

    def move(self, action: Action, state: ActionState, **fields: Any) -> Action:
        self._note(moved := super().move(action, state, **fields))
        return moved

    def _note(self, action: Action) -> None:
        last = action.steps[-1]
        os.write(self._file, (json.dumps([action.id, last.state.value, last.at, last.note.en]) + "\n").encode())


class Outbox:
    """Notices in a database of their own; the run decides when they are delivered."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.now = 0.0

    def send_reclaim_notice(self, notice: ReclaimNotice) -> tuple[str, ...]:
        key = f"{notice.kind.value}/{notice.action_id}/{notice.number}"
        with self._open() as database:
            database.execute("INSERT OR IGNORE INTO notices (key, sent_at) VALUES (?, ?)", (key, self.now))
        return (key,)

    def renew_reclaim_notice(self, notice: ReclaimNotice) -> None:
        """Its text is not kept."""

    def read_delivered(self, keys: Collection[str]) -> Mapping[str, float]:
        with self._open() as database:
            rows = database.execute("SELECT key, delivered_at FROM notices WHERE delivered_at IS NOT NULL").fetchall()
        return {key: at for key, at in rows if key in set(keys)}

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(self._path, timeout=30)) as database, database:
            yield database


class Source:
    """Usage right before an action."""

    def __init__(self) -> None:
        self.working: set[str] = set()  # uids of pods
        self.is_down = False

    def read_work(self, allocations: Sequence[AllocationKey], at: float, *, seconds: float) -> list[Chart]:
        if self.is_down:
            raise SourceError(NO_DATA)
        return [
            Chart(one, {Measure.CORE: [(at - 30.0, 0.0), (at - 15.0, 0.7 * (one.container.pod_uid in self.working))]})
            for one in allocations
        ]

    def read_host_use(self, pods: Collection[PodKey], at: float, *, seconds: float) -> Mapping[PodKey, HostUse]:
        if self.is_down:
            raise SourceError(NO_DATA)
        return {}


class PoolSamples:
    """What the GPUs of pools did since the last cycle: the same all the time."""

    def __init__(self) -> None:
        self.active: set[str] = set()  # uids of pods
        self.seen_at: dict[str, float] = {}  # a pod that is gone has no later samples

    def read_work(self, allocations: Sequence[AllocationKey], at: float, *, seconds: float) -> list[Chart]:
        charts = []
        for one in allocations:
            uid = one.container.pod_uid
            times = np.arange(max(at - seconds, one.container.started_at or 0.0), self.seen_at.get(uid, at) + 1, 60.0)
            charts.append(Chart(one, {Measure.CORE: [(float(each), 0.7 * (uid in self.active)) for each in times]}))
        return charts


class AnalyzerProcess:
    """Handles orders one after the other."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        folder = Path(config["folder"])
        self.now = float(config["now"])
        self._step_seconds = float(config["step_seconds"])
        environ = {"KUBERNETES_SERVICE_HOST": config["host"], "KUBERNETES_SERVICE_PORT": str(config["port"])}
        api = ApiWriter.from_cluster(environ, account=Path(config["account"]), user_agent="gpusteward-analyzer")
        cluster = Cluster(api)
        self._ledger = Ledger(LedgerSettings(url=f"sqlite:///{folder / 'ledger.db'}"))
        engine = self._ledger.engine
        self._settings = _make_settings(config)
        self._outbox, self._source, self._samples = Outbox(folder / "outbox.db"), Source(), PoolSamples()
        self._steps_left = -1
        self._history: VerdictHistory | None = None
        self._result: Result | None = None
        self._number = 0
        own = str(config["own_namespace"])
        lease = ActorLease(
            cluster,
            namespace=own,
            name="gpusteward-reclaim",
            holder=str(config["holder"]),
            clock=lambda: self.now,
            wall_clock=lambda: self.now,
        )
        self._reclaimer = Reclaimer(
            self._settings.reclaim,
            ReclaimComponents(
                cluster=cluster,
                journal=LoggedJournal(engine, cluster.read_uid, folder / "moves.log"),
                switch=Switch(engine, cluster, namespace=own),
                lease=lease,
                policies=WatchedPolicies(folder / "policies.yaml"),
                sender=self._outbox,
                source=self._source,
                own_namespace=own,
                clock=lambda: self.now,
                monotonic=lambda: self.now,
                on_step=self._on_step,
            ),
        )

        self._watch = PoolWatch(
            cast(UsageSource, self._samples),
            read_managed=self._reclaimer.list_pools,
            read_minutes=lambda since: read_minutes(engine, since=since),
        )

    def handle(self, order: Order) -> Order:
        self.now = self._outbox.now = float(order["now"])
        self._steps_left = int(order.get("die_at_step", -1))
        try:
            return {"cycle": self._cycle, "restore": self._restore}[order["do"]](order)
        except GpustewardError as error:
            return {"error": str(error)}

    def _cycle(self, order: Order) -> Order:
        self._source.working, self._source.is_down = set(order["working"]), bool(order["source_is_down"])
        if order["pods"] is not None or self._result is None:
            self._judge(order["pods"] or [])
        assert self._result is not None
        self._reclaimer.reclaim(self._result)
        plan = self._reclaimer.last_plan
        return {"outcomes": {outcome.value: count for outcome, count in plan.counts.items()} if plan else {}}

    def _restore(self, order: Order) -> Order:
        action = self._reclaimer.restore(order["action"], by=order["by"])
        return {"state": action.state.value}

    def _judge(self, pods: list[Order]) -> None:
        table = _make_table(pods, at=self.now, window=self._step_seconds)
        if self._history is None:
            self._history = restore_history(self._ledger.engine, table)
        verdicts, self._history = judge(table, self._settings.rules, self._history, now=self.now)
        self._number += 1
        workloads = judge_workloads(verdicts, self._settings.rules)
        self._result = Result(self._number, self.now, 0.1, self._settings, verdicts, workloads)
        self._samples.active = {pod["uid"] for pod in pods if pod["state"] == "active"}
        self._samples.seen_at |= {pod["uid"]: self.now for pod in pods}
        with contextlib.suppress(SourceError):  # the API server is away: pools are not known in this cycle
            self._result = replace(self._result, pools=self._watch.update(self._result))
        self._ledger.record(self._result)
        if self._result.pools:
            since = round((self.now - 2 * self._step_seconds) / 60)
            with with_write_lock(self._ledger.engine).begin() as connection:
                write_minutes(connection, self._result.pools, since=since)

    def _on_step(self, _step: str, _action: Action) -> None:
        self._steps_left -= 1
        if self._steps_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def _make_settings(config: Mapping[str, Any]) -> Settings:
    reclaim = {
        "mode": "enforce",
        "namespace": config["own_namespace"],
        "cool_down_minutes": config["cool_down_minutes"],
    }
    scheduler = {"interval": round(float(config["step_seconds"]))}
    return Settings.model_validate({"reclaim": reclaim, "scheduler": scheduler})


def _make_table(pods: list[Order], *, at: float, window: float) -> UsageTable:
    allocations, rows, coverage = [], [], []
    for pod in pods:
        owner = Workload(pod["kind"], pod["namespace"], pod["owner"], evidence=OwnerEvidence.READ, uid=pod["owner_uid"])
        container = Container(pod["namespace"], pod["pod"], pod["uid"], "main", owner, (), pod["started_at"])
        for number in range(pod["gpus"]):
            gpu = f"GPU-{pod['uid']}-{number}"
            key = AllocationKey(gpu, "", container, pod["node"], str(number), "NVIDIA H100", "exclusive")
            allocations.append(key)
            rows.append(ROWS[pod["state"]])
            coverage.append(pod["coverage"])
    names = {name for row in rows for name in row}
    stats = {name: np.array([row.get(name, np.nan) for row in rows], dtype=float) for name in names}
    return UsageTable(at, window, allocations, stats, np.array(coverage, dtype=float))


def main() -> None:
    process = AnalyzerProcess(json.loads(sys.stdin.readline()))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(process.handle(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
