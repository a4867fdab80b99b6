"""/api/v1/replay: what a policy would have released in the past, and what would have been regretted. Reads the ledger.

The number of concurrent replays and the time for each are limited.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import ApiDependencies, Dependencies
from gpusteward.analyzer.api.http.concurrency_limits import query_ledger
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.api.http.responses import DocumentedRoute, format_utc, send_json
from gpusteward.analyzer.pool_minutes import LONGEST_MINUTES, MINUTE
from gpusteward.analyzer.prices import PriceList
from gpusteward.analyzer.reclaim.policies.file import PolicyFile, parse_policies
from gpusteward.analyzer.reclaim.policies.resolve import WorkloadMetadata, resolve_policy
from gpusteward.analyzer.reclaim.replay.replay import PolicyOf, Release, Replay, ReplayTotals, replay
from gpusteward.analyzer.reports.report_query import parse_time_range
from gpusteward.core.api_rows import ClusterName
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.messages import Language
from gpusteward.messages import policies as messages
from gpusteward.messages.errors import api_errors
from gpusteward.yaml_lines import CLIENT_LIMITS

router = APIRouter(route_class=DocumentedRoute, prefix="/api/v1", dependencies=[Depends(may_read)], tags=["reclaim"])

LONGEST_DAYS = 92
_POLICY_NAME = "policy"


class ReplayPeriod(BaseModel):
    """How far back, and what counts as a regret."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    since: str = Field(
        default="14d", max_length=40, description="Start: 24h, 14d, 4w before now, or a date or time (ISO 8601)."
    )
    regret_minutes: float = Field(
        default=30, gt=0, le=1440, description="A release is regretted if work comes back within this time."
    )
    frontier: bool = Field(default=True, description="Whether to replay the policy with other windows too.")
    language: Language = Field(default="en", description="The language of the notes.")


class ReplayRequest(ReplayPeriod):
    """A policy file to replay."""

    model_config = ConfigDict(strict=True)

    policy: str = Field(
        default="",
        max_length=CLIENT_LIMITS.characters,
        description="The text of a policy file (YAML). Empty: the policies in effect.",
    )


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """One policy over the period."""

    name: str
    releases: int
    regretted: int
    regret: Annotated[float | None, Field(description="Share of the releases; null without any.")]
    gpu_hours: Annotated[float, Field(description="That would have been saved.")]
    cost: Annotated[float | None, Field(description="Of these GPU-hours; null without prices.")]
    oracle_share: Annotated[
        float | None, Field(description="Of the GPU-hours of all idle times of at least 30 minutes.")
    ]
    unmet_gpu_hours: Annotated[float, Field(description="Replicas that were needed before they were back.")]
    window_minutes: Annotated[float | None, Field(description="Of a fixed window, or of a point of the frontier.")]


@dataclass(frozen=True, slots=True)
class ReleaseRow:
    """One release."""

    cluster: ClusterName
    kind: str
    namespace: str
    name: str
    policy: str
    at: str | None
    until: Annotated[str | None, Field(description="When work came back, the GPUs were released, or the period ended.")]
    minutes: float
    gpus: float
    replicas: Annotated[int, Field(description="Of a pool; 0: the whole workload.")]
    gpu_hours: float
    cost: float | None
    is_regretted: bool


@dataclass(frozen=True, slots=True)
class ReplayPage:
    """What a policy would have done, compared with others on the same time."""

    since: str | None
    until: str | None
    regret_minutes: float
    currency: str
    spells: Annotated[int, Field(description="Idle spells that were replayed.")]
    oracle_gpu_hours: float
    policy: ReplayRow
    compared: list[ReplayRow]
    frontier: list[ReplayRow]
    regretted: Annotated[list[ReleaseRow], Field(description="Every release that would have been regretted, by time.")]
    releases: Annotated[list[ReleaseRow], Field(description="The largest savings first.")]
    notes: Annotated[list[str], Field(description="What the past does not tell.")]


@router.get("/replay", summary="Replay of the policies in effect", response_model=ReplayPage)
async def replay_present(dependencies: Dependencies, period: Annotated[ReplayPeriod, Query()]) -> Response:
    """What the policies in effect would have released, and what would have been regretted."""
    return await _replay(dependencies, period)


@router.post("/replay", summary="Replay of a policy file", response_model=ReplayPage)
async def replay_file(dependencies: Dependencies, request: ReplayRequest) -> Response:
    """The same for a policy file that is not in effect. Changes nothing."""
    return await _replay(dependencies, request, request.policy)


