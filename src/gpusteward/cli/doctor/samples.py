"""Whether there are enough samples of what can be measured, and if not, what is in the way."""

from collections.abc import Iterator, Mapping
from contextlib import suppress

from gpusteward.cli.api.client import Client
from gpusteward.cli.doctor.findings import NOTHING, Finding, Status
from gpusteward.cli.json_access import Row, count, each, inner, number, text
from gpusteward.cli.output.quantities import percent
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message

LEAST_COVERAGE = 0.9

SEEN = Message(
    "{coverage} of expected samples seen of {measured} {measured:|allocation|allocations}",
    "{measured} 个分配的采样覆盖率为 {coverage}",
)
SEEN_OF_SOME = Message(
    "{coverage} of expected samples seen of {measured} {measured:|allocation|allocations}; "
    "{unmeasured} {unmeasured:|has|have} no utilization to measure, as MIG instances before Hopper",
    "{measured} 个分配的采样覆盖率为 {coverage}；另有 {unmeasured} 个无利用率可测（例如 Hopper 之前的 MIG 实例）",
)
SEE_REASONS = Message(
    "nothing; /api/v1/allocations?activity=unknown gives the reason of each",
    "无需处理；/api/v1/allocations?activity=unknown 给出每个分配的原因",
)
NONE_SEEN = Message(
    "{allocations} {allocations:|allocation|allocations}, but no sample of their utilization",
    "有 {allocations} 个分配，但没有任何利用率样本",
)
EXPORT_UTILIZATION = Message(
    "let the exporter send a utilization: gpusteward agent, or DCGM_FI_DEV_GPU_UTIL, and "
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE for MIG",
    "请让 exporter 提供利用率：gpusteward agent，或 DCGM_FI_DEV_GPU_UTIL；MIG 需要 DCGM_FI_PROF_GR_ENGINE_ACTIVE",
)
FILLING = Message(
    "the window is not full yet: {coverage} of the samples of {minutes:.0f} {minutes:|minute|minutes} are there",
    "窗口尚未填满：{minutes:.0f} 分钟窗口的采样覆盖率目前为 {coverage}",
)
WAIT = Message(
    "nothing, it fills by itself; until an allocation has 90% of its samples it is not called idle",
    "无需处理，窗口会自行填满；采样覆盖率达到 90% 之前，分配不会被判定为空闲",
)
THIN = Message(
    "only {coverage} of expected samples seen of {measured} {measured:|allocation|allocations}; "
    "one with less than 90% is not called idle",
    "{measured} 个分配的采样覆盖率仅 {coverage}；低于 90% 的分配不会被判定为空闲",
)
BRING_BACK = Message(
    "bring back what fails, {failing}: {reason}; /api/v1/sources has all",
    "请恢复 {failing}：{reason}；详见 /api/v1/sources",
)
FIND_LOST = Message(
    "find out which of the {targets} {targets:|target is|targets are} lost now and then: "
    "{failed} of {scrapes} {scrapes:|scrape|scrapes} failed, "
    "and the log of the analyzer names them; raise scrape.timeout for slow ones",
    "请找出 {targets} 个目标中时有失联的：{scrapes} 次抓取失败 {failed} 次，名称见日志；"
    "较慢的目标请调大 scrape.timeout",
)
FIND_GAPS = Message(
    "look for gaps in the metric `up` of the exporters; if there are none, "
    "set prometheus.scrape_interval_seconds to their real interval",
    "请检查 exporter 的 up 指标是否有缺口；如果没有，请将 prometheus.scrape_interval_seconds 设为实际抓取间隔",
)


def check_samples(client: Client, health: Row) -> Iterator[Finding]:
    """Of an analyzer that has a result; nothing to say where nobody holds a GPU."""
    coverage, window = number(health, "measured_coverage"), number(inner(health, "result"), "window_seconds") or 0.0
    measured, allocations = count(health, "measured"), count(health, "allocations")
    facts = {
        "coverage": percent(coverage),
        "measured": measured,
        "allocations": allocations,
        "unmeasured": allocations - measured,
        "minutes": window / 60,
    }
    if coverage is not None and coverage < LEAST_COVERAGE:
        yield _explain(_read_sources(client), facts, window_seconds=window)
    elif coverage is not None and measured < allocations:
        yield Finding("samples", Status.OK, SEEN_OF_SOME, SEE_REASONS, facts)
    elif coverage is not None:
        yield Finding("samples", Status.OK, SEEN, NOTHING, facts)
    elif allocations and "measured" in health:
        yield Finding("samples", Status.WARN, NONE_SEEN, EXPORT_UTILIZATION, facts)


def _explain(sources: Row, facts: Mapping[str, object], *, window_seconds: float) -> Finding:
    """Scrapes are blamed only where the analyzer itself says that they failed."""
    failures, scrapes = inner(sources, "failures"), inner(sources, "scrapes")
    if failing := next(iter(failures), ""):
        blamed = {**facts, "failing": text({"name": failing}, "name"), "reason": text(failures, failing)}
        return Finding("samples", Status.WARN, THIN, BRING_BACK, blamed)
    if failed := count(scrapes, "failed"):
        tried = {"failed": failed, "scrapes": failed + count(scrapes, "ok"), "targets": count(sources, "targets")}
        return Finding("samples", Status.WARN, THIN, FIND_LOST, {**facts, **tried})
    if _is_filling(sources, window_seconds):
        return Finding("samples", Status.OK, FILLING, WAIT, facts)
    return Finding("samples", Status.WARN, THIN, FIND_GAPS, facts)


def _is_filling(sources: Row, window_seconds: float) -> bool:
    """Whether the analyzer scrapes by itself, and for less than a window so far."""
    interval = number(inner(sources, "scrape_intervals_seconds"), "scrape")
    longest = max((count(state, "scrapes") for state in each(sources, "states")), default=0)
    return interval is not None and longest > 0 and longest * interval < window_seconds


def _read_sources(client: Client) -> Row:
    with suppress(SourceError):
        answer = client.read("/api/v1/sources")
        return answer if isinstance(answer, dict) else {}
    return {}
