"""The response of /api/v1/overview."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from gpusteward.analyzer.data_health import Status
from gpusteward.core.api_rows import ClusterName, ResultStamp, SignatureName

CHART_DAYS = 14
POTENTIAL_WORKLOADS = 8
Level = Literal["critical", "warning", "info"]

Hours = Annotated[float | None, Field(description="GPU-hours; null: not recorded.")]
Micros = Annotated[int | None, Field(description="Millionths of `currency`; null: unknown.")]


@dataclass(frozen=True, slots=True)
class GpuNumbers:
    """GPUs now; a share of a GPU is a fraction."""

    total: Annotated[float | None, Field(description="null: the source does not count GPUs that nobody holds.")]
    allocated: float
    active: float
    idle: float
    unknown: float
    free: Annotated[float | None, Field(description="Free GPUs, and free parts of shared ones.")]


@dataclass(frozen=True, slots=True)
class Waste:
    """Idle GPU-hours and their cost in a period, and in the period of the same length before."""

    days: int
    since: Annotated[str | None, Field(description="The recorded part of the period; null: nothing is recorded.")]
    until: str | None
    idle_gpu_hours: Hours
    allocated_gpu_hours: Hours
    idle_cost_micros: Micros
    previous_idle_gpu_hours: Hours
    previous_idle_cost_micros: Micros
    change_ratio: Annotated[
        float | None,
        Field(description="Relative change of the cost per hour, of GPU-hours without costs; null: no period before."),
    ]
    cost_micros_per_hour: Annotated[int | None, Field(description="Of all GPUs that are idle now.")]


@dataclass(frozen=True, slots=True)
class Potential:
    """What would be free if the idle workloads that cost the most per hour gave their GPUs back."""

    workloads: Annotated[int, Field(description=f"At most {POTENTIAL_WORKLOADS}.")]
    gpus: float
    cost_micros_per_hour: Micros


@dataclass(frozen=True, slots=True)
class DayHours:
    """GPU-hours of one day (UTC)."""

    day: str
    allocated: float
    active: float
    idle: float
    unknown: float
    unallocated: Hours
    idle_cost_micros: Micros
    partial: Annotated[bool, Field(description="Whether only a part of the day is recorded.")]


@dataclass(frozen=True, slots=True)
class IdleWorkload:
    """A workload with idle GPUs."""

    cluster: ClusterName
    kind: str
    namespace: str
    name: str
    users: list[str]
    models: list[str]
    gpus: float
    idle_gpus: float
    signature: SignatureName
    idle_since: Annotated[str | None, Field(description="null: only some of its GPUs are idle.")]
    idle_gpu_hours: Annotated[float | None, Field(description="In the period.")]
    idle_cost_micros: Annotated[int | None, Field(description="In the period.")]
    spell_cost_micros: Annotated[int | None, Field(description="Since its GPUs are idle.")]
    snoozed_until: Annotated[str | None, Field(description="No notices about it are sent until then; null: it is not.")]


@dataclass(frozen=True, slots=True)
class WasteGroup:
    """A namespace or a team in the period."""

    name: Annotated[str, Field(description="Empty: no team.")]
    cluster: Annotated[str, Field(description="Of a namespace.")]
    allocated_gpu_hours: float
    idle_gpu_hours: float
    idle_cost_micros: Micros


@dataclass(frozen=True, slots=True)
class DataProblem:
    """One thing that is missing or wrong."""

    level: Annotated[Level, Field(description="critical: what is shown is old or unknown; info: it may be intended.")]
    code: Annotated[str, Field(description="A word for programs.")]
    text: Annotated[str, Field(description="In the language of the request.")]


@dataclass(frozen=True, slots=True)
class DataState:
    """Whether the data can be relied on."""

    status: Status
    problems: Annotated[list[DataProblem], Field(description="The worst first; empty: everything is there.")]


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of all GPUs that the caller may see."""

    clusters: Annotated[list[str], Field(description="All that can be chosen.")]
    currency: str
    gpus: GpuNumbers
    workloads: int
    idle_workloads: Annotated[int, Field(description="Those with idle GPUs.")]
    waste: Waste
    potential: Potential
    days: Annotated[list[DayHours], Field(description=f"The last {CHART_DAYS} days, without days that have no data.")]
    top: Annotated[list[IdleWorkload], Field(description="The workloads whose idle GPUs cost the most.")]
    namespaces: Annotated[list[WasteGroup], Field(description="Those that waste the most.")]
    teams: Annotated[list[WasteGroup], Field(description="The same by team; empty without `reports.teams`.")]
    data: DataState
    result: ResultStamp
