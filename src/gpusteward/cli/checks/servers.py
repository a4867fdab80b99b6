"""The analyzer and the agent: whether they run, and what they say of themselves."""

from collections.abc import Iterator

from gpusteward.cli.checks.findings import Finding, Status
from gpusteward.cli.client import Client, LostError
from gpusteward.cli.languages import Said
from gpusteward.cli.quantities import percent
from gpusteward.cli.rows import Row, count, inner, number, text
from gpusteward.cli.texts import clean
from gpusteward.core.errors import SourceError

NOT_HERE = Said("none runs at {url}", "{url} 上没有运行")
NO_ANSWER = Said("{reason}", "{reason}")
START_ANALYZER = Said(
    "nothing, unless you expect one: gpusteward serve, or --server URL",
    "无需处理，除非应有：gpusteward serve，或 --server URL",
)
START_AGENT = Said(
    "nothing, unless you expect one: gpusteward agent, or --agent URL",
    "无需处理，除非应有：gpusteward agent，或 --agent URL",
)
LOOK_LOG = Said("see its log, and whether it listens on that address", "请查看其日志，并确认监听地址")

HEALTHY = Said(
    "version {version}, {allocations} allocations, {coverage} of expected samples seen",
    "版本 {version}，{allocations} 个分配，采样覆盖率 {coverage}",
)
NO_RESULT = Said("no cycle has finished yet", "尚未完成任何周期")
WAIT = Said(
    "wait one interval ({interval:.0f} s); then see its log", "请等待一个周期（{interval:.0f} 秒）；仍无结果请查看日志"
)
DEGRADED = Said("it is {status}: {error}", "状态为 {status}：{error}")
MEND_SOURCE = Said("its source does not answer: /api/v1/sources tells more", "数据源无响应：详见 /api/v1/sources")
THIN = Said("only {coverage} of expected samples seen", "采样覆盖率仅 {coverage}")
MEND_COVERAGE = Said(
    "scrapes fail or targets are down: below 90% nothing is called idle", "抓取失败或目标不可用：低于 90% 不会判定空闲"
)
READY = Said("it is ready", "已就绪")
NOT_READY = Said("it is not ready: {reason}", "未就绪：{reason}")
MEND_AGENT = Said("what it says is mended on that node: see driver above", "请在该节点上按提示修复：参见上方 driver")
LEAST_COVERAGE = 0.9


def check_analyzer(client: Client, *, is_named: bool) -> Iterator[Finding]:
    """`is_named`: a person said where it is, so it must be there."""
    try:
        answer = client.read("/api/v1/health")
    except LostError as error:
        yield _lost("analyzer", client, error, is_named=is_named, mend=START_ANALYZER)
        return
    except SourceError as error:
        yield Finding("analyzer", Status.FAIL, NO_ANSWER, LOOK_LOG, {"reason": str(error)})
        return
    yield from _judge(answer if isinstance(answer, dict) else {})


def _judge(health: Row) -> Iterator[Finding]:
    cycles, coverage = inner(health, "cycles"), number(health, "coverage")
    facts = {
        "version": text(health, "version"),
        "allocations": count(health, "allocations"),
        "coverage": percent(coverage),
        "interval": number(cycles, "interval_seconds") or 0.0,
        "status": text(health, "status"),
        "error": text(cycles, "last_error") or "-",
    }
    if text(cycles, "last_error"):
        yield Finding("analyzer", Status.FAIL, DEGRADED, MEND_SOURCE, facts)
    elif health.get("ready") is not True:
        yield Finding("analyzer", Status.WARN, NO_RESULT, WAIT, facts)
    elif text(health, "status") != "healthy":
        yield Finding("analyzer", Status.WARN, DEGRADED, LOOK_LOG, facts)
    else:
        yield Finding("analyzer", Status.OK, HEALTHY, facts=facts)
    if coverage is not None and coverage < LEAST_COVERAGE:
        yield Finding("analyzer", Status.WARN, THIN, MEND_COVERAGE, facts)


def check_agent(client: Client, *, is_named: bool) -> Iterator[Finding]:
    try:
        answer = client.ask("/readyz")
    except LostError as error:
        yield _lost("agent", client, error, is_named=is_named, mend=START_AGENT)
        return
    if answer.status == 200:
        yield Finding("agent", Status.OK, READY)
    else:
        said = clean(answer.body[:300].decode("utf-8", "replace").strip()) or str(answer.status)
        yield Finding("agent", Status.FAIL, NOT_READY, MEND_AGENT, {"reason": said})


def _lost(check: str, client: Client, error: LostError, *, is_named: bool, mend: Said) -> Finding:
    if is_named:
        return Finding(check, Status.FAIL, NO_ANSWER, LOOK_LOG, {"reason": error.what})
    return Finding(check, Status.SKIP, NOT_HERE, mend, {"url": client.url})
