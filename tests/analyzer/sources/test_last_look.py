"""The last look at usage before an action reads what the verdict rests on, from engines and scraped pages alike.

Each case is a GPU of its own in one history, which is idle until the verdict; most change right after it.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpusteward.analyzer.judge.activity import ActivityRule
from gpusteward.analyzer.reclaim.execution.usage_check import UsageCheck
from gpusteward.analyzer.sources.engine.client import Engine
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.on_demand_queries import WORK_BATCH, read_work
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.sources.scrape.store_queries import detect_schemes
from gpusteward.analyzer.sources.usage_source import UsageSource
from gpusteward.core.node.containers import Container
from gpusteward.core.node.gpus import Gpu, GpuAllocation, GpuProcess, GpuReading, MigIdentity, Place, Share
from gpusteward.core.node.snapshots import Snapshot
from gpusteward.core.usages import AllocationKey
from tests.analyzer.engines import Sample, running_prometheus, running_victoria
from tests.analyzer.scraped_history import AT, scrape_history, scrape_times, steady
from tests.analyzer.sources.scrape.page_server import fed_source

pytestmark = pytest.mark.slow

TIMES = scrape_times()
CHANGED_AT = AT - 50.0
"""After the verdict; two scrapes follow."""
GIB = 1 << 30
GUEST = Container("other", "guest", "uid-guest", "main")


def holder(name: str) -> Container:
    return Container("ml", name, f"uid-{name}", "main")


@dataclass(frozen=True)
class AgentNode:
    """One GPU with idle holders; somebody begins to use it."""

    name: str
    share: Share = Share.EXCLUSIVE
    user: Container | None = None  # a holder or somebody else
    is_unknown: bool = False  # no process is found for the work
    holders: int = 1

    @property
    def gpu(self) -> Gpu:
        return Gpu(self.name, 0, f"GPU-{self.name}", "NVIDIA A100-SXM4-80GB")

    def snapshot(self, at: float) -> Snapshot:
        gpu, works = self.gpu, at >= CHANGED_AT
        ratio = 0.3 if works and (self.user or self.is_unknown) else 0.0
        signals = {"utilization_ratio": ratio, "power_watts": 60.0, "memory_used_bytes": 4.0 * GIB}
        readings = [GpuReading(gpu, signals)]
        if self.share is Share.MIG:
            board = GpuReading(gpu, {"power_watts": 100.0}, is_mig_parent=True)
            gpu = replace(gpu, uuid=f"MIG-{self.name}", mig=MigIdentity(gpu.uuid, "1g.10gb", 3, 0))
            readings = [board, GpuReading(gpu, {"gr_engine_ratio": ratio, "memory_used_bytes": 4.0 * GIB})]
        held = [holder(f"{self.name}-{number}" if number else self.name) for number in range(self.holders)]
        running = [self._run(gpu, pid, who, 0.0) for pid, who in enumerate(held, 1) if who != self.user]
        if self.user and works:
            running.append(self._run(gpu, 99, self.user, ratio))
        allocations = tuple(GpuAllocation(who, gpu.uuid, self.share) for who in held)
        return Snapshot(self.name, at, tuple(readings), tuple(running), allocations)

    def _run(self, gpu: Gpu, pid: int, who: Container, ratio: float) -> GpuProcess:
        sm_ratio = None if self.is_unknown or gpu.mig else ratio
        engines = (sm_ratio, *((None,) * 3 if sm_ratio is None else (0.0,) * 3))
        return GpuProcess(pid, gpu.uuid, "python", 2 * GIB, *engines, place=Place.CONTAINER, container=who)


WORK, OTHERS = "work was seen", "somebody who does not hold it"
AGENTS: Mapping[AgentNode, str] = {
    AgentNode("agent-quiet"): "",
    AgentNode("agent-works", user=holder("agent-works")): WORK,
    AgentNode("agent-guest", user=GUEST): OTHERS,
    AgentNode("agent-nobody", is_unknown=True): WORK,  # of its only holder, whoever the process is
    AgentNode("sliced-quiet", Share.TIME_SLICED, holders=2): "",
    AgentNode("sliced-neighbour", Share.TIME_SLICED, holder("sliced-neighbour-1"), holders=2): "",
    AgentNode("sliced-guest", Share.TIME_SLICED, GUEST, holders=2): OTHERS,
    AgentNode("sliced-nobody", Share.TIME_SLICED, is_unknown=True, holders=2): OTHERS,
    AgentNode("mig-quiet", Share.MIG): "",
    AgentNode("mig-guest", Share.MIG, GUEST): OTHERS,
}


def make_dcgm(pod: str, fields: Mapping[str, Sequence[tuple[float, float]]]) -> Iterator[Sample]:
    labels = {"gpu": "0", "UUID": f"GPU-{pod}", "Hostname": pod, "modelName": "NVIDIA H100 80GB HBM3"}
    labels |= {"namespace": "ml", "pod": pod, "container": "main", "job": "dcgm", "instance": f"{pod}:9400"}
    yield from steady("up", 1, TIMES, job="dcgm", instance=f"{pod}:9400")
    for name, points in fields.items():
        for at, value in points:
            yield from steady(f"DCGM_FI_{name}", value, [at], **labels)


def make_hami(pod: str, fields: Mapping[str, Sequence[tuple[float, float]]]) -> Iterator[Sample]:
    """With dcgm-exporter beside it, which knows no pods of HAMi."""
    target = {"job": "hami", "instance": f"{pod}:9394"}
    labels = {"namespace": "ml", "pod": pod, "container": "main", "vdevice_index": "0", "device_uuid": f"GPU-{pod}"}
    device = {"gpu": "0", "UUID": f"GPU-{pod}", "Hostname": pod, "modelName": "NVIDIA A100-SXM4-80GB"}
    yield from steady("up", 1, TIMES, **target)
    yield from steady("up", 1, TIMES, job="dcgm", instance=f"{pod}:9400")
    for name, points in fields.items():
        for at, value in points:
            own = (
                {**labels, **target}
                if name.startswith("hami")
                else {**device, "job": "dcgm", "instance": f"{pod}:9400"}
            )
            yield from steady(name, value, [at], **own)


def quiet(value: float = 0.0, *, until: float = AT) -> list[tuple[float, float]]:
    return [(at, value) for at in TIMES if at <= until]


def changed(value: float) -> list[tuple[float, float]]:
    return [(at, value if at >= CHANGED_AT else 0.0) for at in TIMES]


IDLE = {"DEV_GPU_UTIL": quiet(), "DEV_FB_USED": quiet(4000), "DEV_ENC_UTIL": quiet(), "DEV_DEC_UTIL": quiet()}
IDLE |= {"PROF_GR_ENGINE_ACTIVE": quiet()}
PAUSED = quiet(until=AT - 170)
DCGM = {
    "dcgm-quiet": (IDLE, ""),
    "dcgm-works": (IDLE | {"PROF_GR_ENGINE_ACTIVE": changed(0.01)}, WORK),
    "dcgm-profiling-paused": (IDLE | {"PROF_GR_ENGINE_ACTIVE": PAUSED}, "is 185 s old (Engine activity)"),
    "dcgm-encoder-gone": (IDLE | {"DEV_ENC_UTIL": PAUSED}, "is 185 s old (Encoder utilization)"),
    "dcgm-without-profiling": ({key: points for key, points in IDLE.items() if "PROF" not in key}, ""),
    "dcgm-blank-link": (IDLE | {"DEV_NVLINK_BANDWIDTH_TOTAL": quiet(2.0**63)}, ""),
}
KERNEL = "hami_container_last_kernel_elapsed_seconds"
OLD_KERNEL = [(at, 5000.0 + at - TIMES[0]) for at in TIMES]
HAMI_IDLE = {
    "hami_container_device_utilization_ratio": quiet(),
    "hami_vgpu_memory_used_bytes": quiet(4 * GIB),
    KERNEL: OLD_KERNEL,
    **{f"DCGM_FI_DEV_{name}": quiet() for name in ("GPU_UTIL", "ENC_UTIL", "DEC_UTIL")},
}
HAMI = {
    "hami-quiet": (HAMI_IDLE, ""),
    "hami-kernel": (HAMI_IDLE | {KERNEL: [*OLD_KERNEL[:-1], (TIMES[-1], 20.0)]}, WORK),
    "hami-kernel-gone": (
        HAMI_IDLE | {KERNEL: [point for point in OLD_KERNEL if point[0] <= AT - 170]},
        "is 185 s old (Time of the last kernel)",
    ),
    "hami-encoder": (HAMI_IDLE | {"DCGM_FI_DEV_ENC_UTIL": changed(70)}, WORK),
}


def list_samples() -> Iterator[Sample]:
    yield from scrape_history(list(AGENTS), TIMES, dialects="native")
    for pod, (fields, _) in DCGM.items():
        yield from make_dcgm(pod, fields)
    for pod, (fields, _) in HAMI.items():
        yield from make_hami(pod, fields)


EXPECTED = {node.name: problem for node, problem in AGENTS.items()}
EXPECTED |= {pod: problem for pod, (_, problem) in (DCGM | HAMI).items()}


def look(source: UsageSource, *allocations: AllocationKey, at: float = AT) -> str:
    check = UsageCheck(source, allocations, verdict_at=at - 60, rule=ActivityRule(), clock=lambda: at)
    found = check.look().problem
    return found.en if found else ""


@pytest.fixture(scope="module", params=["prometheus", "victoria", "scrape"])
def problems(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the look finds about each pod."""
    with ExitStack() as stack:
        if request.param == "scrape":
            source: Any = stack.enter_context(closing(fed_source(list_samples())))
        else:
            run = running_prometheus if request.param == "prometheus" else running_victoria
            engine = stack.enter_context(run(tmp_path_factory.mktemp(request.param), list_samples()))
            source = stack.enter_context(closing(PrometheusSource(PrometheusSettings(url=engine.url))))
        table = source.read(AT)
        return {one.container.pod: look(source, one) for one in table.allocations}


