"""Sites with different metric and label names, which are discovered, not configured."""

import re
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from gpusteward.agent.dialects.dcgm_options import DcgmOptions
from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.sample_timing import HIGHEST_COUNTS
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.tables import ACTIVITIES, UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity
from gpusteward.messages import unknown_reasons
from gpusteward.simulate.fleets import fleet
from tests.analyzer.engines import Sample, running_prometheus
from tests.analyzer.scraped_history import AT, rename_labels, scrape_history, scrape_times, steady
from tests.analyzer.sources.faulty_engine import FaultyEngine, faulty
from tests.analyzer.tables import assert_alike, index_rows, of_pod

pytestmark = pytest.mark.slow

NODES = fleet(5)
TIMES = scrape_times()
DEVICE = {"UUID": "GPU-1", "Hostname": "n1", "gpu": "0", "modelName": "A100", "job": "dcgm"}
HOLDER = {"namespace": "ml", "container": "main"}
TOLERANCES = {
    Measure.MEMORY_USED: 2**20,
    Measure.MEMORY_TOTAL: 2**23,
    Measure.SM_CLOCK: 1e6,
    Measure.NVLINK: 1024_000,
}
"""The rounding of classic units."""


@contextmanager
def site(folder: Path, samples: Iterable[Sample], **settings: object) -> Iterator[PrometheusSource]:
    with (
        running_prometheus(folder, samples) as engine,
        closing(PrometheusSource(PrometheusSettings(url=engine.url, **settings))) as source,
    ):
        yield source


def read(folder: Path, samples: Iterable[Sample], **settings: object) -> UsageTable:
    with site(folder, samples, **settings) as source:
        return source.read(AT)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> UsageTable:
    return read(tmp_path_factory.mktemp("plain"), scrape_history(NODES, TIMES, dialects="dcgm"))


@pytest.mark.parametrize(
    "change",
    [
        rename_labels(pod="exported_pod", namespace="exported_namespace", container="exported_container"),
        rename_labels(pod="pod_name", namespace="pod_namespace", container="container_name"),
        rename_labels(Hostname="hostname"),
        rename_labels(Hostname="node"),
    ],
)
def test_labels_are_found_under_any_of_their_names(tmp_path: Path, plain: UsageTable, change):
    target = 'pod="dcgm-exporter-x7",namespace="gpu-operator",container="exporter",'

    def relabel(labels: str) -> str:
        renamed = change(labels)
        is_plain_pod = renamed == labels or '{pod="' in renamed or ',pod="' in renamed
        return renamed if is_plain_pod or "pod" not in renamed else "{" + target + renamed[1:]

    assert_alike(read(tmp_path, scrape_history(NODES, TIMES, dialects="dcgm", change=relabel)), plain)


def test_the_names_and_units_of_dcgm_exporter_49_give_the_same_table(tmp_path: Path, plain: UsageTable):
    renamed = read(tmp_path, scrape_history(NODES, TIMES, dialects="dcgm", options=DcgmOptions(names="v4.9")))
    rows, others = index_rows(plain), index_rows(renamed)
    assert rows.keys() == others.keys()
    here, there = list(rows.values()), [others[key] for key in rows]
    for key in plain.stats:
        tolerance = TOLERANCES.get(key[0], 0.006)
        np.testing.assert_allclose(plain.stats[key][here], renamed.stats[key][there], atol=tolerance)


def test_old_and_new_metric_names_at_once_give_one_row_each(tmp_path: Path, plain: UsageTable):
    both = read(tmp_path, scrape_history(NODES, TIMES, dialects="dcgm", options=DcgmOptions(names="both")))
    assert index_rows(both).keys() == index_rows(plain).keys()


def test_a_shared_gpu_with_one_dcgm_sample_has_a_row_for_every_native_holder(tmp_path: Path):
    with site(tmp_path, scrape_history(NODES, TIMES)) as source:
        table = source.read(AT)
        names = [dialect["name"] for dialect in source.describe()["dialects"]]
    assert names == ["native"], "dcgm adds nothing here, so it is not queried"
    shared = [one for one in table.allocations if one.share == "time-sliced"]
    assert len(shared) > len({one.gpu_uuid for one in shared})
    assert {one.container.pod for one in table.allocations} == {
        key[1] for node in NODES for key in node.truths(TIMES[-1])
    }


