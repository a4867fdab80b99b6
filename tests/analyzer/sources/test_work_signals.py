"""Every signal that proves work, and whose work it is on a device with several pods; through engines and scraped pages.

Each case is a GPU of its own in one history, so that one engine serves all of them.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.tables import ACTIVITIES, UsageTable
from gpusteward.core.node.containers import Container
from gpusteward.core.node.gpus import Gpu, GpuAllocation, GpuProcess, GpuReading, MigIdentity, Place, Share
from gpusteward.core.node.snapshots import Snapshot
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity
from gpusteward.messages import unknown_reasons
from tests.analyzer.engines import Sample, running_prometheus, running_victoria
from tests.analyzer.scraped_history import AT, collect_views, scrape_history, scrape_times, steady
from tests.analyzer.sources.faulty_engine import fails, faulty
from tests.analyzer.sources.scrape.page_server import fed_source
from tests.analyzer.tables import of_pod
from tests.constants import make_settings

pytestmark = pytest.mark.slow

TIMES = scrape_times()
Fields = Mapping[str, float]
IDLE: Fields = {"DEV_GPU_UTIL": 0, "DEV_MEM_COPY_UTIL": 0, "DEV_FB_USED": 4000, "DEV_FB_FREE": 20000}
IDLE |= {"DEV_POWER_USAGE": 20, "DEV_ENFORCED_POWER_LIMIT": 72}
active, idle, unknown = Activity.ACTIVE, Activity.IDLE, Activity.UNKNOWN

ALONE: Mapping[str, tuple[Fields, Activity]] = {
    "nothing": ({}, idle),
    "encoder": ({"DEV_ENC_UTIL": 80}, active),
    "decoder": ({"DEV_DEC_UTIL": 60}, active),
    "encoder-renamed": ({"DEV_ENC_UTIL_RATIO": 0.8}, active),
    "encoder-percent-as-ratio": ({"DEV_ENC_UTIL_RATIO": 80}, active),
    "decoder-renamed": ({"DEV_DEC_UTIL_RATIO": 0.01}, active),
    "transcoding-draws-power": ({"DEV_ENC_UTIL": 80, "DEV_DEC_UTIL": 60, "DEV_POWER_USAGE": 50}, active),
    "no-encoding": ({"DEV_ENC_UTIL": 0, "DEV_DEC_UTIL": 0}, idle),
    "nvdec": ({"PROF_NVDEC3_ACTIVE": 0.3}, active),
    "nvjpg": ({"PROF_NVJPG0_ACTIVE": 0.3}, active),
    "nvofa": ({"PROF_NVOFA_UTIL_1_RATIO": 0.3}, active),
    "sm-active": ({"PROF_SM_ACTIVE": 0.004}, active),
    "fp16": ({"PROF_PIPE_FP16_ACTIVE": 0.004}, active),
    "int": ({"PROF_PIPE_INT_ACTIVE": 0.004}, active),
    "pcie": ({"PROF_PCIE_RX_BYTES": 300e6}, active),
    "pcie-monitoring": ({"PROF_PCIE_RX_BYTES": 500e3, "PROF_PCIE_TX_BYTES": 500e3}, idle),
    "pcie-below-the-floor": ({"PROF_PCIE_TX_BYTES": 5e6}, idle),
    "pcie-kilobytes": ({"DEV_PCIE_TX_THROUGHPUT": 300e3}, active),
    "pcie-kilobytes-monitoring": ({"DEV_PCIE_TX_THROUGHPUT": 500}, idle),
    "pcie-blank": ({"PROF_PCIE_TX_BYTES": 9.2e18}, idle),
    "nvlink": ({"DEV_NVLINK_BANDWIDTH_TOTAL": 2}, active),
    "nvlink-none": ({"DEV_NVLINK_BANDWIDTH_TOTAL": 0}, idle),
    "nvlink-renamed": ({"DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND": 2e9}, active),
    "nvlink-profiled": ({"PROF_NVLINK_TX_BYTES": 2e9}, active),
}
"""The signals of a GPU with one pod beyond those of an idle one, and its activity."""


class Pod(NamedTuple):
    own: Fields  # its values where they differ from those of the device
    activity: Activity
    container: str = "main"
    scrapes: int = len(TIMES)


BUSY: Fields = {"DEV_GPU_UTIL": 50, "DEV_MEM_COPY_UTIL": 30, "DEV_POWER_USAGE": 60, "PROF_GR_ENGINE_ACTIVE": 0.5}
SMALL: Fields = {"DEV_FB_USED": 100}
SHARED: Mapping[str, tuple[Fields, Mapping[str, Pod]]] = {
    "copies-of-work": (BUSY, {"a": Pod({}, unknown), "b": Pod({}, unknown)}),
    "copies-of-nothing": ({}, {"a": Pod({}, idle), "b": Pod({}, idle)}),
    "copies-of-encoding": ({"DEV_ENC_UTIL": 80}, {"a": Pod({}, unknown), "b": Pod({}, unknown)}),
    "copies-of-little-work": ({"DEV_MEM_COPY_UTIL": 1}, {"a": Pod({}, unknown), "b": Pod({}, unknown)}),
    "copies-with-a-young-pod": (BUSY, {"a": Pod({}, unknown), "b": Pod({}, unknown, scrapes=10)}),
    "one-pod-of-two-containers": (BUSY, {"a": Pod({}, active), "a ": Pod({}, active, container="side")}),
    "per-pod": (BUSY, {"a": Pod({}, active), "b": Pod({"DEV_GPU_UTIL": 0, **SMALL}, idle)}),
    "per-pod-same-memory": (BUSY, {"a": Pod({}, active), "b": Pod({"DEV_GPU_UTIL": 0}, idle)}),
    "per-pod-both": (BUSY, {"a": Pod({}, active), "b": Pod({"DEV_GPU_UTIL": 20}, active)}),
    "per-pod-with-a-young-pod": (
        BUSY,
        {"a": Pod({}, active), "b": Pod({"DEV_GPU_UTIL": 0, **SMALL}, unknown, scrapes=10)},
    ),
    "per-pod-idle": ({}, {"a": Pod({}, idle), "b": Pod(SMALL, idle)}),
    "per-pod-false-zeros": (
        {**BUSY, "DEV_GPU_UTIL": 0},
        {"a": Pod({}, unknown), "b": Pod(SMALL, unknown)},
    ),
    "per-pod-little-work": ({"PROF_GR_ENGINE_ACTIVE": 0.01}, {"a": Pod({}, unknown), "b": Pod(SMALL, unknown)}),
    "per-pod-encoding": (
        {**BUSY, "DEV_ENC_UTIL": 80},
        {"a": Pod({}, active), "b": Pod({"DEV_GPU_UTIL": 0, **SMALL}, unknown)},
    ),
    "per-pod-traffic": (
        {**BUSY, "PROF_PCIE_RX_BYTES": 3e9},
        {"a": Pod({}, active), "b": Pod({"DEV_GPU_UTIL": 0, **SMALL}, idle)},
    ),
    "mig-copies": (
        {"PROF_GR_ENGINE_ACTIVE": 0.5, "GPU_I_ID": 3},
        {"a": Pod({}, unknown), "b": Pod(SMALL, unknown)},
    ),
}
"""Pages of --kubernetes-virtual-gpus: the device, and its pods."""


def write(
    uuid: str, pod: str, fields: Fields, *, container: str = "main", scrapes: int = len(TIMES)
) -> Iterator[Sample]:
    device = {"UUID": uuid, "Hostname": "n1", "gpu": "0", "modelName": "NVIDIA L4"}
    device |= {"GPU_I_ID": str(int(fields["GPU_I_ID"]))} if "GPU_I_ID" in fields else {}
    holder = {"namespace": "ml", "pod": pod, "container": container, "instance": "n1:9400", "job": "dcgm"}
    for name, value in fields.items():
        if name != "GPU_I_ID" and not (name == "DEV_GPU_UTIL" and "GPU_I_ID" in fields):
            yield from steady(f"DCGM_FI_{name}", value, TIMES[-scrapes:], **device, **holder)


def write_history() -> Iterator[Sample]:
    for name, (fields, _) in ALONE.items():
        yield from write(f"GPU-{name}", name, {**IDLE, **fields})
    for name, (fields, pods) in SHARED.items():
        for pod, (own, _, container, scrapes) in pods.items():
            values = {**IDLE, **fields, **own}
            yield from write(f"GPU-{name}", f"{name}-{pod.strip()}", values, container=container, scrapes=scrapes)
    yield from steady("up", 1, TIMES, instance="n1:9400", job="dcgm")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, UsageTable]]:
    samples = list(write_history())
    with ExitStack() as stack:
        engines = {
            "prometheus": stack.enter_context(running_prometheus(tmp_path_factory.mktemp("prometheus"), samples)),
            "victoriametrics": stack.enter_context(running_victoria(tmp_path_factory.mktemp("victoria"), samples)),
        }
        sources = {name: PrometheusSource(PrometheusSettings(url=each.url)) for name, each in engines.items()}
        sources["embedded"] = fed_source(samples)
        yield {name: stack.enter_context(closing(source)).read(AT) for name, source in sources.items()}


SOURCES = pytest.mark.parametrize("source", ["prometheus", "victoriametrics", "embedded"])


def judge_pods(table: UsageTable) -> Mapping[tuple[str, str], Activity]:
    verdicts, _ = judge(table, Rules(), VerdictHistory(), now=AT)
    holders = [(one.container.pod, one.container.name) for one in table.allocations]
    return {holder: ACTIVITIES[code] for holder, code in zip(holders, verdicts.activity, strict=True)}


@SOURCES
def test_every_signal_that_proves_work_makes_a_pod_active(tables: Mapping[str, UsageTable], source: str):
    activities = judge_pods(tables[source])
    assert {name: activities[name, "main"] for name in ALONE} == {name: each for name, (_, each) in ALONE.items()}


@SOURCES
def test_what_belongs_to_a_neighbour_makes_no_pod_active_and_none_idle(tables: Mapping[str, UsageTable], source: str):
    activities = judge_pods(tables[source])
    expected = {
        (f"{name}-{pod.strip()}", one.container): one.activity
        for name, (_, pods) in SHARED.items()
        for pod, one in pods.items()
    }
    assert {holder: activities[holder] for holder in expected} == expected


@SOURCES
def test_the_power_of_a_device_is_divided_among_its_pods(tables: Mapping[str, UsageTable], source: str):
    def sum_power(name: str) -> float:
        rows = [row for row, one in enumerate(tables[source].allocations) if one.gpu_uuid == f"GPU-{name}"]
        return float(tables[source].column(Measure.POWER, Stat.MEAN)[rows].sum())

    assert sum_power("per-pod-both") == pytest.approx(60)
    assert sum_power("copies-of-work") == pytest.approx(60)
    assert sum_power("copies-of-nothing") == pytest.approx(20)
    assert sum_power("one-pod-of-two-containers") == pytest.approx(60)


@SOURCES
def test_the_memory_of_a_pod_is_unknown_where_only_that_of_the_device_is_known(
    tables: Mapping[str, UsageTable], source: str
):
    copied = of_pod(tables[source], "copies-of-nothing-a").stats
    assert (Measure.MEMORY_USED, Stat.MEAN) not in copied
    assert copied[Measure.MEMORY_SHARED, Stat.PEAK] == 4000 * 2**20
    own = of_pod(tables[source], "per-pod-b").stats
    assert own[Measure.MEMORY_USED, Stat.MEAN] == 100 * 2**20
    assert (Measure.MEMORY_SHARED, Stat.PEAK) not in own


def test_the_reason_says_why_it_is_unknown_whose_work_it_is(tables: Mapping[str, UsageTable]):
    table = tables["prometheus"]
    assert of_pod(table, "copies-of-work-a").unknown_reason == unknown_reasons.COPIED_USE
    assert of_pod(table, "per-pod-encoding-b").unknown_reason == unknown_reasons.UNATTRIBUTED
    assert of_pod(table, "per-pod-false-zeros-b").unknown_reason == unknown_reasons.CONTRADICTED_ZERO


def test_values_are_in_base_units_whatever_the_exporter_uses(tables: Mapping[str, UsageTable]):
    def peak(pod: str, measure: Measure) -> float:
        return of_pod(tables["prometheus"], pod).stats[measure, Stat.PEAK]

    assert peak("encoder", Measure.ENCODER) == peak("encoder-renamed", Measure.ENCODER) == pytest.approx(0.8)
    assert peak("pcie", Measure.PCIE) == peak("pcie-kilobytes", Measure.PCIE) == 300e6
    assert peak("nvlink", Measure.NVLINK) == 2 * 1024_000


GPU = Gpu("node-a", 0, "GPU-agent", "NVIDIA L4", memory_total_bytes=24 << 30)
WATCHER, ENCODER = (Container("media", name, f"uid-{name}", "main") for name in ("watcher", "encoder"))


class TranscodingNode:
    """One of two pods on a time-sliced GPU transcodes for four seconds in the middle of the window."""

    name = GPU.node

    def __init__(self, *, processes_known: bool = True) -> None:
        self._is_known = processes_known

    def snapshot(self, at: float) -> Snapshot:
        works = 0.9 if 304 <= AT - at < 308 else 0.0
        ratios = (0.0, 0.0, works, works / 2) if self._is_known else (None,) * 4
        running = [
            GpuProcess(pid, GPU.uuid, "ffmpeg", 1 << 30, *used, place=Place.CONTAINER, container=who)
            for pid, who, used in ((1, ENCODER, ratios), (2, WATCHER, (*ratios[:2], *ratios[:2])))
        ]
        signals = {"utilization_ratio": 0.0, "memory_copy_ratio": 0.0, "power_watts": 30.0, "encoder_ratio": works}
        held = [GpuAllocation(who, GPU.uuid, Share.TIME_SLICED) for who in (ENCODER, WATCHER)]
        return Snapshot(self.name, at, (GpuReading(GPU, signals),), tuple(running), tuple(held))


@pytest.mark.parametrize(("processes_known", "watcher"), [(True, idle), (False, unknown)])
def test_the_agent_counts_short_transcoding_for_the_pod_that_does_it(
    tmp_path: Path, *, processes_known: bool, watcher: Activity
):
    """No scrape shows the encoder at work, the counter does. Without process utilization it is unknown whose it was."""
    node = TranscodingNode(processes_known=processes_known)
    samples = list(scrape_history([node], TIMES, dialects="native", collect=partial(collect_views, every=1)))
    with (
        running_prometheus(tmp_path, samples) as engine,
        closing(PrometheusSource(PrometheusSettings(url=engine.url))) as queried,
        closing(fed_source(samples)) as scraped,
    ):
        for table in (queried.read(AT), scraped.read(AT)):
            expected = {("encoder", "main"): active if processes_known else unknown, ("watcher", "main"): watcher}
            assert judge_pods(table) == expected


@dataclass(frozen=True)
class LinkedNode:
    """Pods on one GPU, which moves data over NVLink while no kernel runs."""

    share: Share
    pods: tuple[Container, ...]
    name = GPU.node

    def snapshot(self, at: float) -> Snapshot:
        signals = {"utilization_ratio": 0.0, "power_watts": 30.0, "nvlink_bytes_per_second": 2e9}
        processes = [
            GpuProcess(pid, GPU.uuid, "nccl", 1 << 30, 0.0, 0.0, 0.0, 0.0, place=Place.CONTAINER, container=who)
            for pid, who in enumerate(self.pods)
        ]
        held = [GpuAllocation(who, GPU.uuid, self.share) for who in self.pods]
        return Snapshot(self.name, at, (GpuReading(GPU, signals),), tuple(processes), tuple(held))


@pytest.mark.parametrize(
    ("node", "is_seen"),
    [
        (LinkedNode(Share.EXCLUSIVE, (ENCODER,)), True),
        (LinkedNode(Share.TIME_SLICED, (ENCODER, WATCHER)), False),
    ],
    ids=["exclusive", "shared"],
)
def test_before_an_action_the_links_of_a_device_are_read_for_its_only_holder(
    tmp_path: Path, *, node: LinkedNode, is_seen: bool
):
    """Of a shared one nobody knows whose traffic it is: the verdict is unknown, which forbids any action."""
    samples = list(scrape_history([node], TIMES, dialects="native"))
    with (
        running_prometheus(tmp_path, samples) as engine,
        closing(PrometheusSource(PrometheusSettings(url=engine.url))) as queried,
        closing(fed_source(samples)) as scraped,
    ):
        for source in (queried, scraped):
            table = source.read(AT)
            lines = source.read_work(table.allocations, AT, seconds=600)[0].lines
            assert (Measure.NVLINK in lines) is is_seen
            assert set(judge_pods(table).values()) == {active if is_seen else unknown}


@dataclass(frozen=True)
class MigNode:
    """Two MIG instances of one board, which moves data over PCIe."""

    engines: tuple[float, float]
    name = GPU.node

    def snapshot(self, at: float) -> Snapshot:
        board = GpuReading(GPU, {"power_watts": 100.0, "pcie_tx_bytes_per_second": 3e9}, is_mig_parent=True)
        readings, held = [board], []
        for number, (engine, who) in enumerate(zip(self.engines, (ENCODER, WATCHER), strict=True)):
            gpu = replace(GPU, uuid=f"MIG-{number}", mig=MigIdentity(GPU.uuid, "1g.6gb", number, 0))
            signals = {"gr_engine_ratio": engine, "dram_ratio": engine / 2, "memory_used_bytes": 0.0}
            readings.append(GpuReading(gpu, signals))
            held.append(GpuAllocation(who, gpu.uuid, Share.MIG))
        return Snapshot(self.name, at, tuple(readings), (), tuple(held))


@pytest.mark.parametrize(
    ("engines", "expected"), [((0.5, 0.0), (active, idle)), ((0.0, 0.0), (unknown, unknown))], ids=["one", "none"]
)
def test_traffic_of_a_board_is_that_of_its_working_instance_or_of_an_unknown_one(
    engines: tuple[float, float], expected: tuple[Activity, Activity]
):
    samples = scrape_history([MigNode(engines)], TIMES, dialects="native")
    with closing(fed_source(samples)) as source:
        assert tuple(judge_pods(source.read(AT)).values()) == expected


@dataclass(frozen=True)
class ProfiledNode:
    """One GPU whose profiling the agent reads."""

    sm_active: float
    name = GPU.node

    def snapshot(self, at: float) -> Snapshot:
        signals = {"utilization_ratio": 1.0, "gr_engine_ratio": 1.0, "sm_active_ratio": self.sm_active}
        reading = GpuReading(GPU, signals | {"tensor_ratio": 0.0, "dram_ratio": 0.0, "memory_used_bytes": 0.0})
        return Snapshot(self.name, at, (reading,), (), (GpuAllocation(ENCODER, GPU.uuid, Share.EXCLUSIVE),))


@pytest.mark.parametrize(("sm_active", "expected"), [(0.25, 0.25), (0.0, None)])
def test_sm_activity_that_the_agent_profiles_is_read_where_there_is_any(
    sm_active: float, expected: float | None, tmp_path: Path
):
    samples = list(scrape_history([ProfiledNode(sm_active)], TIMES, dialects="native"))
    with (
        running_prometheus(tmp_path, samples) as engine,
        faulty(engine.url) as proxy,
        closing(PrometheusSource(PrometheusSettings(url=proxy.url))) as queried,
        closing(fed_source(samples)) as scraped,
    ):
        for source in (queried, scraped):
            assert source.read(AT).usage(0).stats.get((Measure.SM_ACTIVE, Stat.PEAK)) == expected
        assert len([query for query in proxy.queries if "gpusteward_gpu_sm_active_ratio" in query]) == 1


def test_traffic_of_a_board_is_not_that_of_an_instance_in_another_cluster():
    def change(cluster: str) -> Callable[[str], str]:
        return lambda labels: f'{labels[:-1]},cluster="{cluster}"}}'

    clusters = {"east": MigNode((0.5, 0.0)), "west": MigNode((0.0, 0.0))}
    samples = [
        sample
        for cluster, node in clusters.items()
        for sample in scrape_history([node], TIMES, dialects="native", job=cluster, change=change(cluster))
    ]
    with closing(fed_source(samples)) as source:
        table = source.read(AT)
    verdicts, _ = judge(table, Rules(), VerdictHistory(), now=AT)
    found = [(one.cluster, ACTIVITIES[code]) for one, code in zip(table.allocations, verdicts.activity, strict=True)]
    assert found == [("east", active), ("east", idle), ("west", unknown), ("west", unknown)]


@pytest.mark.parametrize("pods", [1, 2])
def test_encoding_on_a_gpu_of_hami_is_that_of_its_only_pod_or_of_an_unknown_one(pods: int):
    target = {"instance": "n1:9400", "job": "hami"}
    samples = [
        sample
        for number in range(pods)
        for name, value in (("container_device_utilization_ratio", 0), ("vgpu_memory_used_bytes", 4e9))
        for sample in steady(
            f"hami_{name}", value, TIMES, namespace="ml", pod=f"p{number}", container="c", device_uuid="GPU-1", **target
        )
    ]
    for name, value in (("GPU_UTIL", 0.0), ("ENC_UTIL", 80.0), ("FB_USED", 9000.0)):
        samples += steady(f"DCGM_FI_DEV_{name}", value, TIMES, UUID="GPU-1", Hostname="n1", gpu="0", **target)
    with closing(fed_source(samples)) as source:
        assert set(judge_pods(source.read(AT)).values()) == {active if pods == 1 else unknown}


def test_if_a_signal_that_proves_work_cannot_be_read_only_rows_without_other_work_are_unknown(tmp_path: Path):
    samples = [
        *write("GPU-1", "resting", {**IDLE, "DEV_ENC_UTIL": 0}),
        *write("GPU-2", "working", {**IDLE, **BUSY, "DEV_ENC_UTIL": 0}),
        *steady("up", 1, TIMES, instance="n1:9400", job="dcgm"),
    ]
    settings = {"timeout_seconds": 5, "retries": 1, "retry_delay_seconds": 0.01}
    with (
        running_prometheus(tmp_path, samples) as engine,
        faulty(engine.url) as proxy,
        closing(PrometheusSource(make_settings(PrometheusSettings, url=proxy.url, **settings))) as source,
    ):
        assert not source.read(AT).unknown
        proxy.fault = fails("max_over_time(DCGM_FI_DEV_ENC_UTIL")
        table = source.read(AT)
    assert judge_pods(table) == {("resting", "main"): unknown, ("working", "main"): active}
    assert "encoder could not be read" in of_pod(table, "resting").unknown_reason.en
