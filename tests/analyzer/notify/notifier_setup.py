"""Notifiers and results of small clusters, for tests of this package."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Engine

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.analyzer.ledger.database.db_engine import open_engine
from gpusteward.analyzer.ledger.database.schema import METADATA
from gpusteward.analyzer.notify.notifier import Notifier
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.notify import ControlSettings, NotifySettings, OutboxSettings
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.node.containers import Container, Workload
from gpusteward.core.usages import AllocationKey, Measure
from tests.analyzer.usage_tables import AT, DAY, GIB, WINDOW, resting, signal, table_of, working
from tests.constants import make_settings
from tests.fakes.receivers import Call, Receiver

H100 = "NVIDIA H100 80GB HBM3"
QUICK = {
    "first_wait_seconds": 0.01,
    "longest_wait_seconds": 0.05,
    "breaker_failures": 3,
    "breaker_seconds": 0.05,
    "max_attempts": 100_000,
}
TOTALS = signal(Measure.MEMORY_TOTAL, 80 * GIB) | signal(Measure.POWER_LIMIT, 700)
IDLE = resting(4.0, watts=60) | TOTALS
BUSY = working() | TOTALS
NO_SAMPLES: Mapping[Any, float] = {}


def gpu_of(namespace: str, name: str, *, gpu: int = 0, node: str = "node-1", kind: str = "Deployment") -> AllocationKey:
    container = Container(
        namespace, f"{name}-pod", f"uid-{name}", "main", Workload(kind, namespace, name), (), AT - 30 * DAY
    )
    return AllocationKey(f"GPU-{namespace}-{name}-{gpu}", "", container, node, str(gpu), H100, "exclusive")


def settings_of(**sections: Any) -> Settings:
    notify = make_settings(NotifySettings, **sections.pop("notify", {}))
    outbox = make_settings(OutboxSettings, **sections.pop("outbox", QUICK))
    control = make_settings(ControlSettings, **sections.pop("control", {}))
    return Settings.model_validate({"notify": notify, "outbox": outbox, "control": control, **sections})


def result_of(
    allocations: Sequence[AllocationKey],
    rows: Sequence[Mapping[Any, float]] | None = None,
    *,
    settings: Settings,
    at: float = AT,
    idle_hours: float = 2.0,
) -> Result:
    """The result of a cycle after the allocations have been in this state for some hours."""
    memory, rows = VerdictHistory(), rows if rows is not None else [IDLE] * len(allocations)
    for moment in [at - WINDOW * back for back in range(round(idle_hours * 3600 / WINDOW), -1, -1)]:
        table = table_of(*rows, allocations=allocations, at=moment)
        verdicts, memory = judge(table, settings.rules, memory, now=moment)
    return Result(1, at, 0.1, settings, verdicts, judge_workloads(verdicts, settings.rules))


def empty_result(at: float, settings: Settings) -> Result:
    table = UsageTable(at, WINDOW, (), {}, np.empty(0))
    verdicts, _ = judge(table, settings.rules, VerdictHistory(), now=at)
    return Result(1, at, 0.1, settings, verdicts, judge_workloads(verdicts, settings.rules))


def open_ledger(folder: Path) -> Engine:
    engine = open_engine(f"sqlite:///{folder / 'ledger.db'}")
    METADATA.create_all(engine)
    return engine


@contextmanager
def running_notifier(
    settings: Settings, engine: Engine | None = None, *, clock: Callable[[], float] = time.time, **parts: Any
) -> Iterator[Notifier]:
    notifier = Notifier(settings, engine, clock=clock, poll_seconds=0.01, **parts)
    notifier.start()
    try:
        yield notifier
    finally:
        notifier.stop(5)


def timestamps_by_pod(receiver: Receiver) -> Mapping[str, list[str]]:
    """Timestamps of each pod's events in the order in which they were first accepted.

    A slow receiver may still read a call that has timed out: its key is known already.
    """
    first: dict[str, Call] = {}
    for call in receiver.accepted:
        first.setdefault(call.headers["idempotency-key"], call)
    timestamps: dict[str, list[str]] = defaultdict(list)
    for call in first.values():
        timestamps[call.json["pod"]].append(call.json["timestamp"])
    return timestamps
