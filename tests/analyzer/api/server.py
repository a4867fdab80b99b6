"""The HTTP API in this process, behind a real server on loopback, with fake components behind it.

with running_api(make_result(...), source=FakeSource()) as api: api.get("/api/v1/workloads")
"""

import asyncio
import json
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from email.message import Message
from pathlib import Path
from typing import Any

from gpusteward.analyzer.api.build import build_api
from gpusteward.analyzer.api.dependencies import ApiDependencies, SettingsControl
from gpusteward.analyzer.api.event_feed import EventFeed
from gpusteward.analyzer.api.http.roles import Roles
from gpusteward.analyzer.api.http.static_files import UiBundle
from gpusteward.analyzer.api.publisher import ResultPublisher
from gpusteward.analyzer.api.result_store import ResultStore
from gpusteward.analyzer.api.source_reader import SourceReader
from gpusteward.analyzer.explain.explainer import ModelCounters
from gpusteward.analyzer.explain.opinion_effects import apply_objections, evaluate_opinions
from gpusteward.analyzer.explain.opinions import Opinion
from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.analyzer.ledger.snoozes import Snooze
from gpusteward.analyzer.notify.outbox.records import Delivery
from gpusteward.analyzer.pipeline import CycleStats
from gpusteward.analyzer.pool_minutes import PoolMinutes
from gpusteward.analyzer.reclaim.lending import LendableGpus
from gpusteward.analyzer.reports.report import Charge, EndedWorkload, GroupDetails, Report
from gpusteward.analyzer.reports.report_query import EndedQuery, ReportQuery
from gpusteward.analyzer.reports.workload_history import WorkloadHistory
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.server.http_server import ConnectionLimits, LimitedServer
from gpusteward.analyzer.server.listen_socket import open_socket
from gpusteward.analyzer.server.serve import configure_server
from gpusteward.analyzer.settings.effective import EffectiveSettings
from gpusteward.analyzer.settings.masked import MaskedSetting, mask_settings
from gpusteward.analyzer.settings.settings import ServerSettings, Settings
from gpusteward.analyzer.sources.live_readings import PodProcesses, ReportedGpu, RunningProcess
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.analyzer.sources.usage_source import Chart
from gpusteward.analyzer.spell_table import SpellTable
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.namespaces import VisibleNamespaces
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.usages import AllocationKey, Measure
from tests.analyzer.reports.example_reports import example_report
from tests.analyzer.spells import make_spell_table


@dataclass(frozen=True)
class Response:
    """One HTTP response, read to its end."""

    status: int
    headers: Message
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


