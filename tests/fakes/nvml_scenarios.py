"""Scenarios for the fake NVML: machines with GPUs and their faults (format: nvml/scenario.h).

scenario = a100x8()
scenario.gpus[0].compute(4242, 8 * GIB)
path.write_text(scenario.text())
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MIB = 2**20
GIB = 2**30
ALL_LINKS = 0xFFFFFFFF
VIOLATIONS = range(74, 80)

NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, DRIVER_NOT_LOADED, LOST, UNKNOWN = 3, 4, 6, 9, 15, 999

LEGACY_UTILIZATION = "nvmlDeviceGetProcessUtilization"
MODERN_UTILIZATION = "nvmlDeviceGetProcessesUtilizationInfo"


@dataclass
class FakeGpu:
    """Facts about one GPU or MIG instance: numbers and texts by name, and lines for everything else."""

    numbers: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    fields: dict[tuple[int, int], tuple[str, float]] = field(default_factory=dict)
    gpm: dict[int, float] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    instances: list["FakeGpu"] = field(default_factory=list)

    @property
    def uuid(self) -> str:
        return self.texts["uuid"]

    def compute(self, pid: int, memory: int | None) -> None:
        self._process("compute", pid, memory)

    def graphics(self, pid: int, memory: int | None) -> None:
        self._process("graphics", pid, memory)

    def mps(self, pid: int, memory: int | None) -> None:
        self._process("mps", pid, memory)

    def _process(self, kind: str, pid: int, memory: int | None) -> None:
        self.lines.append(f"{kind} {pid} {'none' if memory is None else memory}")

    def uses(self, pid: int, sm: int, *, memory: int = 0, encoder: int = 0, decoder: int = 0) -> None:
        """A utilization sample that is always new."""
        self.lines.append(f"usage {pid} {sm} {memory} {encoder} {decoder}")

    def used(self, pid: int, at: float, *, sm: int, memory: int = 0) -> None:
        """A utilization sample taken at this unix time."""
        self.lines.append(f"sample {pid} {int(at * 1e6)} {sm} {memory} 0 0")

    def was_busy(self, at: float, percent: int) -> None:
        """A sample of the device's utilization taken at this unix time."""
        self.lines.append(f"busy_sample {int(at * 1e6)} {percent}")

    def fail(self, symbol: str, code: int) -> None:
        self.lines.append(f"fail {symbol} {code}")

    def rest(self) -> None:
        """Make it unused: no work, only a few MiB of memory."""
        self.lines.clear()
        self.gpm = dict.fromkeys(self.gpm, 0.0)
        self.numbers |= {name: 0 for name in ("gpu_percent", "memory_percent") if name in self.numbers}
        self.numbers |= _memory(self.numbers["memory_total"], used=4 * MIB, reserved=self.numbers["memory_reserved"])

    def lose(self) -> None:
        self.lines.append("lost")

    def facts(self) -> Iterator[str]:
        yield from (f"{name} {value}" for name, value in (self.numbers | self.texts).items())
        yield from (f"field {id_} {scope} {kind} {value}" for (id_, scope), (kind, value) in self.fields.items())
        yield from (f"gpm {metric} {value}" for metric, value in self.gpm.items())
        yield from self.lines


@dataclass
class Scenario:
    """A machine: its GPUs, its driver and its faults."""

    gpus: list[FakeGpu] = field(default_factory=list)
    driver: str = "550.54.14"
    lines: list[str] = field(default_factory=list)

    def fail(self, symbol: str, code: int) -> None:
        """This call fails with this code on every GPU."""
        self.lines.append(f"fail {symbol} {code}")

    def xid(self, number: int, gpu: int, *, xid: int, instance: tuple[int, int] | None = None) -> None:
        """Event `number`, which must be higher than those before: an XID on a GPU or on (gpu, compute) instance."""
        ids = f" {instance[0]} {instance[1]}" if instance else ""
        self.lines.append(f"xid {number} {gpu} {xid}{ids}")

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self._all_lines())

    def write(self, path: Path) -> None:
        """Put the scenario there in one step: a reader sees the old one or the new one."""
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        aside.write_text(self.text())
        aside.replace(path)

    def _all_lines(self) -> Iterator[str]:
        yield from (f"driver {self.driver}", f"nvml 12.{self.driver}", "cuda 12040", *self.lines)
        for index, gpu in enumerate(self.gpus):
            yield f"gpu {index}"
            yield from (f"gpu {index} {fact}" for fact in gpu.facts())
            for slot, instance in enumerate(gpu.instances):
                yield from (f"gpu {index} mig {slot} {fact}" for fact in instance.facts())