async def _replay(dependencies: ApiDependencies, period: ReplayPeriod, text: str = "") -> Response:
    """`text`: of a policy file; empty: the policies in effect."""
    now_ms = int(dependencies.clock() * 1000)
    try:
        since_ms, _ = parse_time_range(period.since, None, now_ms=now_ms)
    except ConfigurationError as error:
        raise ProblemError(422, "invalid-parameter", api_errors.INVALID_TIME_RANGE, reason=error.message) from None
    since = max(since_ms / 1000, now_ms / 1000 - LONGEST_DAYS * 86_400)

    def run() -> tuple[PolicyFile, Replay]:
        """In a thread, the parser too: it may take a quarter of a second."""
        file = dependencies.policies.current
        if text.strip():
            try:
                file = parse_policies(text, where=_POLICY_NAME, limits=CLIENT_LIMITS)
            except ConfigurationError as error:
                reason = error.as_message()
                raise ProblemError(422, "invalid-policy", messages.POLICY_REFUSED, reason=reason) from None
        return file, _run(dependencies, file, period, since)

    file, found = await query_ledger(run, dependencies.limits.replay)
    currency = dependencies.settings.current.prices.currency
    return send_json(_make_page(found, file, currency=currency, language=period.language))


def _run(dependencies: ApiDependencies, file: PolicyFile, period: ReplayPeriod, since: float) -> Replay:
    prices = PriceList(dependencies.settings.current.prices)
    return replay(
        dependencies.ledger.read_spells(since, visible=dependencies.visible),
        _resolve_with(file),
        _resolve_with(dependencies.policies.current),
        since=since,
        pools=dependencies.ledger.read_pools(since - LONGEST_MINUTES * MINUTE, visible=dependencies.visible),
        cycle_seconds=float(dependencies.settings.current.scheduler.interval),
        price_of=lambda key, model: prices.micros_per_gpu_hour(model, key.namespace) / 1e6,
        regret_seconds=period.regret_minutes * 60,
        with_frontier=period.frontier,
    )


def _resolve_with(file: PolicyFile) -> PolicyOf:
    """Labels, priority classes and annotations of the past are not recorded."""
    return lambda key: resolve_policy(file, WorkloadMetadata(key))


def _make_page(found: Replay, file: PolicyFile, *, currency: str, language: Language) -> ReplayPage:
    has_prices = any(each.cost for each in (found.policy, *found.compared))
    notes = [messages.REPLAY_WITHOUT_BUDGETS]
    if any(each.match.labels or each.match.priority_classes for each in file.policies):
        notes.append(messages.REPLAY_WITHOUT_LABELS)
    return ReplayPage(
        since=format_utc(found.since),
        until=format_utc(found.until),
        regret_minutes=found.regret_seconds / 60,
        currency=currency if has_prices else "",
        spells=found.spells,
        oracle_gpu_hours=round(found.oracle_gpu_hours, 3),
        policy=_show(found.policy, has_prices),
        compared=[_show(each, has_prices) for each in found.compared],
        frontier=[_show(each, has_prices) for each in found.frontier],
        regretted=_list(found.regretted, has_prices),
        releases=_list(found.releases, has_prices),
        notes=[each.text(language) for each in notes],
    )


def _show(totals: ReplayTotals, has_prices: bool) -> ReplayRow:
    return ReplayRow(
        name=totals.name,
        releases=totals.releases,
        regretted=totals.regretted,
        regret=None if totals.regret is None else round(totals.regret, 4),
        gpu_hours=round(totals.gpu_hours, 3),
        cost=round(totals.cost, 2) if has_prices else None,
        oracle_share=None if totals.oracle_share is None else round(totals.oracle_share, 4),
        unmet_gpu_hours=round(totals.unmet_gpu_hours, 3),
        window_minutes=None if totals.window_seconds is None else totals.window_seconds / 60,
    )


def _list(releases: Sequence[Release], has_prices: bool) -> list[ReleaseRow]:
    return [
        ReleaseRow(
            cluster=each.workload.cluster,
            kind=each.workload.kind,
            namespace=each.workload.namespace,
            name=each.workload.name,
            policy=each.policy,
            at=format_utc(each.at),
            until=format_utc(each.until),
            minutes=round((each.until - each.at) / 60, 1),
            gpus=round(each.gpus, 4),
            replicas=each.replicas,
            gpu_hours=round(each.gpu_hours, 3),
            cost=round(each.cost, 2) if has_prices else None,
            is_regretted=each.is_regretted,
        )
        for each in releases
    ]
