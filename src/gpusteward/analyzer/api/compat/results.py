"""/results, /results/low, /results/stats: gpu-oour's rows and counts, in its units.

gpu-oour has four states, and reports a GPU that it could not read as idle. Here such a GPU is `unknown`, a state that
its clients do not know: rows without a score are left out, `unknown_count` has their number, and /api/v1 lists them. A
single value that was not measured is 0, as in gpu-oour, whose clients compute with it; `unmeasured` names it.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Annotated, Literal

import msgspec
import numpy as np
from fastapi import APIRouter, Depends, Request, Response
from pydantic import Field

from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import Dependencies
from gpusteward.analyzer.api.http.problems import GPU_OOUR_TAG
from gpusteward.analyzer.api.http.responses import (
    JSON_TYPE,
    DocumentedRoute,
    has_current,
    send_body,
    send_json,
    send_not_modified,
)
from gpusteward.analyzer.api.result_store import PublishedResult
from gpusteward.analyzer.api.v1.pagination import make_etag
from gpusteward.analyzer.explain.opinion_effects import OpinionEffect
from gpusteward.analyzer.explain.opinions import Opinion
from gpusteward.analyzer.judge.allocation_columns import Mask, encode, read_allocation_columns
from gpusteward.analyzer.judge.gpu_models import find_capacities, read_capacity
from gpusteward.analyzer.judge.valid_values import valid_ratio
from gpusteward.analyzer.metrics.page import MOST_PLAIN_ROWS
from gpusteward.analyzer.metrics.result_metrics import MIB, gpu_id
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.masked import mask_value
from gpusteward.analyzer.tables import STATES
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import State
from gpusteward.http_server.gzip_body import Body
from gpusteward.http_server.negotiation import accepts_gzip

router = APIRouter(route_class=DocumentedRoute, dependencies=[Depends(may_read)], tags=[GPU_OOUR_TAG])

BLOCK_ROWS = 2000
UNKNOWN_HEADER = "X-Unknown-Count"
Status = Literal["idle", "low", "normal", "high"]


@dataclass(frozen=True, slots=True)
class AiAnalysis:
    """The opinion of a language model."""

    gpu_id: str
    status: Literal["active", "idle", "suspicious"]
    confidence: float
    reason: str
    recommendation: str
    raw_score: float
    ai_adjusted_score: float


@dataclass(frozen=True, slots=True)
class GpuResult:
    """One GPU of one pod, means over the window."""

    gpu_id: str
    pod: str
    namespace: str
    hostname: str
    model_name: str
    gpu_util: Annotated[float, Field(description="%")]
    mem_copy: Annotated[float, Field(description="%")]
    mem_used_mb: float
    mem_total_mb: float
    mem_usage_percent: float
    power_usage: Annotated[float, Field(description="W")]
    sm_clock: Annotated[float, Field(description="MHz")]
    score: float
    status: Status
    timestamp: Annotated[str, Field(description="UTC, without a time zone.")]
    ai_analysis: AiAnalysis | None
    unmeasured: Annotated[
        Sequence[str], Field(description="Fields of this row that were not measured: 0, or the memory of such a GPU.")
    ]


@dataclass(frozen=True, slots=True)
class ClusterGpuResult(GpuResult):
    """A row where the cluster is known, which gpu-oour's JSON does not have."""

    cluster: str


@dataclass(frozen=True, slots=True)
class LowResults:
    """GPUs whose score is below the threshold, and idle GPUs regardless of the memory they hold."""

    count: int
    threshold: float
    timestamp: str
    gpus: list[GpuResult | ClusterGpuResult]


@dataclass(frozen=True, slots=True)
class NamespaceStats:
    """One namespace."""

    count: int
    avg_score: float
    low_util_count: int


@dataclass(frozen=True, slots=True)
class Stats:
    """All GPUs that have a score; the number of others, `unknown_count`, is an addition to gpu-oour's JSON."""

    total_gpus: int = 0
    avg_score: float = 0
    min_score: float = 0
    max_score: float = 0
    low_utilization_count: int = 0
    idle_count: int = 0
    by_status: dict[str, int] = field(default_factory=dict)
    by_namespace: dict[str, NamespaceStats] = field(default_factory=dict)
    unknown_count: int = 0


@router.get("/results", summary="Results", response_model=list[GpuResult | ClusterGpuResult])
def list_results(request: Request, dependencies: Dependencies) -> Response:
    """Every GPU that has a score, the lowest first. The header X-Unknown-Count has the number of others, which
    /api/v1/allocations lists.

    An empty list before the first cycle has finished.
    """
    published = dependencies.results.published
    if published is None:
        return send_json([])
    return _send(request, published, "results", _pack_results)


