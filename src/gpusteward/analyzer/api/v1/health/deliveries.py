"""/api/v1/deliveries: notices and control calls that wait, failed or were delivered. Reads the database."""

from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.api.authorization import may_operate, may_read_all
from gpusteward.analyzer.api.dependencies import Client, Dependencies, reader_refuses
from gpusteward.analyzer.api.http.concurrency_limits import query_ledger
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.api.http.responses import DocumentedRoute, format_utc, send_json
from gpusteward.analyzer.api.v1.pagination import MOST_ROWS
from gpusteward.analyzer.notify.outbox.records import Delivery
from gpusteward.logs import Log
from gpusteward.messages.errors import api_errors

log = Log(__name__)

router = APIRouter(route_class=DocumentedRoute, prefix="/api/v1", tags=["deliveries"])

State = Literal["pending", "done", "dead"]
Number = Annotated[int, Path(ge=1, le=(1 << 63) - 1, description="The `id` of a delivery.")]


class DeliveryQuery(BaseModel):
    """Filters of deliveries."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state: State | None = Field(default=None, description="Only those in this state; `dead`: all attempts failed.")
    limit: int = Field(default=100, ge=1, le=MOST_ROWS, description="Maximum number, the newest first.")


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """One notice or control call. Its content is not shown, and of its address only the host."""

    id: int
    stream: Annotated[str, Field(description="Deliveries of one stream are sent in order.")]
    kind: str
    target: Annotated[str, Field(description="As under `deliveries` of /api/v1/health.")]
    host: Annotated[str, Field(description="Empty when the target is no longer in the settings.")]
    state: State
    created_at: Annotated[str | None, Field(description="When it was created or last retried by request.")]
    attempts: int
    next_at: Annotated[str | None, Field(description="The next attempt is not earlier; if not pending: the end.")]
    error: Annotated[str, Field(description="Why the last attempt failed.")]


@dataclass(frozen=True, slots=True)
class Deliveries:
    """A list of deliveries."""

    items: list[DeliveryRow]


@router.get(
    "/deliveries",
    summary="Notices and control calls",
    response_model=Deliveries,
    dependencies=[Depends(may_read_all)],
)
async def list_deliveries(dependencies: Dependencies, query: Annotated[DeliveryQuery, Query()]) -> Response:
    """The newest first. Delivered ones are deleted after an hour, dead ones after a week. Alerts are not
    among them: only their current state is sent."""
    found = await query_ledger(
        lambda: dependencies.deliveries.read_deliveries(query.state, query.limit), dependencies.limits.deliveries
    )
    return send_json(Deliveries([_row(each) for each in found]))


@router.post(
    "/deliveries/{number}/retry",
    summary="Retry a dead delivery",
    response_model=DeliveryRow,
    dependencies=[Depends(may_operate)],
)
async def retry_delivery(dependencies: Dependencies, client: Client, number: Number) -> Response:
    """The delivery becomes pending again with its content and idempotency key. Its receiver may have got newer ones
    meanwhile. A control call of an earlier cycle cannot be retried: it may no longer be true."""
    found, is_tried = await query_ledger(
        lambda: dependencies.deliveries.retry_delivery(number), dependencies.limits.deliveries
    )
    if found is None:
        raise ProblemError(404, "not-found", api_errors.DELIVERY_NOT_FOUND)
    if not is_tried and found.state == "dead" and not dependencies.leadership.is_leader:
        raise reader_refuses(dependencies)
    if not is_tried and found.state == "dead":
        raise ProblemError(409, "outdated", api_errors.DELIVERY_OUTDATED)
    if not is_tried:
        raise ProblemError(409, "not-dead", api_errors.DELIVERY_NOT_DEAD, state=found.state)
    log.info("delivery_retried", by=client, id=number)
    return send_json(_row(found))


def _row(one: Delivery) -> DeliveryRow:
    state: State = "dead" if one.state == "dead" else "done" if one.state == "done" else "pending"
    return DeliveryRow(
        id=one.id,
        stream=one.stream,
        kind=one.kind,
        target=one.target,
        host=one.host,
        state=state,
        created_at=format_utc(one.created_ms / 1000),
        attempts=one.attempts,
        next_at=format_utc(one.next_ms / 1000),
        error=one.error,
    )