def a100(index: int) -> FakeGpu:
    """A busy A100 80GB."""
    gpu = _bare_gpu(index, "NVIDIA A100-SXM4-80GB")
    gpu.numbers |= _memory(80 * GIB, used=20 * GIB, reserved=600 * MIB)
    gpu.numbers |= {
        "temperature": 40 + index, "power_mw": 200_000 + 10_000 * index, "power_limit_mw": 400_000,
        "enforced_power_limit_mw": 400_000, "gpu_percent": 50 + index, "memory_percent": 20 + index,
        "encoder_percent": 0, "decoder_percent": 0, "sm_mhz": 1410, "memory_mhz": 1593, "video_mhz": 1275,
        "max_sm_mhz": 1410, "max_memory_mhz": 1593, "clock_reasons": 0, "pstate": 0, "pcie_replays": 0,
        "pcie_generation": 4, "pcie_width": 16, "pcie_tx_kb": 1000, "pcie_rx_kb": 2000,
        "energy_mj": 5_000_000_000 + index, "licence_supported": 0, "mig_capable": 1, "mig_mode": 0,
        "events": 8, "p2p": 0,
    }  # fmt: skip
    gpu.fields |= _fields(index)
    return gpu


def h100(index: int) -> FakeGpu:
    """An H100: an A100 with other numbers that can be profiled by GPM."""
    gpu = a100(index)
    gpu.texts["model"] = "NVIDIA H100 80GB HBM3"
    gpu.numbers |= {"gpm_supported": 1, "sm_mhz": 1980, "max_sm_mhz": 1980, "memory_mhz": 2619}
    gpu.numbers |= {"power_limit_mw": 700_000, "enforced_power_limit_mw": 700_000, "pcie_generation": 5}
    gpu.gpm |= {1: 61.5, 2: 58.0, 3: 30.25, 5: 44.0, 10: 25.0, 11: 0.0, 12: 12.5, 13: 3.0}
    gpu.gpm |= {4: 9.0, 6: 1.0, 7: 42.0, 9: 2.0}
    gpu.gpm |= {20: 100.0, 21: 200.0, 60: 3000.0, 61: 1500.0}
    return gpu


def worn(gpu: FakeGpu) -> FakeGpu:
    """The GPU after a long life: none of its counters is 0, and no two of them are equal."""
    gpu.fields = {
        key: (kind, value if key[0] in (138, 139) else 100_000 + key[0]) for key, (kind, value) in gpu.fields.items()
    }
    gpu.fields |= {(id_, 0): ("ull", (1000 + id_) * 10**9) for id_ in VIOLATIONS}
    gpu.fields |= {(id_, 0): ("uint", 1) for id_ in (31, 144, 145) if (id_, 0) in gpu.fields}
    gpu.fields |= {(82, 0): ("uint", 61)} if (82, 0) in gpu.fields else {}
    gpu.numbers |= {"pcie_replays": 202, "clock_reasons": 0x24, "encoder_percent": 12, "decoder_percent": 34}
    gpu.numbers |= {"pstate": 2, "pcie_tx_kb": 1200, "pcie_rx_kb": 3400}
    if gpu.gpm:
        gpu.gpm |= {id_: float(20 + id_) for id_ in range(1, 14)} | {id_: float(1000 + id_) for id_ in (20, 21, 60, 61)}
        gpu.gpm |= {id_: float(10**9 + id_) for id_ in range(248, 261)}
    return gpu


