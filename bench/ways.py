"""The compared ways to read a fleet: curl as the lower bound, gpu-oour's queries, and a cycle of the analyzer, whose
requests are recorded so that curl can send the same ones."""

import http.client
import json
import subprocess
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import fmean, median
from typing import Any
from urllib.parse import quote_plus, urlsplit

import requests

from bench.fleet_data import SIGNALS, STEP, Fleet, uuid_of
from gpusteward.analyzer.active_source import ActiveSource
from gpusteward.analyzer.api.publisher import prepare
from gpusteward.analyzer.api.result_store import ResultStore
from gpusteward.analyzer.explain.explainer import Explainer
from gpusteward.analyzer.metrics.page import render_result
from gpusteward.analyzer.pipeline import Components, Pipeline
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.live_readings import HostUse, PodProcesses
from gpusteward.analyzer.sources.owners.cluster_owners import ClusterOwners
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.analyzer.sources.usage_source import Chart, UsageSource
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.exposition import TEXT_TYPE
from gpusteward.core.usages import AllocationKey
from tests.analyzer.engines import find_program

OOUR_THREADS = 8
OOUR_TIMEOUT = 10
FORWARDED_HEADERS = ("Content-Type", "Accept-Encoding")


@dataclass(frozen=True, slots=True)
class CycleTime:
    """One cycle of the analyzer, in seconds."""

    whole: float  # until its result is published
    read: float  # queries and building the usage table
    judged: float  # judging and publishing
    rendered: float  # the /metrics page, after that
    cpu: float  # all threads of the analyzer, including the page


def make_settings(url: str, window_seconds: float) -> Settings:
    """The defaults except for the engines, separated by a comma, and the window."""
    return Settings.model_validate({"prometheus": {"url": url.split(","), "time_window_min": window_seconds / 60}})


@dataclass(slots=True)
class Ways:
    """All ways on the same data, in turns; seconds for the whole fleet, by round."""

    gpus: int
    window_minutes: float
    queries: list[str]  # of a cycle
    allocations: int  # in its result
    unknown: int  # allocations that were not judged
    sampled_gpus: int  # that gpu-oour's queries were measured on
    first_cycle: CycleTime  # with discovery
    busy_cores: list[float] = field(default_factory=list)  # cores used by other programs before each round
    curl: list[float] = field(default_factory=list)
    curl_all_signals: list[float] = field(default_factory=list)  # with the signals that a cycle does not read
    cycles: list[CycleTime] = field(default_factory=list)
    oour: list[float] = field(default_factory=list)
    oour_by_uuid: list[float] = field(default_factory=list)  # without `pod!=""`
    oour_kept: list[float] = field(default_factory=list)  # and on kept connections
    alone_seconds: list[float] = field(default_factory=list)  # curl, each query on its own

    @property
    def cycles_whole(self) -> list[float]:
        return [cycle.whole for cycle in self.cycles]

    @property
    def cycles_cpu(self) -> list[float]:
        return [cycle.cpu for cycle in self.cycles]

    @property
    def over_curl(self) -> float:
        """Cycle / curl of the same round, median of the rounds: a busy machine delays both."""
        return median(cycle.whole / floor for cycle, floor in zip(self.cycles, self.curl, strict=True))

    @property
    def over_curl_with_page(self) -> float:
        """The same, until /metrics shows the result."""
        pairs = zip(self.cycles, self.curl, strict=True)
        return median((cycle.whole + cycle.rendered) / floor for cycle, floor in pairs)

    def faster_than(self, oour: Iterable[float]) -> float:
        return median(theirs / cycle.whole for theirs, cycle in zip(oour, self.cycles, strict=True))

    @property
    def cost_of_all_signals(self) -> float:
        """How much longer a cycle would take if it read the mean and peak of every signal."""
        return median(more / less for more, less in zip(self.curl_all_signals, self.curl, strict=True))


