"""The time of short pods: recorded from samples and cycles as they come, compared with the truth.

Pods begin and end at random times. Their node is scraped every 30 s at a phase of its own; a cycle runs every 300 s.
"""

from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from gpusteward.analyzer.tables import UsageTable
from tests.analyzer.ledger.cycles import INTERVAL, SETTINGS, START, open_ledger, read_table, sqlite_url

pytestmark = pytest.mark.slow

SCRAPE = 30.0
WINDOW = 600.0
NODES, GPUS = 6, 8
LENGTHS = {3: 0.5, 8: 0.25, 20: 0.15, 60: 0.1}  # minutes, and how many of the pods have them


@dataclass(frozen=True)
class Pod:
    """The truth."""

    name: str
    uid: str
    node: int
    gpu: int
    minutes: int
    begin: float
    end: float
    works: bool


def make_pods(
    hours: float,
    chance: np.random.Generator,
    *,
    lengths: dict[int, float] = LENGTHS,
    choose_name: Callable[[Pod], str] = lambda pod: pod.uid,
) -> list[Pod]:
    """One after the other on each GPU, often without a pause."""
    pods: list[Pod] = []
    for node in range(NODES):
        for gpu in range(GPUS):
            at = START + float(chance.uniform(0, 900))
            while at < START + hours * 3600:
                minutes = int(chance.choice(list(lengths), p=list(lengths.values())))
                works = bool(chance.random() < 0.5)
                made = Pod("", f"p{len(pods)}", node, gpu, minutes, at, at + minutes * 60, works)
                pods.append(replace(made, name=choose_name(made)))
                at = pods[-1].end + float(chance.choice([0.5, 20.0, chance.exponential(200)]))
    return pods


def dcgm_line(pod: Pod | None, node: int, gpu: int) -> str:
    labels = f'gpu="{gpu}",UUID="GPU-{node}-{gpu}",modelName="H100",Hostname="n{node}"'
    labels += f',namespace="ml",pod="{pod.name}",container="main"' if pod else ""
    core = 90 if pod and pod.works else 0
    return f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} {core}\nDCGM_FI_DEV_FB_USED{{{labels}}} 1024\n"


def agent_line(pod: Pod | None, node: int, gpu: int) -> str:
    device = f'node="n{node}",gpu="{gpu}",uuid="GPU-{node}-{gpu}"'
    lines = [f'gpusteward_gpu_info{{{device},model="H100"}} 1']
    if pod:
        held = f'{device},namespace="ml",pod="{pod.name}",container="main",pod_uid="{pod.uid}"'
        lines += [
            f'gpusteward_allocation_info{{{held},share="exclusive"}} 1',
            f"gpusteward_allocation_start_time_seconds{{{held}}} {pod.begin:.3f}",
            f'gpusteward_use_utilization_ratio{{{held},by="container"}} {0.9 if pod.works else 0.0}',
        ]
    return "\n".join(lines) + "\n"


Line = Callable[[Pod | None, int, int], str]


class Site:
    """Scrapes its nodes up to a time, and reads them."""

    def __init__(self, pods: list[Pod], line: Line, chance: np.random.Generator) -> None:
        self._line = line
        self._phases = chance.uniform(0, SCRAPE, NODES)
        self._pods = defaultdict[tuple[int, int], list[Pod]](list)
        for pod in pods:
            self._pods[pod.node, pod.gpu].append(pod)
        self._scrapes = np.zeros(NODES, int)
        self.seen: set[str] = set()

    def scrape_until(self, source: ScrapeSource, at: float) -> None:
        for node in range(NODES):
            while (time := START + self._phases[node] + SCRAPE * self._scrapes[node]) <= at:
                source.ingest(f"n{node}:9400", self._make_page(node, time).encode(), time)
                self._scrapes[node] += 1

    def _make_page(self, node: int, at: float) -> str:
        held = [next((pod for pod in self._pods[node, gpu] if pod.end > at), None) for gpu in range(GPUS)]
        held = [pod if pod and pod.begin <= at else None for pod in held]
        self.seen.update(pod.name for pod in held if pod)
        return "".join(self._line(pod, node, gpu) for gpu, pod in enumerate(held))


