"""GPUs that somebody uses who does not hold them: from the fake driver to the verdict, in both sources."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpusteward.agent.collector_runner import CollectorRunner
from gpusteward.agent.dialects.dcgm import DcgmDialect
from gpusteward.agent.dialects.dcgm_options import DcgmOptions
from gpusteward.agent.dialects.native import NativeDialect
from gpusteward.agent.field_list import default_fields
from gpusteward.agent.kubernetes.kubelet import KubeletClient
from gpusteward.agent.kubernetes.pod_watch import PodWatch
from gpusteward.agent.kubernetes.pods import PAIR_GPUS_ANNOTATION
from gpusteward.agent.node_source import NodeProviders, NodeSource
from gpusteward.agent.nvml import Nvml
from gpusteward.agent.processes import ProcessTable
from gpusteward.analyzer.judge.activity import ActivityRule
from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.reasons import explain_row
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.analyzer.reclaim.decisions.decide import choose_outcome
from gpusteward.analyzer.reclaim.decisions.workloads import ReclaimWorkload, WorkloadFinder
from gpusteward.analyzer.reclaim.execution.usage_check import UsageCheck
from gpusteward.analyzer.reclaim.plan import Outcome
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.sources.usage_source import UsageSource
from gpusteward.analyzer.tables import ACTIVITIES, SIGNATURES, STEPS, UsageTable
from gpusteward.core import metrics
from gpusteward.core.exposition import LabelCache
from gpusteward.core.messages import Message
from gpusteward.core.node.snapshots import Snapshot
from gpusteward.core.node.usage_split import SPLIT_SIGNALS
from gpusteward.kubernetes.api import ApiServer
from gpusteward.kubernetes.owners import PAIR_LABEL
from gpusteward.messages import unknown_reasons
from tests.analyzer.engines import Sample, running_prometheus
from tests.analyzer.scraped_history import AT, scrape_history, scrape_times
from tests.analyzer.sources.scrape.page_server import fed_source
from tests.analyzer.tables import assert_alike
from tests.fakes.machines import NODE, Machine, NodePod
from tests.fakes.nvml_library import FakeNvml
from tests.fakes.nvml_scenarios import (
    GIB,
    LEGACY_UTILIZATION,
    MIB,
    MODERN_UTILIZATION,
    NOT_SUPPORTED,
    FakeGpu,
    a100x8,
    h100,
)

pytestmark = pytest.mark.slow

TIMES = scrape_times()
DCGM = DcgmDialect(DcgmOptions(), default_fields("classic"), labels=LabelCache())
WANTED = SPLIT_SIGNALS | NativeDialect(LabelCache()).wanted | DCGM.wanted
RECLAIMED = ("idle", "parked", "reclaim")
RECLAIMED_EMPTY = ("idle", "empty", "reclaim")
UNKNOWN = ("unknown", "unknown", "notice")
VERDICTS: Mapping[str, tuple[str, str, str]] = {
    "used-by-a-pod": UNKNOWN,
    "used-by-the-host": UNKNOWN,
    "display-server": RECLAIMED,
    "unused": RECLAIMED_EMPTY,
    "loaded-by-a-pod": UNKNOWN,
    "small-pod": RECLAIMED,
    "memory-of-nobody": UNKNOWN,  # beside a display server, the memory of a process that has ended
    "works-itself": ("active", "steady", "notice"),
    "beside-a-busy-host": UNKNOWN,  # its own process only holds memory
    "beside-a-hidden-busy-host": UNKNOWN,  # the driver does not tell how much each process works
    "held-for-another-pod": ("active", "steady", "notice"),  # of llm-d: the other one works for it
    "held-for-an-idle-pod": UNKNOWN,
    "held-for-a-sleeping-pod": UNKNOWN,  # it has no process on the GPU
    "names-a-pod-that-names-nobody": RECLAIMED_EMPTY,
    "names-a-pod-of-another-gpu": RECLAIMED_EMPTY,
}
"""The holder of each GPU: activity, signature and highest step."""

LAUNCHERS: Mapping[str, list[int]] = {
    "held-for-another-pod": [23],
    "held-for-an-idle-pod": [24],
    "held-for-a-sleeping-pod": [],
    "names-a-pod-that-names-nobody": [],
    "names-a-pod-of-another-gpu": [],
}
"""The processes of the pod that each of these holders names."""
HELD_FOR_OTHERS = ("held-for-another-pod", "held-for-an-idle-pod", "held-for-a-sleeping-pod")
"""Of llm-d: these are pairs."""


@dataclass(frozen=True)
class ReadNode:
    """The machine as its agent read it once, at any time."""

    read: Snapshot
    name = NODE

    def snapshot(self, at: float) -> Snapshot:
        values = {name: getattr(self.read, name) for name in self.read.__slots__}
        return Snapshot(**{**values, "taken_at": at})


def occupy(gpu: FakeGpu, pid: int, memory: int, percent: int) -> None:
    gpu.numbers["memory_used"], gpu.numbers["gpu_percent"] = gpu.numbers["memory_used"] + memory, percent
    gpu.compute(pid, memory)
    gpu.uses(pid, percent)


def make_machine() -> Machine:
    scenario = a100x8()
    scenario.gpus += [h100(index) for index in range(8, len(VERDICTS))]
    for gpu in scenario.gpus:
        gpu.rest()
        gpu.numbers["power_mw"] = 60_000
    occupy(scenario.gpus[0], 10, 69 * GIB, 30)
    occupy(scenario.gpus[1], 11, 69 * GIB, 30)
    scenario.gpus[2].graphics(12, 80 * MIB)
    occupy(scenario.gpus[4], 14, 40 * GIB, 0)
    occupy(scenario.gpus[5], 15, 500 * MIB, 0)
    scenario.gpus[6].graphics(16, 80 * MIB)
    scenario.gpus[6].numbers["memory_used"] = 69 * GIB
    occupy(scenario.gpus[7], 17, 30 * GIB, 40)
    occupy(scenario.gpus[7], 18, 30 * GIB, 40)
    for gpu, own, host in zip(scenario.gpus[8:10], (19, 21), (20, 22), strict=True):
        occupy(gpu, own, 30 * GIB, 0)
        occupy(gpu, host, 2 * GIB, 60)
        gpu.gpm |= {1: 60.0, 2: 55.0}
    for symbol in (LEGACY_UTILIZATION, MODERN_UTILIZATION):
        scenario.gpus[9].fail(symbol, NOT_SUPPORTED)
    occupy(scenario.gpus[10], 23, 60 * GIB, 70)
    occupy(scenario.gpus[11], 24, 3 * GIB, 0)
    pids = {"works-itself": [17], "beside-a-busy-host": [19], "beside-a-hidden-busy-host": [21]}
    gpus = {pod: gpu.uuid for pod, gpu in zip(VERDICTS, scenario.gpus, strict=True)}
    pairs = {pod: {PAIR_GPUS_ANNOTATION: gpus[pod]} for pod in LAUNCHERS}
    holders = [
        NodePod(
            pod,
            [uuid],
            pids.get(pod, []),
            owner=("ReplicaSet", f"{pod}-5d4f"),
            labels={"pod-template-hash": "5d4f"} | ({PAIR_LABEL: f"launcher-{pod}"} if pod in LAUNCHERS else {}),
            annotations=pairs.get(pod, {}),
        )
        for pod, uuid in gpus.items()
    ]
    pairs["names-a-pod-of-another-gpu"] = {PAIR_GPUS_ANNOTATION: gpus["unused"]}
    launchers = [
        NodePod(
            f"launcher-{pod}",
            [],
            running,
            labels={} if pod == "names-a-pod-that-names-nobody" else {PAIR_LABEL: pod},
            annotations=pairs[pod],
        )
        for pod, running in LAUNCHERS.items()
    ]
    others = [NodePod(f"other-{pid}", [], [pid], namespace="llm") for pid in (10, 14, 15, 18)]
    return Machine(scenario, [*holders, *launchers, *others], host_pids=[11, 12, 16, 20, 22])


@pytest.fixture
def samples(fake_nvml: FakeNvml, tmp_path: Path) -> Sequence[Sample]:
    machine = make_machine()
    fake_nvml.load(machine.scenario)
    with machine.start(tmp_path / "node") as running:
        pods = PodWatch(ApiServer(running.api.url), NODE)
        providers = NodeProviders(ProcessTable(running.proc), KubeletClient(running.kubelet.path), pods)
        source = NodeSource(NODE, Nvml(NODE, event_wait_milliseconds=10), providers)
        try:
            pods.start()
            runner = CollectorRunner()
            for now in (AT - 5, AT):  # use of processes is known from the second time on
                runner.start_cycle()
                snapshot = source.read(WANTED, now=now, runner=runner)
        finally:
            source.close()
    assert len(snapshot.allocations) == len(VERDICTS), "the agent does not see the machine"
    pages = scrape_history([ReadNode(snapshot)], TIMES, dialects="native dcgm")
    return [sample for sample in pages if sample[0] != metrics.ALLOCATION_START.name]  # the fake pods start in future


@contextmanager
def open_sources(samples: Sequence[Sample], folder: Path) -> Iterator[tuple[UsageSource, UsageSource]]:
    """That of an engine, and the one that scrapes."""
    with (
        running_prometheus(folder, samples) as engine,
        closing(PrometheusSource(PrometheusSettings(url=engine.url))) as queried,
        closing(fed_source(samples)) as scraped,
    ):
        yield queried, scraped


def read_tables(samples: Sequence[Sample], folder: Path) -> Iterator[UsageTable]:
    """Of both sources, which must be alike."""
    with open_sources(samples, folder) as (queried, scraped):
        tables = queried.read(AT), scraped.read(AT)
        assert_alike(*tables, rtol=1e-5)
        yield from tables


def judge_holders(table: UsageTable) -> Mapping[str, tuple[str, str, str]]:
    verdicts, _ = judge(table, Rules(), VerdictHistory(), now=AT)
    codes = zip(verdicts.activity, verdicts.signature, verdicts.step, strict=True)
    words = [(ACTIVITIES[one].value, SIGNATURES[two].value, STEPS[three].value) for one, two, three in codes]
    return dict(zip([one.container.pod for one in table.allocations], words, strict=True))


def find_reasons(table: UsageTable) -> Mapping[str, Message]:
    return {table.allocations[row].container.pod: reason for row, reason in table.unknown.items()}


def test_never_idle_nor_empty_where_somebody_else_uses_the_gpu_of_a_holder(samples: Sequence[Sample], tmp_path: Path):
    for table in read_tables(samples, tmp_path):
        assert judge_holders(table) == VERDICTS
        assert {one.container.pod: one.used_by for one in table.allocations if one.used_by} == {
            pod: f"launcher-{pod}" for pod in HELD_FOR_OTHERS
        }
        assert find_reasons(table) == {
            "used-by-a-pod": unknown_reasons.USED_BY_POD.fill(pods="llm/other-10"),
            "used-by-the-host": unknown_reasons.USED_BY_HOST,
            "loaded-by-a-pod": unknown_reasons.USED_BY_POD.fill(pods="llm/other-14"),
            "memory-of-nobody": unknown_reasons.USED_BY_HOST,
            "beside-a-busy-host": unknown_reasons.USED_BY_HOST,
            "beside-a-hidden-busy-host": unknown_reasons.NO_CORE,
            **{pod: unknown_reasons.USED_BY_PAIR.fill(pod=f"launcher-{pod}") for pod in HELD_FOR_OTHERS[1:]},
        }


def test_never_reclaims_the_holder_of_a_pair_whatever_the_other_pod_does(samples: Sequence[Sample], tmp_path: Path):
    with open_sources(samples, tmp_path) as sources:
        for source in sources:
            verdicts, _ = judge(source.read(AT), Rules(), VerdictHistory(), now=AT)
            result = Result(1, AT, 0.1, Settings(), verdicts, judge_workloads(verdicts, Rules()))
            finder = WorkloadFinder(result)
            numbers = {key.name: number for number, key in enumerate(result.workloads.keys)}
            assert numbers["unused"] in finder.list_numbers()
            for pod in HELD_FOR_OTHERS:
                assert numbers[pod] not in finder.list_numbers()
                workload = finder.make_workload(numbers[pod], now=AT)
                assert choose_outcome(workload.facts) is Outcome.NOTHING
                # Whatever a verdict says, the last look at the GPU before an action sees that another pod has it.
                assert look_again(source, workload) != ""
            assert "does not hold" in look_again(source, finder.make_workload(numbers[HELD_FOR_OTHERS[2]], now=AT))
            assert look_again(source, finder.make_workload(numbers["unused"], now=AT)) == ""


def look_again(source: UsageSource, workload: ReclaimWorkload) -> str:
    check = UsageCheck(source, workload.allocations, verdict_at=AT, rule=ActivityRule(), clock=lambda: AT)
    problem = check.look().problem
    return problem.en if problem else ""


def test_agents_without_the_counter_show_other_pods_and_work_of_the_host(samples: Sequence[Sample], tmp_path: Path):
    older = [sample for sample in samples if sample[0] != metrics.GPU_OUTSIDE_SECONDS.name]
    for table in read_tables(older, tmp_path):
        assert find_reasons(table).keys() == VERDICTS.keys() - {
            *("memory-of-nobody", "display-server", "unused", "small-pod", "works-itself"),
            *("held-for-another-pod", "names-a-pod-that-names-nobody", "names-a-pod-of-another-gpu"),
        }


def test_the_reason_of_a_gpu_with_a_process_of_others_does_not_say_that_it_has_none(samples: Sequence[Sample]):
    with closing(fed_source(samples)) as source:
        table = source.read(AT)
    verdicts, _ = judge(table, Rules(), VerdictHistory(), now=AT)
    rows = {one.container.pod: row for row, one in enumerate(table.allocations)}
    texts = {pod: str(explain_row(verdicts, row, rules=Rules())) for pod, row in rows.items()}
    assert "has no process and no memory" in texts["unused"]
    assert "somebody who does not hold the GPU" in texts["display-server"]


def test_the_name_of_the_other_pod_is_not_shown_to_people_who_see_some_namespaces_only():
    named = unknown_reasons.USED_BY_POD.fill(pods="llm/other-10")
    assert unknown_reasons.hide_errors(named) == unknown_reasons.USED_BY_ANOTHER_POD
    assert unknown_reasons.hide_errors(unknown_reasons.USED_BY_HOST) == unknown_reasons.USED_BY_HOST
    pair = unknown_reasons.USED_BY_PAIR.fill(pod="launcher-0")  # in the namespace of the holder, which they see
    assert unknown_reasons.hide_errors(pair) == pair