@dataclass
class TimedSource:
    """A source, and how long its last read took."""

    source: UsageSource
    seconds: float = 0.0

    def read(self, at: float) -> UsageTable:
        began = time.perf_counter()
        table = self.source.read(at)
        self.seconds = time.perf_counter() - began
        return table

    def read_series(self, allocation: AllocationKey, at: float, *, seconds: float) -> Chart:
        return self.source.read_series(allocation, at, seconds=seconds)

    def read_work(self, allocations: Sequence[AllocationKey], at: float, *, seconds: float) -> Sequence[Chart]:
        return self.source.read_work(allocations, at, seconds=seconds)

    def read_processes(self, pods: Collection[PodKey], at: float) -> PodProcesses:
        return self.source.read_processes(pods, at)

    def read_host_use(self, pods: Collection[PodKey], at: float, *, seconds: float) -> Mapping[PodKey, HostUse]:
        return self.source.read_host_use(pods, at, seconds=seconds)

    def describe(self) -> Mapping[str, Any]:
        return self.source.describe()

    def close(self) -> None:
        self.source.close()


@dataclass
class TimedPublisher:
    """Publishes as the analyzer does, and notes when the result and its page were ready."""

    store: ResultStore = field(default_factory=ResultStore)
    published_at: float = 0.0
    rendered_at: float = 0.0

    def publish(self, result: Result) -> None:
        self.store.publish(prepare(result))
        self.published_at = time.perf_counter()
        render_result(result, TEXT_TYPE)
        self.rendered_at = time.perf_counter()