@router.get("/results/low", summary="GPUs of low utilization", response_model=LowResults)
def list_low_results(request: Request, dependencies: Dependencies) -> Response:
    """GPUs whose score is below `thresholds.low_utilization`, and idle ones, also where held memory raises their score.
    The lowest score comes first.

    GPUs without a score are not among them, nor those that a confident second opinion takes for used.
    """
    published = dependencies.results.published
    if published is None:
        threshold = dependencies.settings.current.thresholds.low_utilization
        now = format_time(time.time())
        return send_json({"count": 0, "threshold": mask_value(threshold), "timestamp": now, "gpus": []})
    return _send(request, published, "results/low", _pack_low)


@router.get("/results/stats", summary="Statistics", response_model=Stats)
def show_stats(request: Request, dependencies: Dependencies) -> Response:
    """Counts and means over all GPUs that have a score; zeros before the first cycle has finished."""
    published = dependencies.results.published
    if published is None:
        return send_json(Stats())
    etag = make_etag(request, published.result)
    if has_current(request, etag):
        return send_not_modified(etag)
    return send_json(published.once("results/stats", count_stats), etag=etag)


def _send(request: Request, published: PublishedResult, name: str, pack: Callable[[Result], Body]) -> Response:
    etag = make_etag(request, published.result)
    if has_current(request, etag):
        return send_not_modified(etag)
    gzip = accepts_gzip(request.headers.get("accept-encoding", ""))
    response = send_body(published.once(name, pack), gzip=gzip, media_type=JSON_TYPE, etag=etag)
    response.headers[UNKNOWN_HEADER] = str(int(np.isnan(published.result.verdicts.score).sum()))
    return response


def format_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).replace(tzinfo=None).isoformat(timespec="seconds")


def _pack_results(result: Result) -> Body:
    return _pack(result, _list_rows(result, ~np.isnan(result.verdicts.score)), before=b"[", after=b"]")


def _pack_low(result: Result) -> Body:
    threshold, rows = result.settings.thresholds.low_utilization, _list_rows(result, result.is_low)
    head = msgspec.json.encode(
        {"count": len(rows), "threshold": mask_value(threshold), "timestamp": format_time(result.at)}
    )
    return _pack(result, rows, before=head[:-1] + b',"gpus":[', after=b"]}")


def _list_rows(result: Result, is_listed: Mask) -> list[int]:
    """By ascending score, as in gpu-oour."""
    rows = np.flatnonzero(is_listed)
    ascending: list[int] = rows[np.argsort(result.verdicts.score[rows], kind="stable")].tolist()
    return ascending


def _pack(result: Result, rows: Sequence[int], *, before: bytes, after: bytes) -> Body:
    """In batches: all rows as objects would exceed the memory limit of the analyzer."""

    def encode_batches() -> Iterator[bytes]:
        rows_of = ResultRows(result)
        yield before
        for begin in range(0, len(rows), BLOCK_ROWS):
            encoded = msgspec.json.encode(list(rows_of.make(rows[begin : begin + BLOCK_ROWS])))
            yield (b"," if begin else b"") + encoded[1:-1]
        yield after

    return Body(encode_batches(), keep_plain=len(rows) <= MOST_PLAIN_ROWS)


_MEASURED = ("gpu_util", "mem_copy", "mem_used_mb", "mem_total_mb", "mem_usage_percent", "power_usage", "sm_clock")


@lru_cache(maxsize=128)
def _name_unmeasured(bits: int) -> tuple[str, ...]:
    """Cached: of many rows few differ in what was measured."""
    return tuple(name for number, name in enumerate(_MEASURED) if bits >> number & 1)


