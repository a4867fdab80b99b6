"""HAMi's seconds since the last kernel, from engines and scraped pages, to the verdict."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.proof import ProofRule
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.query_plan import DetectedScheme, SeriesGroup, plan_holders
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.sources.usage.label_mapping import map_labels
from gpusteward.analyzer.sources.usage.quantities import Quantity
from gpusteward.analyzer.sources.usage.schemes import HAMI
from gpusteward.analyzer.tables import ACTIVITIES, PROOFS, UsageTable
from gpusteward.core.exposition import render_labels
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity, Proof
from tests.analyzer.engines import Sample, running_prometheus, running_victoria
from tests.analyzer.scraped_history import AT, scrape_times, steady
from tests.analyzer.sources.scrape.page_server import fed_source
from tests.analyzer.tables import of_pod
from tests.constants import make_settings

pytestmark = pytest.mark.slow

TIMES = scrape_times()
HOUR_AGO, MINUTE_AGO = AT - 3600, AT - 60
NEW = (
    ("namespace", "pod", "container", "device_uuid"),
    (
        "hami_container_device_utilization_ratio",
        "hami_vgpu_memory_limit_bytes",
        "hami_container_last_kernel_elapsed_seconds",
    ),
)
OLD = (
    ("podnamespace", "podname", "ctrname", "deviceuuid"),
    (
        "Device_utilization_desc_of_container",
        "vGPU_device_memory_limit_in_bytes",
        "Device_last_kernel_of_container",
    ),
)
EXPECTED = {
    "rested": (Activity.IDLE, Proof.INTEGRATED),
    "launched": (Activity.ACTIVE, Proof.SAMPLED),
    "never": (Activity.IDLE, Proof.SAMPLED),
    "ended": (Activity.IDLE, Proof.SAMPLED),
    "twice": (Activity.ACTIVE, Proof.SAMPLED),
    "two-rested": (Activity.IDLE, Proof.INTEGRATED),
    "two-launched": (Activity.IDLE, Proof.SAMPLED),
}
"""By pod. The utilization of every one is 0 in every sample."""


def write_site(names: tuple[tuple[str, ...], tuple[str, ...]]) -> Iterator[Sample]:
    for number, pod in enumerate(EXPECTED):
        for uuid in (f"GPU-{number}a", f"GPU-{number}b")[: 2 if pod.startswith("two-") else 1]:
            yield from _write_container(names, pod, uuid)
    for instance in ("n1:9394", "n2:9394"):
        yield from steady("up", 1, TIMES, instance=instance, job="hami")
    for name in ("GPU_UTIL", "ENC_UTIL", "DEC_UTIL"):  # of an exporter beside it: without them nothing proves idleness
        yield from steady(f"DCGM_FI_DEV_{name}", 0, TIMES, UUID="GPU-0a", instance="n1:9400", job="dcgm")


def _write_container(names: tuple[tuple[str, ...], tuple[str, ...]], pod: str, uuid: str) -> Iterator[Sample]:
    labels = dict(zip(names[0], ("ml", pod, "c", uuid), strict=True)) | {"instance": "n1:9394", "job": "hami"}
    core, limit, kernel = names[1]
    yield from steady(core, 0, TIMES, **labels)
    yield from steady(limit, 8e9, TIMES, **labels)
    match pod:
        case "rested" | "two-rested":
            yield from elapsed(kernel, HOUR_AGO, labels)
        case "launched" | "two-launched":
            yield from elapsed(kernel, MINUTE_AGO, labels)
        case "ended":  # the container was replaced: its series has no sample in the last minutes
            yield from elapsed(kernel, HOUR_AGO, labels, times=TIMES[:-12])
        case "twice":  # a second series for the same container, of a monitor that was restarted elsewhere
            yield from elapsed(kernel, HOUR_AGO, labels)
            yield from elapsed(kernel, MINUTE_AGO, labels | {"instance": "n2:9394"})


def elapsed(name: str, launched_at: float, labels: dict[str, str], *, times: list[float] = TIMES) -> Iterator[Sample]:
    """Whole seconds, and none before the first kernel."""
    text = render_labels(sorted(labels.items()))
    yield from ((name, text, float(int(at - launched_at)), at) for at in times if at >= launched_at)


@pytest.mark.parametrize("generation", [NEW, OLD])
def test_never_reclaims_by_the_last_kernel_where_no_video_signal_is_exported(generation):
    samples = [sample for sample in write_site(generation) if not sample[0].startswith("DCGM")]
    with closing(fed_source(samples)) as source:
        assert {proof for _, proof in judge_pods(source.read(AT)).values()} == {Proof.SAMPLED}


def judge_pods(table: UsageTable) -> dict[str, tuple[Activity, Proof]]:
    verdicts, _ = judge(table, Rules(proof=make_settings(ProofRule, video_seconds=0)), VerdictHistory(), now=AT)
    return {
        one.container.pod: (ACTIVITIES[activity], PROOFS[proof])
        for one, activity, proof in zip(table.allocations, verdicts.activity, verdicts.proof, strict=True)
    }


@pytest.mark.parametrize("source", ["prometheus new", "victoria old", "pages new", "pages old"])
def test_the_last_kernel_proves_work_and_idleness(tmp_path: Path, source: str):
    kind, generation = source.split()
    samples = list(write_site(NEW if generation == "new" else OLD))
    with ExitStack() as opened:
        if kind == "pages":
            reader = opened.enter_context(closing(fed_source(samples)))
        else:
            run = running_prometheus if kind == "prometheus" else running_victoria
            engine = opened.enter_context(run(tmp_path, samples))
            reader = opened.enter_context(closing(PrometheusSource(PrometheusSettings(url=engine.url))))
        table = reader.read(AT)
    assert not table.unknown
    assert judge_pods(table) == EXPECTED
    stats = of_pod(table, "rested").stats
    assert stats[Measure.LAST_KERNEL, Stat.LAST] == pytest.approx(HOUR_AGO, abs=60)


def test_it_costs_no_query_where_no_such_series_exist():
    mapping = map_labels(NEW[0], cluster_label="")
    names = HAMI.names - {NEW[1][2], OLD[1][2]}
    plans = [
        plan_holders(DetectedScheme(HAMI, SeriesGroup(mapping, HAMI.list_metrics(each))), ())
        for each in (names, {*names, NEW[1][2]})
    ]
    assert [sum(query.key.quantity is Quantity.LAST_KERNEL for query in plan.queries) for plan in plans] == [0, 1]