def worn_t4(index: int) -> FakeGpu:
    """A T4: no NVLink, no profiling, no MIG, no memory temperature; it retires pages instead of remapping rows."""
    gpu = a100(index)
    gpu.texts["model"] = "Tesla T4"
    for name in ("mig_capable", "mig_mode", "p2p"):
        del gpu.numbers[name]
    gpu.numbers |= _memory(16 * GIB, used=3 * GIB, reserved=300 * MIB)
    gpu.numbers |= {"power_mw": 68_500, "power_limit_mw": 70_000, "enforced_power_limit_mw": 70_000}
    gpu.numbers |= {"sm_mhz": 1380, "max_sm_mhz": 1590, "memory_mhz": 5000, "max_memory_mhz": 5001, "video_mhz": 1470}
    gpu.numbers |= {"pcie_generation": 3, "pcie_width": 8}
    gpu.fields = {(id_, 0): ("ull", 0) for id_ in (3, 4, 5, 6, 29, 30, 83)} | {(31, 0): ("uint", 0)}
    return worn(gpu)


def worn_a100(index: int) -> FakeGpu:
    """An A100 40GB: it remaps rows."""
    gpu = a100(index)
    gpu.texts["model"] = "NVIDIA A100-SXM4-40GB"
    gpu.numbers |= _memory(40 * GIB, used=30 * GIB, reserved=583 * MIB)
    gpu.numbers |= {"memory_mhz": 1215, "max_memory_mhz": 1216, "sm_mhz": 1275, "video_mhz": 1290}
    for id_ in (29, 30, 31):
        del gpu.fields[id_, 0]
    return worn(gpu)


def worn_h100(index: int) -> FakeGpu:
    """An H100: profiling, a fabric, and NVLink errors in the fields of Hopper."""
    return worn(_on_fabric(h100(index), [(id_, 0) for id_ in (161, 162, 163)]))


def worn_b200(index: int) -> FakeGpu:
    """A B200: as an H100, and NVLink recoveries, summed over the links, in the fields of Blackwell."""
    gpu = h100(index)
    gpu.texts["model"] = "NVIDIA B200"
    gpu.numbers |= _memory(192 * GIB, used=150 * GIB, reserved=1024 * MIB)
    gpu.numbers |= {"power_mw": 912_000, "power_limit_mw": 1_000_000, "enforced_power_limit_mw": 990_000}
    gpu.numbers |= {"sm_mhz": 1965, "max_sm_mhz": 2100, "memory_mhz": 2490, "max_memory_mhz": 2500, "video_mhz": 1200}
    gpu.numbers |= {"pcie_generation": 6}
    return worn(_on_fabric(gpu, [(id_, ALL_LINKS) for id_ in (213, 214, 215)]))


PROFILES: Mapping[str, Callable[[int], FakeGpu]] = {
    "a100": worn_a100,
    "h100": worn_h100,
    "b200": worn_b200,
    "t4": worn_t4,
}
"""GPU models after a long life."""


def _on_fabric(gpu: FakeGpu, link_errors: Iterable[tuple[int, int]]) -> FakeGpu:
    """On an NVLink fabric, with these fields of NVLink errors instead of those before Hopper."""
    for id_ in (29, 30, 31, 38, 45, 52, 59):
        del gpu.fields[id_, 0]
    gpu.fields |= dict.fromkeys(link_errors, ("ull", 0))
    gpu.numbers |= {"fabric_state": 3, "fabric_clique": 5, "fabric_health": 0x1A5, "fabric_summary": 3}
    return gpu


def a100x8() -> Scenario:
    """Eight A100, each with one process."""
    world = Scenario([a100(index) for index in range(8)])
    for index, gpu in enumerate(world.gpus):
        gpu.compute(1000 + index, 20 * GIB)
        gpu.uses(1000 + index, 50 + index, memory=20 + index)
    return world


