"""The nodes of one result; the GPUs of one node as exporters report them now, with their errors and holders."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from gpusteward.analyzer.api.http.responses import format_utc
from gpusteward.analyzer.api.result_store import PublishedResult, device_key
from gpusteward.analyzer.api.v1.compact import natural_key
from gpusteward.analyzer.api.v1.gpus.gpus import view_fleet
from gpusteward.analyzer.judge.gpu_fraction import GPU_DIGITS
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.sources.live_readings import ReportedGpu
from gpusteward.analyzer.tables import ACTIVITIES, PROOFS, SIGNATURES, VERDICTS
from gpusteward.core.api_rows import ActivityName, ClusterName, HowProven, SignatureName, VerdictOfPart, WorkloadName
from gpusteward.core.messages import Language, Message
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity
from gpusteward.messages import gpu_errors as messages

NodeKey = tuple[str, str]  # cluster, node


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node with GPUs; a share of a GPU is a fraction."""

    cluster: ClusterName
    node: str
    models: list[str]
    gpus: Annotated[int | None, Field(description="All of them; null: the source does not count those that are free.")]
    free_gpus: Annotated[int | None, Field(description="Those of which no part is held.")]
    allocated_gpus: float
    active_gpus: float
    idle_gpus: float
    unknown_gpus: float
    shares: Annotated[list[str], Field(description="How GPUs are held: exclusive, mig, time-sliced and so on.")]
    workloads: Annotated[int, Field(description="How many hold a GPU here.")]
    idle_cost_micros_per_hour: Annotated[int | None, Field(description="Of its idle GPUs; null: none has a price.")]


def view_nodes(published: PublishedResult) -> Mapping[NodeKey, NodeRow]:
    return published.once("nodes by key", lambda result: _make_rows(published, result))


def rows_by_node(published: PublishedResult) -> Mapping[NodeKey, list[int]]:
    def make(result: Result) -> Mapping[NodeKey, list[int]]:
        rows = defaultdict[NodeKey, list[int]](list)
        for row, one in enumerate(result.verdicts.usage.allocations):
            rows[one.container.cluster, one.node].append(row)
        return rows

    return published.once("rows by node", make)


def _make_rows(published: PublishedResult, result: Result) -> dict[NodeKey, NodeRow]:
    fleet, rows = view_fleet(published), rows_by_node(published)
    counted, free = defaultdict[NodeKey, int](int), defaultdict[NodeKey, int](int)
    models = defaultdict[NodeKey, set[str]](set)
    for key, count in result.verdicts.usage.fleet.items():
        counted[key.cluster, key.node] += count
        models[key.cluster, key.node].add(key.model)
    for key, count in fleet.free.items():
        free[key.cluster, key.node] += count
    keys = sorted({*rows, *counted}, key=lambda key: (key[0], natural_key(key[1])))
    return {
        key: _make_row(
            result,
            key,
            np.array(rows.get(key, []), dtype=np.intp),
            models=models[key],
            counts=(counted[key], free[key]) if key in counted else None,
        )
        for key in keys
    }


def _make_row(
    result: Result,
    key: NodeKey,
    rows: np.ndarray[tuple[int], np.dtype[np.intp]],
    *,
    models: set[str],
    counts: tuple[int, int] | None,
) -> NodeRow:
    """`counts`: all GPUs, of which those that are held may be more, and free ones; None if the source does not count
    them."""
    allocations, activity = result.verdicts.usage.allocations, result.verdicts.activity[rows]
    fractions, cost = result.workloads.fractions[rows], result.cost_micros_per_hour[rows]
    by_activity = np.bincount(activity, weights=fractions, minlength=len(ACTIVITIES)).tolist()
    active, idle, unknown = (round(by_activity[ACTIVITIES.index(each)], GPU_DIGITS) for each in Activity)
    idle_cost = cost[(activity == ACTIVITIES.index(Activity.IDLE)) & ~np.isnan(cost)]
    held = [allocations[row] for row in rows.tolist()]
    return NodeRow(
        cluster=key[0],
        node=key[1],
        models=sorted({*models, *(one.model for one in held)} - {""}),
        gpus=max(counts[0], len({one.gpu_uuid for one in held})) if counts else None,
        free_gpus=counts[1] if counts else None,
        allocated_gpus=round(float(fractions.sum()), GPU_DIGITS),
        active_gpus=active,
        idle_gpus=idle,
        unknown_gpus=unknown,
        shares=sorted({str(one.share) for one in held} - {""}),
        workloads=len(set(result.workloads.codes[rows].tolist())),
        idle_cost_micros_per_hour=round(float(idle_cost.sum())) if len(idle_cost) else None,
    )


