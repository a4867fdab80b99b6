"""/api/v1/snoozes and /api/v1/workloads/.../snooze: no notices about a workload for some time; .../notify: one now.

The active snoozes are read from the ledger once for all requests, and again after a change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.api.authorization import may_operate, may_read
from gpusteward.analyzer.api.dependencies import ApiDependencies, Client, Dependencies, LastResult, reader_refuses
from gpusteward.analyzer.api.http.concurrency_limits import query_ledger
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.api.http.responses import DocumentedRoute, format_utc, send_json
from gpusteward.analyzer.api.v1.workloads.workload_paths import Cluster, NamedWorkload, WorkloadPath, find_workload
from gpusteward.analyzer.ledger.snoozes import Snooze, clean_workload
from gpusteward.core.api_rows import ClusterName
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.logs import Log
from gpusteward.messages.errors import api_errors

FRESH_SECONDS = 15.0
"""A snooze of another replica is shown after this time at the latest; one of this replica at once."""
_NAME = "snoozes"


@dataclass(frozen=True, slots=True)
class ActiveSnoozes:
    """The snoozes at one time."""

    by_workload: Mapping[WorkloadKey, Snooze]
    version: bytes  # changes with them

    def find(self, workload: WorkloadKey) -> Snooze | None:
        return self.by_workload.get(clean_workload(workload)) if self.by_workload else None

    def find_end(self, workload: WorkloadKey) -> float | None:
        found = self.find(workload)
        return found.until if found else None


NO_SNOOZES = ActiveSnoozes({}, b"")


async def find_snoozes(dependencies: ApiDependencies) -> ActiveSnoozes:
    """Of what the client may see; none while the ledger cannot be read."""
    key, now = (_NAME, dependencies.visible), dependencies.clock()
    read = await dependencies.reads.find(
        key, lambda: dependencies.ledger.read_snoozes(now, visible=dependencies.visible), fresh_seconds=FRESH_SECONDS
    )
    active = {workload: one for workload, one in read.value.items() if one.until > now} if read else {}
    if not active:
        return NO_SNOOZES
    version = " ".join(
        sorted(f"{workload.path} {workload.cluster} {one.until:.0f}" for workload, one in active.items())
    )
    return ActiveSnoozes(active, version.encode("utf-8", "surrogatepass"))


def forget_snoozes(dependencies: ApiDependencies) -> None:
    """After a change."""
    dependencies.reads.forget(_NAME)


log = Log(__name__)

router = APIRouter(route_class=DocumentedRoute, prefix="/api/v1")

LONGEST_DAYS = 30
LONGEST_REASON = 500
_PATH = "/workloads/{kind}/{namespace}/{name}/snooze"


class SnoozeRequest(BaseModel):
    """How long, and why."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hours: float | None = Field(
        default=None, gt=0, le=24 * LONGEST_DAYS, strict=True, description="From now; or `until`."
    )
    until: datetime | None = Field(default=None, description="ISO 8601, UTC without a zone; or `hours`.")
    reason: str = Field(
        min_length=1, max_length=LONGEST_REASON, description="Why, for others who look at the workload."
    )

    def find_end(self, now: float) -> float:
        """Unix seconds. Raises a 422 problem."""
        end = 0.0
        if self.until is not None:
            end = (self.until if self.until.tzinfo else self.until.replace(tzinfo=UTC)).timestamp()
        elif self.hours is not None:
            end = now + self.hours * 3600
        if (self.hours is None) == (self.until is None) or not now < end <= now + LONGEST_DAYS * 86_400:
            raise ProblemError(422, "invalid-parameter", api_errors.SNOOZE_TIME, days=LONGEST_DAYS)
        return end


@dataclass(frozen=True, slots=True)
class SnoozeRow:
    """Until when nobody wants to hear about a workload."""

    cluster: ClusterName
    kind: str
    namespace: str
    name: str
    until: str | None
    reason: str
    who: str
    created_at: str | None
    ended_at: Annotated[str | None, Field(description="Where somebody or a newer snooze ended it before `until`.")]
    ended_by: str


@dataclass(frozen=True, slots=True)
class Snoozes:
    """A list of snoozes."""

    items: list[SnoozeRow]


@router.get(
    "/snoozes", summary="Snoozed workloads", response_model=Snoozes, tags=["snoozes"], dependencies=[Depends(may_read)]
)
async def list_active(dependencies: Dependencies) -> Response:
    """The workloads that are snoozed now; the one that ends first comes first."""
    now = dependencies.clock()
    found = await query_ledger(
        lambda: dependencies.ledger.read_snoozes(now, visible=dependencies.visible), dependencies.limits.snoozes
    )
    return send_json(Snoozes([show_snooze(one) for one in sorted(found.values(), key=lambda each: each.until)]))


