"""Usage and verdicts in columns: one row per allocation, one array per value. NaN is unknown, never 0."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import nan
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from gpusteward.core.messages import Message
from gpusteward.core.node.containers import Container
from gpusteward.core.usages import AllocationKey, Measure, Stat, Usage
from gpusteward.core.verdicts import Activity, Doubt, Objection, Proof, Signature, State, Step, VerdictName

Column = NDArray[np.float64]
Codes = NDArray[np.int8]
Rows = NDArray[np.intp]
"""Numbers of rows, ascending."""
Value = TypeVar("Value")

MAX_CLOCK_SKEW_SECONDS = 300.0
"""A cycle is recorded only if another clock agrees with ours within this time."""

STATES = tuple(State)
ACTIVITIES = tuple(Activity)
VERDICTS = tuple(VerdictName)
SIGNATURES = tuple(Signature)
DOUBTS = tuple(Doubt)
STEPS = tuple(Step)
PROOFS = tuple(Proof)


def repeat_value(value: float, size: int) -> Column:
    """The same value in every row. Takes no memory and cannot be written to. `np.broadcast_to` takes four times as
    long."""
    return np.ndarray((size,), np.float64, np.float64(value).tobytes(), strides=(0,))


Level = Literal["degraded", "warning", "info"]
LEVELS: tuple[Level, ...] = ("degraded", "warning", "info")
"""Of findings, the worst first. Info changes no status: what it says may be intended."""


class SiteFinding(NamedTuple):
    """Something about the data of the whole site that is missing, contradictory or assumed.

    `code`: a word for programs; `messages.data_health.SUMMARIES` has a sentence without names for each.
    """

    level: Level
    code: str
    message: Message


class NodeModel(NamedTuple):
    """The GPUs of one model on one node. A node name is unique within its cluster only."""

    node: str
    model: str
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class EndedHolder:
    """A container that held a GPU within the window and does not hold it now. It has no row and no verdict; the ledger
    records its time. A pod that was restarted under its name is another one: each of them is listed, and the one that
    holds the GPU now has a row."""

    allocation: AllocationKey
    last_at: float  # unix seconds: its last sample
    interval: float  # seconds between two of its samples
    seconds: float  # from its first sample in the window to the last, and half an interval before and after
    has_worked: bool  # in one of the samples of its name
    returned_at: float = nan  # when the next one of the same name began, by its samples; NaN: there is none

    @property
    def ended_at(self) -> float:
        """Half an interval after its last sample: on the average of many, neither too early nor too late."""
        return self.last_at + self.interval / 2

    @property
    def sampled_at(self) -> float:
        """When it began, by its samples."""
        return self.ended_at - self.seconds

    def find_begin(self, after: float) -> float:
        """By the start of its pod where that is known, else by its samples. `after`: the end of the one before of the
        same name: an earlier start is that of the other pod, and so is one after its last sample."""
        started_at = self.allocation.container.started_at
        return started_at if started_at is not None and after <= started_at <= self.last_at else self.sampled_at


@dataclass(frozen=True)
class ServerPod:
    """What one inference server reports of its requests over the window; NaN is unknown. Its pod may hold no GPU: of
    several pods that serve one model together, only the first has metrics."""

    server: str  # the name of its row in the table of servers
    container: Container  # namespace, pod and cluster, and the workload where it is known
    requests: float = nan
    tokens: float = nan
    served_tokens: float = nan  # what is paid for: each once, also where prefill and decode are engines of their own
    lowest_running: float = nan
    highest_running: float = nan
    highest_waiting: float = nan
    asleep: float = nan  # 1: in all of the window
    is_silent: bool = False  # no request in all of the window is proven

    def in_cluster(self, cluster: str) -> "ServerPod":
        return replace(self, container=replace(self.container, cluster=cluster))

    @property
    def has_demand(self) -> bool:
        """Whether any value says that there was a request."""
        return any(
            value > 0 for value in (self.requests, self.tokens, self.highest_running, self.highest_waiting)
        )  # NaN is not above 0


@dataclass(frozen=True)
class UsageTable:
    """Every allocation of one or several clusters over one window."""

    at: float  # unix seconds: the end of the window
    window_seconds: float
    allocations: Sequence[AllocationKey] = ()
    stats: Mapping[tuple[Measure, Stat], Column] = field(default_factory=dict)
    coverage: Column = field(default_factory=lambda: np.empty(0))
    unknown: Mapping[int, Message] = field(default_factory=dict)  # row -> why its usage is unknown
    fleet: Mapping[NodeModel, int] = field(default_factory=dict)
    """Whole GPUs that exist there, held or not; empty where the source does not count them."""
    findings: tuple[SiteFinding, ...] = ()
    """About the whole site; what concerns one row is in `unknown`."""
    lag_seconds: float = 0.0  # how much earlier than asked for the window ends, because all samples arrive late
    ended: Sequence[EndedHolder] = ()
    servers: Sequence[ServerPod] = ()  # until they are joined with the rows
    clock_skew: float | None = None  # seconds: the clock of the engine or the targets minus ours; None: not known

    def __len__(self) -> int:
        return len(self.allocations)

    def column(self, measure: Measure, stat: Stat) -> Column:
        """A column; NaN in every row where the value was not measured."""
        found = self.stats.get((measure, stat))
        return found if found is not None else repeat_value(np.nan, len(self))

    @cached_property
    def clusters(self) -> tuple[str, ...]:
        """The clusters that are known, sorted. Names of the others are empty."""
        counted = {key.cluster for key in self.fleet}
        return tuple(sorted(counted.union(each.cluster for each in self.allocations) - {""}))

    @cached_property
    def started_at(self) -> Column:
        times = [allocation.container.started_at for allocation in self.allocations]
        if times.count(None) == len(times):
            return repeat_value(np.nan, len(times))
        return np.array(times, dtype=np.float64)  # None is NaN

    def usage(self, row: int) -> Usage:
        """One row."""
        stats = {key: float(column[row]) for key, column in self.stats.items() if not np.isnan(column[row])}
        return Usage(
            self.allocations[row], self.window_seconds, float(self.coverage[row]), stats, self.unknown.get(row)
        )

    def take(self, rows: Rows) -> "UsageTable":
        """Some rows only, without the fleet, the findings and ended holders, which belong to no row."""
        return replace(
            self,
            allocations=[self.allocations[row] for row in rows.tolist()],
            stats={key: column[rows] for key, column in self.stats.items()},
            coverage=self.coverage[rows],
            unknown=take_values(self.unknown, rows),
            fleet={},
            findings=(),
            ended=(),
            servers=(),
        )


def take_values(values: Mapping[int, Value], rows: Rows) -> dict[int, Value]:
    """Values by row, for some rows only and by their new numbers."""
    return {number: values[row] for number, row in enumerate(rows.tolist()) if row in values} if values else {}


@dataclass(frozen=True)
class VerdictTable:
    """The verdict of each row of a usage table. Codes index `STATES`, `ACTIVITIES`, `SIGNATURES`, `DOUBTS`, `STEPS`
    and `PROOFS`."""

    usage: UsageTable
    score: Column  # NaN: could not be scored
    state: Codes
    activity: Codes
    signature: Codes
    idle_since: Column  # NaN: not idle
    doubt: Codes  # why the activity is unknown
    worked_at: Column  # end of the last window in which work was seen; NaN: never
    step: Codes  # the highest action reclaim may take
    proof: Codes
    requested_at: Column  # end of the last window in which its server had requests; NaN: none was seen
    silent_since: Column  # since when its server is proven to have had none; NaN: it is not
    unused_work_at: Column  # end of the last window in which the idle GPU worked all the same; NaN: never since idle
    step_by_silence: Codes  # the highest action where a person lets silence of the server stand for idle time
    objections: Mapping[int, Objection] = field(default_factory=dict)  # rows in which a second opinion doubts idleness
    ineffective_since: Column = field(default_factory=lambda: np.empty(0))
    """Unix seconds: since when the work of a row is shown to be ineffective; NaN: it is effective, as far as anything
    shows. Left out: NaN in every row."""

    def __post_init__(self) -> None:
        if not len(self.ineffective_since):
            object.__setattr__(self, "ineffective_since", repeat_value(nan, len(self)))

    def __len__(self) -> int:
        return len(self.usage)

    @cached_property
    def is_ineffective(self) -> NDArray[np.bool_]:
        """Only of active rows: what is not active is not work."""
        is_active: NDArray[np.bool_] = self.activity == ACTIVITIES.index(Activity.ACTIVE)
        return is_active & ~np.isnan(self.ineffective_since)

    def take(self, rows: Rows) -> "VerdictTable":
        """Some rows only."""
        return VerdictTable(
            usage=self.usage.take(rows),
            score=self.score[rows],
            state=self.state[rows],
            activity=self.activity[rows],
            signature=self.signature[rows],
            idle_since=self.idle_since[rows],
            doubt=self.doubt[rows],
            worked_at=self.worked_at[rows],
            step=self.step[rows],
            proof=self.proof[rows],
            requested_at=self.requested_at[rows],
            silent_since=self.silent_since[rows],
            unused_work_at=self.unused_work_at[rows],
            step_by_silence=self.step_by_silence[rows],
            objections=take_values(self.objections, rows),
            ineffective_since=self.ineffective_since[rows],
        )
