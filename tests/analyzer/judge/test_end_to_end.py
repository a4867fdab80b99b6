"""From the pages of simulated nodes through a real Prometheus to verdicts, compared with the simulated truth."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import pytest

from gpusteward.agent.dialects.dcgm_options import DcgmOptions
from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.judge.workloads import WorkloadTable, judge_workloads
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.sources.usage.schemes import DCGM, NATIVE
from gpusteward.analyzer.tables import ACTIVITIES, PROOFS, SIGNATURES, STEPS, VerdictTable
from gpusteward.core.node.gpus import Share
from gpusteward.core.usages import AllocationKey
from gpusteward.core.verdicts import Activity, Proof, Signature, Step
from gpusteward.simulate.fleets import default_node, fleet
from gpusteward.simulate.ground_truth import Truth, allocation_key
from gpusteward.simulate.workloads import Kind
from tests.analyzer.engines import RunningEngine, Sample, running_prometheus
from tests.analyzer.scraped_history import AT, WINDOW, Collect, collecting_once, scrape_history, scrape_times
from tests.simulate.single_workload import KINDS_OF_ANY_FLEET

pytestmark = pytest.mark.slow

CYCLE, CYCLES = 300.0, 5
"""Half an hour: after that work may be classified as keep-alive."""
RULES = Rules()
NODES = (default_node(1, name="showcase"), *fleet(20))

PLAUSIBLE: Mapping[tuple[Kind, bool], set[Signature]] = {
    (Kind.TRAINING, True): {Signature.STEADY, Signature.BURSTY},  # a checkpoint in the window is a pause
    (Kind.INFERENCE, True): {Signature.BURSTY, Signature.STEADY},
    (Kind.NOTEBOOK, True): {Signature.BURSTY, Signature.STEADY},
    (Kind.STARVED, True): {Signature.STARVED},
    (Kind.HUNG, True): {Signature.STEADY, Signature.BURSTY},  # before it hangs
    (Kind.KEEP_ALIVE, True): {Signature.KEEP_ALIVE, Signature.STEADY},  # data transfer of a shared GPU is unknown
    (Kind.EMPTY, False): {Signature.EMPTY},
    (Kind.PARKED, False): {Signature.PARKED},
    (Kind.NOTEBOOK, False): {Signature.PARKED},
    (Kind.HUNG, False): {Signature.HUNG},
}
"""By kind, and whether it worked."""
RECLAIMABLE = (Kind.EMPTY, Kind.PARKED, Kind.NOTEBOOK)


@dataclass(frozen=True)
class Row:
    """One allocation: its verdict and the truth."""

    allocation: AllocationKey
    truth: Truth
    activity: Activity
    signature: Signature
    step: Step
    share: Share  # from the truth: DCGM metrics do not have it
    at: float
    is_measurable: bool  # MIG instances before Hopper: only DCGM could measure them

    @property
    def worked(self) -> bool:
        return self.truth.worked(self.at - WINDOW, self.at)

    @property
    def rested(self) -> bool:
        """For long enough: a window that overlaps with work is a pause."""
        return not self.truth.worked(self.at - 2 * WINDOW, self.at)

    @property
    def is_lone(self) -> bool:
        return self.share in (Share.EXCLUSIVE, Share.MIG)


@dataclass(frozen=True)
class Judged:
    """All cycles, and the workloads of the last one."""

    cycles: Sequence[Sequence[Row]]
    workloads: WorkloadTable

    @property
    def rows(self) -> Sequence[Row]:
        return self.cycles[-1]


def scrape(collect: Collect, dialects: str, options: DcgmOptions | None = None) -> Iterator[Sample]:
    """All metrics that the analyzer can query, of all nodes, scraped every 30 s."""
    queried = NATIVE.names | DCGM.names | {"up"}
    times = scrape_times(WINDOW + CYCLES * CYCLE)
    samples = scrape_history(NODES, times, dialects=dialects, options=options, collect=collect)
    return (sample for sample in samples if sample[0] in queried)


def judge_engine(engine: RunningEngine) -> Judged:
    """As the analyzer does by default, cycle after cycle."""
    memory, cycles = VerdictHistory(), []
    with closing(PrometheusSource(PrometheusSettings(url=engine.url))) as source:
        for back in reversed(range(CYCLES)):
            now = AT - back * CYCLE
            verdicts, memory = judge(source.read(now), RULES, memory, now=now)
            cycles.append(list(set_beside_truth(verdicts)))
    return Judged(cycles, judge_workloads(verdicts, RULES))


def set_beside_truth(verdicts: VerdictTable) -> Iterator[Row]:
    at = verdicts.usage.at
    truths = {key: (node, truth) for node in NODES for key, truth in node.truths(at).items()}
    by_container = {key[:3]: found for key, found in truths.items()}
    claims = [claim for node in NODES for claim in node.snapshot(at).allocations]
    shares = {allocation_key(claim)[:3]: claim.share for claim in claims}
    for row, held in enumerate(verdicts.usage.allocations):
        key = held.container.namespace, held.container.pod, held.container.name
        node, truth = truths.get((*key, held.gpu_uuid)) or by_container[key]  # a MIG row names its parent
        yield Row(
            held,
            truth,
            ACTIVITIES[verdicts.activity[row]],
            SIGNATURES[verdicts.signature[row]],
            STEPS[verdicts.step[row]],
            shares[key],
            at,
            is_measurable=node.model.has_gpm or not held.gpu_instance,
        )


@pytest.fixture(scope="module")
def collect() -> Collect:
    """Every 5 s like the agent, and once for both sites."""
    return collecting_once(5.0)


@pytest.fixture(scope="module")
def native(collect: Collect, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    """The agent's page unchanged."""
    with running_prometheus(tmp_path_factory.mktemp("native"), scrape(collect, "native dcgm")) as engine:
        yield judge_engine(engine)


