"""How a verdict was proven, and how far it may go: only signals that include all of the time carry a reclaim."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from random import Random

import pytest

from gpusteward.agent.dialects.native import NativeDialect
from gpusteward.agent.usage_counters import UsageCounters
from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.proof import ProofRule
from gpusteward.analyzer.judge.reasons import make_verdict
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from gpusteward.analyzer.tables import ACTIVITIES, PROOFS, UsageTable
from gpusteward.core.exposition import LabelCache, render_page
from gpusteward.core.node.containers import Workload
from gpusteward.core.node.gpus import GpuProcess, Place, Share
from gpusteward.core.node.snapshots import Snapshot
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity, Proof, Step, Verdict
from gpusteward.messages import unknown_reasons
from gpusteward.messages import verdicts as texts
from tests.agent.dialects.snapshot_views import claim, instance, reading
from tests.analyzer.engines import Sample
from tests.analyzer.scraped_history import AT as SCRAPED_AT
from tests.analyzer.scraped_history import scrape_times, steady
from tests.analyzer.sources.scrape.page_server import fed_source
from tests.analyzer.usage_tables import AT, WINDOW, Stats, allocation, resting, signal, table_of, working
from tests.constants import make_settings

RULES = Rules()
CYCLE = 300.0
HOUR = 3600.0
GAUGES = {key: value for key, value in resting().items() if key[0] is not Measure.BUSY}
"""What dcgm-exporter reports without profiling."""
ENERGY = GAUGES | {(Measure.ENERGY, Stat.STEP): 30.0}
"""With an energy counter, whose minutes are all alike."""
ENGINE = resting() | {(Measure.ENGINE, Stat.STEP): 15.0}
"""With engine activity of DCGM, scraped twice as often as it is collected."""


def judge_cycles(*rows: Stats, every: float = CYCLE) -> Verdict:
    """The verdict of the last of several cycles, oldest first."""
    history = VerdictHistory()
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


@pytest.mark.parametrize(("cycle", "proof"), [(WINDOW, Proof.SAMPLED), (WINDOW / 2, Proof.INTEGRATED)])
def test_busy_time_proves_nothing_where_windows_do_not_overlap(cycle: float, proof: Proof):
    """Work between the last sample of one window and the first sample of the next is in neither."""
    rules, row = Rules(cycle_seconds=cycle), resting() | {(Measure.CORE, Stat.COUNT): 20.0}
    verdicts, _ = judge(table_of(row), rules, VerdictHistory(), now=AT)
    verdict = make_verdict(verdicts, 0, rules=rules)
    assert (verdict.activity, verdict.proof) == (Activity.IDLE, proof)
    reason = texts.WINDOWS_APART.text("en", minutes=WINDOW / 60, cycle=cycle / 60)
    assert (reason in verdict.reasons) is (proof is Proof.SAMPLED)


def test_work_has_a_proof_too():
    assert judge_cycles(working()).proof is Proof.INTEGRATED
    assert judge_cycles(GAUGES | signal(Measure.CORE, 0.5)).proof is Proof.SAMPLED


def test_never_reclaims_by_energy_alone():
    verdict = judge_cycles(*[ENERGY] * 40)
    assert (verdict.activity, verdict.proof, verdict.highest_step) == (Activity.IDLE, Proof.SAMPLED, Step.NOTICE)
    assert texts.NOT_PROVEN_BY_ENERGY.en in verdict.reasons


@pytest.mark.parametrize("row", [GAUGES, ENERGY, ENGINE])
def test_never_idle_while_the_energy_counter_contradicts_it(row: Stats):
    busy_minute = {(Measure.ENERGY, Stat.PEAK): RULES.activity.energy_watts + 0.1}
    verdict = judge_cycles(row, row | busy_minute)
    assert (verdict.activity, verdict.highest_step) == (Activity.UNKNOWN, Step.NOTICE)
    assert any("energy counter shows a minute" in reason for reason in verdict.reasons)
    assert judge_cycles(row | {(Measure.ENERGY, Stat.PEAK): RULES.activity.energy_watts}).activity is Activity.IDLE


def test_a_pause_after_work_explains_the_energy_of_its_window():
    contradicted = ENGINE | {(Measure.ENERGY, Stat.PEAK): 100.0}
    assert judge_cycles(working(), contradicted).activity is Activity.ACTIVE


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ({(Measure.ENGINE, Stat.STEP): 60.0}, "not scraped for up to 60 s"),
        ({(Measure.ENGINE, Stat.STEP): 30.0}, "Scrape every 15 s"),
        ({(Measure.ENGINE, Stat.STEP): 27.5}, "not scraped for up to 28 s"),
        ({(Measure.ENGINE, Stat.STEP): 15.0, (Measure.ENERGY, Stat.STEP): 15.0}, "a new value every 15 s"),
        ({(Measure.ENGINE, Stat.STEP): 15.0, (Measure.POWER, Stat.STEP): 15.0}, "a new value every 15 s"),
        ({(Measure.ENGINE, Stat.STEP): 15.0, (Measure.POWER, Stat.STEP): 0.0}, "could not be read"),
    ],
)
def test_never_reclaims_by_engine_activity_that_has_gaps(steps: Stats, reason: str):
    verdict = judge_cycles(*[ENGINE | steps] * 3)
    assert (verdict.activity, verdict.proof, verdict.highest_step) == (Activity.IDLE, Proof.SAMPLED, Step.NOTICE)
    assert any(reason in each for each in verdict.reasons)


@pytest.mark.parametrize(
    "steps",
    [
        {},
        {(Measure.ENGINE, Stat.STEP): 15.0, (Measure.ENERGY, Stat.STEP): 600 / 19},  # each value is scraped twice
        {(Measure.ENGINE, Stat.STEP): 27.0, (Measure.ENERGY, Stat.STEP): 600 / 20},
    ],
)
def test_engine_activity_scraped_clearly_more_often_than_collected_proves_idleness(steps: Stats):
    assert judge_cycles(*[ENGINE | steps] * 13).proof is Proof.INTEGRATED
    assert judge_cycles(*[ENGINE | steps] * 12).proof is Proof.SAMPLED, "video engines are watched for an hour first"


def test_never_reclaims_where_no_video_signal_is_exported():
    verdict = judge_cycles(*[ENGINE | {(Measure.VIDEO, Stat.COUNT): 0.0}] * 3)
    assert (verdict.activity, verdict.proof, verdict.highest_step) == (Activity.IDLE, Proof.SAMPLED, Step.NOTICE)
    assert any("DCGM_FI_DEV_ENC_UTIL" in reason for reason in verdict.reasons)
    hami = GAUGES | kernel(WINDOW) | {(Measure.VIDEO, Stat.COUNT): 0.0}
    assert judge_cycles(hami).proof is Proof.SAMPLED


def kernel(seconds_ago: float) -> Stats:
    """As HAMi records it for a container with one GPU."""
    launched_at = AT - seconds_ago
    return {(Measure.LAST_KERNEL, Stat.LAST): launched_at, (Measure.CONTAINER_KERNEL, Stat.LAST): launched_at}


def test_a_last_kernel_before_the_window_proves_idleness():
    verdict = judge_cycles(*[GAUGES | kernel(WINDOW + HOUR)] * 13)
    assert (verdict.activity, verdict.proof, verdict.highest_step) == (Activity.IDLE, Proof.INTEGRATED, Step.RECLAIM)
    assert any("kernels are launched" in reason for reason in verdict.reasons)


def test_the_last_kernel_proves_nothing_until_video_engines_were_watched_for_an_hour():
    verdict = judge_cycles(*[GAUGES | kernel(WINDOW + HOUR)] * 12)
    assert (verdict.activity, verdict.proof, verdict.highest_step) == (Activity.IDLE, Proof.SAMPLED, Step.NOTICE)
    assert any("video engines" in reason for reason in verdict.reasons)


def test_never_reclaims_by_the_last_kernel_where_a_video_engine_has_worked_for_an_unknown_holder():
    """On a GPU that HAMi shares, 20 s of encoding every ten minutes are in two of three windows."""
    row, history = GAUGES | kernel(WINDOW + 2 * HOUR), VerdictHistory()
    for cycle in range(26):
        at = AT - (25 - cycle) * CYCLE
        table = table_of(row, at=at)
        if cycle == 3:
            table = replace(table, unknown={0: unknown_reasons.UNATTRIBUTED})
        verdicts, history = judge(table, RULES, history, now=at)
    verdict = make_verdict(verdicts, 0, rules=RULES)
    assert (verdict.activity, verdict.proof, verdict.highest_step) == (Activity.IDLE, Proof.SAMPLED, Step.NOTICE)


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
    verdicts, _ = judge(table_of(resting(), GAUGES, allocations=held), RULES, VerdictHistory(), now=AT)
    verdict = judge_workloads(verdicts, RULES).verdict(0)
    assert (verdict.activity, verdict.proof, verdict.highest_step) == (Activity.IDLE, Proof.SAMPLED, Step.NOTICE)
    assert texts.PROVEN[Proof.SAMPLED].en in verdict.reasons


VIDEO = ("DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_DEC_UTIL")
PODS: Mapping[str, tuple[str, ...]] = {
    "gauges": VIDEO,
    "engine": ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", *VIDEO),
    "energy": ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", *VIDEO),
    "paused-profiling": ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", *VIDEO),
    "lost-a-sample": ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", *VIDEO),
    "without-encoder": ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", VIDEO[1]),
    "without-video": ("DCGM_FI_PROF_GR_ENGINE_ACTIVE",),
}


def dcgm_page(step: float = 30.0, collected: float = 30.0) -> Iterator[Sample]:
    """Idle pods whose exporters differ in what they export. The exporter reads DCGM less often than it is scraped."""
    times = scrape_times(4200, step=step)
    chance = Random(1)
    joules = {at // collected: 70.0 * (at // collected * collected - times[0]) + chance.random() for at in times}
    for number, (pod, extra) in enumerate(PODS.items()):
        labels = {"gpu": str(number), "UUID": f"GPU-{number}", "Hostname": "n1", "modelName": "NVIDIA H100 80GB HBM3"}
        labels |= {"namespace": "ml", "pod": pod, "container": "main", "job": "dcgm", "instance": "n1:9400"}
        for name, value in {"GPU_UTIL": 0, "FB_USED": 4000}.items():
            yield from steady(f"DCGM_FI_DEV_{name}", value, times, **labels)
        for at in times:
            yield from steady("DCGM_FI_DEV_POWER_USAGE", 70 + joules[at // collected] % 1, [at], **labels)
        for name in extra:
            own = times[::4] if pod.startswith("paused") else times
            for at in own[:-8] + own[-7:] if pod.startswith("lost") else own:
                is_energy = "ENERGY" in name
                yield from steady(name, 1e9 + joules[at // collected] * 1000 if is_energy else 0, [at], **labels)


def read_proofs(table: UsageTable) -> dict[str, Proof]:
    verdicts, _ = judge(table, Rules(proof=make_settings(ProofRule, video_seconds=0)), VerdictHistory(), now=SCRAPED_AT)
    assert {ACTIVITIES[code] for code in verdicts.activity} == {Activity.IDLE}
    return {one.container.pod: PROOFS[verdicts.proof[row]] for row, one in enumerate(table.allocations)}


def test_engine_activity_of_dcgm_proves_idleness_where_it_has_no_gap_and_video_engines_are_seen():
    table = fed_source(dcgm_page(15.0), interval=15.0).read(SCRAPED_AT)
    proofs = read_proofs(table)
    assert [pod for pod, proof in proofs.items() if proof is Proof.INTEGRATED] == ["engine"]
    lost, engine = (list(proofs).index(pod) for pod in ("lost-a-sample", "engine"))
    step = table.column(Measure.ENGINE, Stat.STEP)
    assert (step[engine], step[lost]) == (15.0, 30.0)


@pytest.mark.parametrize(("step", "collected"), [(60.0, 30.0), (30.0, 30.0), (15.0, 15.0), (10.0, 5.0)])
def test_never_reclaims_by_profiling_fields_of_which_a_scrape_may_skip_an_average(step, collected):
    samples = list(dcgm_page(step, collected))
    assert read_proofs(fed_source(samples, interval=step).read(SCRAPED_AT))["engine"] is Proof.SAMPLED
    without_energy = [sample for sample in samples if "ENERGY" not in sample[0]]
    assert read_proofs(fed_source(without_energy, interval=step).read(SCRAPED_AT))["engine"] is Proof.SAMPLED


@pytest.mark.parametrize("step", [20.0, 15.0, 10.0])
def test_profiling_fields_scraped_clearly_more_often_than_collected_are_integrated(step: float):
    table = fed_source(dcgm_page(step, 30.0), interval=step).read(SCRAPED_AT)
    assert read_proofs(table)["engine"] is Proof.INTEGRATED


def test_sources_list_the_video_fields_that_are_not_exported():
    source = fed_source(sample for sample in dcgm_page() if "_ENC_" not in sample[0])
    source.read(SCRAPED_AT)
    [dcgm] = source.describe()["dialects"]
    assert dcgm["missing_metrics"] == ["DCGM_FI_DEV_ENC_UTIL"]


def agent_pages(engines: int | None, times: list[float]) -> Iterator[bytes]:
    """Of an idle pod with a process on a MIG instance with so many video engines."""
    board = reading(is_mig_parent=True, signals={"power_watts": 60.0})
    held = instance(0, 7, profile="1g.5gb")
    held = replace(held, gpu=replace(held.gpu, mig=replace(held.gpu.mig, video_engines=engines)))
    held = replace(held, signals={**held.signals, "gr_engine_ratio": 0.0})
    holder = claim("parked", held.gpu.uuid, share=Share.MIG)
    owner = Workload("Deployment", "team", "server")
    holder = replace(holder, container=replace(holder.container, workload=owner))
    own = GpuProcess(1, held.gpu.uuid, memory_bytes=1 << 30, place=Place.CONTAINER, container=holder.container)
    counters, dialect = UsageCounters(longest_gap_seconds=60), NativeDialect(LabelCache())
    for at in times:
        view = counters.advance(Snapshot("n1", at, (board, held), (own,), (holder,)))
        yield render_page(dialect.families(view)).text


@pytest.mark.parametrize(
    ("engines", "proof", "step"),
    [(0, Proof.INTEGRATED, Step.RECLAIM), (1, Proof.SAMPLED, Step.NOTICE), (None, Proof.SAMPLED, Step.NOTICE)],
)
def test_a_mig_instance_is_proven_idle_by_the_agent_only_where_it_has_no_video_engine(engines, proof, step):
    """Of an instance with decoders nobody sees their use; one without any hides nothing."""
    times = scrape_times()
    source = ScrapeSource(ScrapeSettings(interval=30.0, selector=""), window_seconds=WINDOW)
    with closing(source):
        for at, page in zip(times, agent_pages(engines, times), strict=True):
            source.ingest("n1:9400", page, at)
        verdicts, _ = judge(source.read(SCRAPED_AT), RULES, VerdictHistory(), now=SCRAPED_AT)
    verdict = make_verdict(verdicts, 0, rules=RULES)
    assert (verdict.activity, verdict.proof, verdict.highest_step) == (Activity.IDLE, proof, step)
    assert (texts.NO_VIDEO_SIGNAL.en in verdict.reasons) is (proof is Proof.SAMPLED)