@dataclass
class Analysis:
    """The analyzer: cycle after cycle, as its scheduler runs them."""

    settings: Settings
    source: UsageSource = field(init=False)

    def __post_init__(self) -> None:
        self.source = ActiveSource(self.settings).source
        self._timed = TimedSource(self.source)
        self._publisher = TimedPublisher()
        components = Components(self._timed, ClusterOwners(None), Explainer(self.settings.ai), self._publisher)
        self._pipeline = Pipeline(components)

    def run(self, at: float) -> tuple[CycleTime, Result]:
        """Read, judge, publish the result, and then render its page."""
        cpu, began = time.process_time(), time.perf_counter()
        result = self._pipeline.run(self.settings, at=at, use_ai=False)
        if result is None:
            raise RuntimeError(f"the cycle failed: {self._pipeline.stats.last_error}")
        ended, read = self._publisher.published_at, self._timed.seconds
        rendered = self._publisher.rendered_at - ended
        times = CycleTime(ended - began, read, ended - began - read, rendered, time.process_time() - cpu)
        return times, result


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One HTTP request."""

    method: str
    path: str  # with its query
    body: str  # a form, encoded


@dataclass(slots=True)
class RecordingProxy:
    url: str
    requests: list[RecordedRequest] = field(default_factory=list)


@contextmanager
def record_requests(engine_url: str) -> Iterator[RecordingProxy]:
    """A proxy to the engine on a free port of the loopback."""
    proxy = RecordingProxy("")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _make_handler(urlsplit(engine_url).netloc, proxy))
    server.daemon_threads = True
    proxy.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _make_handler(engine: str, proxy: RecordingProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # the body follows its header without a delay of 40 ms

        def do_GET(self) -> None:
            self._forward()

        def do_POST(self) -> None:
            self._forward()

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            proxy.requests.append(RecordedRequest(self.command, self.path, body.decode()))
            connection = http.client.HTTPConnection(engine, timeout=120)
            headers = {name: self.headers[name] for name in FORWARDED_HEADERS if name in self.headers}
            connection.request(self.command, self.path, body or None, headers)
            response = connection.getresponse()
            content = response.read()
            connection.close()
            self.send_response(response.status)
            self.send_header("Content-Type", response.headers.get("Content-Type", ""))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """The bench reports its own progress."""

    return Handler


def record_cycle(engine_url: str, window_seconds: float, *, at: float) -> list[RecordedRequest]:
    """The requests of a cycle after discovery."""
    with record_requests(engine_url) as proxy:
        analysis = Analysis(make_settings(proxy.url, window_seconds))
        try:
            analysis.source.read(at)
            proxy.requests.clear()
            analysis.source.read(at)
        finally:
            analysis.source.close()
        return list(proxy.requests)


def add_unread_signals(recorded: Sequence[RecordedRequest]) -> list[RecordedRequest]:
    """Adds the means and peaks that a cycle does not read: the peak of the clock, and free memory, whose last value is
    enough for the total."""
    unread = (("max", "SM_CLOCK"), ("avg", "FB_FREE"), ("max", "FB_FREE"))
    known = {function: _find(recorded, f"{function}_over_time(DCGM_FI_DEV_POWER_USAGE") for function in ("avg", "max")}
    return [*recorded, *(_replace_signal(known[function], name) for function, name in unread)]


def _replace_signal(recorded: RecordedRequest, signal: str) -> RecordedRequest:
    return replace(recorded, body=recorded.body.replace("POWER_USAGE", signal))


def _find(recorded: Sequence[RecordedRequest], words: str) -> RecordedRequest:
    return next(request for request in recorded if quote_plus(words) in request.body)


@dataclass(frozen=True)
class Curl:
    """The same requests with the same concurrency; responses are discarded. Python cannot be faster."""

    config: Path
    concurrency: int

    def run(self) -> float:
        # Immediate: otherwise it waits for the first response before it opens a second connection.
        parallel = ("--parallel", "--parallel-immediate", "--parallel-max", str(self.concurrency))
        began = time.perf_counter()
        self._run(*parallel)
        return time.perf_counter() - began

    def run_alone(self) -> list[float]:
        """Seconds for each request, one after another."""
        return [float(line) for line in self._run().split()]

    def _run(self, *flags: str) -> str:
        command = (find_program("curl"), "--disable", "--no-progress-meter", *flags, "--config", str(self.config))
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def prepare_curl(engine_url: str, recorded: Sequence[RecordedRequest], *, concurrency: int, config: Path) -> Curl:
    config.write_text("next\n".join(write_request(engine_url, request) for request in recorded))
    return Curl(config, concurrency)


def write_request(engine_url: str, request: RecordedRequest) -> str:
    options = {"url": engine_url + request.path, "output": "/dev/null", "write-out": "%{time_total}\n"} | (
        {"data": request.body} if request.body else {}
    )
    return "silent\nshow-error\nfail\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in options.items())


@dataclass(frozen=True)
class GpuOour:
    """gpu-oour's queries: a range query for each GPU and signal, from eight threads, each on its own connection."""

    engine_url: str
    fleet: Fleet
    window_seconds: float
    at: float

    def run(self, sample: Sequence[int], *, condition: str = 'pod!="", ', keeps_connections: bool = False) -> float:
        """Seconds for the whole fleet, extrapolated from these GPUs."""
        began = time.perf_counter()
        with requests.Session() as session, ThreadPoolExecutor(OOUR_THREADS) as pool:
            get = session.get if keeps_connections else requests.get
            means = list(
                pool.map(
                    lambda gpu: [self._read_mean(get, f"{signal}{{{condition}", gpu) for signal in SIGNALS], sample
                )
            )
        seconds = time.perf_counter() - began
        if not all(mean is not None for row in means for mean in row):
            raise RuntimeError("gpu-oour's queries found nothing for some of the GPUs")
        return seconds / len(sample) * self.fleet.gpus

    def _read_mean(self, get: Any, selector: str, gpu: int) -> float | None:
        parameters = {
            "query": f'{selector}UUID="{uuid_of(gpu)}"}}',
            "start": self.at - self.window_seconds,
            "end": self.at,
            "step": f"{STEP}s",
        }
        response = get(f"{self.engine_url}/api/v1/query_range", params=parameters, timeout=OOUR_TIMEOUT)
        response.raise_for_status()
        found = response.json()["data"]["result"]
        return fmean(float(value) for _, value in found[0]["values"]) if found else None
