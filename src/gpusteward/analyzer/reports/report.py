"""A report as plain values: what is asked for, and what comes out. Standard library only: clients read it too.

Time is GPU-milliseconds, money micro-units of the currency, energy millijoules, moments milliseconds since 1970; all of
them integers, so that sums are exact. None is unknown, never 0.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

SPAN = "[1-9][0-9]{0,4}[hdw]"
_UNITS_MS = {"h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_WAYS = "write a length of time such as 24h, 7d or 4w, or a moment such as 2026-11-01 or 2026-11-01T08:00Z"

By = Literal["namespace", "owner", "model", "node", "user"]


@dataclass(frozen=True, slots=True)
class ReportQuery:
    """What a report is about."""

    since_ms: int
    until_ms: int
    by: By = "namespace"
    namespaces: tuple[str, ...] = ()  # only these; none: all
    top: int = 10  # so many wasters and findings
    rows: int = 1000  # so many groups; the others are summed up in one row


@dataclass(frozen=True, slots=True)
class Range:
    """Which time a report is about. The books are kept by the hour, and by the day (UTC) where they are old."""

    asked_since_ms: int
    asked_until_ms: int
    since_ms: int  # what is summed up: whole hours, or whole days
    until_ms: int
    first_ms: int | None  # from when to when there is something in the books; None: nothing
    last_ms: int | None
    is_widened: bool  # to whole days, at the edge where only days are kept


@dataclass(frozen=True, slots=True)
class Amounts:
    """What some allocations come to. Allocated is active + idle + unknown, always."""

    allocations: int
    allocated_gpu_ms: int
    active_gpu_ms: int
    idle_gpu_ms: int
    unknown_gpu_ms: int
    unallocated_gpu_ms: int | None  # nobody held them, while it was known how many GPUs there are; None: it never was
    active_cost_micros: int | None  # None where nothing of it had a price
    idle_cost_micros: int | None
    unknown_cost_micros: int | None
    unpriced_gpu_ms: int  # of the allocated time, what cost nothing, or nothing that could be added up
    energy_mj: int | None
    energy_gpu_ms: int  # of the allocated time, for which the power is known
    electricity_micros: int | None
    mean_score: float | None

    @property
    def cost_micros(self) -> int | None:
        parts = (self.active_cost_micros, self.idle_cost_micros, self.unknown_cost_micros)
        return None if None in parts else sum(part or 0 for part in parts)

    @property
    def idle_ratio(self) -> float | None:
        return self.idle_gpu_ms / self.allocated_gpu_ms if self.allocated_gpu_ms else None


@dataclass(frozen=True, slots=True)
class Group:
    """One row: a namespace, an owner (then `kind` and `namespace` tell which), a model, a node or a user."""

    name: str
    kind: str
    namespace: str
    amounts: Amounts
    idle_change_ratio: float | None  # of idle GPU-hours an hour against the period before; None: there is none


@dataclass(frozen=True, slots=True)
class Waster:
    """A workload with GPUs it did not use."""

    kind: str
    namespace: str
    name: str
    user: str
    models: str
    gpus: int
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class Finding:
    """A workload that would fit into a part of each GPU it holds."""

    kind: str
    namespace: str
    name: str
    model: str
    gpus: int
    allocated_gpu_ms: int
    part: str  # "mig", or "share" where the board has no MIG
    profile: str  # "2g.20gb", "1/2"
    board_fraction: float
    core_peak_ratio: float
    memory_peak_bytes: int
    memory_total_bytes: int
    saving_gpu_ms: int
    saving_micros: int | None


@dataclass(frozen=True, slots=True)
class Point:
    """One bar of the chart."""

    at_ms: int
    active_gpu_ms: int
    idle_gpu_ms: int
    unknown_gpu_ms: int
    unallocated_gpu_ms: int | None
    idle_cost_micros: int | None  # None where amounts cannot be added up


@dataclass(frozen=True, slots=True)
class Unused:
    """How many GPUs did nothing in the last full hour of the books; means over it, rounded."""

    hour_ms: int
    gpus: int  # all there are, or all that are held where that is all that is known
    idle: int
    unallocated: int | None

    @property
    def unused(self) -> int:
        return self.idle + (self.unallocated or 0)


@dataclass(frozen=True, slots=True)
class Trend:
    """The period before, as long as this one, and how this one differs from it, per hour."""

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
    """From then on money was counted in another currency."""

    at_ms: int
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Report:
    """What the books say about a time."""

    made_ms: int
    currency: str
    by: By
    namespaces: Sequence[str]
    range: Range
    total: Amounts
    groups: Sequence[Group]
    others: Group | None  # the groups beyond those that were asked for, summed up
    wasters: Sequence[Waster]
    findings: Sequence[Finding]
    trend: Trend | None  # None: the books do not go back that far
    step_ms: int  # of the points
    points: Sequence[Point]
    unused: Unused | None
    fleet_coverage_ratio: float | None = (
        None  # for how much of it the number of GPUs is known; None: of some namespaces
    )
    currency_changes: Sequence[CurrencyChange] = ()  # within it: then amounts are not added up, and money is unknown


def parse_time_range(since: str, until: str | None, *, now_ms: int) -> tuple[int, int]:
    """Both ends in milliseconds since 1970; a length of time as `since` counts back from `until`. Raises ValueError."""
    until_ms = parse_time(until, before_ms=now_ms) if until else now_ms
    since_ms = parse_time(since, before_ms=until_ms)
    if since_ms >= until_ms:
        raise ValueError("since must be before until")
    return since_ms, until_ms


def parse_time(text: str, *, before_ms: int) -> int:
    """`7d` (before `before_ms`), `2026-11-01` (UTC) or `2026-11-01T08:00:00+08:00` in milliseconds since 1970.

    Raises ValueError.
    """
    text = text.strip()
    if re.fullmatch(SPAN, text):
        return max(0, before_ms - int(text[:-1]) * _UNITS_MS[text[-1]])
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        raise ValueError(_WAYS) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0, int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000))
