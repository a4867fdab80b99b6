"""The table of signals that can be read from a GPU, in base units, independent of the names in the dialects.

NVML and the simulator produce them, the dialects export them. A signal that could not be measured is absent.
"""

from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """What a signal of a MIG instance refers to."""

    INSTANCE = "instance"  # read from the instance itself
    COPY = "copy"  # of the parent, valid for each instance (a temperature)
    DEVICE = "device"  # of the parent only; repeated per instance it would be counted twice (power)


@dataclass(frozen=True, slots=True)
class Signal:
    name: str
    scope: Scope
    help: str
    is_slow: bool = False  # the read blocks: only if wanted


_OWN, _COPY, _DEVICE = Scope.INSTANCE, Scope.COPY, Scope.DEVICE
_COUNTED_PIPES = {
    "mma": "tensor",
    "dmma": "tensor (FP64)",
    "hmma": "tensor (FP16)",
    "imma": "tensor (integer)",
    "dfma": "tensor (FP64, fused)",
    "integer": "integer",
    "fp64": "FP64",
    "fp32": "FP32",
    "fp16": "FP16",
}
_TABLE = (
    Signal("sm_clock_hertz", _COPY, "Clock of the streaming multiprocessors"),
    Signal("memory_clock_hertz", _COPY, "Clock of the memory"),
    Signal("video_clock_hertz", _COPY, "Clock of the video engines"),
    Signal("max_sm_clock_hertz", _COPY, "Highest clock of the streaming multiprocessors"),
    Signal("max_memory_clock_hertz", _COPY, "Highest clock of the memory"),
    Signal("temperature_celsius", _COPY, "Temperature of the GPU"),
    Signal("memory_temperature_celsius", _COPY, "Temperature of the memory"),
    Signal("power_watts", _DEVICE, "Power drawn by the board"),
    Signal("power_limit_watts", _DEVICE, "Power limit set by management"),
    Signal("enforced_power_limit_watts", _DEVICE, "Power limit in force, the lowest of all limiters"),
    Signal("energy_joules_total", _DEVICE, "Energy drawn since the driver was loaded"),
    Signal("utilization_ratio", _DEVICE, "Share of the driver's last sample in which a kernel ran"),
    Signal("utilization_mean_ratio", _DEVICE, "Mean of the driver's utilization samples since the last cycle"),
    Signal("memory_copy_ratio", _DEVICE, "Share of the driver's last sample in which memory was moved"),
    Signal("encoder_ratio", _DEVICE, "Utilization of the video encoder"),
    Signal("decoder_ratio", _DEVICE, "Utilization of the video decoder"),
    Signal("memory_total_bytes", _OWN, "Memory of the device"),
    Signal("memory_free_bytes", _OWN, "Memory not in use"),
    Signal("memory_used_bytes", _OWN, "Memory in use, without what the driver reserves"),
    Signal("memory_reserved_bytes", _OWN, "Memory the driver keeps for itself"),
    Signal("last_xid", _COPY, "Last XID error, 0 if there was none"),
    Signal("clock_event_reasons", _COPY, "Bit mask of what limits the clocks now"),
    Signal("performance_state", _COPY, "Performance state, 0 is the fastest"),
    Signal("fan_ratio", _DEVICE, "Speed of the fan"),
    Signal("power_violation_seconds_total", _DEVICE, "Time slowed by the power limit"),
    Signal("thermal_violation_seconds_total", _DEVICE, "Time slowed by heat"),
    Signal("sync_boost_violation_seconds_total", _DEVICE, "Time slowed by sync boost"),
    Signal("board_limit_violation_seconds_total", _DEVICE, "Time slowed by the board limit"),
    Signal("low_utilization_violation_seconds_total", _DEVICE, "Time slowed for lack of work"),
    Signal("reliability_violation_seconds_total", _DEVICE, "Time slowed by the reliability limit"),
    Signal("pcie_replays_total", _DEVICE, "PCIe packets sent again"),
    Signal("pcie_link_generation", _COPY, "Generation of the PCIe link now"),
    Signal("pcie_link_width", _COPY, "Lanes of the PCIe link now"),
    Signal("pcie_throughput_tx_bytes_per_second", _DEVICE, "PCIe bytes sent, sampled over 20 ms", is_slow=True),
    Signal(
        "pcie_throughput_rx_bytes_per_second",
        _DEVICE,
        "PCIe bytes received, sampled over 20 ms",
        is_slow=True,
    ),
    Signal("nvlink_bytes_per_second", _DEVICE, "NVLink data, sent and received, all links"),
    Signal("nvlink_l0_bytes_per_second", _DEVICE, "NVLink data, sent and received, link 0"),
    Signal("nvlink_crc_flit_errors_total", _DEVICE, "NVLink CRC errors in flow control"),
    Signal("nvlink_crc_data_errors_total", _DEVICE, "NVLink CRC errors in data"),
    Signal("nvlink_replay_errors_total", _DEVICE, "NVLink retries"),
    Signal("nvlink_recovery_errors_total", _DEVICE, "NVLink recoveries"),
    Signal("nvlink_dl_crc_errors_total", _DEVICE, "NVLink CRC errors, on Hopper and newer"),
    Signal("nvlink_dl_recovery_errors_total", _DEVICE, "NVLink recoveries, on Hopper and newer"),
    Signal("nvlink_dl_replay_errors_total", _DEVICE, "NVLink retries, on Hopper and newer"),
    Signal(
        "nvlink_link_recoveries_successful_total", _DEVICE, "NVLink recoveries that succeeded, on Blackwell and newer"
    ),
    Signal("nvlink_link_recoveries_failed_total", _DEVICE, "NVLink recoveries that failed, on Blackwell and newer"),
    Signal("nvlink_link_recoveries_total", _DEVICE, "NVLink recoveries with any result, on Blackwell and newer"),
    Signal("fabric_clique_id", _COPY, "Clique of the NVLink fabric that the GPU belongs to"),
    Signal("fabric_health_mask", _COPY, "Bit mask of the health of the NVLink fabric"),
    Signal("fabric_health_summary", _COPY, "Health of the NVLink fabric: 1 healthy, 2 unhealthy, 3 limited capacity"),
    Signal("ecc_single_bit_volatile_total", _DEVICE, "Single-bit ECC errors since the driver was loaded"),
    Signal("ecc_double_bit_volatile_total", _DEVICE, "Double-bit ECC errors since the driver was loaded"),
    Signal("ecc_single_bit_aggregate_total", _DEVICE, "Single-bit ECC errors in the life of the board"),
    Signal("ecc_double_bit_aggregate_total", _DEVICE, "Double-bit ECC errors in the life of the board"),
    Signal("retired_pages_single_bit_total", _DEVICE, "Pages retired after single-bit errors"),
    Signal("retired_pages_double_bit_total", _DEVICE, "Pages retired after double-bit errors"),
    Signal("retired_pages_pending", _COPY, "1 if pages wait for a reboot to be retired"),
    Signal("remapped_rows_uncorrectable_total", _DEVICE, "Memory rows remapped after uncorrectable errors"),
    Signal("remapped_rows_correctable_total", _DEVICE, "Memory rows remapped after correctable errors"),
    Signal("row_remap_failure", _COPY, "1 if a row could not be remapped"),
    Signal("row_remap_pending", _COPY, "1 if a remap waits for a reset"),
    Signal("vgpu_license_status", _COPY, "1 if a vGPU licence is active"),
    Signal("gr_engine_ratio", _OWN, "Share of time the graphics or compute engine was active"),
    Signal("sm_active_ratio", _OWN, "Share of cycles with a warp on an SM"),
    Signal("sm_occupancy_ratio", _OWN, "Resident warps against the most an SM can hold"),
    Signal("tensor_ratio", _OWN, "Share of cycles the tensor pipe was active"),
    Signal("dram_ratio", _OWN, "Share of cycles the memory interface was active"),
    Signal("fp64_ratio", _OWN, "Share of cycles the FP64 pipe was active"),
    Signal("fp32_ratio", _OWN, "Share of cycles the FP32 pipe was active"),
    Signal("fp16_ratio", _OWN, "Share of cycles the FP16 pipe was active"),
    Signal("tensor_imma_ratio", _OWN, "Share of cycles the tensor pipe ran integer operations"),
    Signal("tensor_hmma_ratio", _OWN, "Share of cycles the tensor pipe ran FP16 operations"),
    Signal("tensor_dfma_ratio", _OWN, "Share of cycles the tensor pipe ran FP64 operations"),
    Signal("integer_ratio", _OWN, "Share of cycles the integer pipe was active"),
    Signal("pcie_tx_bytes_per_second", _DEVICE, "PCIe bytes sent, headers included"),
    Signal("pcie_rx_bytes_per_second", _DEVICE, "PCIe bytes received, headers included"),
    Signal("nvlink_tx_bytes_per_second", _DEVICE, "NVLink bytes sent"),
    Signal("nvlink_rx_bytes_per_second", _DEVICE, "NVLink bytes received"),
    Signal("sm_cycles_total", _OWN, "Cycles of the SMs since the node was started"),
    Signal("sm_active_cycles_total", _OWN, "Cycles with a warp on an SM since the node was started"),
    *(
        Signal(f"{pipe}_active_cycles_total", _OWN, f"Active cycles of the {text} pipe since the node was started")
        for pipe, text in _COUNTED_PIPES.items()
    ),
    Signal("pcie_tx_bytes_total", _DEVICE, "PCIe bytes sent since the node was started"),
    Signal("pcie_rx_bytes_total", _DEVICE, "PCIe bytes received since the node was started"),
)
SIGNALS = {signal.name: signal for signal in _TABLE}

