"""Source: an analyzer. Only the rows that are shown are read."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from gpusteward.cli.api.client import Client, StatusError
from gpusteward.cli.api.pagination import GONE, MAX_PAGE_ROWS, ListPage, read_page
from gpusteward.cli.api.processes import describe_use
from gpusteward.cli.api.workload_facts import IdleCostCache, describe_plan, read_plans
from gpusteward.cli.api.workloads import WorkloadReference, name_of
from gpusteward.cli.json_access import Row
from gpusteward.cli.output import words
from gpusteward.cli.output.quantities import gpus, memory, money, percent, watts
from gpusteward.cli.output.terminal_text import Line, clean
from gpusteward.cli.output.verdict_texts import HEALTH, describe_evidence, describe_verdict, is_stale
from gpusteward.cli.top.columns import CLUSTER, FIRST_SORTS, View
from gpusteward.cli.top.item_source import (
    Charts,
    Detail,
    ItemList,
    LineChart,
    ListRequest,
    describe_processes,
)
from gpusteward.core.messages import Language, Message

NO_NEWER_RESULT = Message("no newer result: the engine does not answer", "没有更新的结果：引擎没有响应")
ANALYZER_STATUS = Message("analyzer {status}", "analyzer {status}")
FLEET = Message(
    "{count} {count:|GPU|GPUs}: {idle} idle, {unallocated} unallocated",
    "{count} 张 GPU：空闲 {idle}，未分配 {unallocated}",
)
HELD = Message("{count} {count:|GPU|GPUs} held: {idle} idle", "占用 {count} 张 GPU：空闲 {idle}")
IDLE_COST = Message("idle: {cost} per hour", "空闲费用每小时 {cost}")
ALLOCATIONS = Message("{count} {count:|allocation|allocations}", "{count} 个分配")
WORKLOADS = Message("{count} {count:|workload|workloads}", "{count} 个工作负载")
COVERAGE = Message("sample coverage {coverage}", "采样覆盖率 {coverage}")
PODS_WITHOUT_AGENT = Message(
    "Processes of {count} {count:|pod|pods} are unknown: no gpusteward agent reports them.",
    "{count} 个 Pod 的进程未知：没有 gpusteward agent 上报。",
)
MORE_PODS = Message("{count} more {count:|pod is|pods are} not listed.", "另有 {count} 个 Pod 未列出。")

PATHS = {View.GPUS: "/api/v1/gpus", View.WORKLOADS: "/api/v1/workloads", View.TENANTS: "/api/v1/namespaces"}
MAX_CHARTED_ALLOCATIONS = 4  # a workload may hold hundreds of GPUs
MAX_PODS = 16
MAX_POINTS = 20_000
MEASURES = (
    ("core_ratio", words.CORE, 1.0, percent),
    ("memory_used_bytes", words.MEMORY, None, memory),
    ("power_watts", Message("power", "功率"), None, watts),
)


class ClusterSource:
    """Used from several threads: it has no state except the cache of the client."""

    has_verdicts = True
    columns = CLUSTER
    first_sorts = FIRST_SORTS

    def __init__(
        self, client: Client, language: Language, clusters: Sequence[str] = (), *, waits_for_costs: bool = False
    ) -> None:
        """`clusters`: only these; empty: all. `waits_for_costs`: read the costs of the last week with the rows;
        otherwise they are shown once they are read."""
        self._client = client
        self._clusters = [("cluster", name) for name in clusters]
        self._costs = IdleCostCache(client, waits=waits_for_costs)
        self._language = language
        self.title = client.url

    def read(self, request: ListRequest) -> ItemList:
        """Raises SourceError."""
        health = self._client.read("/api/v1/health")
        page = self._read_rows(request)
        at = page.result.time("at")
        rows = page.rows if request.view is not View.WORKLOADS else self._costs.add_to(page.rows)
        has_several = len(health.texts("clusters")) > 1
        stale = NO_NEWER_RESULT.text(self._language) if is_stale(page.result) else ""
        return ItemList(
            [
                Row(item, at=at, key=_key(request.view, item), shows_cluster=has_several and item.text("cluster") != "")
                for item in rows
            ],
            page.total,
            summary=list(self._summarize(health)),
            at=at,
            warning=health.object("cycles").text("last_error") or stale,
            stamp=page.result,
        )

    def _read_rows(self, request: ListRequest) -> ListPage:
        """If a cycle ends between two pages, the rows read so far are shown."""
        path = PATHS[request.view]
        query = [*_make_query(request), *self._clusters, ("limit", str(min(request.rows, MAX_PAGE_ROWS)))]
        page = read_page(self._client, path, query)
        rows = page.rows
        while page.next_cursor and page.rows and len(rows) < request.rows:
            try:
                page = read_page(self._client, path, query, cursor=page.next_cursor)
            except StatusError as error:
                if error.status != GONE:
                    raise
                break
            rows = [*rows, *page.rows]
        return replace(page, rows=rows)

    def _summarize(self, health: Row) -> Iterator[tuple[str, str]]:
        """The most important part first: on a narrow screen the last ones are left out."""
        status = health.text("status")
        color = "ok" if status == "healthy" else "warn"
        yield ANALYZER_STATUS.text(self._language, status=HEALTH.get(status, status)), color
        # All GPUs where the source counts them, otherwise those that are held; shares are fractions.
        held = {key: health.number(f"{key}_gpus") or 0 for key in ("active", "idle", "unknown")}
        idle, unallocated = gpus(held["idle"]), health.number("unallocated_gpus")
        if unallocated is None:
            yield HELD.text(self._language, count=gpus(sum(held.values())), idle=idle), ""
        else:
            count = gpus(health.number("gpus"))
            yield FLEET.text(self._language, count=count, idle=idle, unallocated=gpus(unallocated)), ""
        if (cost := health.number("idle_cost_micros_per_hour")) is not None:
            yield IDLE_COST.text(self._language, cost=money(cost, health.text("currency"))), ""
        yield ALLOCATIONS.text(self._language, count=health.count("allocations")), ""
        coverage = health.number("measured_coverage")  # older analyzers report only that of all
        coverage = health.number("coverage") if coverage is None else coverage
        yield COVERAGE.text(self._language, coverage=percent(coverage)), ""
        yield WORKLOADS.text(self._language, count=health.count("workloads")), ""

    def find_workloads(self, view: View, item: Row) -> Sequence[WorkloadReference]:
        """Raises SourceError."""
        if view is View.WORKLOADS:
            return [name_of(item)]
        if view is View.TENANTS:
            return []
        cluster = item.text("cluster")
        gpu = item.text("id").removeprefix(f"{cluster}:")
        words = [("q", part) for part in (gpu, item.text("node")) if part]
        words += [("cluster", cluster)] if cluster else []
        rows = read_page(self._client, "/api/v1/allocations", [*words, ("limit", "50")]).rows
        mine = [row for row in rows if row.get("gpu") == gpu]
        return list(dict.fromkeys(name_of(row.object("workload")) for row in mine))

    def read_detail(self, workload: WorkloadReference) -> Detail:
        """Raises SourceError."""
        detail = self._client.read(workload.path, [*workload.query, ("language", self._language)])
        plan = describe_plan(read_plans(self._client, workload).get(workload), self._language)["next"]
        lines = list(describe_verdict(detail, self._language))
        if plan:
            lines.insert(0, Line(str(plan), words.NEXT.text(self._language), "warn"))
        return Detail(lines, list(describe_evidence(detail, self._language)))

    def read_charts(self, workload: WorkloadReference, seconds: float) -> Charts:
        """Raises SourceError."""
        query = [*workload.query, ("seconds", f"{seconds:g}"), ("limit", str(MAX_CHARTED_ALLOCATIONS))]
        series = self._client.read(f"{workload.path}/series", query)
        charts = [chart for course in series.objects("courses") for chart in _list_charts(course, self._language)]
        return Charts(charts, seconds, series.object("result").time("at"))

    def read_processes(self, workload: WorkloadReference) -> Sequence[Line]:
        """Raises SourceError."""
        document = self._client.read(f"{workload.path}/processes", [*workload.query, ("limit", str(MAX_PODS))])
        return list(_describe_processes(document, self._language))


def _describe_processes(document: Row, language: Language) -> Iterator[Line]:
    unreported = document.texts("untold")
    rows = [
        {"node": row.text("node"), "gpu": row.text("index"), "pod": row.text("pod"), **describe_use(row)}
        for row in document.objects("processes")
    ]
    if not rows and not unreported:
        yield Line(words.NO_PROCESSES.text(language))
    yield from describe_processes(rows, language, total=document.count("total"))
    if unreported:
        yield Line(PODS_WITHOUT_AGENT.text(language, count=len(unreported)))
    if (left := document.count("pods") - MAX_PODS) > 0:
        yield Line(MORE_PODS.text(language, count=left))


def _key(view: View, item: Row) -> str:
    if view is View.GPUS:
        return item.text("id")
    tenant = (item.text("cluster"), item.text("namespace"))
    return str(name_of(item)) if view is View.WORKLOADS else "/".join(tenant)


def _make_query(request: ListRequest) -> list[tuple[str, str]]:
    query = [("q", word) for word in request.words]
    if request.sort:
        query.append(("sort", request.sort))
    if request.namespace:
        query.append(("namespace", request.namespace))
    if request.verdict and request.view is not View.TENANTS:
        query.append(("verdict", request.verdict))
    return query


def _list_charts(course: Row, language: Language) -> Iterator[LineChart]:
    """One chart per measure of an allocation that has data."""
    lines, gpu = course.object("lines"), _name_gpu(course.text("allocation"))
    for measure, label, top, show in MEASURES:
        points = list(_read_points(lines.get(measure)))
        if points:
            yield LineChart(clean(f"{label.text(language)} {gpu}"), points, top, show(points[-1][1]))


def _name_gpu(allocation: str) -> str:
    """`GPU-76d91b17`, or `GPU-76d91b17/3` for a MIG instance: the first part of the UUID is enough to compare."""
    uuid, *instance = allocation.split("/")[3:] or [allocation]
    return "/".join(("-".join(uuid.split("-")[:2]), *instance))


def _read_points(value: object) -> Iterator[tuple[float, float]]:
    for pair in islice(value if isinstance(value, list) else (), MAX_POINTS):
        match pair:
            case [int() | float() as at, int() | float() as measured]:
                yield float(at), float(measured)
