"""Three ways to know how a fleet fares: curl's, which is the floor; the seed's; and a cycle of the analyzer."""

import json
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.parse import quote_plus

import requests

from bench.fleet_data import SIGNALS, STEP, Fleet, uuid_of
from bench.fleet_results import CycleTime
from bench.wire_tap import Asked, tap_wire
from gpusteward.analyzer.api.publisher import prepare
from gpusteward.analyzer.api.result_store import ResultStore
from gpusteward.analyzer.explain.explainer import Explainer
from gpusteward.analyzer.metrics.page import render_result
from gpusteward.analyzer.pipeline import Components, Pipeline
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.owners.cluster_owners import ClusterOwners
from gpusteward.analyzer.sources.pod_processes import Pod, PodProcesses
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.sources.usage_source import Chart, UsageSource
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.usages import AllocationKey
from tests.analyzer.engines import find_program

SEED_THREADS = 8
SEED_TIMEOUT = 10


def make_settings(url: str, window_seconds: float) -> Settings:
    """The defaults, but for the engine and the window."""
    return Settings.model_validate({"prometheus": {"url": url, "time_window_min": window_seconds / 60}})


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

    def read_processes(self, pods: Collection[Pod], at: float) -> PodProcesses:
        return self.source.read_processes(pods, at)

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
        self.store.page = render_result(result)
        self.rendered_at = time.perf_counter()


@dataclass
class Analysis:
    """The analyzer's way: cycle after cycle, as its scheduler runs them."""

    settings: Settings
    source: PrometheusSource = field(init=False)

    def __post_init__(self) -> None:
        self.source = PrometheusSource(self.settings.prometheus, max_workers=self.settings.scheduler.max_workers)
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


def record_questions(engine_url: str, window_seconds: float, *, at: float) -> list[Asked]:
    """What a cycle asks that has learned already what the site has."""
    with tap_wire(engine_url) as tap:
        analysis = Analysis(make_settings(tap.url, window_seconds))
        try:
            analysis.source.read(at)
            tap.heard.clear()
            analysis.source.read(at)
        finally:
            analysis.source.close()
        return list(tap.heard)


def add_unjudged(questions: Sequence[Asked]) -> list[Asked]:
    """And the means and peaks of signals that nobody judges: the peak of the clock, and free memory, of which a cycle
    asks only how much it is with what is used."""
    unasked = (("max", "SM_CLOCK"), ("avg", "FB_FREE"), ("max", "FB_FREE"))
    known = {fold: _find(questions, f"{fold}_over_time(DCGM_FI_DEV_POWER_USAGE") for fold in ("avg", "max")}
    more = [replace(known[fold], body=known[fold].body.replace("POWER_USAGE", name)) for fold, name in unasked]
    return [*questions, *more]


def _find(questions: Sequence[Asked], words: str) -> Asked:
    return next(question for question in questions if quote_plus(words) in question.body)


@dataclass(frozen=True)
class Curl:
    """The same questions, as many at once, the answers thrown away. Nothing in Python could be faster."""

    config: Path
    at_once: int

    def run(self) -> float:
        # Immediate: otherwise it waits for the first answer before it opens a second connection.
        parallel = ("--parallel", "--parallel-immediate", "--parallel-max", str(self.at_once))
        began = time.perf_counter()
        self._ask(*parallel)
        return time.perf_counter() - began

    def run_alone(self) -> list[float]:
        """Seconds for each question, one after another."""
        return [float(line) for line in self._ask().split()]

    def _ask(self, *flags: str) -> str:
        command = (find_program("curl"), "--disable", "--no-progress-meter", *flags, "--config", str(self.config))
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def prepare_curl(engine_url: str, questions: Sequence[Asked], *, at_once: int, config: Path) -> Curl:
    config.write_text("next\n".join(_write_question(engine_url, question) for question in questions))
    return Curl(config, at_once)


def _write_question(engine_url: str, question: Asked) -> str:
    options = {"url": engine_url + question.path, "output": "/dev/null", "write-out": "%{time_total}\n"} | (
        {"data": question.body} if question.body else {}
    )
    return "silent\nshow-error\nfail\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in options.items())


@dataclass(frozen=True)
class Seed:
    """gpu-oour's way: a range query for each GPU and signal, from eight threads, each on a connection of its own."""

    engine_url: str
    fleet: Fleet
    window_seconds: float
    at: float

    def run(self, sample: Sequence[int], *, condition: str = 'pod!="", ', keeps_connections: bool = False) -> float:
        """Seconds for the whole fleet, as far as these GPUs tell."""
        began = time.perf_counter()
        with requests.Session() as session, ThreadPoolExecutor(SEED_THREADS) as pool:
            ask = session.get if keeps_connections else requests.get
            means = list(
                pool.map(
                    lambda gpu: [self._read_mean(ask, f"{signal}{{{condition}", gpu) for signal in SIGNALS], sample
                )
            )
        seconds = time.perf_counter() - began
        if not all(mean is not None for row in means for mean in row):
            raise RuntimeError("the seed's way found nothing for some of the GPUs")
        return seconds / len(sample) * self.fleet.gpus

    def _read_mean(self, ask: Any, selector: str, gpu: int) -> float | None:
        parameters = {
            "query": f'{selector}UUID="{uuid_of(gpu)}"}}',
            "start": self.at - self.window_seconds,
            "end": self.at,
            "step": f"{STEP}s",
        }
        answer = ask(f"{self.engine_url}/api/v1/query_range", params=parameters, timeout=SEED_TIMEOUT)
        answer.raise_for_status()
        found = answer.json()["data"]["result"]
        return fmean(float(value) for _, value in found[0]["values"]) if found else None
