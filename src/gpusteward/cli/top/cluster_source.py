"""The source that is an analyzer: pages by cursor, only what is shown."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from gpusteward.cli.api.client import Client
from gpusteward.cli.api.errors import StatusError
from gpusteward.cli.api.pagination import GONE, LARGEST_PAGE, read_page
from gpusteward.cli.api.workloads import WorkloadName, name_of
from gpusteward.cli.json_access import Row, count, each, inner, moment, number, text, texts
from gpusteward.cli.output.paragraphs import Line
from gpusteward.cli.output.quantities import memory, percent, watts
from gpusteward.cli.output.terminal_text import clean
from gpusteward.cli.output.verdict_labels import HEALTH
from gpusteward.cli.output.verdict_texts import describe_grounds, describe_judgement
from gpusteward.cli.top.labels import CORE, MEMORY, POWER
from gpusteward.cli.top.running import NOTHING, describe_processes
from gpusteward.cli.top.source_protocol import Asked, Chart, Detail, Given, Item, View
from gpusteward.core.messages import Language, Message

PATHS = {View.GPUS: "/api/v1/gpus", View.WORKLOADS: "/api/v1/workloads", View.TENANTS: "/api/v1/namespaces"}
MOST_CHARTS = 4  # one workload may hold hundreds of GPUs; a screen shows a few
MOST_PODS = 16
MEASURES = (
    ("core_ratio", CORE, 1.0, percent),
    ("memory_used_bytes", MEMORY, None, memory),
    ("power_watts", POWER, None, watts),
)
ALLOCATIONS = Message("{count} {count:|allocation|allocations}", "{count} 个分配")
WORKLOADS = Message("{count} {count:|workload|workloads}", "{count} 个工作负载")
FLEET = Message("{count} {count:|GPU|GPUs}, {free} free", "{count} 张 GPU，{free} 张未分配")
STATUS = Message("analyzer {status}", "analyzer {status}")
UNTOLD = Message(
    "What {count} of its pods {count:|runs|run} is unknown: no agent of gpusteward tells it.",
    "其中 {count} 个 Pod 运行的进程未知：没有 gpusteward agent 上报。",
)
FURTHER = Message("{count} more {count:|pod is|pods are} not listed.", "另有 {count} 个 Pod 未列出。")
COVERAGE = Message("{coverage} of samples seen", "采样覆盖率 {coverage}")


class ClusterSource:
    """Safe in several threads: it keeps nothing but what the client remembers."""

    answers_apart = True
    has_verdicts = True

    def __init__(self, client: Client, language: Language) -> None:
        self._client = client
        self._language = language
        self.title = client.url

    def read(self, asked: Asked) -> Given:
        """Raises SourceError."""
        health = self._client.read("/api/v1/health")
        health = health if isinstance(health, dict) else {}
        items, total, stamp = self._read_items(asked)
        at = moment(stamp, "at")
        return Given(
            [{**item, "at": at, "key": _key(asked.view, item)} for item in items],
            total,
            summary=list(self._sum_up(health)),
            at=at,
            warning=text(inner(health, "cycles"), "last_error"),
        )

    def _read_items(self, asked: Asked) -> tuple[list[Row], int, Row]:
        """A cycle that finishes between two pages is no reason to wait: what was read so far is shown."""
        query = [*_write_query(asked), ("limit", str(min(asked.rows, LARGEST_PAGE)))]
        page = read_page(self._client, PATHS[asked.view], query)
        rows = page.rows
        while page.following and len(rows) < asked.rows:
            try:
                page = read_page(self._client, PATHS[asked.view], query, cursor=page.following)
            except StatusError as error:
                if error.status != GONE:
                    raise
                break
            rows = [*rows, *page.rows]
        return rows, page.total, page.stamp

    def _sum_up(self, health: Row) -> Iterator[tuple[str, str]]:
        """What matters most first: on a narrow screen the last parts are left out."""
        status = text(health, "status")
        yield STATUS.text(self._language, status=HEALTH.get(status, status)), "ok" if status == "healthy" else "warn"
        if number(health, "gpus") is not None and number(health, "free_gpus") is not None:
            yield FLEET.text(self._language, count=count(health, "gpus"), free=count(health, "free_gpus")), ""
        yield ALLOCATIONS.text(self._language, count=count(health, "allocations")), ""
        yield COVERAGE.text(self._language, coverage=percent(_find_coverage(health))), ""
        yield WORKLOADS.text(self._language, count=count(health, "workloads")), ""

    def find_workloads(self, view: View, item: Item) -> Sequence[WorkloadName]:
        """Raises SourceError."""
        if view is View.WORKLOADS:
            return [name_of(item)]
        if view is View.TENANTS:
            return []
        words = [("q", part) for part in (text(item, "id"), text(item, "node")) if part]
        rows = read_page(self._client, "/api/v1/allocations", [*words, ("limit", "50")]).rows
        mine = [row for row in rows if row.get("gpu") == item.get("id")]
        return list(dict.fromkeys(name_of(inner(row, "workload")) for row in mine))

    def open(self, workload: WorkloadName) -> Detail:
        """Raises SourceError."""
        answer = self._client.read(workload.path, [("lang", self._language)])
        detail = answer if isinstance(answer, dict) else {}
        at = moment(inner(detail, "result"), "at")
        grounds = list(describe_grounds(detail, self._language))
        return Detail(list(describe_judgement(detail, self._language)), grounds=grounds, at=at)

    def read_charts(self, workload: WorkloadName, seconds: float) -> Detail:
        """Raises SourceError."""
        query = [("seconds", f"{seconds:g}"), ("limit", str(MOST_CHARTS))]
        answer = self._client.read(f"{workload.path}/series", query)
        series = answer if isinstance(answer, dict) else {}
        charts = [chart for course in each(series, "courses") for chart in _charts(course, self._language)]
        return Detail((), charts, seconds=seconds, at=moment(inner(series, "result"), "at"))

    def read_processes(self, workload: WorkloadName) -> Sequence[Line]:
        """Raises SourceError."""
        answer = self._client.read(f"{workload.path}/processes", [("limit", str(MOST_PODS))])
        told = answer if isinstance(answer, dict) else {}
        return list(_describe_processes(told, self._language))


def _describe_processes(told: Row, language: Language) -> Iterator[Line]:
    untold = texts(told, "untold")
    rows = [_process(row) for row in each(told, "processes")]
    if not rows and not untold:
        yield Line(NOTHING.text(language))
    yield from describe_processes(rows, language, total=count(told, "total"))
    if untold:
        yield Line(UNTOLD.text(language, count=len(untold)))
    if (left := count(told, "pods") - MOST_PODS) > 0:
        yield Line(FURTHER.text(language, count=left))


def _process(row: Row) -> dict[str, Any]:
    return {
        "node": text(row, "node"),
        "gpu": text(row, "index"),
        "pid": count(row, "pid"),
        "process": text(row, "process"),
        "sm_ratio": number(row, "sm_ratio"),
        "memory_bytes": number(row, "memory_bytes"),
        "outside_allocation": row.get("outside_allocation") is True,
    }


def _find_coverage(health: Row) -> float | None:
    """Of what can be measured; an older analyzer tells it only of all."""
    measured = number(health, "measured_coverage")
    return number(health, "coverage") if measured is None else measured


def _key(view: View, item: Row) -> str:
    if view is View.GPUS:
        return text(item, "id")
    return str(name_of(item)) if view is View.WORKLOADS else text(item, "namespace")


def _write_query(asked: Asked) -> list[tuple[str, str]]:
    query = [("q", word) for word in asked.words]
    if asked.sort:
        query.append(("sort", asked.sort))
    if asked.namespace:
        query.append(("namespace", asked.namespace))
    if asked.activity and asked.view is not View.TENANTS:
        query.append(("activity", asked.activity))
    return query


def _charts(course: Row, language: Language) -> Iterator[Chart]:
    """The measures of one allocation; those nobody measured are left out."""
    lines, gpu = inner(course, "lines"), _name_gpu(text(course, "allocation"))
    for measure, label, top, show in MEASURES:
        points = list(_points(lines.get(measure)))
        if points:
            yield Chart(clean(f"{label.text(language)} {gpu}"), points, top, show(points[-1][1]))


def _name_gpu(allocation: str) -> str:
    """`GPU-76d91b17`, of a MIG instance `GPU-76d91b17/3`: as much of a UUID as people compare."""
    uuid, *instance = allocation.split("/")[3:] or [allocation]
    return "/".join(("-".join(uuid.split("-")[:2]), *instance))


def _points(given: object) -> Iterator[tuple[float, float]]:
    for pair in islice(given if isinstance(given, list) else (), 20_000):
        match pair:
            case [int() | float() as moment_, int() | float() as value]:
                yield float(moment_), float(value)
