"""Scenes as metrics of three sets of signals, in a real Prometheus and on scraped pages; and what is judged of them.

The samples of GPUs and the requests of servers are the same in both. The counters of hosts are cAdvisor's in
Prometheus, which nothing scrapes otherwise, or the agent's on its own pages, in both.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import NamedTuple

import numpy as np

from gpusteward.analyzer.host_witnesses import add_host_use
from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from gpusteward.analyzer.sources.usage.inference_servers import join_servers
from gpusteward.analyzer.tables import ACTIVITIES, SIGNATURES, STEPS, Column, UsageTable
from gpusteward.core.exposition import render_labels
from gpusteward.core.metrics import DEVICE_SIGNALS
from gpusteward.core.node.containers import Workload
from gpusteward.core.verdicts import Activity, Signature, Step
from tests.analyzer.engines import Sample, running_prometheus
from tests.analyzer.judge.useful_scenes import GIB, SCENES, Board, Phase, Place, Scene, Truth, Use

BEGIN = 1_790_000_000.0
"""14:13 UTC: from 22:00 on it is night."""
HOURS, SHORT_HOURS = 15.0, 3.5
COLLECTED, CYCLE, WINDOW = 30, 300, 600
REST_MINUTES = 80.0
"""Of idle scenes, before reclaim is expected: DCGM and video engines must have been watched for an hour."""


class Signals(StrEnum):
    GAUGES = "DCGM gauges"
    PROFILING = "DCGM profiling"
    AGENT = "agent"

    @property
    def step(self) -> int:
        """Of scrapes. Profiling proves idleness only where it is scraped more often than collected."""
        return 15 if self is Signals.PROFILING else 30

    def shows(self, scene: Scene) -> bool:
        """Whether power and memory copies, or profiling fields, are there: NVML has none of an instance."""
        return scene.place is not Place.MIG or self is not Signals.GAUGES

    def proves(self, scene: Scene) -> bool:
        """Whether idleness can be proven. Video engines of a MIG instance may work unseen."""
        return self is not Signals.GAUGES and (scene.place is not Place.MIG or scene.has_video)


class Way(StrEnum):
    ENGINE = "Prometheus"
    PAGES = "scraping"

    def has_hosts(self, signals: Signals) -> bool:
        """Whether the bytes of pods are known."""
        return self is Way.ENGINE or signals is Signals.AGENT


FOUND_MINUTES = {True: 35, False: 125}
"""Within which a stall is to be found, where the hosts of pods are measured and where they are not."""


class Series(NamedTuple):
    name: str
    labels: Mapping[str, str]
    values: Column  # of each collection; NaN: not reported

    def render_labels(self, without: Collection[str] = ()) -> str:
        return render_labels(sorted((key, value) for key, value in self.labels.items() if key not in without))


@dataclass(frozen=True, slots=True)
class Found:
    """One scene with one seed: windows by truth and by what they were called."""

    scene: Scene
    seed: int
    called: defaultdict[Truth, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    rested: Counter[str] = field(default_factory=Counter)  # late windows of idle scenes
    found_minutes: list[float] = field(default_factory=list)  # of stalled and held ones, from their beginning on

    @property
    def minutes(self) -> float:
        return self.found_minutes[0] if self.found_minutes else inf


class Play:
    """One scene with one seed: what its GPUs and pods do in every half of a minute."""

    def __init__(self, scene: Scene, number: int, seed: int, hours: float) -> None:
        self.scene, self.name = scene, f"w{number}"
        chance = np.random.default_rng((seed, *scene.name.encode()))
        phases = list(scene.make(chance, scene.board))
        count = int((hours if scene.is_long else min(hours, SHORT_HOURS)) * 3600 / COLLECTED)
        self.first = int(hours * 3600 / COLLECTED) - count
        """Collections before its own."""
        self.phases: list[Phase] = []
        end, turn, last = 0.0, 0, phases[0]
        for collection in range(count):
            if collection * COLLECTED >= end:
                last = phases[turn % len(phases)]
                end, turn = end + last.minutes * 60, turn + 1
            self.phases.append(last)
        self._chance = chance
        self.size = len(phases[0].uses)

    def find_truth(self, at: float) -> Truth | None:
        """Of the window before it; None: it is not all here."""
        first, last = (int(each / COLLECTED) - self.first for each in (at - WINDOW, at))
        if first < 0:
            return None
        truths = {phase.truth for phase in self.phases[first:last]}
        return truths.pop() if len(truths) == 1 else Truth.WORKS

    def find_start(self, truth: Truth) -> float:
        """When this began for the first time."""
        return (self.first + next(n for n, phase in enumerate(self.phases) if phase.truth is truth)) * COLLECTED

    def list_series(self, signals: Signals) -> Iterator[Series]:
        """Of GPUs."""
        for rank in range(self.size):
            uses = [phase.uses[rank] for phase in self.phases]
            yield from self._list_gpu(rank, uses, signals)
        if signals is Signals.AGENT:
            for node in range(self.scene.pods):
                yield self._constant("gpusteward_allocations_known", 1, node=f"{self.name}-n{node}")

    def list_host_series(self, signals: Signals) -> Iterator[Series]:
        """Of pods: the agent has them on its pages."""
        disk = 5e8 + np.cumsum([phase.disk * COLLECTED for phase in self.phases])
        network = 1e6 + np.cumsum([phase.network * COLLECTED for phase in self.phases])
        for pod in range(self.scene.pods):
            labels = {"namespace": "bench", "pod": f"{self.name}-{pod}"}
            if signals is Signals.AGENT:
                labels |= {"node": f"{self.name}-n{pod}", "pod_uid": f"uid-{self.name}-{pod}"}
                labels |= {"job": "gpusteward-agent"}
                yield self._series("gpusteward_pod_disk_bytes_total", disk, **labels)
                yield self._series("gpusteward_pod_network_bytes_total", network, **labels)
            else:
                labels |= {"job": "kubelet", "instance": f"{self.name}-n{pod}"}
                own = labels | {"container": "main", "id": f"/{self.name}/{pod}", "device": "/dev/sda"}
                yield self._series("container_fs_reads_bytes_total", disk, **own)
                yield self._series("container_network_receive_bytes_total", network, **labels, interface="eth0")

    @property
    def server_target(self) -> Mapping[str, str]:
        """The labels of the target that its server is."""
        return {"namespace": "bench", "pod": f"{self.name}-0", "job": "vllm", "instance": self.name}

    def list_server_series(self) -> Iterator[Series]:
        servers = [phase.server for phase in self.phases]
        if not any(servers):
            return
        labels = self.server_target
        running = np.array([each.running if each else np.nan for each in servers])
        tokens = np.cumsum([each.tokens * COLLECTED if each else 0.0 for each in servers])
        asleep = np.array([each.asleep if each else np.nan for each in servers], dtype=float)
        own = {**labels, "model_name": "m", "engine": "0"}
        yield self._series("vllm:num_requests_running", running, **own)
        yield self._series("vllm:num_requests_waiting", running * 0, **own)
        yield self._series("vllm:request_success_total", 50 + np.floor(tokens / 500), **own, finished_reason="stop")
        yield self._series("vllm:generation_tokens_total", 9e5 + np.floor(tokens), **own)
        yield self._series("vllm:prompt_tokens_total", 9e6 + np.floor(tokens * 3), **own)
        for state, values in (("awake", 1 - asleep), ("weights_offloaded", asleep), ("discard_all", asleep * 0)):
            yield self._series("vllm:engine_sleep_state", values, **own, sleep_state=state)

    def _list_gpu(self, rank: int, uses: Sequence[Use], signals: Signals) -> Iterator[Series]:
        values, chance, limit = _make_columns(uses), self._chance, self.scene.board.limit
        core = np.clip(chance.normal(values.core, values.spread), 0.0, 1.0)
        watts = np.maximum(values.watts + chance.normal(0, chance.uniform(0.0005, 0.003) * limit, len(core)), 5)
        energy = np.cumsum(COLLECTED * (values.watts + chance.normal(0, 0.3, len(core))))
        pod = rank * self.scene.pods // self.size
        if signals is Signals.AGENT:
            yield from self._list_agent(rank, pod, values, core, watts)
        else:
            yield from self._list_dcgm(rank, pod, values, core, watts, energy, signals)

    def _list_dcgm(
        self,
        rank: int,
        pod: int,
        values: SimpleNamespace,
        core: Column,
        watts: Column,
        energy: Column,
        signals: Signals,
    ) -> Iterator[Series]:
        board, place = self.scene.board, self.scene.place
        found = {
            "DEV_FB_USED": np.floor(values.memory / (1 << 20)),
            "DEV_FB_FREE": np.floor((board.memory_gib * GIB - values.memory) / (1 << 20)),
            "DEV_POWER_USAGE": np.round(watts, 3),
            "DEV_POWER_MGMT_LIMIT": np.full(len(core), board.limit),
            "DEV_SM_CLOCK": _find_clock(board, core),
            "DEV_TOTAL_ENERGY_CONSUMPTION": np.floor(1e9 + energy * 1000),
        }
        if place is not Place.MIG:  # NVML has none of these for an instance
            found |= {"DEV_GPU_UTIL": np.round(100 * core), "DEV_ENC_UTIL": core * 0, "DEV_DEC_UTIL": core * 0}
            if board.has_copies:
                found |= {"DEV_MEM_COPY_UTIL": np.round(100 * values.copy)}
        if signals is Signals.PROFILING and board.has_copies:
            found |= {"PROF_GR_ENGINE_ACTIVE": np.where(np.isnan(values.engine), core, values.engine)}
            found |= {"PROF_SM_ACTIVE": values.sm, "PROF_PIPE_TENSOR_ACTIVE": values.tensor}
            found |= {"PROF_DRAM_ACTIVE": values.dram, "PROF_PCIE_RX_BYTES": values.pcie}
            found |= {"PROF_NVLINK_RX_BYTES": values.nvlink}
            if self.scene.has_video:
                found["PROF_NVDEC0_ACTIVE"] = core * 0
        node = f"{self.name}-n{pod}"
        gpu = {"gpu": str(rank), "UUID": f"GPU-{self.name}-{rank}", "Hostname": node, "modelName": board.name}
        if place is Place.MIG:
            gpu |= {"GPU_I_ID": "3", "GPU_I_PROFILE": "3g.40gb"}
        shared = place in (Place.SLICE, Place.MPS)
        for number, holder in enumerate([f"{self.name}-{pod}", f"{self.name}-x"][: 1 + shared]):  # x: an idle neighbour
            held = {"namespace": "bench", "pod": holder, "container": "main"}
            if shared:
                held |= {"vgpu": str(number)}
            for name, column in found.items():
                yield self._series(f"DCGM_FI_{name}", column, **gpu, **held, job="dcgm", instance=node)

    def _list_agent(
        self, rank: int, pod: int, values: SimpleNamespace, core: Column, watts: Column
    ) -> Iterator[Series]:
        scene, board = self.scene, self.scene.board
        node, uuid = f"{self.name}-n{pod}", f"{self.name}-{rank}"
        whole = {"node": node, "gpu": str(rank), "uuid": f"GPU-{uuid}", "job": "gpusteward-agent"}
        gpu = whole
        yield self._constant("gpusteward_gpu_info", 1, **whole, model=board.name)
        if scene.place is Place.MIG:
            gpu = whole | {"uuid": f"MIG-{uuid}", "gpu_instance_id": "3"}
            yield self._constant("gpusteward_gpu_info", 1, **gpu, model=board.name, parent_uuid=f"GPU-{uuid}")
        busy = np.cumsum(core * COLLECTED)
        own = np.where(values.outside > 0, 0.0, core)
        yield self._series("gpusteward_gpu_utilization_ratio", core, **gpu)
        yield self._series("gpusteward_gpu_busy_seconds_total", busy, **gpu)
        yield self._series("gpusteward_gpu_outside_use_seconds_total", np.cumsum(values.outside * COLLECTED), **gpu)
        yield self._constant("gpusteward_gpu_memory_total_bytes", board.memory_gib * GIB, **gpu)
        yield self._series("gpusteward_gpu_power_watts", watts, **whole)
        yield self._constant("gpusteward_gpu_power_limit_watts", board.limit, **whole)
        yield self._series("gpusteward_gpu_sm_clock_hertz", 1e6 * _find_clock(board, core), **whole)
        if scene.place is not Place.MIG and board.has_copies:
            yield self._series("gpusteward_gpu_memory_copy_ratio", np.round(values.copy, 2), **whole)
        if board.has_gpm:
            engine = np.where(np.isnan(values.engine), core, values.engine)
            found = {"gr_engine_ratio": engine, "sm_active_ratio": values.sm, "tensor_ratio": values.tensor}
            for name, column in (found | {"dram_ratio": values.dram}).items():
                yield self._series(DEVICE_SIGNALS[name].name, column, **gpu)
            for name, column in (("pcie_rx", values.pcie), ("nvlink", values.nvlink)):
                yield self._series(DEVICE_SIGNALS[f"{name}_bytes_per_second"].name, column, **whole)
        shared = scene.place in (Place.SLICE, Place.MPS)
        launcher = {"namespace": "bench", "pod": f"{self.name}-l", "container": "main", "pod_uid": f"uid-{self.name}-l"}
        if values.outside.any():
            users = gpu | launcher | {"by": "container"}
            yield self._series("gpusteward_use_utilization_ratio", core, **users)
            yield self._series("gpusteward_use_busy_seconds_total", busy, **users)
            yield self._series("gpusteward_use_memory_bytes", values.memory, **users)
            yield self._series("gpusteward_use_processes", values.processes, **users)
        pair = {"used_by": launcher["pod"]} if values.paired.any() else {}
        for number in range(1 + shared):
            name = f"{self.name}-x" if number else f"{self.name}-{pod}"
            held = gpu | {"namespace": "bench", "pod": name, "container": "main", "pod_uid": f"uid-{name}"}
            by, owned = held | {"by": "container"}, {"workload_kind": scene.kind, "workload": name}
            use = own * 0 if number else own
            share = scene.place.value
            yield self._constant("gpusteward_allocation_info", 1, **held, **owned, share=share, **pair)
            yield self._constant("gpusteward_allocation_start_time_seconds", BEGIN - 86_400, **held)
            yield self._series("gpusteward_use_utilization_ratio", use, **by)
            yield self._series("gpusteward_use_busy_seconds_total", np.cumsum(use * COLLECTED), **by)
            memory = np.where(values.outside > 0, 0.0, values.memory)
            yield self._series("gpusteward_use_memory_bytes", memory, **by)
            yield self._series("gpusteward_use_processes", np.where(values.outside > 0, 0, values.processes), **by)
            if scene.place is not Place.MIG or scene.has_video:
                yield self._series("gpusteward_use_video_seconds_total", use * 0, **by)

    def _series(self, name: str, values: Column, **labels: str) -> Series:
        return Series(name, labels, values)

    def _constant(self, name: str, value: float, **labels: str) -> Series:
        return self._series(name, np.full(len(self.phases), float(value)), **labels)


def _make_columns(uses: Sequence[Use]) -> SimpleNamespace:
    """The fields of each collection's use; NaN for None."""
    return SimpleNamespace(
        **{name: np.array([getattr(use, name) for use in uses], dtype=float) for name in Use._fields}
    )