def crowd(gpus: int, processes: int, pids: Sequence[int] = ()) -> Scenario:
    """Many processes spread over many GPUs, every second one busy, for benchmarks.

    `pids` are those of processes that live, where a reader looks them up; made up otherwise.
    """
    world = Scenario([a100(index) for index in range(gpus)])
    for number in range(processes):
        gpu, pid = world.gpus[number % gpus], pids[number] if pids else 10_000 + number
        gpu.compute(pid, 512 * MIB)
        if number // gpus % 2 == 0:
            gpu.uses(pid, 5, memory=2)
    return world


def time_sliced() -> Scenario:
    """One A100 shared by six processes; two of them idle, one a display server too."""
    gpu = a100(0)
    for number in range(6):
        gpu.compute(2000 + number, (number + 1) * GIB)
        if number < 4:
            gpu.uses(2000 + number, 10 * (number + 1), memory=5 * number)
    gpu.graphics(2000, 2 * GIB)
    return Scenario([gpu])


def mps() -> Scenario:
    """An A100 with an MPS server and three clients, and another whose server has no client yet."""
    busy, waiting = a100(0), a100(1)
    busy.compute(3000, 30 * MIB)
    for client in (3001, 3002, 3003):
        busy.mps(client, 4 * GIB)
        busy.uses(client, 20)
    waiting.compute(3100, 30 * MIB)
    names = [f"process {pid} /usr/bin/nvidia-cuda-mps-server" for pid in (3000, 3100)]
    return Scenario([busy, waiting], lines=names)


def mig() -> Scenario:
    """An H100 with three MIG instances, two of them busy, and a whole H100."""
    parent = h100(0)
    parent.numbers["mig_mode"] = 1
    for name in ("gpu_percent", "memory_percent", "encoder_percent", "decoder_percent"):
        del parent.numbers[name]
    parent.gpm.clear()
    parent.instances = [
        _instance(0, "3g.40gb", gi=1, memory=40_192 * MIB),
        _instance(1, "1g.10gb", gi=7, memory=9_728 * MIB),
        _instance(2, "1g.10gb", gi=9, memory=9_728 * MIB),
    ]
    parent.instances[0].compute(5000, 12 * GIB)
    parent.instances[1].compute(5001, 3 * GIB)
    parent.instances[0].gpm |= {1: 80.0, 2: 75.0, 5: 40.0, 10: 33.0}
    parent.instances[1].gpm |= {1: 10.0, 2: 8.0, 5: 0.0, 10: 2.0}
    parent.instances[2].rest()
    whole = h100(1)
    whole.rest()
    return Scenario([parent, whole])


def h100_gpm() -> Scenario:
    """Two H100 with GPM, each with one process."""
    world = Scenario([h100(0), h100(1)])
    for index, gpu in enumerate(world.gpus):
        gpu.compute(6000 + index, 40 * GIB)
        gpu.uses(6000 + index, 60, memory=30)
    return world


def blackwell_legacy_empty() -> Scenario:
    """A busy B200 whose older per-process call finds nothing."""
    return _blackwell(LEGACY_UTILIZATION)


def modern_empty() -> Scenario:
    """A busy GPU whose newer per-process call finds nothing."""
    return _blackwell(MODERN_UTILIZATION)


def unified_memory() -> Scenario:
    """A DGX Spark: its GPU shares the memory of the CPU, so the driver reports that of processes only."""
    gpu = _bare_gpu(0, "NVIDIA GB10")
    gpu.texts["bus_id"] = "0000000F:01:00.0"
    gpu.numbers |= {
        "temperature": 61, "power_mw": 38_000, "gpu_percent": 72, "memory_percent": 0, "encoder_percent": 0,
        "decoder_percent": 0, "sm_mhz": 2418, "max_sm_mhz": 3003, "clock_reasons": 0, "pstate": 0, "events": 8,
    }  # fmt: skip
    gpu.compute(8000, 42 * GIB)
    gpu.compute(8001, 3 * GIB)
    gpu.graphics(8002, 43 * MIB)
    gpu.uses(8000, 72)
    return Scenario([gpu], driver="580.126.09")