@pytest.fixture(scope="module")
def dcgm(collect: Collect, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    """A site with DCGM metrics only; on a shared GPU every pod has the numbers of the device."""
    samples = scrape(collect, "dcgm", DcgmOptions(device_per_pod=True))
    with running_prometheus(tmp_path_factory.mktemp("dcgm"), samples) as engine:
        yield judge_engine(engine)


@pytest.fixture(params=["native", "dcgm"])
def either(request: pytest.FixtureRequest) -> Judged:
    judged: Judged = request.getfixturevalue(request.param)
    return judged


def test_every_kind_and_every_sharing_mode_is_there(native: Judged):
    assert {row.truth.kind for row in native.rows} == KINDS_OF_ANY_FLEET
    assert {row.share for row in native.rows} == set(Share)
    assert all(row.allocation.share == row.share for row in native.rows)
    assert len(native.rows) >= 150


def test_no_active_allocation_is_judged_idle(either: Judged):
    assert not [row for row in either.rows if row.worked and row.activity is Activity.IDLE]
    assert sum(row.worked for row in either.rows) >= 80


def test_the_agents_counter_shows_work_between_two_scrapes_from_the_first_cycle_on(native: Judged):
    rows = [row for cycle in native.cycles for row in cycle]
    assert len(rows) >= 150 * CYCLES
    assert not [row for row in rows if row.worked and row.activity is Activity.IDLE]


def test_nearly_all_idle_allocations_are_judged_idle(native: Judged):
    rested = [row for row in native.rows if row.rested and row.is_measurable]
    assert len(rested) >= 40
    assert sum(row.activity is Activity.IDLE for row in rested) >= 0.95 * len(rested)


def test_with_dcgm_metrics_alone_nearly_all_idle_exclusive_allocations_are_judged_idle(dcgm: Judged):
    rested = [row for row in dcgm.rows if row.rested and row.is_measurable and row.is_lone]
    assert len(rested) >= 10
    assert sum(row.activity is Activity.IDLE for row in rested) >= 0.95 * len(rested)


def test_signatures_are_plausible(native: Judged):
    """Between active and idle there is a pause, which is bursty."""
    for row in native.rows:
        if row.is_measurable and (row.worked or row.rested):
            assert row.signature in PLAUSIBLE[row.truth.kind, row.worked], row
    lone = [row for row in native.rows if row.truth.kind is Kind.KEEP_ALIVE and row.share is Share.EXCLUSIVE]
    assert lone
    assert {row.signature for row in lone} == {Signature.KEEP_ALIVE}


def test_what_cannot_be_measured_is_unknown(native: Judged):
    """Except for empty allocations: without a process there is nothing to measure."""
    hidden = [row for row in native.rows if not row.is_measurable]
    assert {row.activity for row in hidden if row.truth.kind is not Kind.EMPTY} == {Activity.UNKNOWN}
    assert {row.activity for row in hidden if row.truth.kind is Kind.EMPTY} == {Activity.IDLE}


def test_real_work_is_not_classified_as_keep_alive(either: Judged):
    found = {row.truth.kind for row in either.rows if row.signature is Signature.KEEP_ALIVE}
    assert found == {Kind.KEEP_ALIVE}


def test_nothing_that_works_or_hangs_may_be_reclaimed(either: Judged):
    """Also where the owner is unknown, and with it whether the workload should run without pauses."""
    free = [row for row in either.rows if row.step is Step.RECLAIM]
    assert {row.truth.kind for row in free} <= set(RECLAIMABLE)
    assert not [row for row in free if row.worked]


def test_a_workload_with_a_gpu_at_work_is_neither_idle_nor_reclaimed(either: Judged):
    table = either.workloads
    for number in range(len(table)):
        rows = [either.rows[row] for row in table.rows(number)]
        if any(row.worked for row in rows):
            assert ACTIVITIES[table.activity[number]] is not Activity.IDLE
            assert STEPS[table.step[number]] is not Step.RECLAIM
    may_reclaim = table.step == STEPS.index(Step.RECLAIM)
    assert (table.proof[may_reclaim] == PROOFS.index(Proof.INTEGRATED)).all()
    knows_owners = any(row.allocation.container.workload for row in either.rows)
    assert may_reclaim.sum() >= 5 or not knows_owners  # without an owner it may be a job that loads