def _find_clock(board: Board, core: Column) -> Column:
    return np.where((core > 0) | (board.idle_clock == 0), board.clock, board.idle_clock)


def list_scrapes(play: Play, step: int) -> Iterator[tuple[float, int]]:
    """The times of scrapes, and the newest collection of each."""
    for second in range(0, len(play.phases) * COLLECTED, step):
        yield play.first * COLLECTED + second + 5.0, second // COLLECTED


def make_samples(play: Play, series: Iterable[Series], step: int) -> Iterator[Sample]:
    scrapes = list(list_scrapes(play, step))
    for one in series:
        values, labels = one.values.tolist(), one.render_labels()
        for at, collection in scrapes:
            if values[collection] == values[collection]:
                yield one.name, labels, values[collection], BEGIN + at


def judge_scenes(
    signals: Signals, way: Way, *, seed: int, folder: Path, scenes: Sequence[Scene] = SCENES, hours: float = HOURS
) -> list[Found]:
    """`folder`: for the data of the Prometheus."""
    plays = {f"w{number}": Play(scene, number, seed, hours) for number, scene in enumerate(scenes)}
    run = _run_engine if way is Way.ENGINE else _run_pages
    found = {name: Found(play.scene, seed) for name, play in plays.items()}
    rules, history = Rules(), VerdictHistory()
    for at, read, source in run(plays, signals, folder, hours):
        table = add_host_use(join_servers(_add_owners(read, plays)), history, source, rules=rules)
        verdicts, history = judge(table, rules, history, now=BEGIN + at)
        workloads = judge_workloads(verdicts, rules)
        for number, key in enumerate(workloads.keys):
            name = key.name.removesuffix("-l")  # a launcher, if it were judged, would be judged as its requester
            if (play := plays.get(name)) is None or (truth := play.find_truth(at)) is None:
                continue  # a neighbour, or before there was a whole window
            signatures = {SIGNATURES[verdicts.signature[row]] for row in workloads.rows(number)}
            activity = ACTIVITIES[workloads.activity[number]]
            _count(found[name], play, truth, at, signatures, activity, STEPS[workloads.step[number]])
    return list(found.values())


