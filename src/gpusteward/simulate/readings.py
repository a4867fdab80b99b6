"""The signals of a simulated device at a moment, limited to what its model reports and rounded like NVML's values."""

from collections.abc import Sequence
from functools import cache

from gpusteward.core.node.gpus import GpuReading
from gpusteward.core.node.signals import SIGNALS, Scope
from gpusteward.simulate.devices import Instance, Sample, SimulatedGpu, to_percent
from gpusteward.simulate.models import MIB, GpuModel
from gpusteward.simulate.workloads import ActivityMix

AMBIENT_CELSIUS = 27.0
FULL_POWER_CELSIUS = 47.0  # above ambient
CLOCK_STEP_HERTZ = 15_000_000
EMPTY_MIB = 3  # in use on an unused GPU
CONTEXT_MIB = 48  # memory of the driver while there is a process; in no process list
PCIE_BYTES_PER_SECOND = {3: 12e9, 4: 25e9, 5: 50e9}  # x16, practical values

_COPIED = tuple(name for name, signal in SIGNALS.items() if signal.scope is Scope.COPY)
_GPM = ("gr_engine", "sm_active", "sm_occupancy", "tensor", "dram", "fp64", "fp32", "fp16")
_NO_GPM = {f"{name}_ratio": 0.0 for name in _GPM}

Signals = dict[str, float]
_Part = tuple[float, ActivityMix]  # busy ratio, activity


def read_device(device: SimulatedGpu, samples: Sequence[Sample], *, energy_joules: float) -> list[GpuReading]:
    """The device, followed by its MIG instances. `samples` are those of all its placements, in order."""
    signals = _device_signals(device, samples, energy_joules)
    if not device.instances:
        signals |= _memory(device.model.memory_mib, device.model.reserved_mib, _used_bytes(samples))
        signals |= _driver_samples(device.model, samples)
        return [GpuReading(device.gpu, signals, is_mps=device.is_mps, xid_counts={})]
    own = [_instance_signals(device, instance, samples) for instance in device.instances]
    used = int(sum(each["memory_used_bytes"] for each in own))
    signals |= _memory(device.model.memory_mib, device.model.reserved_mib, used)
    copied = {name: signals[name] for name in _COPIED if name in signals}
    return [
        GpuReading(device.gpu, signals, is_mig_parent=True, xid_counts={}),
        *(
            GpuReading(instance.gpu, copied | each, xid_counts={})
            for instance, each in zip(device.instances, own, strict=True)
        ),
    ]


def _device_signals(device: SimulatedGpu, samples: Sequence[Sample], energy_joules: float) -> Signals:
    """All signals except memory and the utilizations that NVML does not provide on MIG."""
    model = device.model
    watts = model.idle_watts + sum([sample.watts for sample in samples])
    heat = model.idle_watts + sum([sample.heat_watts for sample in samples])
    is_busy = max([sample.mean for sample in samples], default=0.0) > 1e-6
    has_context = any(sample.memory_bytes for sample in samples)
    signals = fixed_signals(model) | _clocks(model, watts, is_busy=is_busy, has_context=has_context)
    signals["power_watts"] = round(watts, 3)
    signals["energy_joules_total"] = round(energy_joules, 3)
    share = heat / model.power_limit_watts
    celsius = float(round(AMBIENT_CELSIUS + device.offset_celsius + FULL_POWER_CELSIUS * share))
    signals["temperature_celsius"] = celsius
    if model.has_hbm:
        signals["memory_temperature_celsius"] = celsius + 6
    if model.has_fan:
        signals["fan_ratio"] = to_percent(0.3 + 0.5 * share) if share > 0.15 else 0.0
    if model.is_profiled:
        parts = [(sample.mean * sample.placement.device_share, sample.placement.activity) for sample in samples]
        received, linked = _pcie(model, parts), _nvlink(model, parts)
        signals |= _profiling(parts)
        signals["pcie_rx_bytes_per_second"] = received
        signals["pcie_tx_bytes_per_second"] = _sent(received)
        signals["nvlink_rx_bytes_per_second"] = signals["nvlink_tx_bytes_per_second"] = linked
    return signals


def _clocks(model: GpuModel, watts: float, *, is_busy: bool, has_context: bool) -> Signals:
    """Full clocks when busy, slightly less near the power limit. A GPU with HBM keeps them as long as a process has a
    context, which is why it draws more than an unused one; others, in P8, have idle clocks then."""
    load = watts / model.power_limit_watts
    is_awake = is_busy or (has_context and model.has_hbm)
    megahertz = model.sm_clock_mhz * (1 - 0.5 * max(0.0, load - 0.8)) if is_awake else model.idle_sm_clock_mhz
    hertz = float(round(megahertz * 1e6 / CLOCK_STEP_HERTZ) * CLOCK_STEP_HERTZ)
    return {
        "sm_clock_hertz": hertz,
        "memory_clock_hertz": 1e6 * (model.memory_clock_mhz if is_busy else model.idle_memory_clock_mhz),
        "video_clock_hertz": float(round(0.9 * hertz / CLOCK_STEP_HERTZ) * CLOCK_STEP_HERTZ),
        "performance_state": 0.0 if is_busy else float(model.idle_performance_state),
        "clock_event_reasons": (4.0 if load > 0.97 else 0.0) if is_busy else 1.0,
    }