def open_source() -> ScrapeSource:
    return ScrapeSource(ScrapeSettings(interval=SCRAPE, selector=""), window_seconds=WINDOW)


def run_cycles(
    site: Site,
    url: str,
    *,
    hours: float,
    chance: np.random.Generator,
    restart_every: int = 0,
    resolve: Callable[[UsageTable], UsageTable] = lambda table: table,
) -> None:
    """`restart_every`: cycles after which the analyzer is another one, with the same samples and the same ledger.
    `resolve`: adds what the API server knows."""
    ledger, history = open_ledger(url), VerdictHistory()
    with closing(open_source()) as source:
        for number in range(1, int(hours * 3600 / INTERVAL) + 1):
            at = START + INTERVAL * number + float(chance.uniform(0, 8))
            site.scrape_until(source, at)
            if restart_every and number % restart_every == 0:
                ledger.close()
                ledger, history = open_ledger(url), VerdictHistory()
            table = resolve(source.read(at))
            verdicts, history = judge(table, SETTINGS.rules, history, now=at)
            ledger.record(Result(number, at, 0.1, SETTINGS, verdicts, judge_workloads(verdicts, SETTINGS.rules)))
            assert ledger.describe()["error"] == ""
    ledger.close()


@dataclass(frozen=True)
class Recorded:
    allocated: dict[str, int]  # by pod, in milliseconds
    active: dict[str, int]
    idle: dict[str, int]
    by_gpu: dict[tuple[str, int], int]  # of a GPU and an hour


def read_recorded(url: str) -> Recorded:
    ledger = open_ledger(url)
    pods = {row["id"]: (row["pod"], row["gpu_uuid"]) for row in read_table(ledger.engine, "allocations")}
    found = Recorded(defaultdict(int), defaultdict(int), defaultdict(int), defaultdict(int))
    for row in read_table(ledger.engine, "usage_hourly"):
        pod, gpu = pods[row["allocation_id"]]
        found.allocated[pod] += row["allocated_ms"]
        found.active[pod] += row["active_ms"]
        found.idle[pod] += row["idle_ms"]
        found.by_gpu[gpu, row["hour_ms"]] += row["allocated_ms"]
    ledger.close()
    return found


RUNS = {
    "dcgm-exporter": (dcgm_line, 0, 0.95),
    "dcgm-exporter, restarts": (dcgm_line, 3, 0.95),
    "agent": (agent_line, 0, 0.99),
    "agent, restarts": (agent_line, 3, 0.99),
}


class Simulated(NamedTuple):
    pods: list[Pod]
    recorded: Recorded
    expected: float  # how much of the time should be recorded at least


@pytest.fixture(scope="module", params=RUNS.values(), ids=RUNS)
def simulated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    line, restart_every, expected = request.param
    chance, hours = np.random.default_rng(7), 6.0
    pods = make_pods(hours - 0.5, chance)
    site, url = Site(pods, line, chance), sqlite_url(tmp_path_factory.mktemp("ledger"))
    run_cycles(site, url, hours=hours, chance=chance, restart_every=restart_every)
    first, end = START + INTERVAL + 8, START + (hours - 0.25) * 3600  # the first cycle records nothing
    whole = [pod for pod in pods if pod.name in site.seen and pod.begin > first and pod.end < end]
    return Simulated(whole, read_recorded(url), expected)


@pytest.mark.parametrize("minutes", LENGTHS)
def test_the_time_of_short_pods_is_recorded(simulated: Simulated, minutes: int):
    """28, 63, 74 and 93 % without the samples of ended pods and of the first minutes of new ones."""
    own = [pod for pod in simulated.pods if pod.minutes == minutes]
    assert len(own) > 50
    ratio = sum(simulated.recorded.allocated[pod.name] for pod in own) / (len(own) * minutes * 60_000)
    assert simulated.expected <= ratio <= 1.01