ACCUSED = {Truth.STALLED: Signature.STALLED, Truth.HELD: Signature.KEEP_ALIVE}


def _count(
    found: Found, play: Play, truth: Truth, at: float, signatures: set[Signature], activity: Activity, step: Step
) -> None:
    reclaimable = activity is Activity.IDLE and step is Step.RECLAIM
    called = next((one.value for one in ACCUSED.values() if one in signatures), activity.value)
    counts = [found.called[truth]]
    if truth is Truth.IDLE and at >= play.find_start(truth) + REST_MINUTES * 60:
        counts.append(found.rested)
    for each in counts:
        each["windows"] += 1
        each[called] += 1
        each["reclaimable"] += reclaimable
    if truth in ACCUSED and ACCUSED[truth] in signatures:
        found.found_minutes.append((at - play.find_start(truth)) / 60)


Cycles = Iterator[tuple[float, UsageTable, PrometheusSource | ScrapeSource]]


def _list_cycles(hours: float) -> range:
    """A scrape is 5 s after its collection: a window ends with the newest one."""
    return range(WINDOW + CYCLE, int(hours * 3600), CYCLE)


def _run_engine(plays: dict[str, Play], signals: Signals, folder: Path, hours: float) -> Cycles:
    folder.mkdir(parents=True, exist_ok=True)
    with (
        running_prometheus(folder) as engine,
        closing(PrometheusSource(PrometheusSettings(url=engine.url))) as source,
    ):
        for play in plays.values():
            engine.write(make_samples(play, play.list_series(signals), signals.step))
            engine.write(make_samples(play, play.list_host_series(signals), 30))
            engine.write(make_samples(play, play.list_server_series(), 30))
        job = "gpusteward-agent" if signals is Signals.AGENT else "dcgm"
        engine.write(
            ("up", f'{{instance="a",job="{job}"}}', 1.0, BEGIN + at + 5)
            for at in range(0, int(hours * 3600), signals.step)
        )
        for at in _list_cycles(hours):
            yield at, source.read(BEGIN + at, lag=0.0), source


