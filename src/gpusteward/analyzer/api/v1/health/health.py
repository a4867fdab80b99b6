"""/api/v1/health: the state of the analyzer, in numbers. /livez, /healthz, /readyz: probes of a kubelet, which need no
token: they describe the process, not the cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import Field

from gpusteward import __version__
from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import ApiDependencies, Dependencies, Service
from gpusteward.analyzer.api.http.problems import find_language
from gpusteward.analyzer.api.http.responses import DocumentedRoute, format_utc, send_json
from gpusteward.analyzer.api.v1.gpus.gpus import view_fleet, view_gpu_counts
from gpusteward.analyzer.api.v1.pagination import stamp
from gpusteward.analyzer.api.v1.workloads.workloads import view_workloads
from gpusteward.analyzer.data_health import DataHealth, Status
from gpusteward.analyzer.judge.fleet import NO_GPUS, UNKNOWN_FLEET
from gpusteward.analyzer.judge.gpu_fraction import GPU_DIGITS
from gpusteward.analyzer.ledger.database.leadership import Role
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import DOUBTS, Column, Level
from gpusteward.core.api_rows import ResultStamp
from gpusteward.core.messages import Language

router = APIRouter(route_class=DocumentedRoute, tags=["health"])


@dataclass(frozen=True, slots=True)
class Cycles:
    """The cycles since the start."""

    finished: int
    failed: int
    last_error: Annotated[str, Field(description="Why the last cycle failed; empty when it did not.")]
    last_ended_at: str | None
    last_succeeded_at: str | None
    last_seconds: float | None
    interval_seconds: float


@dataclass(frozen=True, slots=True)
class Replica:
    """This analyzer among those that share its ledger."""

    name: str
    role: Annotated[Role, Field(description="The leader records, notifies and asks the model; a reader only serves.")]
    leader: Annotated[str, Field(description="The name of the leader; empty: there is none at the moment.")]
    error: Annotated[str, Field(description="Why the lease could not be renewed; empty when it could.")]


@dataclass(frozen=True, slots=True)
class DataFinding:
    """What is wrong with the data of the whole site."""

    level: Annotated[Level, Field(description="The status is the worst of them; info: it may be intended.")]
    code: Annotated[str, Field(description="A word for programs.")]
    text: Annotated[str, Field(description="In the language of the request (Accept-Language).")]


@dataclass(frozen=True, slots=True)
class Health:
    """The state of the analyzer."""

    status: Status
    findings: Annotated[list[DataFinding], Field(description="Why the status is not healthy, the worst first.")]
    version: str
    ready: Annotated[bool, Field(description="Whether a cycle has finished.")]
    cycles: Cycles
    allocations: Annotated[int, Field(description="Containers on GPUs: one per container and GPU.")]
    workloads: int
    clusters: Annotated[list[str], Field(description="Clusters that the series name; empty: they name none.")]
    gpus: Annotated[int | None, Field(description="Whole GPUs, held or not; null: the source does not count them.")]
    free_gpus: Annotated[int | None, Field(description="Those of which no part is held.")]
    active_gpus: Annotated[float, Field(description="GPUs in use; a share of a GPU is a fraction.")]
    idle_gpus: Annotated[float, Field(description="GPUs that are held without being used, likewise.")]
    unknown_gpus: Annotated[float, Field(description="GPUs that are held and could not be judged, likewise.")]
    unallocated_gpus: Annotated[
        float | None,
        Field(description="Free GPUs and free parts of shared ones; the four add up to `gpus`."),
    ]
    idle_cost_micros_per_hour: Annotated[
        int | None, Field(description="Of idle GPUs with a price, in millionths of `currency`; null: none has one.")
    ]
    currency: str | None
    coverage: Annotated[float | None, Field(description="Samples seen / samples expected, over all allocations.")]
    measured: Annotated[int, Field(description="Allocations that have samples in the window.")]
    measured_coverage: Annotated[float | None, Field(description="Samples seen / samples expected, over these.")]
    unknown: Annotated[dict[str, int], Field(description="Allocations that could not be judged, by reason.")]
    unknown_ratio: Annotated[float | None, Field(description="Their share of all allocations; null without any.")]
    targets: Annotated[int | None, Field(description="Targets of the embedded source; null: an engine is read.")]
    targets_up: Annotated[int | None, Field(description="Those whose last scrape succeeded.")]
    result_age_seconds: Annotated[float | None, Field(description="null before the first result.")]
    settings_reloads: dict[str, int]
    listeners: int
    ledger: Annotated[Mapping[str, Any] | None, Field(description="The state of the ledger; null if it is disabled.")]
    deliveries: Annotated[Mapping[str, Any], Field(description="The state of notices, control calls and alerts.")]
    suspended: Annotated[
        int | None,
        Field(
            description="Objects that reclaim has changed and not restored yet, in every mode; null: not known here."
        ),
    ]
    suspended_gpus: Annotated[float | None, Field(description="The GPUs that they gave back.")]
    policy_error: Annotated[
        str,
        Field(
            description="Why the policy file cannot be used, with its line; empty: it can, or none is needed. Nothing "
            "new is warned of or done meanwhile."
        ),
    ]
    result: ResultStamp | None
    replica: Replica


@router.get("/api/v1/health", summary="Health in numbers", response_model=Health, dependencies=[Depends(may_read)])
async def show_health(request: Request, dependencies: Dependencies) -> Response:
    """More than gpu-oour's /health: cycles, coverage, reasons for unknown allocations, ledger, deliveries.

    degraded: nothing can be read, every allocation is unknown, every target of the embedded source is lost, no GPU
    reports although GPUs were known within a day or none was ever found, or most GPUs that work have no known holder;
    warning: the last result is older than three intervals, more than half of the allocations are unknown, or a part of
    the source fails or contradicts itself, or the policy file of reclaim cannot be used. `findings` names each.
    """
    published, health = dependencies.results.published, dependencies.assess_data()
    result = published.result if published else None
    fleet = view_fleet(published) if published else UNKNOWN_FLEET
    counts = view_gpu_counts(published) if published else NO_GPUS
    suspended, problem = dependencies.suspended, dependencies.policy_problem
    return send_json(
        Health(
            status=health.status,
            findings=view_findings(health, find_language(request.headers)),
            version=__version__,
            ready=result is not None,
            cycles=_count_cycles(dependencies, result),
            allocations=len(result.verdicts) if result else 0,
            workloads=len(result.workloads) if result else 0,
            clusters=list(result.verdicts.usage.clusters) if result else [],
            gpus=fleet.gpus,
            free_gpus=fleet.free_gpus,
            active_gpus=round(counts.active, GPU_DIGITS),
            idle_gpus=round(counts.idle, GPU_DIGITS),
            unknown_gpus=round(counts.unknown, GPU_DIGITS),
            unallocated_gpus=None if counts.unallocated is None else round(counts.unallocated, GPU_DIGITS),
            idle_cost_micros_per_hour=view_workloads(published).sum_idle_cost() if published else None,
            currency=result.settings.prices.currency if result else None,
            coverage=_average(result.verdicts.usage.coverage) if result else None,
            measured=len(_list_measured(result)),
            measured_coverage=_average(_list_measured(result)),
            unknown=_count_unknown(result),
            unknown_ratio=health.unknown_ratio,
            targets=health.targets,
            targets_up=None if health.targets is None else health.targets_up,
            result_age_seconds=None if health.age_seconds is None else round(health.age_seconds, 1),
            settings_reloads=dict(dependencies.settings.count_reloads()),
            listeners=dependencies.events.listeners,
            ledger=dependencies.describe_ledger(),
            deliveries=dependencies.describe_deliveries(),
            suspended=suspended.actions if suspended else None,
            suspended_gpus=round(suspended.gpus, GPU_DIGITS) if suspended else None,
            # A client that sees some namespaces only does not see the file.
            policy_error=str(problem.en) if problem is not None and dependencies.visible is None else "",
            result=stamp(result, dependencies) if result else None,
            replica=Replica(**dependencies.leadership.describe()),
        )
    )


def view_findings(health: DataHealth, language: Language) -> list[DataFinding]:
    return [DataFinding(one.level, one.code, one.message.text(language)) for one in health.findings]


def _count_cycles(dependencies: ApiDependencies, result: Result | None) -> Cycles:
    stats = dependencies.stats
    return Cycles(
        finished=stats.finished,
        failed=stats.failed,
        last_error=stats.last_error,
        last_ended_at=format_utc(stats.last_ended_at),
        last_succeeded_at=format_utc(stats.last_succeeded_at),
        last_seconds=round(result.seconds, 3) if result else None,
        interval_seconds=dependencies.settings.current.scheduler.interval,
    )


def _list_measured(result: Result | None) -> Column:
    """The coverage of each allocation with samples; without any it may have no utilization metric at all."""
    if result is None:
        return np.empty(0)
    coverage = result.verdicts.usage.coverage
    return coverage[coverage > 0]


def _average(coverage: Column) -> float | None:
    return round(float(coverage.mean()), 4) if len(coverage) else None


def _count_unknown(result: Result | None) -> dict[str, int]:
    if result is None:
        return {}
    counts = np.bincount(result.verdicts.doubt, minlength=len(DOUBTS)).tolist()
    return {doubt.value: count for doubt, count in zip(DOUBTS, counts, strict=True) if doubt and count}


@router.get("/livez", summary="Liveness", response_class=PlainTextResponse)
@router.get("/healthz", summary="Liveness", response_class=PlainTextResponse)
async def show_liveness(dependencies: Service) -> PlainTextResponse:
    """200 unless only a restart helps: the thread that runs cycles has ended or hangs. A source that is down does not
    matter."""
    return _respond(dependencies.cycles.defect)


@router.get("/readyz", summary="Readiness", response_class=PlainTextResponse)
async def show_readiness(dependencies: Service) -> PlainTextResponse:
    """200 when the first cycle has ended, even if it failed: reports, the last result and the reason of the failure are
    served while a source is down."""
    has_ended = dependencies.cycles.stats.last_ended_at is not None
    return _respond(dependencies.cycles.defect or ("" if has_ended else "the first cycle has not ended yet"))


def _respond(problem: str) -> PlainTextResponse:
    status = HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK
    return PlainTextResponse(f"{problem or 'ok'}\n", status, {"Cache-Control": "no-store"})
