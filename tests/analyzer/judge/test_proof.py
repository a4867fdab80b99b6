"""How a verdict was proven, and how far it may go: only signals that include all of the time carry a reclaim."""

from collections.abc import Iterator, Mapping

import pytest

from gpusteward.analyzer.judge.history import History
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.reasons import make_verdict
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.core.containers import Workload
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity, Proof, Step, Verdict
from gpusteward.messages import verdicts as texts
from tests.analyzer.engines import Sample
from tests.analyzer.scraped_history import AT as SCRAPED_AT
from tests.analyzer.scraped_history import scrape_times, steady
from tests.analyzer.sources.scrape.page_server import fed_source
from tests.analyzer.usage_tables import AT, WINDOW, Stats, allocation, resting, signal, table_of, working

RULES = Rules()
CYCLE = 300.0
HOUR = 3600.0
GAUGES = {key: value for key, value in resting().items() if key[0] is not Measure.BUSY}
"""What dcgm-exporter reports without profiling."""
H100_LIMIT = signal(Measure.POWER_LIMIT, 700.0)


def quiet(excess_watts: float = 0.5, *, peak: float = 112.0) -> Stats:
    """Gauges at 110 W, and an energy counter that says how much was drawn between the samples."""
    return (
        GAUGES | H100_LIMIT | signal(Measure.POWER, 110.0, peak) | {(Measure.ENERGY, Stat.MEAN): 110.0 + excess_watts}
    )


def judge_cycles(*rows: Stats, every: float = CYCLE) -> Verdict:
    """The verdict of the last of several cycles, oldest first."""
    history = History()
    for back, row in reversed(list(enumerate(reversed(rows)))):
        at = AT - back * every
        verdicts, history = judge(table_of(row, at=at), RULES, history, now=at)
    return make_verdict(verdicts, 0, rules=RULES)


def test_idleness_by_counted_busy_time_is_integrated_and_may_be_reclaimed():
    verdict = judge_cycles(resting())
    assert (verdict.activity, verdict.proof, verdict.highest_step) == (Activity.IDLE, Proof.INTEGRATED, Step.RECLAIM)
    assert texts.PROVEN[Proof.INTEGRATED].en in verdict.reasons


def test_idleness_by_gauges_is_sampled_and_stops_at_a_notice():
    verdict = judge_cycles(*[GAUGES] * 20)
    assert (verdict.activity, verdict.proof, verdict.highest_step) == (Activity.IDLE, Proof.SAMPLED, Step.NOTICE)
    assert texts.PROVEN[Proof.SAMPLED].en in verdict.reasons


def test_where_a_video_engine_is_only_sampled_the_time_of_the_core_proves_no_idleness():
    transcoding = resting() | {(Measure.ENCODER, Stat.PEAK): 0.8}
    later = judge_cycles(transcoding, resting(), resting(), resting())
    assert (later.activity, later.proof, later.highest_step) == (Activity.IDLE, Proof.SAMPLED, Step.NOTICE)
    counted = transcoding | {(Measure.VIDEO, Stat.MEAN): 0.1, (Measure.VIDEO, Stat.PEAK): 0.1}
    assert judge_cycles(counted, resting(), resting(), resting()).proof is Proof.INTEGRATED


def test_work_has_a_proof_too():
    assert judge_cycles(working()).proof is Proof.INTEGRATED
    assert judge_cycles(GAUGES | signal(Measure.CORE, 0.5)).proof is Proof.SAMPLED


def test_energy_proves_idleness_once_it_agreed_for_an_hour():
    cycles = int((HOUR - WINDOW) / CYCLE) + 1
    assert judge_cycles(*[quiet()] * (cycles - 1)).proof is Proof.SAMPLED
    verdict = judge_cycles(*[quiet()] * cycles)
    assert (verdict.proof, verdict.highest_step) == (Proof.INTEGRATED, Step.RECLAIM)
    assert any("energy counter agrees" in reason for reason in verdict.reasons)


@pytest.mark.parametrize(
    "row",
    [
        quiet(3.0),  # 3 s at 300 W more every 5 minutes, which no sample saw
        quiet(peak=180.0),  # a sample within a burst raises the mean of the samples
        quiet(-110.0),  # a counter that stands still
        quiet(-109.9),  # joules under the name of millijoules
        {key: value for key, value in quiet().items() if key[0] is not Measure.ENERGY},
    ],
)
def test_energy_that_the_power_samples_do_not_explain_proves_nothing(row: Stats):
    assert judge_cycles(*[row] * 20).proof is Proof.SAMPLED
    assert judge_cycles(*[quiet()] * 12, row, *[quiet()] * 3).proof is Proof.SAMPLED


def test_energy_proves_nothing_across_a_gap():
    assert judge_cycles(*[quiet()] * 20, every=WINDOW + 1).proof is Proof.SAMPLED