def test_nodes_with_and_without_the_agent_are_in_one_table(tmp_path: Path, plain: UsageTable):
    samples = [*scrape_history(NODES[:2], TIMES), *scrape_history(NODES[2:], TIMES, dialects="dcgm", job="dcgm")]
    with site(tmp_path, samples) as source:
        table = source.read(AT)
        assert [one["name"] for one in source.describe()["dialects"]] == ["native", "dcgm"]
    assert {one.node for one in table.allocations} >= {one.node for one in plain.allocations}
    assert len(index_rows(table)) == len(table)


def device(times: list[float], **values: float) -> Iterator[Sample]:
    names = {"copy": "MEM_COPY_UTIL", "power": "POWER_USAGE", "limit": "ENFORCED_POWER_LIMIT", "used": "FB_USED"}
    for name, value in values.items():
        yield from steady(f"DCGM_FI_DEV_{names[name]}", value, times, **DEVICE, **HOLDER, pod="a")


def core(value: float, times: list[float] = TIMES, pod: str = "a", **labels: str) -> Iterator[Sample]:
    yield from steady("DCGM_FI_DEV_GPU_UTIL", value, times, **{**DEVICE, **HOLDER, **labels}, pod=pod)


def up(times: list[float] = TIMES, job: str = "dcgm") -> Iterator[Sample]:
    yield from steady("up", 1, times, job=job, instance="n1:9400")


@pytest.mark.parametrize(
    "signals",
    [{"copy": 30.0}, {"power": 300.0}, {"power": 60.0, "limit": 72.0}],
)
def test_a_zero_that_other_signals_contradict_is_unknown(tmp_path: Path, signals: dict[str, float]):
    table = read(tmp_path, [*core(0), *core(0, pod="b"), *device(TIMES, **signals), *up()])
    assert len(table) == 2
    assert all("signals contradict" in reason.en for reason in table.unknown.values())
    assert set(table.unknown) == {0, 1}


