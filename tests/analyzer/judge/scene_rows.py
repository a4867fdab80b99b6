"""A workload with a known truth, seen through pages of exporters that collect and are scraped each in its own rhythm.

dcgm-exporter collects every 30 s and repeats its values until then; its gauges are those of one second, its profiling
fields means since the last collection. The agent counts, HAMi's monitor reads when it is scraped. Phases are
independent, the interval of a collection drifts by up to 0.2 %, and a scrape reads its page a moment after the time
that its samples get: at equal intervals it skips a collection now and then, and reads another one twice.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from gpusteward.analyzer.tables import Column

BEGIN = 1_790_000_000
COLLECTED, COUNTED = 30, 5
"""Seconds between two collections of dcgm-exporter, and of the agent."""
DRIFT, JITTER_SECONDS = 0.002, 0.05
"""Of a collection. 30 s are 29.94 to 30.06."""
LATENCY_SECONDS, LONGEST_LATENCY_SECONDS = 0.15, 2.0
"""From the time of a sample until the exporter writes its page: mean and maximum."""
GIB = 1 << 30

Chance = np.random.Generator


class Place(StrEnum):
    """What a pod holds."""

    GPU = "a GPU"
    MIG = "a MIG instance"
    SLICE = "a time-sliced GPU"
    HAMI = "a GPU shared by HAMi"


class Scene(NamedTuple):
    """A kind of workload: which of its signals is on in which seconds."""

    name: str
    kind: str
    draw: Callable[[Chance, int], Column]  # activity of each second, 0 to 1
    signal: str = "core"
    loads_seconds: int = 0  # at the beginning, while nothing works
    gap_seconds: int = 0  # without scrapes, once an hour
    place: Place = Place.GPU
    neighbour: Callable[[Chance, int], Column] | None = None  # the core of another pod on the same board


class Signals(NamedTuple):
    """What is exported, and how often it is scraped."""

    name: str
    step: int
    has_profiling: bool = False
    is_agent: bool = False
    is_hami: bool = False  # the monitor of HAMi, and gauges of dcgm-exporter

    def shows(self, scene: Scene) -> bool:
        """What HAMi shares, dcgm-exporter alone knows no pods of."""
        return self.is_agent or self.is_hami == (scene.place is Place.HAMI)


class Truth(NamedTuple):
    """Of the pod, one value per second."""

    core: Column  # share of the second in which a kernel ran
    encoder: Column
    decoder: Column
    traffic: Column  # bytes per second over PCIe
    memory: Column  # bytes

    @property
    def works(self) -> Column:
        return self.core + self.encoder + self.decoder + (self.traffic > 20e6)


class Sums:
    """Values of each second, integrated up to any moment."""

    def __init__(self, values: Column) -> None:
        self._values = values
        self._sums = np.concatenate(([0.0], np.cumsum(values)))

    def until(self, at: float) -> float:
        """Nothing was before the beginning."""
        second = min(int(max(at, 0.0)), len(self._values) - 1)
        return float(self._sums[second] + self._values[second] * min(max(at, 0.0) - second, 1.0))

    def mean(self, start: float, end: float) -> float:
        return (self.until(end) - self.until(start)) / (end - start)


class Scrape(NamedTuple):
    """Seconds after the beginning."""

    at: float  # the time of its samples
    read_at: float


@dataclass(frozen=True)
class Row:
    """One scene with one seed: a pod on a node of its own."""

    scene: Scene
    name: str
    truth: Truth
    neighbour: Column  # the core of another pod
    watts: Column
    collections: Column  # of dcgm-exporter
    counts: Column  # collections of the agent
    seed: tuple[int, ...]
    started_at: float

    @classmethod
    def draw(cls, scene: Scene, name: str, seed: int, hours: int) -> "Row":
        numbers = (seed, *scene.name.encode())
        chance = np.random.default_rng(numbers)
        seconds = hours * 3600
        nothing, active = np.zeros(seconds), scene.draw(chance, seconds)
        started = nothing.copy()
        started[:1] = 1.0 if scene.place is Place.HAMI else 0.0  # which has no time of the last kernel before the first
        neighbour = scene.neighbour(chance, seconds) if scene.neighbour else nothing
        memory = np.full(seconds, 0.0 if "empty" in scene.name else 20.0 * GIB)
        if scene.loads_seconds:
            memory = np.minimum(np.arange(seconds) / scene.loads_seconds, 1.0) * 60 * GIB
        values = {"core": started, "encoder": nothing, "decoder": nothing, "traffic": nothing, scene.signal: active}
        truth = Truth(values["core"], values["encoder"], values["decoder"], values["traffic"] * 2e9, memory)
        core = np.minimum(truth.core + neighbour, 1.0)
        draws = 180 * core + 40 * (truth.encoder + truth.decoder) + 30 * (truth.traffic > 0)
        drift = 1.5 * np.sin(np.arange(seconds) / 900 + chance.random() * 6)
        watts = 70 + 40 * chance.random() + drift + chance.normal(0, 2, seconds) + draws
        started_at = BEGIN if scene.loads_seconds else BEGIN - 86_400
        rhythms = [_draw_collections(chance, every, seconds) for every in (COLLECTED, COUNTED)]
        return cls(scene, name, truth, neighbour, watts, *rhythms, numbers, started_at)

    def list_scrapes(self, step: int) -> list[Scrape]:
        """In order, all but those that are missing."""
        chance = np.random.default_rng((step, *self.seed))
        times = np.arange(step * (1 + chance.random()), len(self.watts), step)
        latencies = np.minimum(chance.exponential(LATENCY_SECONDS, len(times)), LONGEST_LATENCY_SECONDS)
        return [
            Scrape(at, at + latency)
            for at, latency in zip(times.tolist(), latencies.tolist(), strict=True)
            if not (self.scene.gap_seconds and at % 3600 < self.scene.gap_seconds)
        ]

    def find_newest(self, scrape: Scrape, signals: Signals) -> float:
        """Up to which moment its page tells anything."""
        return float(self._collected(scrape.read_at, signals)[1])

    def render(self, signals: Signals, scrape: Scrape) -> bytes:
        before, at = self._collected(scrape.read_at, signals)
        lines = list(self._render_agent(at) if signals.is_agent else self._render_dcgm(before, at, signals))
        if signals.is_hami:
            lines += self._render_hami(min(scrape.read_at, len(self.watts)))
        return "\n".join(("", *lines, "")).encode()

    def _collected(self, at: float, signals: Signals) -> Column:
        """The last two collections."""
        times = self.counts if signals.is_agent else self.collections
        last = int(np.searchsorted(times, at, side="right")) - 1
        return times[last - 1 : last + 1]

    @cached_property
    def _device(self) -> dict[str, Sums]:
        """Of the whole GPU, or of the MIG instance."""
        others = 0.0 if self.scene.place is Place.MIG else self.neighbour
        core = np.minimum(self.truth.core + others, 1.0)
        return {
            "core": Sums(core),
            "encoder": Sums(self.truth.encoder),
            "decoder": Sums(self.truth.decoder),
            "traffic": Sums(self.truth.traffic),
            "watts": Sums(self.watts),
        }

    @cached_property
    def _own(self) -> dict[str, Sums]:
        video = np.minimum(self.truth.encoder + self.truth.decoder, 1.0)
        return {"core": Sums(self.truth.core), "video": Sums(video)}

    def _at(self, values: Column, at: float) -> float:
        return float(values[min(int(max(at, 0.0)), len(values) - 1)])

    def _render_dcgm(self, before: float, at: float, signals: Signals) -> Iterator[str]:
        device, place = self._device, self.scene.place
        memory = self._at(self.truth.memory, at)
        values: dict[str, float] = {
            "DEV_FB_USED": int(memory / (1 << 20)),
            "DEV_FB_FREE": int(81_920 - memory / (1 << 20)),
            "DEV_POWER_USAGE": round(device["watts"].mean(at - 1, at), 3),
            "DEV_TOTAL_ENERGY_CONSUMPTION": int(1e9 + device["watts"].until(at) * 1000),
        }
        if place is not Place.MIG:  # NVML has none of these for an instance
            core, encoder, decoder = (device[each].mean(at - 1, at) for each in ("core", "encoder", "decoder"))
            values |= {"DEV_GPU_UTIL": round(100 * core), "DEV_MEM_COPY_UTIL": round(30 * core)}
            values |= {"DEV_ENC_UTIL": round(100 * encoder), "DEV_DEC_UTIL": round(100 * decoder)}
        if signals.has_profiling:
            core, traffic = (device[each].mean(before, at) for each in ("core", "traffic"))
            values |= {"PROF_GR_ENGINE_ACTIVE": round(core, 6), "PROF_DRAM_ACTIVE": round(core * 0.4, 6)}
            values |= {"PROF_PCIE_RX_BYTES": int(traffic + 2e5)}
        gpu = f'gpu="0",UUID="GPU-{self.name}",Hostname="{self.name}",modelName="NVIDIA A100-SXM4-80GB"'
        if place is Place.MIG:
            gpu += ',GPU_I_ID="3",GPU_I_PROFILE="3g.40gb"'
        for holder in self._list_dcgm_holders():
            yield from (f"DCGM_FI_{name}{{{gpu}{holder}}} {value}" for name, value in values.items())

    def _list_dcgm_holders(self) -> Iterator[str]:
        """With virtual GPUs each pod has a copy of the values of its GPU; pods of HAMi are not known."""
        if self.scene.place is Place.HAMI:
            yield ""
            return
        pods = (self.name, f"{self.name}-other") if self.scene.place is Place.SLICE else (self.name,)
        for number, pod in enumerate(pods):
            replica = f',vgpu="{number}"' if len(pods) > 1 else ""
            yield f',namespace="bench",pod="{pod}",container="main"{replica}'

    def _render_hami(self, at: float) -> Iterator[str]:
        pods = ((self.name, self.truth.core), (f"{self.name}-other", self.neighbour))
        for number, (pod, core) in enumerate(pods):
            labels = f'namespace="bench",pod="{pod}",container="main",device_uuid="GPU-{self.name}"'
            labels = f'{{{labels},vdevice_index="{number}"}}'
            busy = Sums(core).mean(at - 1, at) if number else self._own["core"].mean(at - 1, at)
            yield f"hami_container_device_utilization_ratio{labels} {round(100 * busy)}"
            yield f"hami_vgpu_memory_used_bytes{labels} {20 * GIB}"
            yield f"hami_vgpu_memory_limit_bytes{labels} {40 * GIB}"
            launched = np.flatnonzero(core[: int(at)])
            if len(launched):
                yield f"hami_container_last_kernel_elapsed_seconds{labels} {int(at) - int(launched[-1]) - 1}"

    def _render_agent(self, at: float) -> Iterator[str]:
        place, device, own = self.scene.place, self._device, self._own
        board = f'node="{self.name}",gpu="0",uuid="GPU-{self.name}"'
        gpu = board
        if place is Place.MIG:
            gpu = f'node="{self.name}",gpu="0",uuid="MIG-{self.name}",gpu_instance_id="3"'
        yield f'gpusteward_allocations_known{{node="{self.name}"}} 1'
        yield f'gpusteward_gpu_info{{{board},model="NVIDIA A100-SXM4-80GB"}} 1'
        yield f"gpusteward_gpu_power_watts{{{board}}} {device['watts'].mean(at - 1, at):.2f}"
        traffic = device["traffic"].mean(at - 1, at) + 2e5
        yield f"gpusteward_gpu_pcie_rx_bytes_per_second{{{board}}} {traffic:.0f}"
        if place is Place.MIG:
            yield f'gpusteward_gpu_info{{{gpu},model="NVIDIA A100-SXM4-80GB",parent_uuid="GPU-{self.name}"}} 1'
        yield f"gpusteward_gpu_utilization_ratio{{{gpu}}} {device['core'].mean(at - COUNTED, at):.4f}"
        yield f"gpusteward_gpu_busy_seconds_total{{{gpu}}} {device['core'].until(at):.4f}"
        yield f"gpusteward_gpu_outside_use_seconds_total{{{gpu}}} 0"
        yield f"gpusteward_gpu_memory_total_bytes{{{gpu}}} {80 * GIB}"
        yield from self._render_part(gpu, self.name, own["core"], self._at(self.truth.memory, at), at)
        if place is not Place.MIG:
            labels = f'{gpu},namespace="bench",pod="{self.name}",container="main",pod_uid="uid-{self.name}"'
            yield f'gpusteward_use_video_seconds_total{{{labels},by="container"}} {own["video"].until(at):.4f}'
        if place in (Place.SLICE, Place.HAMI):
            yield from self._render_part(gpu, f"{self.name}-other", Sums(self.neighbour), 8.0 * GIB, at)
            other = f'{gpu},namespace="bench",pod="{self.name}-other",container="main",pod_uid="uid-{self.name}-other"'
            yield f'gpusteward_use_video_seconds_total{{{other},by="container"}} 0'

    def _render_part(self, gpu: str, pod: str, core: Sums, memory: float, at: float) -> Iterator[str]:
        share = {Place.GPU: "exclusive", Place.MIG: "mig", Place.SLICE: "time-sliced", Place.HAMI: "hami"}
        held = f'{gpu},namespace="bench",pod="{pod}",container="main",pod_uid="uid-{pod}"'
        kind = f'workload_kind="{self.scene.kind}",workload="{pod}"'
        yield f'gpusteward_allocation_info{{{held},{kind},share="{share[self.scene.place]}"}} 1'
        yield f"gpusteward_allocation_start_time_seconds{{{held}}} {self.started_at}"
        own = f'{held},by="container"'
        yield f"gpusteward_use_utilization_ratio{{{own}}} {core.mean(at - COUNTED, at):.4f}"
        yield f"gpusteward_use_memory_bytes{{{own}}} {memory:.0f}"
        yield f"gpusteward_use_processes{{{own}}} {int(memory > 0)}"
        yield f"gpusteward_use_busy_seconds_total{{{own}}} {core.until(at):.4f}"


def _draw_collections(chance: Chance, every: int, seconds: int) -> Column:
    """From two intervals before the beginning on, so that there are always two."""
    period = every * (1 + DRIFT * (2 * chance.random() - 1))
    times = np.arange(chance.random() * every - 2 * every, seconds, period)
    return np.sort(times + chance.normal(0, JITTER_SECONDS, len(times)))
