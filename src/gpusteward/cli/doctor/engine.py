"""Prometheus, or what speaks its language: whether it answers, has GPU metrics, and how often it scrapes them."""

from collections.abc import Iterator, Mapping

from gpusteward.cli.api.client import Client, Query
from gpusteward.cli.doctor.findings import Finding, Status
from gpusteward.cli.json_access import Row, each, inner
from gpusteward.core import metrics
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message

LONGEST_INTERVAL_SECONDS = 60.0
"""A window of ten minutes then holds ten samples: fewer, and a short burst of work is easily missed."""
LOOK_SECONDS = 600
DIALECTS: Mapping[str, tuple[str, ...]] = {
    "gpusteward": (metrics.USE_UTILIZATION.name,),
    "DCGM": ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"),
    "HAMi": ("hami_container_device_utilization_ratio", "Device_utilization_desc_of_container"),
}

NO_ANSWER = Message("{reason}", "{reason}")
REACH = Message(
    "check the address, which is from {origin}, and the network policies between",
    "请检查地址（来自 {origin}）及中间的网络策略",
)
ANSWERS = Message("{url} answers; the address is from {origin}", "{url} 响应正常；地址来自 {origin}")
FOUND = Message("GPU metrics of {dialects}", "找到 GPU 指标：{dialects}")
NONE_FOUND = Message("it has no GPU metrics of the last hour", "最近一小时没有 GPU 指标")
SCRAPE = Message(
    "let it scrape the agents (or dcgm-exporter): a ServiceMonitor, or the annotation prometheus.io/scrape",
    "请让它抓取 agent（或 dcgm-exporter）：使用 ServiceMonitor 或 prometheus.io/scrape 注解",
)
NO_SAMPLE = Message(
    "it has names of GPU metrics, but no sample of the last minutes", "有 GPU 指标名，但最近几分钟没有样本"
)
LOOK_AT_TARGETS = Message(
    "bring back the exporters that are down: see /targets there", "请恢复已停止的 exporter：见其 /targets 页面"
)
INTERVAL = Message("job {job} is scraped every {seconds:.0f} s", "任务 {job} 每 {seconds:.0f} 秒抓取一次")
SHORTEN = Message("set scrape_interval of that job to 30s or less", "请将该任务的 scrape_interval 设为 30s 或更短")


def check_engine(client: Client, *, origin: str) -> Iterator[Finding]:
    """Three cheap questions; none grows with the length of the history. `origin`: where the address is from."""
    try:
        names = _read_names(client)
    except SourceError as error:
        facts = {"reason": getattr(error, "problem", error), "origin": origin}
        yield Finding("prometheus", Status.FAIL, NO_ANSWER, REACH, facts)
        return
    yield Finding("prometheus", Status.OK, ANSWERS, facts={"url": client.url, "origin": origin})
    found = {dialect: name for dialect, wanted in DIALECTS.items() for name in wanted if name in names}
    if not found:
        yield Finding("metrics", Status.FAIL, NONE_FOUND, SCRAPE)
        return
    yield Finding("metrics", Status.OK, FOUND, facts={"dialects": ", ".join(found)})
    for name in found.values():
        yield from _check_interval(client, name, origin)


def _read_names(client: Client) -> set[str]:
    """Of ours, those that it has. Raises SourceError."""
    wanted = [name for names in DIALECTS.values() for name in names]
    matches = [("match[]", f'{{__name__=~"{"|".join(wanted)}"}}')]
    data = _read(client, "/api/v1/label/__name__/values", matches).get("data")
    return {str(name) for name in data} if isinstance(data, list) else set()


def _check_interval(client: Client, name: str, origin: str) -> Iterator[Finding]:
    """By one of its series: how many samples `up` of that target has."""
    try:
        sample = _query(client, f"topk(1, {name})")
        labels = {key: str(value) for key, value in inner(sample, "metric").items() if key in ("job", "instance")}
        if not sample:
            yield Finding("metrics", Status.WARN, NO_SAMPLE, LOOK_AT_TARGETS)
            return
        selector = ", ".join(f"{key}={_literal(value)}" for key, value in labels.items())
        seen = _value(_query(client, f"count_over_time(up{{{selector}}}[{LOOK_SECONDS}s])"))
    except SourceError as error:
        yield Finding("scrape interval", Status.WARN, NO_ANSWER, REACH, {"reason": str(error), "origin": origin})
        return
    if seen is not None and seen > 1:
        yield _judge(labels.get("job", "?"), LOOK_SECONDS / seen)


def _judge(job: str, seconds: float) -> Finding:
    facts = {"job": job, "seconds": seconds}
    if seconds > LONGEST_INTERVAL_SECONDS:
        return Finding("scrape interval", Status.WARN, INTERVAL, SHORTEN, facts)
    return Finding("scrape interval", Status.OK, INTERVAL, facts=facts)


def _literal(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _query(client: Client, expression: str) -> Row:
    """The first sample of the answer. Raises SourceError."""
    samples = each(inner(_read(client, "/api/v1/query", [("query", expression)]), "data"), "result")
    return samples[0] if samples else {}


def _value(sample: Row) -> float | None:
    value = sample.get("value")
    try:
        return float(value[1]) if isinstance(value, list) else None
    except (IndexError, TypeError, ValueError):
        return None


def _read(client: Client, path: str, query: Query) -> Row:
    answer = client.read(path, query)
    if not isinstance(answer, dict) or answer.get("status") != "success":
        raise SourceError(f"{client.url} does not answer as Prometheus does")
    return answer
