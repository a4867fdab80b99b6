"""The contents of a report, and of a row of the FOCUS export. Standard library only, because clients read them too.

Durations are GPU-milliseconds, money millionths of the currency, energy millijoules, times milliseconds since 1970:
all integers, so that sums are exact. None is unknown, never 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Range:
    """The time a report covers: by the hour, and by the day (UTC) where hours are no longer kept."""

    asked_since_ms: int
    asked_until_ms: int
    since_ms: int  # covered: whole hours, or whole days, but not beyond the present
    until_ms: int
    first_ms: int | None  # the recorded part of it; None: nothing is recorded
    last_ms: int | None
    is_widened: bool  # to whole days, because hours are no longer kept
    is_partial: bool = False  # recorded only in part, such as an hour that is not over


@dataclass(frozen=True, slots=True)
class Amounts:
    """Sums over some allocations. Allocated is always active + idle + unknown, and active effective + ineffective.

    Effective is active time that was not shown to be of no use: an upper bound.
    """

    allocations: int
    allocated_gpu_ms: int
    active_gpu_ms: int
    effective_gpu_ms: int
    ineffective_gpu_ms: int
    idle_gpu_ms: int
    unknown_gpu_ms: int
    unallocated_gpu_ms: int | None  # while the number of GPUs was known; None: it never was
    active_cost_micros: int | None  # None if no part of the time had a price
    effective_cost_micros: int | None
    ineffective_cost_micros: int | None
    idle_cost_micros: int | None
    unknown_cost_micros: int | None
    unpriced_gpu_ms: int  # of the allocated time, without a cost that can be added
    energy_mj: int | None
    energy_gpu_ms: int  # of the allocated time, with known power
    electricity_micros: int | None
    mean_score: float | None
    unallocated_cost_micros: int | None = None  # at the list prices of the models; None: unknown time or no price
    tokens: int | None = None  # served by inference servers, prompt and generation together; None: never counted
    served_gpu_ms: int = 0  # of the allocated time, while tokens were counted
    served_cost_micros: int | None = None  # of that time
    cost_per_million_tokens_micros: int | None = None  # None: no tokens, or no price

    def __post_init__(self) -> None:
        if self.tokens and self.served_cost_micros is not None:
            per_million = (self.served_cost_micros * 1_000_000 + self.tokens // 2) // self.tokens
            object.__setattr__(self, "cost_per_million_tokens_micros", per_million)

    @property
    def cost_micros(self) -> int | None:
        parts = (self.active_cost_micros, self.idle_cost_micros, self.unknown_cost_micros)
        return None if None in parts else sum(part or 0 for part in parts)

    @property
    def idle_ratio(self) -> float | None:
        return self.idle_gpu_ms / self.allocated_gpu_ms if self.allocated_gpu_ms else None


@dataclass(frozen=True, slots=True)
class Group:
    """One row: a cluster, a namespace, a workload (with `kind` and `namespace`), a model, a node, a user or a day
    (UTC)."""

    name: str
    kind: str
    namespace: str
    amounts: Amounts
    idle_change_ratio: float | None  # of idle GPU-hours per hour against the previous period; None: there is none
    is_partial: bool = False  # a day that is recorded only in part
    cluster: str = ""  # of a namespace, a workload or a node


@dataclass(frozen=True, slots=True)
class Waster:
    """A workload with idle GPUs."""

    kind: str
    namespace: str
    name: str
    user: str
    models: str
    gpus: int
    amounts: Amounts
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A workload that would fit into a part of each GPU it holds."""

    kind: str
    namespace: str
    name: str
    model: str
    gpus: int
    allocated_gpu_ms: int
    part: str  # "mig", or "share" if the board has no MIG
    profile: str  # "2g.20gb", "1/2"
    board_fraction: float
    core_peak_ratio: float
    memory_peak_bytes: int
    memory_total_bytes: int
    saving_gpu_ms: int
    saving_micros: int | None
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Point:
    """One bar of the chart."""

    at_ms: int
    active_gpu_ms: int
    idle_gpu_ms: int
    unknown_gpu_ms: int
    unallocated_gpu_ms: int | None
    idle_cost_micros: int | None  # None if costs cannot be added
    ineffective_gpu_ms: int = 0  # part of the active time
    is_partial: bool = False  # recorded only in part: the first or last one of the period, or of the ledger