def with_lost_gpu(index: int, world: Scenario | None = None) -> Scenario:
    """A GPU has fallen off the bus."""
    world = world or a100x8()
    world.gpus[index].lose()
    return world


def not_supported() -> Scenario:
    """GPUs that report only their identity."""
    world = Scenario([_bare_gpu(0, "NVIDIA Unhelpful"), _bare_gpu(1, "NVIDIA Unhelpful")])
    kinds = ("Compute", "Graphics", "MPSCompute")
    for symbol in (f"nvmlDeviceGet{kind}RunningProcesses_v{v}" for kind in kinds for v in (2, 3)):
        world.fail(symbol, NOT_SUPPORTED)
    return world


def no_driver() -> Scenario:
    """The library is there, the kernel driver is not."""
    return Scenario(lines=[f"init {DRIVER_NOT_LOADED}"])


def reloaded(world: Scenario, *, generation: int = 2, code: int = 1) -> Scenario:
    """The driver was reloaded: calls return this code until NVML is initialised again."""
    world.lines += [f"generation {generation}", f"stale {code}"]
    return world


def hung_call(symbol: str = "nvmlDeviceGetUtilizationRates", world: Scenario | None = None) -> Scenario:
    """One call blocks until the scenario changes."""
    world = world or a100x8()
    world.lines.append(f"hang {symbol}")
    return world


def _blackwell(empty_call: str) -> Scenario:
    gpu = h100(0)
    gpu.texts["model"] = "NVIDIA B200"
    for number in range(3):
        gpu.compute(7000 + number, 10 * GIB)
        gpu.uses(7000 + number, 20 + number)
    gpu.fail(empty_call, NOT_FOUND)
    return Scenario([gpu], driver="580.65.06")


def _bare_gpu(index: int, model: str) -> FakeGpu:
    texts = {
        "uuid": f"GPU-0000000{index % 10}-aaaa-bbbb-cccc-{index:012d}",
        "model": model,
        "bus_id": f"00000000:{0x10 + index:02X}:00.0",
        "serial": f"15649200{index:05d}",
        "vbios": "92.00.25.00.08",
        "inforom_image": "1001.0200.00.04",
        "inforom_oem": "2.0",
        "inforom_ecc": "6.16",
    }
    return FakeGpu({"minor": index, "brand": 14}, texts)


def _instance(slot: int, profile: str, *, gi: int, memory: int) -> FakeGpu:
    numbers = _memory(memory, used=memory // 4, reserved=16 * MIB)
    numbers |= {"gi": gi, "ci": 0, "slices": int(profile[0])}
    texts = {"uuid": f"MIG-1111111{slot}-aaaa-bbbb-cccc-{gi:012d}", "model": f"NVIDIA H100 80GB HBM3 MIG {profile}"}
    return FakeGpu(numbers, texts)


def _memory(total: int, *, used: int, reserved: int) -> dict[str, int]:
    free = total - used - reserved
    return {"memory_total": total, "memory_used": used, "memory_free": free, "memory_reserved": reserved}


def _fields(index: int) -> dict[tuple[int, int], tuple[str, float]]:
    """ECC 3-6, retired pages 29-31, NVLink errors 38-59, violations 74-79, memory heat 82, energy 83, rows 142-145."""
    counters = dict.fromkeys((3, 4, 5, 6, 29, 30, 38, 45, 52, 59, 142, 143), 0)
    fields: dict[tuple[int, int], tuple[str, float]] = {(id_, 0): ("ull", value) for id_, value in counters.items()}
    fields |= {(id_, 0): ("uint", 0) for id_ in (31, 144, 145)}
    fields |= {(id_, 0): ("ull", (id_ - 73) * 10**9) for id_ in VIOLATIONS}
    fields |= {(82, 0): ("uint", 50 + index), (83, 0): ("ull", 5_000_000_000 + index)}
    return fields | {(id_, scope): ("ull", 1024) for id_ in (138, 139) for scope in (ALL_LINKS, 0)}
