"""/api/v1/savings: GPU-hours and money that reclaim has given back."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from pydantic import Field

from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import ApiDependencies, Dependencies
from gpusteward.analyzer.api.http.responses import format_utc, send_json
from gpusteward.analyzer.api.http.routes import DocumentedRoute
from gpusteward.analyzer.prices import PriceList
from gpusteward.analyzer.reclaim.actions import Action
from gpusteward.analyzer.reclaim.savings import SAVING_STATES, Saving, measure_saving

router = APIRouter(route_class=DocumentedRoute, prefix="/api/v1", dependencies=[Depends(may_read)], tags=["reclaim"])

MOST_ACTIONS = 10_000
MOST_ITEMS = 500
DAY_SECONDS = 86_400
FRESH_SECONDS = 10.0
"""The journal is read once for all who ask within this time."""


@dataclass(frozen=True, slots=True)
class SavingRow:
    """What one action has given back."""

    id: Annotated[str, Field(description="Of the action.")]
    gpu_hours: float
    cost_micros: int | None


@dataclass(frozen=True, slots=True)
class Savings:
    """From each action to its restore, or until now."""

    since: str | None
    currency: Annotated[str, Field(description="Of the costs, which are millionths of it; null: no price.")]
    actions: Annotated[int, Field(description="That gave GPUs back in the period; dry runs do not count.")]
    gpus: Annotated[float, Field(description="GPUs that are given back now.")]
    gpu_hours: float
    cost_micros: int | None
    items: Annotated[list[SavingRow], Field(description=f"The newest {MOST_ITEMS}.")]


@router.get("/savings", summary="What reclaim has saved", response_model=Savings)
async def read_savings(
    dependencies: Dependencies,
    days: Annotated[int, Query(ge=1, le=366, description="The last days.")] = 7,
) -> Response:
    """GPU-hours that idle workloads would have held on to, and what they would have cost."""
    read = await dependencies.reads.get(
        ("savings", days, dependencies.visible), lambda: _read(dependencies, days), fresh_seconds=FRESH_SECONDS
    )
    return send_json(read.value)


def _read(dependencies: ApiDependencies, days: int) -> Savings:
    now, control, prices = dependencies.clock(), dependencies.reclaim, dependencies.settings.current.prices
    since, price_of = now - days * DAY_SECONDS, PriceList(prices).micros_per_gpu_hour
    actions = control.read_actions(states=SAVING_STATES, limit=MOST_ACTIONS) if control is not None else []
    measured = ((each, measure_saving(each, price_of, since=since, now=now)) for each in actions)
    found = [(each, saving) for each, saving in measured if saving is not None]
    return _sum_up(found, since=since, currency=prices.currency)


def _sum_up(found: list[tuple[Action, Saving]], *, since: float, currency: str) -> Savings:
    costs = [saving.cost_micros for _, saving in found if saving.cost_micros is not None]
    return Savings(
        since=format_utc(since),
        currency=currency,
        actions=len(found),
        gpus=round(sum(action.gpus for action, saving in found if saving.is_open), 4),
        gpu_hours=round(sum(saving.gpu_hours for _, saving in found), 4),
        cost_micros=sum(costs) if costs else None,
        items=[
            SavingRow(action.id, round(saving.gpu_hours, 4), saving.cost_micros)
            for action, saving in found[:MOST_ITEMS]
        ],
    )