Level = Literal["critical", "warning", "info"]


@dataclass(frozen=True, slots=True)
class GpuError:
    """Something that is wrong with a GPU."""

    level: Level
    code: Annotated[str, Field(description="xid-79, lost, row-remap-failure and so on.")]
    count: Annotated[int | None, Field(description="Since the exporter or the driver started; null: unknown.")]
    text: Annotated[str, Field(description="What it means, in the language of the request.")]


_Found = tuple[Level, str, int | None, Message]


def find_errors(reading: ReportedGpu, *, language: Language) -> list[GpuError]:
    """The worst first."""
    found = sorted(_find_errors(reading), key=lambda each: ("critical", "warning", "info").index(each[0]))
    return [GpuError(level, code, count, text.text(language)) for level, code, count, text in found]


def _find_errors(reading: ReportedGpu) -> Iterator[_Found]:
    values = reading.values
    if values.get("row_remap_failure"):
        yield "critical", "row-remap-failure", None, messages.ROW_REMAP_FAILURE
    if values.get("row_remap_pending"):
        yield "warning", "row-remap-pending", None, messages.ROW_REMAP_PENDING
    if errors := round(values.get("ecc_double_bit_errors", 0)):
        yield "warning", "ecc-double-bit", errors, messages.DOUBLE_BIT_ERRORS.fill(count=errors)
    if rows := round(values.get("uncorrectable_remapped_rows", 0)):
        yield "info", "remapped-rows", rows, messages.REMAPPED_ROWS.fill(count=rows)
    xids: dict[int, int | None] = dict(reading.xid_errors)
    if last := round(values.get("last_xid", 0)):
        xids.setdefault(last, None)
    for code, count in sorted(xids.items()):
        level: Level = "critical" if code in messages.CRITICAL_XIDS else "warning"
        template = messages.XID if count in (None, 1) else messages.XID_TIMES
        text = template.fill(code=code, count=count or 0, meaning=messages.explain_xid(code))
        yield level, f"xid-{code}", count, text
    if values.get("up") == 0:
        yield "critical", "lost", None, messages.LOST