@dataclass(frozen=True, slots=True)
class Unused:
    """How many GPUs were not used in the last full recorded hour; means over the hour, rounded."""

    hour_ms: int
    gpus: int  # all existing ones, or all allocated ones if only those are known
    idle: int
    unallocated: int | None

    @property
    def unused(self) -> int:
        return self.idle + (self.unallocated or 0)


@dataclass(frozen=True, slots=True)
class Trend:
    """The previous period of the same length, and the relative change since, per hour."""

    since_ms: int
    until_ms: int
    allocated_gpu_ms: int
    idle_gpu_ms: int
    idle_cost_micros: int | None
    allocated_change_ratio: float | None
    idle_change_ratio: float | None
    idle_cost_change_ratio: float | None


@dataclass(frozen=True, slots=True)
class CurrencyChange:
    """From `at_ms` on, costs are in another currency."""

    at_ms: int
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Report:
    """GPU-hours and costs of a period."""

    made_ms: int
    currency: str
    by: str
    namespaces: Sequence[str]
    range: Range
    total: Amounts
    groups: Sequence[Group]
    others: Group | None  # the groups beyond `rows` of the query, summed
    wasters: Sequence[Waster]
    findings: Sequence[Finding]
    trend: Trend | None  # None: the ledger does not reach back that far
    step_ms: int  # of the points
    points: Sequence[Point]
    unused: Unused | None
    fleet_coverage_ratio: float | None = None  # part of the time with a known number of GPUs; None: some namespaces
    clusters: Sequence[str] = ()  # only these; empty: all
    currency_changes: Sequence[CurrencyChange] = ()  # within the period: costs are then not added, and unknown


@dataclass(frozen=True, slots=True)
class GroupWorkload:
    """A workload with idle time in a group."""

    kind: str
    namespace: str
    name: str
    cluster: str
    user: str  # empty if there are several
    idle_gpu_ms: int
    idle_cost_micros: int | None  # None if costs cannot be added


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """One group over time, and its workloads with the highest idle cost."""

    name: str
    kind: str
    namespace: str
    cluster: str
    active_gpu_ms: Sequence[int]  # by step
    idle_gpu_ms: Sequence[int]
    unknown_gpu_ms: Sequence[int]
    ineffective_gpu_ms: Sequence[int]  # part of the active time
    workloads: Sequence[GroupWorkload]


@dataclass(frozen=True, slots=True)
class GroupDetails:
    """The groups of a report with the highest idle cost, over time."""

    step_ms: int
    at_ms: Sequence[int]  # the steps that have rows
    groups: Sequence[GroupDetail]
    groupings: Sequence[str] = ()  # what people can be grouped by here: teams and labels only where there are some


MAX_NAMES = 8


@dataclass(frozen=True, slots=True)
class EndedWorkload:
    """What the ledger has of a workload. Lists have at most MAX_NAMES names."""

    kind: str
    namespace: str
    name: str
    first_ms: int  # first observation
    ended_ms: int | None  # last observation; None: the ledger has not recorded the end yet
    devices: int  # different GPUs and MIG instances that it held
    users: tuple[str, ...]
    models: tuple[str, ...]
    nodes: tuple[str, ...]
    currency: str
    amounts: Amounts
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class ChargePeriod:
    """The part of one day that is in the export."""

    begin_ms: int
    end_ms: int
    is_partial: bool


@dataclass(frozen=True, slots=True)
class UnitPrices:
    """Micros per GPU-hour; None is unknown."""

    contracted: int | None = None
    listed: int | None = None


@dataclass(frozen=True, slots=True)
class Charge:
    """One row. `names`: columns of `allocations`. Time is in GPU-milliseconds, money in micros."""

    period: ChargePeriod
    currency: str
    names: Mapping[str, str]
    team: str = ""
    times: Mapping[str, int] = field(default_factory=dict)  # by column of the usage tables; empty: unallocated time
    costs: Mapping[str, int] = field(default_factory=dict)
    ineffective_cost: int = 0  # part of that of active time
    unpriced_ms: int = 0
    prices: UnitPrices = UnitPrices()
    list_cost: int = 0
    unallocated_ms: int | None = None  # None: of an allocation
    unallocated_cost: int | None = None

    @property
    def cost(self) -> int:
        return sum(self.costs.values())

    @property
    def allocated_ms(self) -> int:
        return self.times.get("allocated_ms", 0)
