"""/api/v1/deliveries: what is to be told to people and programs, what was given up, and why. Asks the database."""

from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.api.dependencies import Dependencies
from gpusteward.analyzer.api.http.authorization import may_operate, may_read
from gpusteward.analyzer.api.http.concurrency_limits import query_ledger
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.api.http.responses import send_json
from gpusteward.analyzer.api.v1.pagination import MOST_ROWS, format_utc
from gpusteward.analyzer.notify.outbox.records import Delivery
from gpusteward.messages import api_errors

router = APIRouter(prefix="/api/v1", tags=["deliveries"])

State = Literal["pending", "done", "dead"]
Number = Annotated[int, Path(ge=1, le=(1 << 63) - 1, description="The `id` of a delivery.")]


class DeliveryQuery(BaseModel):
    """Which ones."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state: State | None = Field(default=None, description="Only those; `dead` ones were given up.")
    limit: int = Field(default=100, ge=1, le=MOST_ROWS, description="How many at most, the newest first.")


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """One notice or control call on its way. What it says is not shown, nor where it goes but for the host."""

    id: int
    stream: Annotated[str, Field(description="Those of one stream are delivered one after another.")]
    kind: str
    target: Annotated[str, Field(description="As under `deliveries` of /api/v1/health.")]
    host: Annotated[str, Field(description="Empty when the target is not in the settings any more.")]
    state: State
    created_at: Annotated[str | None, Field(description="When it was put there, or tried again by hand.")]
    attempts: int
    next_at: Annotated[str | None, Field(description="Not before then it is tried; of others, when it ended.")]
    error: Annotated[str, Field(description="Why the last attempt failed.")]


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Some of them."""

    items: list[DeliveryRow]


@router.get(
    "/deliveries",
    summary="Notices and control calls on their way",
    response_model=Deliveries,
    dependencies=[Depends(may_read)],
)
async def list_deliveries(dependencies: Dependencies, asked: Annotated[DeliveryQuery, Query()]) -> Response:
    """The newest first. Delivered ones are forgotten soon (`outbox.keep_done_hours`), dead ones later
    (`outbox.keep_dead_hours`). Alerts are not among them: they are a state, and not kept."""
    found = await query_ledger(
        lambda: dependencies.deliveries.read_deliveries(asked.state, asked.limit), dependencies.limits.deliveries
    )
    return send_json(Deliveries([_row(each) for each in found]))


@router.post(
    "/deliveries/{number}/retry",
    summary="Try one again that was given up",
    response_model=DeliveryRow,
    dependencies=[Depends(may_operate)],
)
async def retry_delivery(dependencies: Dependencies, number: Number) -> Response:
    """A dead delivery counts as a new one from now on, with its old content and key. What its receiver has been sent
    meanwhile may be newer."""
    found, is_tried = await query_ledger(
        lambda: dependencies.deliveries.retry_delivery(number), dependencies.limits.deliveries
    )
    if found is None:
        raise ProblemError(404, "not-found", api_errors.DELIVERY_NOT_FOUND)
    if not is_tried:
        raise ProblemError(409, "not-dead", api_errors.DELIVERY_NOT_DEAD, state=found.state)
    return send_json(_row(found))


def _row(one: Delivery) -> DeliveryRow:
    state: State = "dead" if one.state == "dead" else "done" if one.state == "done" else "pending"
    moments = format_utc(one.created_ms / 1000), format_utc(one.next_ms / 1000)
    return DeliveryRow(
        one.id, one.stream, one.kind, one.target, one.host, state, moments[0], one.attempts, moments[1], one.error
    )