class ResultRows:
    """Rows of one result as in gpu-oour's JSON."""

    def __init__(self, result: Result) -> None:
        usage, settings = result.verdicts.usage, result.settings
        capacities = find_capacities(usage, read_allocation_columns(usage.allocations), defaults=settings.gpu_defaults)
        total = np.nan_to_num(capacities.memory_bytes, nan=settings.gpu_defaults.memory_mb * MIB)
        used = usage.column(Measure.MEMORY_USED, Stat.MEAN)
        measured = (  # in the order of _MEASURED
            valid_ratio(usage, Measure.CORE, Stat.MEAN) * 100,
            valid_ratio(usage, Measure.MEMORY_COPY, Stat.MEAN) * 100,
            used / MIB,
            read_capacity(usage, Measure.MEMORY_TOTAL) / MIB,
            used / capacities.memory_bytes * 100,
            usage.column(Measure.POWER, Stat.MEAN),
            usage.column(Measure.SM_CLOCK, Stat.MEAN) / 1e6,
        )
        self._result = result
        self._timestamp = format_time(result.at)
        is_unmeasured = [~np.isfinite(column) for column in measured]
        self._unmeasured = 2 ** np.arange(len(measured)) @ np.array(is_unmeasured)
        self._columns = [np.where(mask, 0.0, column) for mask, column in zip(is_unmeasured, measured, strict=True)]
        self._columns[_MEASURED.index("mem_total_mb")] = total / MIB
        self._columns[_MEASURED.index("mem_usage_percent")] = np.nan_to_num(np.minimum(used / total, 1.0)) * 100

    def make(self, rows: Sequence[int]) -> Iterator[GpuResult]:
        verdicts, opinions, effects = self._result.verdicts, self._result.opinions, self._result.opinion_effects
        numbers = [np.round(column[rows], 2).tolist() for column in self._columns]
        scores = np.round(verdicts.score[rows], 1).tolist()
        unmeasured = self._unmeasured[rows].tolist()
        for row, score, bits, *measured in zip(rows, scores, unmeasured, *numbers, strict=True):
            allocation, container = verdicts.usage.allocations[row], verdicts.usage.allocations[row].container
            name = gpu_id(allocation)
            util, copy, used, total, usage, power, clock = measured
            row_type = partial(ClusterGpuResult, cluster=container.cluster) if container.cluster else GpuResult
            yield row_type(
                gpu_id=name,
                pod=container.pod,
                namespace=container.namespace,
                hostname=allocation.node,
                model_name=allocation.model,
                gpu_util=util,
                mem_copy=copy,
                mem_used_mb=used,
                mem_total_mb=total,
                mem_usage_percent=usage,
                power_usage=power,
                sm_clock=clock,
                score=score,
                status=STATES[verdicts.state[row]].value,
                timestamp=self._timestamp,
                ai_analysis=_analysis(name, score, opinions.get(row), effects.get(row)),
                unmeasured=_name_unmeasured(bits),
            )


def _analysis(name: str, score: float, opinion: Opinion | None, effect: OpinionEffect | None) -> AiAnalysis | None:
    """As in `gpu_ai_adjusted_score`, the score is never below that of the rules: a client may act on it."""
    if opinion is None or effect is None:
        return None
    return AiAnalysis(
        gpu_id=name,
        status=opinion.status,
        confidence=round(opinion.confidence, 3),
        reason=opinion.reason,
        recommendation=opinion.recommendation,
        raw_score=score if opinion.rule_score is None else round(opinion.rule_score, 1),
        ai_adjusted_score=round(opinion.adjusted_score if effect.score is None else effect.score, 1),
    )


def count_stats(result: Result) -> Stats:
    verdicts = result.verdicts
    is_scored = ~np.isnan(verdicts.score)
    scores, states = verdicts.score[is_scored], verdicts.state[is_scored]
    unknown = len(verdicts) - len(scores)
    if not len(scores):
        return Stats(unknown_count=unknown)
    counts = np.bincount(states, minlength=len(STATES)).tolist()
    return Stats(
        total_gpus=len(scores),
        avg_score=round(float(scores.mean()), 1),
        min_score=round(float(scores.min()), 1),
        max_score=round(float(scores.max()), 1),
        low_utilization_count=int(result.is_low.sum()),
        idle_count=counts[STATES.index(State.IDLE)],
        by_status={state.value: count for state, count in zip(STATES, counts, strict=True) if count},
        by_namespace=_count_namespaces(result, is_scored),
        unknown_count=unknown,
    )


def _count_namespaces(result: Result, is_scored: Mask) -> dict[str, NamespaceStats]:
    allocations, scores = result.verdicts.usage.allocations, result.verdicts.score[is_scored]
    coded = encode([allocations[row].container.namespace for row in np.flatnonzero(is_scored).tolist()])
    counts = np.bincount(coded.codes)
    means = np.bincount(coded.codes, weights=scores) / counts
    lows = np.bincount(coded.codes[result.is_low[is_scored]], minlength=len(counts))
    columns = zip(coded.names, counts.tolist(), np.round(means, 1).tolist(), lows.tolist(), strict=True)
    return {name: NamespaceStats(count, mean, low) for name, count, mean, low in columns}