class _Target(NamedTuple):
    play: Play
    series: Sequence[Series]
    labels: Mapping[str, str] = MappingProxyType({})  # which the scraper was told, and its page does not have

    def list_lines(self) -> list[tuple[str, list[float]]]:
        return [(f"{one.name}{one.render_labels(self.labels)}", one.values.tolist()) for one in self.series]


def _run_pages(plays: dict[str, Play], signals: Signals, _: Path, hours: float) -> Cycles:
    targets: dict[str, _Target] = {}
    for name, play in plays.items():
        hosts = play.list_host_series(signals) if Way.PAGES.has_hosts(signals) else ()
        targets[name] = _Target(play, [*play.list_series(signals), *hosts])
        if server := list(play.list_server_series()):
            targets[f"{name} server"] = _Target(play, server, play.server_target)
    pages = sorted(
        (at, name, collection)
        for name, one in targets.items()
        for at, collection in list_scrapes(one.play, signals.step)
    )
    lines = {name: one.list_lines() for name, one in targets.items()}
    settings = ScrapeSettings(interval=signals.step, selector="")
    with closing(ScrapeSource(settings, window_seconds=WINDOW)) as source:
        done = 0
        for at in _list_cycles(hours):
            while done < len(pages) and pages[done][0] <= at:
                when, name, collection = pages[done]
                page = "".join(f"{one} {values[collection]}\n" for one, values in lines[name])
                source.ingest(name, page.encode(), BEGIN + when, pod_labels=targets[name].labels)
                done += 1
            yield at, source.read(BEGIN + at), source


def _add_owners(table: UsageTable, plays: dict[str, Play]) -> UsageTable:
    """As the API server names them."""

    def own(pod: str) -> dict[str, object]:
        name, _, number = pod.partition("-")
        workload = Workload(plays[name].scene.kind, "bench", name if number.isdecimal() else pod)
        return {"workload": workload, "started_at": BEGIN - 86_400}

    allocations = [
        replace(one, container=replace(one.container, **own(one.container.pod))) for one in table.allocations
    ]
    return replace(table, allocations=allocations)