@pytest.mark.parametrize("pod", EXPECTED)
def test_the_last_look_finds_what_the_verdict_would(problems: Mapping[str, str], pod: str):
    expected, found = EXPECTED[pod], problems[pod]
    assert expected in found
    assert bool(expected) == bool(found), found


@pytest.mark.parametrize("kind", ["prometheus", "scrape"])
def test_where_nothing_but_engine_activity_is_exported_it_is_the_core(tmp_path: Path, kind: str):
    names = ("PROF_GR_ENGINE_ACTIVE", "DEV_FB_USED")
    quiet_pod = {name: IDLE[name] for name in names}
    samples = [*make_dcgm("quiet", quiet_pod), *make_dcgm("works", quiet_pod | {names[0]: changed(0.3)})]
    with ExitStack() as stack:
        if kind == "scrape":
            source: Any = stack.enter_context(closing(fed_source(samples)))
        else:
            engine = stack.enter_context(running_prometheus(tmp_path, samples))
            source = stack.enter_context(closing(PrometheusSource(PrometheusSettings(url=engine.url))))
        found = {one.container.pod: look(source, one) for one in source.read(AT).allocations}
    assert found["quiet"] == ""
    assert WORK in found["works"]


def test_never_on_samples_whose_times_are_in_the_future(tmp_path: Path):
    """What scrapes has a clock that is 100 s ahead of what answers: its samples that seem new are 100 s old."""
    now = time.time()
    for name, run in (("prometheus", running_prometheus), ("victoria", running_victoria)):
        folder = tmp_path / name
        folder.mkdir()
        samples: list[Sample] = []
        for at in (now + 100 - 30 * number for number in range(30)):
            fields = {field: [(at, 0.0)] for field in ("DEV_GPU_UTIL", "DEV_FB_USED")}
            samples += [each for each in make_dcgm("pod", fields) if each[0] != "up"]
        samples.sort(key=lambda each: each[-1])
        with run(folder, samples) as engine, closing(PrometheusSource(PrometheusSettings(url=engine.url))) as source:
            [one] = source.read(now).allocations
            assert "in the future" in look(source, one, at=time.time()), name


def test_answers_about_many_gpus_do_not_wait_for_each_other():
    """The first answer must not age while the others are asked for one by one."""
    both = threading.Barrier(2, timeout=20)

    def query(_expression: str, _at: float) -> bytes:
        both.wait()
        return b'{"status":"success","data":{"resultType":"matrix","result":[]}}'

    engine = cast(Engine, SimpleNamespace(query=query, skew_seconds=0.0, max_concurrent_queries=2))
    held = [AllocationKey(f"GPU-{number}", "", holder(f"pod-{number}")) for number in range(2 * WORK_BATCH)]
    charts = read_work(engine, detect_schemes({"DCGM_FI_DEV_GPU_UTIL"}), held, at=AT, seconds=300)
    assert [chart.allocation for chart in charts] == held