@dataclass
class Client:
    """Sends requests to one server. Error responses are returned like others."""

    url: str

    def get(self, path: str, *, method: str = "GET", token: str = "", body: object = None, **headers: str) -> Response:
        """`body`: sent as JSON. Redirects are not followed."""
        request = urllib.request.Request(self.url + path, method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        for name, value in headers.items():
            request.add_header(name.replace("_", "-"), value)
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with _OPENER.open(request, timeout=20) as response:
                return Response(response.status, response.headers, response.read())
        except urllib.error.HTTPError as error:
            with error:
                return Response(error.code, error.headers, error.read())

    def post(self, path: str, *, token: str = "", body: object = None, **headers: str) -> Response:
        return self.get(path, method="POST", token=token, body=body, **headers)


def make_result(
    table: UsageTable,
    *,
    settings: Settings | None = None,
    number: int = 1,
    opinions: Mapping[int, Opinion] | None = None,
) -> Result:
    """The result of a cycle over a usage table."""
    settings = settings or Settings()
    verdicts, _ = judge(table, settings.rules, VerdictHistory(), now=table.at)
    opinion_effects = evaluate_opinions(verdicts, opinions or {}, threshold=settings.ai.threshold)
    verdicts = apply_objections(verdicts, opinion_effects)
    workloads = judge_workloads(verdicts, settings.rules)
    return Result(
        number=number,
        at=table.at,
        seconds=0.25,
        settings=settings,
        verdicts=verdicts,
        workloads=workloads,
        opinions=opinions or {},
        opinion_effects=opinion_effects,
    )


@dataclass
class FakeCycles:
    """Counts requested cycles, and runs none."""

    stats: CycleStats = field(default_factory=CycleStats)
    requested: list[bool | None] = field(default_factory=list)
    defect: str = ""

    def request_cycle(self, *, use_ai: bool | None = None) -> None:
        self.requested.append(use_ai)


class FakeSettings:
    """Settings that remember what was changed, and stay as they are."""

    def __init__(self, current: Settings | None = None) -> None:
        self.current = current or Settings()
        self.roles = Roles(self.current.server.tokens_file, self.current.server.tokens)
        self.changed: list[Mapping[str, object]] = []

    def change(self, values: Mapping[str, object]) -> Settings:
        self.changed.append(values)
        return self.current

    def count_reloads(self) -> Mapping[str, int]:
        return {"ok": 0, "refused": 0}

    def describe(self) -> Sequence[MaskedSetting]:
        return mask_settings(EffectiveSettings(self.current, {}))


@dataclass
class FakeSource:
    """One process in each pod, except in pods called `server...`, which no agent reports."""

    request_counts: Mapping[str, int] = field(default_factory=lambda: {"ok": 3, "failed": 0})
    target_counts: Mapping[str, int] = field(default_factory=dict)
    described: Mapping[str, Any] = field(
        default_factory=lambda: {"url": "http://engine", "engine": "Prometheus", "failures": {}}
    )
    running: PodProcesses | None = None  # instead of those processes
    series_failure: str = ""  # why series cannot be read
    processes_failure: str = ""

    def describe(self) -> Mapping[str, Any]:
        return self.described

    def read_series(self, allocation: AllocationKey, at: float, *, seconds: float) -> Chart:
        if self.series_failure:
            raise SourceError(self.series_failure)
        return Chart(allocation, {Measure.CORE: [(at - 60, 0.5), (at, 0.75)]})

    def read_processes(self, pods: Collection[PodKey], at: float) -> PodProcesses:
        if self.processes_failure:
            raise SourceError(self.processes_failure)
        return _run_processes(pods) if self.running is None else self.running

    def read_gpus(self, node: str, cluster: str, at: float) -> Sequence[ReportedGpu]:
        if self.processes_failure:
            raise SourceError(self.processes_failure)
        values = {"temperature_celsius": 41.0, "power_watts": 70.0, "up": 1.0}
        return [ReportedGpu("0", "", "GPU-a", model="H100", values=values, xid_errors={79: 2})]


def _run_processes(pods: Collection[PodKey]) -> PodProcesses:
    reported = [pod for pod in pods if not pod.name.startswith("server")]
    processes = [
        RunningProcess(pod, "main", "n1", "0", "GPU-a", "", "", 4000 + number, "python", 8.0 * 2**30, 0.25)
        for number, pod in enumerate(reported)
    ]
    return PodProcesses(processes, frozenset(reported))


class FakeLedger:
    """A ledger with one report, and workloads that have ended."""

    def __init__(self, report: Report | None = None, ended: Sequence[EndedWorkload] = ()) -> None:
        self._report = report
        self._ended = ended
        self.snoozes: dict[WorkloadKey, Snooze] = {}
        self.spells = make_spell_table([], at=0.0)

    def describe(self) -> Mapping[str, Any] | None:
        return None

    def read_report(self, query: ReportQuery, *, visible: VisibleNamespaces | None) -> Report:
        return self._report or example_report(query)

    def read_group_details(self, query: ReportQuery, *, visible: VisibleNamespaces | None) -> GroupDetails:
        return GroupDetails(3_600_000, [], [])

    def read_ended_workloads(self, query: EndedQuery, *, visible: VisibleNamespaces | None) -> Sequence[EndedWorkload]:
        return [one for one in self._ended if query.name == one.name and query.namespace in ("", one.namespace)]

    def read_charges(self, query: ReportQuery, *, visible: VisibleNamespaces | None) -> Iterator[Charge]:
        return iter(())

    def read_history(self, workload: WorkloadKey, *, limit: int, visible: VisibleNamespaces | None) -> WorkloadHistory:
        return WorkloadHistory((), (), (), ())

    @property
    def lendable(self) -> Sequence[LendableGpus]:
        return ()

    def read_pools(
        self, since: float, *, visible: VisibleNamespaces | None = None
    ) -> Mapping[WorkloadKey, PoolMinutes]:
        return {}

    def read_spells(self, since: float, *, visible: VisibleNamespaces | None) -> SpellTable:
        return self.spells

    def read_snoozes(self, at: float, *, visible: VisibleNamespaces | None) -> Mapping[WorkloadKey, Snooze]:
        return self.snoozes

    def add_snooze(self, workload: WorkloadKey, *, until: float, reason: str, who: str, at: float) -> Snooze:
        self.snoozes[workload] = Snooze(workload, until, reason, who, at)
        return self.snoozes[workload]

    def end_snooze(self, workload: WorkloadKey, *, who: str, at: float) -> bool:
        return self.snoozes.pop(workload, None) is not None


class FakeDeliveries:
    """An empty outbox. `failure`: why reading it fails."""

    def __init__(self, *, failure: str = "") -> None:
        self._failure = failure

    def describe(self) -> Mapping[str, Any]:
        return {}

    def read_deliveries(self, state: str | None, limit: int) -> Sequence[Delivery]:
        if self._failure:
            raise SourceError(self._failure)
        return ()

    def retry_delivery(self, number: int) -> tuple[Delivery | None, bool]:
        return None, False

    def notify_now(self, result: Result, number: int) -> Sequence[str]:
        return ()


@dataclass
class Api(Client):
    """A client of the application, and the components behind it."""

    dependencies: ApiDependencies
    cycles: FakeCycles

    def publish(self, result: Result) -> None:
        ResultPublisher(self.dependencies.results, self.dependencies.events).publish(result)


def make_dependencies(
    result: Result | None = None,
    *,
    settings: Settings | SettingsControl | None = None,
    cycles: FakeCycles | None = None,
    **others: Any,
) -> ApiDependencies:
    """Fakes for every component but `others`, with a published result unless there is none."""
    if settings is None or isinstance(settings, Settings):
        settings = FakeSettings(settings or (result.settings if result else None))
    dependencies = ApiDependencies(
        results=ResultStore(),
        events=EventFeed(),
        cycles=cycles or FakeCycles(),
        settings=settings,
        source=SourceReader(others.pop("source", FakeSource())),
        ledger=FakeLedger(),
        deliveries=FakeDeliveries(),
        model_calls=ModelCounters(failures=Counter()),
        clock=(lambda: result.at) if result else time.time,  # every result is fresh
        ui=UiBundle(Path("/nonexistent")),  # whether or not one was built here
    )
    dependencies = replace(dependencies, **others)
    if result is not None:
        ResultPublisher(dependencies.results, dependencies.events).publish(result)
        dependencies.cycles.stats.finished = 1
        dependencies.cycles.stats.last_ended_at = dependencies.cycles.stats.last_succeeded_at = result.at
    return dependencies


@contextmanager
def running_api(
    result: Result | None = None,
    *,
    host: str = "127.0.0.1",
    limits: ConnectionLimits | None = None,
    **components: Any,
) -> Iterator[Api]:
    """The application behind its server on a free port, its event loop in a thread. `components` replace fakes."""
    cycles = FakeCycles()
    dependencies = make_dependencies(result, cycles=cycles, **components)
    listening = open_socket(ServerSettings(address=f"{host}:0"))
    server = LimitedServer(configure_server(build_api(dependencies)), web=dependencies.web, limits=limits)

    async def serve() -> None:
        dependencies.events.open()
        await server.serve(sockets=[listening])

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        scheme = "https" if dependencies.web().context else "http"
        yield Api(f"{scheme}://{host}:{listening.getsockname()[1]}", dependencies, cycles)
    finally:
        server.should_exit = True
        thread.join(20)