def kernel(seconds_ago: float) -> Stats:
    """As HAMi records it for a container with one GPU."""
    launched_at = AT - seconds_ago
    return {(Measure.LAST_KERNEL, Stat.LAST): launched_at, (Measure.CONTAINER_KERNEL, Stat.LAST): launched_at}


def test_a_last_kernel_before_the_window_proves_idleness():
    verdict = judge_cycles(GAUGES | kernel(WINDOW))
    assert (verdict.activity, verdict.proof, verdict.highest_step) == (Activity.IDLE, Proof.INTEGRATED, Step.RECLAIM)
    assert any("kernels are launched" in reason for reason in verdict.reasons)


def test_a_kernel_in_the_window_is_work_that_no_sample_saw():
    verdict = judge_cycles(GAUGES | kernel(WINDOW - 1))
    assert verdict.activity is Activity.ACTIVE
    assert any("A kernel was launched" in reason for reason in verdict.reasons)


@pytest.mark.parametrize("launched", [{}, kernel(25 * HOUR), kernel(-HOUR)], ids=["none", "before the pod", "future"])
def test_a_last_kernel_that_is_not_the_pods_own_proves_nothing(launched: Stats):
    verdict = judge_cycles(GAUGES | launched)
    assert (verdict.activity, verdict.proof) == (Activity.IDLE, Proof.SAMPLED)


def test_a_last_kernel_on_another_gpu_of_the_container_proves_nothing_about_this_one():
    verdict = judge_cycles(GAUGES | {(Measure.CONTAINER_KERNEL, Stat.LAST): AT - 60})
    assert (verdict.activity, verdict.proof) == (Activity.IDLE, Proof.SAMPLED)


def test_a_last_kernel_says_nothing_about_video_engines_and_other_signals():
    transcoding = GAUGES | kernel(HOUR) | {(Measure.ENCODER, Stat.PEAK): 0.8}
    assert judge_cycles(transcoding).activity is Activity.ACTIVE
    later = [GAUGES | kernel(HOUR)] * 3
    assert judge_cycles(transcoding, *later).proof is Proof.SAMPLED


def test_a_workload_is_only_as_well_proven_as_its_weakest_allocation():
    owner = Workload("Deployment", "team", "server")
    held = [allocation(number, owner=owner) for number in range(2)]
    verdicts, _ = judge(table_of(resting(), GAUGES, allocations=held), RULES, History(), now=AT)
    verdict = judge_workloads(verdicts, RULES).verdict(0)
    assert (verdict.activity, verdict.proof, verdict.highest_step) == (Activity.IDLE, Proof.SAMPLED, Step.NOTICE)
    assert texts.PROVEN[Proof.SAMPLED].en in verdict.reasons


PODS: Mapping[str, tuple[str, ...]] = {
    "gauges": (),
    "engine": ("DCGM_FI_PROF_GR_ENGINE_ACTIVE",),
    "energy": ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",),
    "paused-profiling": ("DCGM_FI_PROF_GR_ENGINE_ACTIVE",),
}


def dcgm_page() -> Iterator[Sample]:
    """Idle pods whose exporters differ in what they export."""
    times = scrape_times(1200)
    for number, (pod, extra) in enumerate(PODS.items()):
        labels = {"gpu": str(number), "UUID": f"GPU-{number}", "Hostname": "n1", "modelName": "NVIDIA H100 80GB HBM3"}
        labels |= {"namespace": "ml", "pod": pod, "container": "main", "job": "dcgm", "instance": "n1:9400"}
        for name, value in {"GPU_UTIL": 0, "FB_USED": 4000, "POWER_USAGE": 70}.items():
            yield from steady(f"DCGM_FI_DEV_{name}", value, times, **labels)
        for name in extra:
            for at in times[::4] if pod.startswith("paused") else times:
                joules = 70.0 * (at - times[0])
                yield from steady(name, 0 if "ENGINE" in name else 1e9 + joules * 1000, [at], **labels)


def test_engine_activity_and_energy_of_dcgm_are_read_as_signals_that_integrate():
    table = fed_source(dcgm_page()).read(SCRAPED_AT)
    verdicts, _ = judge(table, RULES, History(), now=SCRAPED_AT)
    proofs = {
        one.container.pod: make_verdict(verdicts, row, rules=RULES).proof for row, one in enumerate(table.allocations)
    }
    assert proofs == {
        "gauges": Proof.SAMPLED,
        "engine": Proof.INTEGRATED,
        "energy": Proof.SAMPLED,  # until it agreed for an hour
        "paused-profiling": Proof.SAMPLED,
    }
    energy = table.column(Measure.ENERGY, Stat.MEAN)[list(proofs).index("energy")]
    assert energy == pytest.approx(70.0, rel=1e-3)