@dataclass(frozen=True, slots=True)
class NodeHolder:
    """A container that holds the GPU or a part of it."""

    workload: WorkloadName
    pod: str
    container: str
    user: str
    share: str
    gpu_fraction: float
    instance: Annotated[str, Field(description="Of MIG; empty: the whole GPU.")]
    activity: ActivityName
    verdict: VerdictOfPart
    signature: SignatureName
    proof: HowProven
    idle_since: str | None
    memory_used_bytes: float | None


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A MIG instance. Its position on the GPU is not reported by any exporter."""

    instance: str
    profile: Annotated[str, Field(description="1g.10gb and so on; empty: unknown.")]
    uuid: str
    compute_slices: Annotated[int | None, Field(description="Of seven, by its profile; null: unknown.")]
    memory_total_bytes: float | None
    memory_used_bytes: float | None
    utilization_ratio: float | None
    is_free: bool


@dataclass(frozen=True, slots=True)
class NodeGpu:
    """A GPU of a node. null: not reported, never zero."""

    index: str
    uuid: str
    model: str
    share: Annotated[str, Field(description="How it is held; empty for a free GPU.")]
    is_free: bool
    is_up: Annotated[bool | None, Field(description="false: it is lost; null: not reported.")]
    driver: str
    temperature_celsius: float | None
    memory_temperature_celsius: float | None
    power_watts: float | None
    power_limit_watts: float | None
    sm_clock_hertz: float | None
    memory_clock_hertz: float | None
    utilization_ratio: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    clock_events: Annotated[dict[str, int], Field(description="How often a reason began to limit the clocks.")]
    errors: list[GpuError]
    instances: Annotated[list[MigInstance], Field(description="Of MIG.")]
    holders: list[NodeHolder]
    hidden_holders: Annotated[int, Field(description="Holders in namespaces that the caller may not see.")]


def make_gpus(
    published: PublishedResult, row: NodeRow, readings: Sequence[ReportedGpu], *, language: Language
) -> list[NodeGpu]:
    """Those that are reported, and those that are held and not reported."""
    result = published.result
    held = defaultdict[str, list[int]](list)
    for number in rows_by_node(published).get((row.cluster, row.node), []):
        held[result.verdicts.usage.allocations[number].gpu_index].append(number)
    reported = defaultdict[str, list[ReportedGpu]](list)
    for reading in readings:
        reported[reading.index].append(reading)
    return [
        _make_gpu(published, index, held.get(index, []), reported.get(index, []), language=language)
        for index in sorted({*held, *reported}, key=natural_key)
    ]


def _make_gpu(
    published: PublishedResult, index: str, rows: Sequence[int], readings: Sequence[ReportedGpu], *, language: Language
) -> NodeGpu:
    result = published.result
    allocations = [result.verdicts.usage.allocations[row] for row in rows]
    instances = [one for one in readings if one.instance]
    whole = _find_whole(index, readings, instances)
    values = _complete(result, rows, whole.values)
    held_instances = {one.gpu_instance for one in allocations}
    return NodeGpu(
        index=index,
        uuid=next((one.gpu_uuid for one in allocations), "") or whole.uuid,
        model=whole.model or next((one.model for one in allocations), ""),
        share=next((str(one.share) for one in allocations), "mig" if instances else ""),
        is_free=not rows,
        is_up=None if "up" not in whole.values else bool(whole.values["up"]),
        driver=whole.driver,
        **{name: values.get(name) for name in _READINGS},
        clock_events=whole.clock_events,
        errors=find_errors(whole, language=language),
        instances=[_make_instance(one, is_free=one.instance not in held_instances) for one in instances],
        holders=[_make_holder(result, row) for row in rows],
        hidden_holders=sum(published.hidden_holders.get(key, 0) for key in {device_key(one) for one in allocations}),
    )


def _find_whole(index: str, readings: Sequence[ReportedGpu], instances: Sequence[ReportedGpu]) -> ReportedGpu:
    whole = next((one for one in readings if not one.instance), None) or ReportedGpu(index, "")
    if whole.values or not instances:
        return whole
    return replace(whole, values={key: value for key, value in instances[0].values.items() if key in _OF_WHOLE_GPU})


_READINGS = (
    *("temperature_celsius", "memory_temperature_celsius", "power_watts", "power_limit_watts", "sm_clock_hertz"),
    *("memory_clock_hertz", "utilization_ratio", "memory_used_bytes", "memory_total_bytes"),
)
_OF_WHOLE_GPU = {"temperature_celsius", "power_watts", "power_limit_watts", "sm_clock_hertz", "memory_clock_hertz"}
"""Values of a GPU that dcgm-exporter repeats for each of its MIG instances."""
_FROM_RESULT = {
    "power_limit_watts": (Measure.POWER_LIMIT, Stat.LAST),
    "memory_total_bytes": (Measure.MEMORY_TOTAL, Stat.LAST),
    "sm_clock_hertz": (Measure.SM_CLOCK, Stat.MEAN),
}
"""What a result has of a whole GPU, not of a share of it."""


def _complete(result: Result, rows: Sequence[int], values: Mapping[str, float]) -> Mapping[str, float]:
    """With the values of the last result where a whole GPU is held and its exporter was not read."""
    usage = result.verdicts.usage
    if not rows or usage.allocations[rows[0]].gpu_instance:
        return values
    known = {name: float(usage.column(*key)[rows[0]]) for name, key in _FROM_RESULT.items()}
    return {**{name: value for name, value in known.items() if not np.isnan(value)}, **values}


def _make_instance(one: ReportedGpu, *, is_free: bool) -> MigInstance:
    slices = one.profile.partition("g.")[0]
    return MigInstance(
        instance=one.instance,
        profile=one.profile,
        uuid=one.uuid,
        compute_slices=int(slices) if slices.isdecimal() and len(slices) == 1 else None,
        memory_total_bytes=one.values.get("memory_total_bytes"),
        memory_used_bytes=one.values.get("memory_used_bytes"),
        utilization_ratio=one.values.get("utilization_ratio"),
        is_free=is_free,
    )


def _make_holder(result: Result, row: int) -> NodeHolder:
    verdicts, table = result.verdicts, result.workloads
    allocation = verdicts.usage.allocations[row]
    memory = float(verdicts.usage.column(Measure.MEMORY_USED, Stat.MEAN)[row])
    return NodeHolder(
        workload=WorkloadName(*table.keys[table.codes[row]]),
        pod=allocation.container.pod,
        container=allocation.container.name,
        user=allocation.container.user,
        share=str(allocation.share),
        gpu_fraction=round(float(table.fractions[row]), GPU_DIGITS),
        instance=allocation.gpu_instance,
        activity=ACTIVITIES[verdicts.activity[row]].value,
        verdict=VERDICTS[table.row_verdicts[row]].value,
        signature=SIGNATURES[verdicts.signature[row]].value,
        proof=PROOFS[verdicts.proof[row]].value,
        idle_since=format_utc(float(verdicts.idle_since[row])),
        memory_used_bytes=None if np.isnan(memory) else memory,
    )