@router.post(
    _PATH, summary="Snooze a workload", response_model=SnoozeRow, tags=["snoozes"], dependencies=[Depends(may_operate)]
)
async def snooze(
    published: LastResult,
    dependencies: Dependencies,
    client: Client,
    body: SnoozeRequest,
    *,
    path: NamedWorkload,
    cluster: Cluster = None,
) -> Response:
    """Send no notices, alerts and control calls about the workload for some time. It replaces an earlier snooze. Needs
    the role operator and the ledger."""
    table, now = published.result.workloads, dependencies.clock()
    workload = table.keys[find_workload(table, path, cluster)]
    until = min(body.find_end(now), now + dependencies.find_longest_snooze(workload))
    added = await query_ledger(
        lambda: dependencies.ledger.add_snooze(workload, until=until, reason=body.reason, who=str(client), at=now),
        dependencies.limits.snoozes,
    )
    forget_snoozes(dependencies)
    log.info("workload_snoozed", by=client, workload=workload.path, cluster=workload.cluster, until=format_utc(until))
    return send_json(show_snooze(added))


@router.delete(
    _PATH, summary="End a snooze", response_model=SnoozeRow, tags=["snoozes"], dependencies=[Depends(may_operate)]
)
async def end_snooze(
    dependencies: Dependencies, client: Client, *, path: NamedWorkload, cluster: Cluster = None
) -> Response:
    """Notices about the workload are sent again. Also for a workload that no longer holds GPUs."""
    ended = await query_ledger(lambda: _end(dependencies, str(client), path, cluster), dependencies.limits.snoozes)
    forget_snoozes(dependencies)
    log.info("snooze_ended", by=client, workload=ended.workload.path, cluster=ended.workload.cluster)
    return send_json(show_snooze(ended))


def _end(dependencies: ApiDependencies, who: str, path: WorkloadPath, cluster: str | None) -> Snooze:
    """Raises a 404 problem, or a 409 problem if several clusters have it and none is chosen."""
    now, wanted = dependencies.clock(), clean_workload(WorkloadKey(*path))[:3]
    active = dependencies.ledger.read_snoozes(now, visible=dependencies.visible).values()
    found = [one for one in active if one.workload[:3] == wanted and cluster in (None, one.workload.cluster)]
    if len(found) > 1:
        clusters = ", ".join(sorted(one.workload.cluster for one in found))
        raise ProblemError(409, "ambiguous", api_errors.SEVERAL_CLUSTERS, clusters=clusters)
    if not found or not dependencies.ledger.end_snooze(found[0].workload, who=who, at=now):
        raise ProblemError(404, "not-found", api_errors.SNOOZE_NOT_FOUND)
    return found[0]


def show_snooze(one: Snooze) -> SnoozeRow:
    return SnoozeRow(
        cluster=one.workload.cluster,
        kind=one.workload.kind,
        namespace=one.workload.namespace,
        name=one.workload.name,
        until=format_utc(one.until),
        reason=one.reason,
        who=one.who,
        created_at=format_utc(one.created_at),
        ended_at=format_utc(one.ended_at),
        ended_by=one.ended_by,
    )


@dataclass(frozen=True, slots=True)
class Notified:
    """Where a notice was sent."""

    channels: list[str]


@router.post(
    "/workloads/{kind}/{namespace}/{name}/notify",
    summary="Send a notice now",
    response_model=Notified,
    tags=["workloads"],
    dependencies=[Depends(may_operate)],
)
async def notify(
    published: LastResult,
    dependencies: Dependencies,
    client: Client,
    *,
    path: NamedWorkload,
    cluster: Cluster = None,
) -> Response:
    """Send a notice about an idle workload to its channels at once, also in quiet hours and while it is snoozed. Twice
    within a minute it is sent once. Needs the role operator, and a channel in `notify.channels`."""
    table = published.result.workloads
    number = find_workload(table, path, cluster)
    if not dependencies.leadership.is_leader:
        raise reader_refuses(dependencies)
    if np.isnan(table.idle_since[number]):
        raise ProblemError(409, "not-idle", api_errors.NOT_IDLE)
    channels: Sequence[str] = await query_ledger(
        lambda: dependencies.deliveries.notify_now(published.result, number), dependencies.limits.deliveries
    )
    if not channels:
        raise ProblemError(409, "no-channel", api_errors.NO_CHANNEL)
    log.info("notice_requested", by=client, workload=table.keys[number].path, channels=", ".join(channels))
    return send_json(Notified(list(channels)))