_PIPES = ("tensor", "tensor_imma", "tensor_hmma", "tensor_dfma", "integer", "fp64", "fp32", "fp16")
PROFILING = frozenset(f"{name}_ratio" for name in ("gr_engine", "sm_active", "sm_occupancy", "dram", *_PIPES)) | {
    f"{bus}_{way}_bytes_per_second" for bus in ("pcie", "nvlink") for way in ("tx", "rx")
}
"""Read through GPM on Hopper and newer, from a DCGM hostengine on older ones."""
PROFILING_TOTALS = frozenset(f"{name}_cycles_total" for name in ("sm", "sm_active")) | {
    *(f"{pipe}_active_cycles_total" for pipe in _COUNTED_PIPES),
    *(f"pcie_{way}_bytes_total" for way in ("tx", "rx")),
}
"""Read through GPM where the driver counts them."""

CLOCK_EVENTS = {
    0x001: "gpu_idle",
    0x002: "clocks_setting",
    0x004: "power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal",
    0x040: "hw_thermal",
    0x080: "hw_power_brake",
    0x100: "display_clocks",
}
"""Bits of `clock_event_reasons` -> dcgm-exporter's names."""

FACTS = (
    "driver_version",
    "nvml_version",
    "brand",
    "serial",
    "vbios_version",
    "inforom_image_version",
    "inforom_oem_version",
    "inforom_ecc_version",
    "inforom_power_version",
)
"""Keys of `Gpu.facts`."""