def _driver_samples(model: GpuModel, samples: Sequence[Sample]) -> Signals:
    """Utilizations that NVML provides only without MIG."""
    mean = sum([sample.mean for sample in samples])
    signals = {
        "utilization_ratio": to_percent(sum([sample.last for sample in samples])),
        "utilization_mean_ratio": to_percent(mean),
        "memory_copy_ratio": to_percent(
            sum([sample.last * sample.placement.activity.memory_copy for sample in samples])
        ),
        "encoder_ratio": 0.0,
        "decoder_ratio": 0.0,
    }
    parts = [(sample.mean, sample.placement.activity) for sample in samples]
    received = _pcie(model, parts)
    signals["pcie_throughput_rx_bytes_per_second"] = received
    signals["pcie_throughput_tx_bytes_per_second"] = _sent(received)
    if model.nvlinks:
        both_ways = 2 * _nvlink(model, parts)
        signals["nvlink_bytes_per_second"] = both_ways
        signals["nvlink_l0_bytes_per_second"] = float(round(both_ways / model.nvlinks))
    return signals


def _profiling(parts: Sequence[_Part]) -> Signals:
    """Profiling ratios with GPM's resolution. Idle placements are skipped, as most are idle at any moment."""
    signals = _NO_GPM.copy()
    for busy, activity in parts:
        if busy > 0:
            for name, value in activity.profile:
                signals[name] += busy * value
    return {name: min(round(value, 4), 1.0) for name, value in signals.items()}


def _pcie(model: GpuModel, parts: Sequence[_Part]) -> float:
    most = PCIE_BYTES_PER_SECOND[model.pcie_generation]
    return float(round(most * max(0.0, sum([busy * activity.pcie for busy, activity in parts]))))


def _sent(received: float) -> float:
    """Results are smaller than inputs."""
    return float(round(0.4 * received))


def _nvlink(model: GpuModel, parts: Sequence[_Part]) -> float:
    most = model.nvlink_bytes_per_second
    return float(round(most * max(0.0, sum([busy * activity.nvlink for busy, activity in parts]))))


def _instance_signals(device: SimulatedGpu, instance: Instance, samples: Sequence[Sample]) -> Signals:
    own = [sample for sample in samples if sample.placement.gpu_uuid == instance.gpu.uuid]
    signals = _memory(instance.profile.memory_mib, 0, _used_bytes(own))
    if device.model.is_profiled:
        signals |= _profiling([(sample.mean, sample.placement.activity) for sample in own])
    return signals


def _memory(total_mib: int, reserved_mib: int, used_bytes: int) -> Signals:
    total, reserved = total_mib * MIB, reserved_mib * MIB
    return {
        "memory_total_bytes": total,
        "memory_reserved_bytes": reserved,
        "memory_used_bytes": used_bytes,
        "memory_free_bytes": total - reserved - used_bytes,
    }


def _used_bytes(samples: Sequence[Sample]) -> int:
    held = sum([sample.memory_bytes for sample in samples])
    return held + (EMPTY_MIB + (CONTEXT_MIB if held else 0)) * MIB


@cache
def fixed_signals(model: GpuModel) -> Signals:
    """Constant signals, with the error counters of healthy hardware. The cached mapping must not be modified."""
    signals: Signals = {
        "max_sm_clock_hertz": model.sm_clock_mhz * 1e6,
        "max_memory_clock_hertz": model.memory_clock_mhz * 1e6,
        "power_limit_watts": model.power_limit_watts,
        "enforced_power_limit_watts": model.power_limit_watts,
        "last_xid": 0.0,
        "pcie_replays_total": 0.0,
        "pcie_link_generation": float(model.pcie_generation),
        "pcie_link_width": 16.0,
        "vgpu_license_status": 0.0,
    }
    limits = ("power", "thermal", "sync_boost", "board_limit", "low_utilization", "reliability")
    names = [f"{limit}_violation_seconds_total" for limit in limits]
    if model.has_ecc:
        names += [f"ecc_{bit}_bit_{life}_total" for bit in ("single", "double") for life in ("volatile", "aggregate")]
    if model.nvlinks:
        names += [f"nvlink_{what}_errors_total" for what in ("crc_flit", "crc_data", "replay", "recovery")]
    if model.retires_pages:
        names += ["retired_pages_single_bit_total", "retired_pages_double_bit_total", "retired_pages_pending"]
    elif model.has_ecc:
        names += [f"remapped_rows_{what}_total" for what in ("uncorrectable", "correctable")]
        names += ["row_remap_failure", "row_remap_pending"]
    return signals | dict.fromkeys(names, 0.0)
