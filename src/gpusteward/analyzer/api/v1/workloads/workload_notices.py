"""/api/v1/workloads/.../notify: a notice about a workload now."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from fastapi import APIRouter, Depends, Response

from gpusteward.analyzer.api.authorization import may_operate
from gpusteward.analyzer.api.dependencies import Client, Dependencies, LastResult, reader_refuses
from gpusteward.analyzer.api.http.concurrency_limits import query_ledger
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.api.http.responses import send_json
from gpusteward.analyzer.api.http.routes import DocumentedRoute
from gpusteward.analyzer.api.v1.workloads.workload_paths import Cluster, Part, find_workload
from gpusteward.logs import Log
from gpusteward.messages.errors import api_errors

log = Log(__name__)

router = APIRouter(route_class=DocumentedRoute, prefix="/api/v1", tags=["workloads"])


@dataclass(frozen=True, slots=True)
class Notified:
    """Where a notice was sent."""

    channels: list[str]


@router.post(
    "/workloads/{kind}/{namespace}/{name}/notify",
    summary="Send a notice now",
    response_model=Notified,
    dependencies=[Depends(may_operate)],
)
async def notify(
    published: LastResult,
    dependencies: Dependencies,
    client: Client,
    *,
    kind: Part,
    namespace: Part,
    name: Part,
    cluster: Cluster = None,
) -> Response:
    """Send a notice about an idle workload to its channels at once, also in quiet hours and while it is snoozed. Twice
    within a minute it is sent once. Needs the role operator, and a channel in `notify.channels`."""
    table = published.result.workloads
    number = find_workload(table, kind=kind, namespace=namespace, name=name, cluster=cluster)
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
