"""The analyzer and the agent: whether they run, and what they say of themselves."""

from collections.abc import Iterator

from gpusteward.cli.api.client import Client
from gpusteward.cli.api.errors import UnreachableError
from gpusteward.cli.doctor.findings import Finding, Status
from gpusteward.cli.doctor.samples import check_samples
from gpusteward.cli.json_access import Row, count, inner, number, text
from gpusteward.cli.output.terminal_text import clean
from gpusteward.cli.output.verdict_labels import HEALTH
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message

NOT_HERE = Message("none runs at {url}", "{url} 上没有运行")
NO_ANSWER = Message("{reason}", "{reason}")
START_ANALYZER = Message(
    "nothing, unless you expect one: gpusteward serve, or --server URL",
    "无需处理，除非应有：gpusteward serve，或 --server URL",
)
START_AGENT = Message(
    "nothing, unless you expect one: gpusteward agent, or --agent URL",
    "无需处理，除非应有：gpusteward agent，或 --agent URL",
)
LOOK_LOG = Message("see its log, and whether it listens on that address", "请查看其日志，并确认监听地址")

HEALTHY = Message(
    "version {version}, {allocations} {allocations:|allocation|allocations}", "版本 {version}，{allocations} 个分配"
)
NO_RESULT = Message("no cycle has finished yet", "尚未完成任何周期")
WAIT = Message(
    "wait one interval ({interval:.0f} s); then see its log", "请等待一个周期（{interval:.0f} 秒）；仍无结果请查看日志"
)
FAILING = Message("it is {status}: {error}", "{status}：{error}")
MEND_SOURCE = Message(
    "let it reach its source: /api/v1/sources says where it looks and what it found",
    "请让它能访问数据源：/api/v1/sources 给出地址和结果",
)
LATE = Message("its last result is old", "最近一次结果过旧")
LOOK_CYCLES = Message(
    "see in its log how long cycles take, and raise scheduler.interval if that is longer",
    "请在日志中查看周期耗时；若超过 scheduler.interval，请调大该设置",
)
READY = Message("it is ready", "已就绪")
NOT_READY = Message("it is not ready: {reason}", "未就绪：{reason}")
MEND_AGENT = Message(
    "run gpusteward doctor on that node, and mend what it finds", "请在该节点上运行 gpusteward doctor 并按提示修复"
)


def check_analyzer(client: Client, *, is_named: bool) -> Iterator[Finding]:
    """`is_named`: a person said where it is, so it must be there."""
    try:
        answer = client.read("/api/v1/health")
    except UnreachableError as error:
        yield _lost("analyzer", client, error, is_named=is_named, mend=START_ANALYZER)
        return
    except SourceError as error:
        yield Finding("analyzer", Status.FAIL, NO_ANSWER, LOOK_LOG, {"reason": str(error)})
        return
    health = answer if isinstance(answer, dict) else {}
    yield _judge(health)
    yield from check_samples(client, health)


def _judge(health: Row) -> Finding:
    cycles, status = inner(health, "cycles"), text(health, "status")
    facts = {
        "version": text(health, "version"),
        "allocations": count(health, "allocations"),
        "interval": number(cycles, "interval_seconds") or 0.0,
        "status": HEALTH.get(status, status),
        "error": text(cycles, "last_error") or "-",
    }
    if text(cycles, "last_error"):
        return Finding("analyzer", Status.FAIL, FAILING, MEND_SOURCE, facts)
    if health.get("ready") is not True:
        return Finding("analyzer", Status.WARN, NO_RESULT, WAIT, facts)
    if status != "healthy":
        return Finding("analyzer", Status.WARN, LATE, LOOK_CYCLES, facts)
    return Finding("analyzer", Status.OK, HEALTHY, facts=facts)


def check_agent(client: Client, *, is_named: bool) -> Iterator[Finding]:
    try:
        answer = client.request("/readyz")
    except UnreachableError as error:
        yield _lost("agent", client, error, is_named=is_named, mend=START_AGENT)
        return
    if answer.status == 200:
        yield Finding("agent", Status.OK, READY)
    else:
        said = clean(answer.body[:300].decode("utf-8", "replace").strip()) or str(answer.status)
        yield Finding("agent", Status.FAIL, NOT_READY, MEND_AGENT, {"reason": said})


def _lost(check: str, client: Client, error: UnreachableError, *, is_named: bool, mend: Message) -> Finding:
    if is_named:
        return Finding(check, Status.FAIL, NO_ANSWER, LOOK_LOG, {"reason": error.problem})
    return Finding(check, Status.SKIP, NOT_HERE, mend, {"url": client.url})