@pytest.mark.parametrize("engine", [0.03, 0.5])
@pytest.mark.parametrize("power", [70.0, 300.0])
def test_engine_activity_of_a_device_with_one_holder_is_its_work(tmp_path: Path, engine: float, power: float):
    """GPU_UTIL is that of one second, and misses what engine activity includes."""
    active = partial(steady, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", engine, TIMES, **DEVICE, **HOLDER)
    table = read(tmp_path, [*core(0), *device(TIMES, power=power), *active(pod="a"), *up()])
    verdicts, _ = judge(table, Rules(), VerdictHistory(), now=AT)
    assert [ACTIVITIES[code] for code in verdicts.activity] == [Activity.ACTIVE]
    assert not table.unknown
    both = [*active(pod="a"), *active(pod="b")]
    (other := tmp_path / "other").mkdir()
    shared = read(other, [*core(0), *core(0, pod="b"), *device(TIMES, power=power), *both, *up()])
    assert set(shared.unknown) == {0, 1}, "nobody knows whose work it is"


def test_an_uncontradicted_zero_is_known(tmp_path: Path):
    """A loaded model draws power on a small board; another holder at work explains the activity of the device."""
    table = read(tmp_path, [*core(0), *device(TIMES, power=27.0, limit=72.0, copy=0.0), *up()])
    assert not table.unknown
    busy = read(tmp_path / "..", [*core(0), *core(90, pod="b"), *device(TIMES, power=300.0), *up()])
    assert not busy.unknown


def test_impossible_percentages_are_unknown(tmp_path: Path):
    table = read(tmp_path, [*core(12_000), *up()])
    assert table.unknown == {0: unknown_reasons.IMPOSSIBLE_CORE}


def test_not_a_number_is_unknown(tmp_path: Path):
    samples = [*core(50, TIMES[:-3]), *core(float("nan"), TIMES[-3:]), *up()]
    table = read(tmp_path, [(name, labels, value, at) for name, labels, value, at in samples])
    assert table.unknown == {0: unknown_reasons.NO_CORE}


def test_two_nodes_that_claim_one_allocation_are_unknown(tmp_path: Path):
    table = read(tmp_path, [*core(0), *core(0, Hostname="n2"), *up()])
    assert table.unknown == {0: unknown_reasons.REPORTED_BY_TWO_NODES}


def test_two_exporters_of_one_device_give_one_row_with_the_larger_use_and_no_added_coverage(tmp_path: Path):
    half = TIMES[::2]
    table = read(tmp_path, [*core(10, half), *core(30, half, job="agent"), *up(), *up(job="agent")])
    assert len(table) == 1
    assert table.usage(0).stats[Measure.CORE, Stat.MEAN] == pytest.approx(0.30)
    assert table.coverage[0] == pytest.approx(0.5)


def test_a_gap_lowers_coverage_also_if_all_series_have_it(tmp_path: Path):
    """The engine itself was down for five minutes: `up` in the hour before gives the expected count."""
    times = [at for at in scrape_times(3600) if not AT - 400 < at < AT - 100]
    table = read(tmp_path, [*core(0, times), *up(times)])
    assert table.coverage[0] == pytest.approx(0.5, abs=0.06)


def test_a_gpu_that_never_reported_its_core_is_unknown_not_absent(tmp_path: Path):
    table = read(
        tmp_path, [*core(50), *steady("DCGM_FI_DEV_FB_USED", 9, TIMES, **DEVICE | {"UUID": "GPU-2"}, **HOLDER, pod="c")]
    )
    assert of_pod(table, "c").unknown_reason is unknown_reasons.NO_CORE
    assert of_pod(table, "c").coverage == 0


@pytest.mark.parametrize("generation", ["new", "old"])
def test_hami_rows_have_their_own_use_and_limit_under_old_and_new_names(tmp_path: Path, generation: str):
    table = read(tmp_path, hami(generation, 0.0, 30.0))
    assert {one.container.pod for one in table.allocations} == {"p0", "p1"}
    busy, idle = of_pod(table, "p1"), of_pod(table, "p0")
    assert busy.stats[Measure.CORE, Stat.MEAN] == pytest.approx(0.30)
    assert busy.stats[Measure.MEMORY_TOTAL, Stat.LAST] == 8e9
    assert busy.stats[Measure.MEMORY_USED, Stat.MEAN] == 4e9
    assert idle.stats[Measure.CORE, Stat.PEAK] == 0
    assert idle.stats[Measure.MEMORY_COPY, Stat.PEAK] == 0, "the neighbour's copying is not its own"
    assert not table.unknown


def test_hami_rows_that_all_read_zero_on_a_busy_gpu_are_unknown(tmp_path: Path):
    table = read(tmp_path, hami("new", 0.0, 0.0))
    assert len(table.unknown) == 2
    assert all("signals contradict" in reason.en for reason in table.unknown.values())


def hami(generation: str, *cores: float) -> Iterator[Sample]:
    new = generation == "new"
    names = {"namespace": "namespace", "pod": "pod", "container": "container", "uuid": "device_uuid"}
    names = (
        names if new else {"namespace": "podnamespace", "pod": "podname", "container": "ctrname", "uuid": "deviceuuid"}
    )
    families = (
        "hami_container_device_utilization_ratio",
        "hami_vgpu_memory_used_bytes",
        "hami_vgpu_memory_limit_bytes",
    )
    old = (
        "Device_utilization_desc_of_container",
        "vGPU_device_memory_usage_in_bytes",
        "vGPU_device_memory_limit_in_bytes",
    )
    for number, value in enumerate(cores):
        labels = {names["namespace"]: "ml", names["pod"]: f"p{number}", names["container"]: "c", names["uuid"]: "GPU-1"}
        for family, amount in zip(families if new else old, (value, 4e9, 8e9), strict=True):
            yield from steady(family, amount, TIMES, **labels, job="hami", vdevice_index="0")
    for family, amount in (("GPU_UTIL", 60.0), ("MEM_COPY_UTIL", 20.0), ("POWER_USAGE", 200.0), ("FB_USED", 9000.0)):
        yield from steady(f"DCGM_FI_DEV_{family}", amount, TIMES, **DEVICE)
    yield from up(job="hami")


def test_gpu_oours_query_condition_is_applied(tmp_path: Path):
    samples = [*core(50), *core(60, pod="b", namespace="other", UUID="GPU-2"), *up()]
    table = read(tmp_path, samples, query_condition='{pod!="", namespace=~"m.*"}')
    assert [one.container.namespace for one in table.allocations] == ["ml"]


@pytest.mark.parametrize("times", [TIMES, TIMES[:-12]], ids=["reporting", "stale"])
def test_a_gpu_with_the_namespace_of_its_exporter_and_no_pod_is_unheld(tmp_path: Path, times: list[float]):
    """`honor_labels` on a target with a namespace: labels that dcgm-exporter omits are those of the exporter."""
    free = {"UUID": "GPU-2", "Hostname": "n2", "gpu": "0", "namespace": "gpu-operator", "job": "dcgm"}
    samples = [*core(50), *up()]
    for name in ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"):
        samples += steady(name, 0.0, times, **free)
    table = read(tmp_path, samples)
    assert [one.gpu_uuid for one in table.allocations] == ["GPU-1"]


@contextmanager
def watched(folder: Path, samples: Iterable[Sample]) -> Iterator[tuple[PrometheusSource, FaultyEngine]]:
    with (
        running_prometheus(folder, samples) as engine,
        faulty(engine.url) as proxy,
        closing(PrometheusSource(PrometheusSettings(url=proxy.url))) as source,
    ):
        yield source, proxy


def test_there_is_one_query_per_signal_never_one_per_gpu(tmp_path: Path):
    with watched(tmp_path, scrape_history(NODES, TIMES, dialects="dcgm")) as (source, proxy):
        source.read(AT)
        proxy.queries.clear()
        assert len(source.read(AT)) > 20
    of_signals = "lag, presence, nine of cores, two of eight others, clock, three of energy, three of traffic"
    others = (
        "who lacks an encoder or a decoder, three of devices that nobody holds, which pods are exporters, who is down"
    )
    assert len(proxy.queries) == 41, f"{of_signals}, {others}"
    of_idle = [query for query in proxy.queries if "GPU-" in query]
    assert len(of_idle) == 5, "three of energy, who lacks an encoder or a decoder: of all GPUs without work together"


def test_what_only_idle_needs_is_not_read_of_gpus_that_work(tmp_path: Path):
    cores = {"DCGM_FI_DEV_GPU_UTIL": 50.0, "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.5}
    history = scrape_history(NODES, TIMES, dialects="dcgm")
    working = [(name, labels, cores.get(name, value), at) for name, labels, value, at in history]
    with watched(tmp_path, working) as (source, proxy):
        table = source.read(AT)
    core = table.column(Measure.CORE, Stat.PEAK)
    unmeasured = {one.gpu_uuid for one, peak in zip(table.allocations, core, strict=True) if np.isnan(peak)}
    of_energy = [query for query in proxy.queries if "rate(DCGM_FI_DEV_TOTAL_ENERGY" in query]
    assert {uuid for query in of_energy for uuid in re.findall("GPU-[0-9a-f-]+", query)} == unmeasured
    assert 0 < len(unmeasured) < len({one.gpu_uuid for one in table.allocations}), "MIG instances"


def test_a_site_without_gpus_gives_an_empty_table_and_a_new_discovery(tmp_path: Path):
    with watched(tmp_path, up()) as (source, proxy):
        assert len(source.read(AT)) == 0
        assert "no GPU metrics" in source.describe()["failures"]["metrics"]
        proxy.queries.clear()
        assert len(source.read(AT)) == 0
        assert HIGHEST_COUNTS[0] in proxy.queries, "as when a site is learned"


def test_an_engine_without_any_series_is_an_error_not_a_site_without_gpus(tmp_path: Path):
    """The tenant of another team, or a wrong one: it must not look as if all GPUs were gone."""
    with watched(tmp_path, []) as (source, _), pytest.raises(SourceError, match="X-Scope-OrgID"):
        source.read(AT)
