"""Verdicts on simulated nodes with their truth, for test_ground_truth and `bench.judge_truth`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.tables import ACTIVITIES, DOUBTS, SIGNATURES, VerdictTable
from gpusteward.core.verdicts import Activity, Doubt, Signature
from gpusteward.simulate.ground_truth import Truth
from gpusteward.simulate.load_curves import Constant
from gpusteward.simulate.models import MODELS
from gpusteward.simulate.nodes import SimulatedNode
from gpusteward.simulate.workloads import Kind
from tests.analyzer.usage_tables import AT, STEP, WINDOW, Sampled, truth_key
from tests.simulate.single_workload import only_truth, single_application, single_workload_node, start_of_pod

CYCLE = 300.0
CYCLES = 5
"""Windows of ten minutes, one every five: half an hour, after which work may be classified as keep-alive."""
DAY = 86_400.0
HOUR = 3_600.0
RULES = Rules()

MONDAY = AT - AT % DAY + (4 - AT // DAY % 7) % 7 * DAY
"""Midnight UTC. The epoch was a Thursday."""
MOMENTS = (
    MONDAY + 10.3 * HOUR,
    MONDAY + DAY + 3.1 * HOUR,
    MONDAY + 2 * DAY + 15.7 * HOUR,
    MONDAY + 5 * DAY + 12.2 * HOUR,
)
"""A working morning, a night, a working afternoon, a weekend."""


@dataclass(frozen=True, slots=True)
class Case:
    """One allocation at one moment."""

    kind: Kind
    worked: bool  # by truth, within the judged window
    busy_seconds: float
    activity: Activity
    signature: Signature
    doubt: Doubt
    share: str

    @property
    def is_false_idle(self) -> bool:
        return self.worked and self.activity is Activity.IDLE


def lone_nodes(kind: Kind, seeds: Iterable[int]) -> list[SimulatedNode]:
    """One workload on one GPU each, of all models in turn."""
    models = list(MODELS.values())
    return [single_workload_node(kind, seed, model=models[seed % len(models)]) for seed in seeds]


def even_servers(seeds: Iterable[int]) -> list[SimulatedNode]:
    """Real servers under an even load of 1 to 40 %: as flat as keep-alive work, but they read their weights."""
    nodes = lone_nodes(Kind.INFERENCE, seeds)
    for seed, node in zip(seeds, nodes, strict=True):
        (placement,) = node.devices[0].placements
        placement.work = Constant((seed % 40 + 1) / 100)
    return nodes


def judge_nodes(
    nodes: Sequence[SimulatedNode],
    at: float,
    *,
    window: float = WINDOW,
    step: float = STEP,
    counter_step: float | None = None,
    cycles: int = CYCLES,
) -> list[Case]:
    """Judge as the analyzer does, cycle after cycle up to a moment, and add the truth."""
    sampled = Sampled(nodes)
    history = VerdictHistory()
    for back in reversed(range(cycles)):
        now = at - back * CYCLE
        table = sampled.table(now, window=window, step=step, counter_step=counter_step)
        verdicts, history = judge(table, RULES, history, now=now)
    return list(compare(verdicts, sampled))


def compare(verdicts: VerdictTable, sampled: Sampled) -> Iterator[Case]:
    """Rows whose pods existed during the whole window."""
    at, window = verdicts.usage.at, verdicts.usage.window_seconds
    truths = sampled.truths(at)
    for row, held in enumerate(verdicts.usage.allocations):
        truth = truths[truth_key(held)]
        if truth.started_at <= at - window:
            yield Case(
                truth.kind,
                truth.worked(at - window, at),
                truth.busy_seconds(at - window, at),
                ACTIVITIES[verdicts.activity[row]],
                SIGNATURES[verdicts.signature[row]],
                DOUBTS[verdicts.doubt[row]],
                held.share,
            )


def find_brief_work(kind: Kind, seed: int, *, least: float, most: float, count: int) -> list[float]:
    """Ends of windows in which a lone workload worked for a few seconds only: the hardest to see."""
    truth = only_truth(single_workload_node(kind, seed), start_of_pod(kind, seed))
    start = start_of_pod(kind, seed) + 2 * WINDOW
    end = min(start + 7 * DAY, start_of_pod(kind, seed) + single_application(kind, seed).lifetimes.duration)
    found: list[float] = []
    at = start
    while at < end and len(found) < count:
        if least <= truth.busy_seconds(at - WINDOW, at) <= most and not _works(truth, at):
            found.append(at)
            at += HOUR
        at += 10.0
    return found


def _works(truth: Truth, at: float) -> bool:
    return truth.worked(at - 10.0, at)