def test_never_more_time_is_recorded_than_a_gpu_has(simulated: Simulated):
    assert max(simulated.recorded.by_gpu.values()) <= 3_600_000
    begin, end = min(pod.begin for pod in simulated.pods), max(pod.end for pod in simulated.pods)
    assert sum(simulated.recorded.by_gpu.values()) <= (end - begin + 3600) * 1000 * NODES * GPUS


def test_time_of_a_short_pod_is_active_only_where_it_worked_and_idle_only_after_a_whole_window(simulated: Simulated):
    recorded = simulated.recorded
    working, resting = ([pod for pod in simulated.pods if pod.works is works] for works in (True, False))
    worked = sum(recorded.active[pod.name] for pod in working) / sum(recorded.allocated[pod.name] for pod in working)
    assert worked > 0.99
    assert not [pod for pod in resting if recorded.active[pod.name]]
    assert not [pod for pod in simulated.pods if pod.minutes < 9 and recorded.idle[pod.name]]


def name_again(pod: Pod, chance: np.random.Generator) -> str:
    """As a StatefulSet names its pods: mostly the one that was on this GPU before, sometimes another one."""
    return f"{chance.choice(['web', 'web', 'web', 'other'])}-{pod.node}-{pod.gpu}"


def ask_api_server(table: UsageTable, pods: list[Pod]) -> UsageTable:
    """Uid and start of the pods that exist now, as the API server knows them; ended ones are gone."""
    now = {pod.name: pod for pod in pods if pod.begin <= table.at < pod.end}
    allocations = [
        replace(one, container=replace(one.container, pod_uid=pod.uid, started_at=pod.begin))
        if (pod := now.get(one.container.pod))
        else one
        for one in table.allocations
    ]
    return replace(table, allocations=allocations)


RESTARTED = {
    "dcgm-exporter": (dcgm_line, False, 0, 0.98),
    "dcgm-exporter, restarts": (dcgm_line, False, 3, 0.98),
    "dcgm-exporter and API server": (dcgm_line, True, 0, 0.95),
    "agent": (agent_line, False, 0, 0.98),
}


@pytest.mark.parametrize(("line", "asks", "restart_every", "expected"), RESTARTED.values(), ids=RESTARTED)
def test_the_time_of_pods_that_follow_each_other_under_one_name_is_recorded(
    tmp_path: Path, line: Line, asks: bool, restart_every: int, expected: float
):
    """Several of them begin and end within one cycle, with pauses and with others between them. Where nothing tells
    them apart, the time of one before another that no cycle has seen either is missing."""
    chance, hours = np.random.default_rng(11), 4.0
    lengths = {1: 0.3, 2: 0.3, 3: 0.2, 8: 0.2}
    pods = make_pods(hours - 0.5, chance, lengths=lengths, choose_name=lambda pod: name_again(pod, chance))
    site, url = Site(pods, line, chance), sqlite_url(tmp_path)
    resolve = (lambda table: ask_api_server(table, pods)) if asks else (lambda table: table)
    run_cycles(site, url, hours=hours, chance=chance, restart_every=restart_every, resolve=resolve)
    recorded, first = read_recorded(url), START + INTERVAL + 8
    truth, found = defaultdict[str, float](float), defaultdict[str, float](float)
    for pod in pods:
        truth[pod.name.partition("-")[0]] += max(pod.end - max(pod.begin, first), 0) * 1000
    for name, time in recorded.allocated.items():
        found[name.partition("-")[0]] += time
    assert max(recorded.by_gpu.values()) <= 3_600_000
    for name in ("web", "other"):
        assert expected <= found[name] / truth[name] <= 1.01, name
