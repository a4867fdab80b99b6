"""The table of DCGM fields: name in dcgm-exporter, signal, unit and type.

Used by the CSV parser, the dialect, the reference page and the tests. Other names of these fields (DCGM 4.6, 1.x) and
the fields that only DCGM itself can provide are in `core.dcgm_names`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from gpusteward.core.metrics import MetricType
from gpusteward.core.node.signals import SIGNALS


class Unit(StrEnum):
    """The unit of a field; the value is used at the end of its help text."""

    COUNT = ""
    CELSIUS = "C"
    WATTS = "W"
    RATIO = "0 to 1"
    PERCENT = "%"
    HERTZ = "Hz"
    MEGAHERTZ = "MHz"
    BYTES = "bytes"
    MEBIBYTES = "MiB"
    JOULES = "J"
    MILLIJOULES = "mJ"
    NANOSECONDS = "ns"
    BYTES_PER_SECOND = "bytes/s"
    KILOBYTES_PER_SECOND = "kB/s"
    NVLINK_MEGABYTES_PER_SECOND = "MB/s"


CONVERT: Mapping[Unit, Callable[[float], float]] = dict.fromkeys(Unit, lambda value: value) | {
    Unit.PERCENT: lambda ratio: round(ratio * 100),
    Unit.MEGAHERTZ: lambda hertz: round(hertz / 1e6),
    Unit.MEBIBYTES: lambda count: int(count // 1048576),  # free, used and total are each rounded down
    Unit.MILLIJOULES: lambda joules: round(joules * 1000),
    Unit.NANOSECONDS: lambda seconds: round(seconds * 1e9),
    Unit.BYTES_PER_SECOND: round,
    Unit.KILOBYTES_PER_SECOND: lambda rate: round(rate / 1000),
    # DCGM divides NVML's KiB by 1000 and calls it MB; dashboards expect the same number here.
    Unit.NVLINK_MEGABYTES_PER_SECOND: lambda rate: int(rate / 1024 / 1000),
}
"""Conversion from the base unit of the signal to the unit of the field."""

DERIVED: Mapping[str, tuple[str, ...]] = {
    "memory_used_ratio": ("memory_used_bytes", "memory_total_bytes", "memory_reserved_bytes"),
}
"""Values computed from several signals."""
OPTIONAL_IN_DERIVED = frozenset({"memory_reserved_bytes"})
"""Signals without which a derived value is known too."""


def derive_memory_used_ratio(signals: Mapping[str, float]) -> float | None:
    """Used share of the usable memory; None if used or total is unknown. Older drivers do not report the reserve."""
    used, total = signals.get("memory_used_bytes"), signals.get("memory_total_bytes")
    if used is None or total is None:
        return None
    usable = total - signals.get("memory_reserved_bytes", 0.0)
    return used / usable if usable > 0 else None


@dataclass(frozen=True, slots=True)
class DcgmField:
    """A field with a numeric value."""

    name: str  # in dcgm-exporter up to 4.8
    id: int
    kind: MetricType
    unit: Unit
    signal: str  # of `core.node.signals`, or of `DERIVED`
    v49_name: str = ""  # in dcgm-exporter 4.9, if different
    v49_unit: Unit | None = None  # in dcgm-exporter 4.9, if different

    @property
    def signals(self) -> tuple[str, ...]:
        """The signals it needs."""
        return DERIVED.get(self.signal, (self.signal,))

    def unit_of(self, name: str) -> Unit:
        """The unit of the field under this name."""
        return self.v49_unit if self.v49_unit and name == self.v49_name else self.unit

    def help_of(self, name: str) -> str:
        """The help text of the field under this name."""
        signal = SIGNALS.get(self.signal)
        text = signal.help if signal else "Share of the memory in use, without the driver's reserve"
        unit = self.unit_of(name)
        return f"{text} (in {unit})." if unit else f"{text}."


@dataclass(frozen=True, slots=True)
class DcgmLabel:
    """A field with a text value: a label of every sample of its GPU."""

    name: str
    id: int
    fact: str  # of `signals.FACTS`, or an attribute of the GPU itself
    v49_name: str = ""


@dataclass(frozen=True, slots=True)
class DcgmEvent:
    """A metric family that dcgm-exporter computes itself, with its own labels."""

    name: str
    kind: MetricType
    help: str
    signals: tuple[str, ...] = ()  # without these signals the events are unknown


_V49: Mapping[str, tuple[str, Unit | None]] = {
    "DCGM_FI_DEV_SM_CLOCK": ("DCGM_FI_DEV_SM_CLOCK_HERTZ", Unit.HERTZ),
    "DCGM_FI_DEV_MEM_CLOCK": ("DCGM_FI_DEV_MEMORY_CLOCK_HERTZ", Unit.HERTZ),
    "DCGM_FI_DEV_MEMORY_TEMP": ("DCGM_FI_DEV_MEMORY_TEMP_CELSIUS", None),
    "DCGM_FI_DEV_GPU_TEMP": ("DCGM_FI_DEV_GPU_TEMP_CELSIUS", None),
    "DCGM_FI_DEV_POWER_USAGE": ("DCGM_FI_DEV_BOARD_POWER_WATTS", None),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", Unit.JOULES),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": ("DCGM_FI_DEV_PCIE_REPLAY_TOTAL", None),
    # In DCGM 4.6 this new name still meant percent; here it is a ratio, as the name says.
    "DCGM_FI_DEV_GPU_UTIL": ("DCGM_FI_DEV_GPU_UTIL_RATIO", Unit.RATIO),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("DCGM_FI_DEV_MEMORY_UTIL_RATIO", Unit.RATIO),
    "DCGM_FI_DEV_ENC_UTIL": ("DCGM_FI_DEV_ENC_UTIL_RATIO", Unit.RATIO),
    "DCGM_FI_DEV_DEC_UTIL": ("DCGM_FI_DEV_DEC_UTIL_RATIO", Unit.RATIO),
    "DCGM_FI_DEV_XID_ERRORS": ("DCGM_FI_DEV_XID_ERROR", None),
    "DCGM_FI_DEV_FB_TOTAL": ("DCGM_FI_DEV_FB_CAPACITY_BYTES", Unit.BYTES),
    "DCGM_FI_DEV_FB_FREE": ("DCGM_FI_DEV_FB_FREE_BYTES", Unit.BYTES),
    "DCGM_FI_DEV_FB_USED": ("DCGM_FI_DEV_FB_USED_BYTES", Unit.BYTES),
    "DCGM_FI_DEV_FB_RESERVED": ("DCGM_FI_DEV_FB_RESERVED_BYTES", Unit.BYTES),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ("DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL", None),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": ("DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL", None),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("DCGM_FI_DEV_ROW_REMAP_FAILED", None),
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": (
        "DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND",
        Unit.BYTES_PER_SECOND,
    ),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", None),
    "DCGM_FI_PROF_SM_ACTIVE": ("DCGM_FI_PROF_SM_UTIL_RATIO", None),
    "DCGM_FI_PROF_SM_OCCUPANCY": ("DCGM_FI_PROF_SM_OCCUPANCY_RATIO", None),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("DCGM_FI_PROF_TENSOR_UTIL_RATIO", None),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("DCGM_FI_PROF_DRAM_UTIL_RATIO", None),
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": ("DCGM_FI_PROF_FP64_UTIL_RATIO", None),
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": ("DCGM_FI_PROF_FP32_UTIL_RATIO", None),
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": ("DCGM_FI_PROF_FP16_UTIL_RATIO", None),
    "DCGM_FI_PROF_PIPE_TENSOR_IMMA_ACTIVE": ("DCGM_FI_PROF_IMMA_UTIL_RATIO", None),
    "DCGM_FI_PROF_PIPE_TENSOR_HMMA_ACTIVE": ("DCGM_FI_PROF_HMMA_UTIL_RATIO", None),
    "DCGM_FI_PROF_PIPE_TENSOR_DFMA_ACTIVE": ("DCGM_FI_PROF_DFMA_UTIL_RATIO", None),
    "DCGM_FI_PROF_PIPE_INT_ACTIVE": ("DCGM_FI_PROF_INT_UTIL_RATIO", None),
}
"""Names changed in dcgm-exporter 4.9, with the new unit if that changed too."""

V49_DEFAULT_ADDITIONS = ("DCGM_FI_DEV_FB_CAPACITY_BYTES",)
"""Exported by default since 4.9."""


def _field(name: str, number: int, kind: MetricType, unit: Unit, signal: str) -> DcgmField:
    v49_name, v49_unit = _V49.get(name, ("", None))
    return DcgmField(name, number, kind, unit, signal, v49_name, v49_unit)


def _gauge(name: str, number: int, unit: Unit, signal: str) -> DcgmField:
    return _field(name, number, MetricType.GAUGE, unit, signal)


def _counter(name: str, number: int, unit: Unit, signal: str) -> DcgmField:
    return _field(name, number, MetricType.COUNTER, unit, signal)


DEFAULT_FIELDS: tuple[DcgmField, ...] = (
    _gauge("DCGM_FI_DEV_SM_CLOCK", 100, Unit.MEGAHERTZ, "sm_clock_hertz"),
    _gauge("DCGM_FI_DEV_MEM_CLOCK", 101, Unit.MEGAHERTZ, "memory_clock_hertz"),
    _gauge("DCGM_FI_DEV_MEMORY_TEMP", 140, Unit.CELSIUS, "memory_temperature_celsius"),
    _gauge("DCGM_FI_DEV_GPU_TEMP", 150, Unit.CELSIUS, "temperature_celsius"),
    _gauge("DCGM_FI_DEV_POWER_USAGE", 155, Unit.WATTS, "power_watts"),
    _counter("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 156, Unit.MILLIJOULES, "energy_joules_total"),
    _counter("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", 202, Unit.COUNT, "pcie_replays_total"),
    _gauge("DCGM_FI_DEV_GPU_UTIL", 203, Unit.PERCENT, "utilization_ratio"),
    _gauge("DCGM_FI_DEV_MEM_COPY_UTIL", 204, Unit.PERCENT, "memory_copy_ratio"),
    _gauge("DCGM_FI_DEV_ENC_UTIL", 206, Unit.PERCENT, "encoder_ratio"),
    _gauge("DCGM_FI_DEV_DEC_UTIL", 207, Unit.PERCENT, "decoder_ratio"),
    _gauge("DCGM_FI_DEV_XID_ERRORS", 230, Unit.COUNT, "last_xid"),
    _gauge("DCGM_FI_DEV_FB_FREE", 251, Unit.MEBIBYTES, "memory_free_bytes"),
    _gauge("DCGM_FI_DEV_FB_USED", 252, Unit.MEBIBYTES, "memory_used_bytes"),
    _gauge("DCGM_FI_DEV_FB_RESERVED", 253, Unit.MEBIBYTES, "memory_reserved_bytes"),
    # Up to 4.8.2 dcgm-exporter declared this as a counter, but it is a rate computed by DCGM. Queries stay the same.
    _gauge("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", 449, Unit.NVLINK_MEGABYTES_PER_SECOND, "nvlink_bytes_per_second"),
    _gauge("DCGM_FI_DEV_VGPU_LICENSE_STATUS", 526, Unit.COUNT, "vgpu_license_status"),
    _counter("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 393, Unit.COUNT, "remapped_rows_uncorrectable_total"),
    _counter("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", 394, Unit.COUNT, "remapped_rows_correctable_total"),
    _gauge("DCGM_FI_DEV_ROW_REMAP_FAILURE", 395, Unit.COUNT, "row_remap_failure"),
    _gauge("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 1001, Unit.RATIO, "gr_engine_ratio"),
    _gauge("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 1004, Unit.RATIO, "tensor_ratio"),
    _gauge("DCGM_FI_PROF_DRAM_ACTIVE", 1005, Unit.RATIO, "dram_ratio"),
    _gauge("DCGM_FI_PROF_PCIE_TX_BYTES", 1009, Unit.BYTES_PER_SECOND, "pcie_tx_bytes_per_second"),
    _gauge("DCGM_FI_PROF_PCIE_RX_BYTES", 1010, Unit.BYTES_PER_SECOND, "pcie_rx_bytes_per_second"),
)
"""The built-in list: the active rows of dcgm-exporter's default list, in its order."""

OPTIONAL_FIELDS: tuple[DcgmField, ...] = (
    _gauge("DCGM_FI_DEV_VIDEO_CLOCK", 102, Unit.MEGAHERTZ, "video_clock_hertz"),
    _gauge("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 112, Unit.COUNT, "clock_event_reasons"),
    _gauge("DCGM_FI_DEV_MAX_SM_CLOCK", 113, Unit.MEGAHERTZ, "max_sm_clock_hertz"),
    _gauge("DCGM_FI_DEV_MAX_MEM_CLOCK", 114, Unit.MEGAHERTZ, "max_memory_clock_hertz"),
    _gauge("DCGM_FI_DEV_POWER_MGMT_LIMIT", 160, Unit.WATTS, "power_limit_watts"),
    _gauge("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", 164, Unit.WATTS, "enforced_power_limit_watts"),
    _gauge("DCGM_FI_DEV_FABRIC_CLIQUE_ID", 173, Unit.COUNT, "fabric_clique_id"),
    _gauge("DCGM_FI_DEV_FABRIC_HEALTH_MASK", 174, Unit.COUNT, "fabric_health_mask"),
    _gauge("DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY", 175, Unit.COUNT, "fabric_health_summary"),
    _gauge("DCGM_FI_DEV_PSTATE", 190, Unit.COUNT, "performance_state"),
    _gauge("DCGM_FI_DEV_FAN_SPEED", 191, Unit.PERCENT, "fan_ratio"),
    # No longer available in DCGM 4; still in NVML, at 20 ms per read.
    _gauge("DCGM_FI_DEV_PCIE_TX_THROUGHPUT", 200, Unit.KILOBYTES_PER_SECOND, "pcie_throughput_tx_bytes_per_second"),
    _gauge("DCGM_FI_DEV_PCIE_RX_THROUGHPUT", 201, Unit.KILOBYTES_PER_SECOND, "pcie_throughput_rx_bytes_per_second"),
    _gauge("DCGM_FI_DEV_PCIE_LINK_GEN", 237, Unit.COUNT, "pcie_link_generation"),
    _gauge("DCGM_FI_DEV_PCIE_LINK_WIDTH", 238, Unit.COUNT, "pcie_link_width"),
    _counter("DCGM_FI_DEV_POWER_VIOLATION", 240, Unit.NANOSECONDS, "power_violation_seconds_total"),
    _counter("DCGM_FI_DEV_THERMAL_VIOLATION", 241, Unit.NANOSECONDS, "thermal_violation_seconds_total"),
    _counter("DCGM_FI_DEV_SYNC_BOOST_VIOLATION", 242, Unit.NANOSECONDS, "sync_boost_violation_seconds_total"),
    _counter("DCGM_FI_DEV_BOARD_LIMIT_VIOLATION", 243, Unit.NANOSECONDS, "board_limit_violation_seconds_total"),
    _counter("DCGM_FI_DEV_LOW_UTIL_VIOLATION", 244, Unit.NANOSECONDS, "low_utilization_violation_seconds_total"),
    _counter("DCGM_FI_DEV_RELIABILITY_VIOLATION", 245, Unit.NANOSECONDS, "reliability_violation_seconds_total"),
    _gauge("DCGM_FI_DEV_FB_TOTAL", 250, Unit.MEBIBYTES, "memory_total_bytes"),
    _gauge("DCGM_FI_DEV_FB_USED_PERCENT", 254, Unit.RATIO, "memory_used_ratio"),  # a ratio despite its name
    _counter("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", 310, Unit.COUNT, "ecc_single_bit_volatile_total"),
    _counter("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 311, Unit.COUNT, "ecc_double_bit_volatile_total"),
    _counter("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", 312, Unit.COUNT, "ecc_single_bit_aggregate_total"),
    _counter("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", 313, Unit.COUNT, "ecc_double_bit_aggregate_total"),
    _counter("DCGM_FI_DEV_RETIRED_SBE", 390, Unit.COUNT, "retired_pages_single_bit_total"),
    _counter("DCGM_FI_DEV_RETIRED_DBE", 391, Unit.COUNT, "retired_pages_double_bit_total"),
    _gauge("DCGM_FI_DEV_RETIRED_PENDING", 392, Unit.COUNT, "retired_pages_pending"),
    _gauge("DCGM_FI_DEV_ROW_REMAP_PENDING", 396, Unit.COUNT, "row_remap_pending"),
    _counter("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", 409, Unit.COUNT, "nvlink_crc_flit_errors_total"),
    _counter("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", 419, Unit.COUNT, "nvlink_crc_data_errors_total"),
    _counter("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", 429, Unit.COUNT, "nvlink_replay_errors_total"),
    _counter("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", 439, Unit.COUNT, "nvlink_recovery_errors_total"),
    _gauge("DCGM_FI_DEV_NVLINK_BANDWIDTH_L0", 440, Unit.NVLINK_MEGABYTES_PER_SECOND, "nvlink_l0_bytes_per_second"),
    _counter("DCGM_FI_DEV_NVLINK_ERROR_DL_CRC", 497, Unit.COUNT, "nvlink_dl_crc_errors_total"),
    _counter("DCGM_FI_DEV_NVLINK_ERROR_DL_RECOVERY", 498, Unit.COUNT, "nvlink_dl_recovery_errors_total"),
    _counter("DCGM_FI_DEV_NVLINK_ERROR_DL_REPLAY", 499, Unit.COUNT, "nvlink_dl_replay_errors_total"),
    _counter(
        "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS",
        1211,
        Unit.COUNT,
        "nvlink_link_recoveries_successful_total",
    ),
    _counter(
        "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS", 1212, Unit.COUNT, "nvlink_link_recoveries_failed_total"
    ),
    _counter("DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS", 1213, Unit.COUNT, "nvlink_link_recoveries_total"),
    _gauge("DCGM_FI_PROF_SM_ACTIVE", 1002, Unit.RATIO, "sm_active_ratio"),
    _gauge("DCGM_FI_PROF_SM_OCCUPANCY", 1003, Unit.RATIO, "sm_occupancy_ratio"),
    _gauge("DCGM_FI_PROF_PIPE_FP64_ACTIVE", 1006, Unit.RATIO, "fp64_ratio"),
    _gauge("DCGM_FI_PROF_PIPE_FP32_ACTIVE", 1007, Unit.RATIO, "fp32_ratio"),
    _gauge("DCGM_FI_PROF_PIPE_FP16_ACTIVE", 1008, Unit.RATIO, "fp16_ratio"),
    _gauge("DCGM_FI_PROF_PIPE_TENSOR_IMMA_ACTIVE", 1013, Unit.RATIO, "tensor_imma_ratio"),
    _gauge("DCGM_FI_PROF_PIPE_TENSOR_HMMA_ACTIVE", 1014, Unit.RATIO, "tensor_hmma_ratio"),
    _gauge("DCGM_FI_PROF_PIPE_TENSOR_DFMA_ACTIVE", 1015, Unit.RATIO, "tensor_dfma_ratio"),
    _gauge("DCGM_FI_PROF_PIPE_INT_ACTIVE", 1016, Unit.RATIO, "integer_ratio"),
    _gauge("DCGM_FI_PROF_NVLINK_TX_BYTES", 1011, Unit.BYTES_PER_SECOND, "nvlink_tx_bytes_per_second"),
    _gauge("DCGM_FI_PROF_NVLINK_RX_BYTES", 1012, Unit.BYTES_PER_SECOND, "nvlink_rx_bytes_per_second"),
    _counter("DCGM_FI_PROF_SM_CYCLES_ELAPSED_TOTAL", 1084, Unit.COUNT, "sm_cycles_total"),
    _counter("DCGM_FI_PROF_SM_CYCLES_ACTIVE_TOTAL", 1085, Unit.COUNT, "sm_active_cycles_total"),
    _counter("DCGM_FI_PROF_MMA_CYCLES_ACTIVE_TOTAL", 1086, Unit.COUNT, "mma_active_cycles_total"),
    _counter("DCGM_FI_PROF_DMMA_CYCLES_ACTIVE_TOTAL", 1087, Unit.COUNT, "dmma_active_cycles_total"),
    _counter("DCGM_FI_PROF_HMMA_CYCLES_ACTIVE_TOTAL", 1088, Unit.COUNT, "hmma_active_cycles_total"),
    _counter("DCGM_FI_PROF_IMMA_CYCLES_ACTIVE_TOTAL", 1089, Unit.COUNT, "imma_active_cycles_total"),
    _counter("DCGM_FI_PROF_DFMA_CYCLES_ACTIVE_TOTAL", 1090, Unit.COUNT, "dfma_active_cycles_total"),
    _counter("DCGM_FI_PROF_PCIE_TX_BYTES_TOTAL", 1091, Unit.BYTES, "pcie_tx_bytes_total"),
    _counter("DCGM_FI_PROF_PCIE_RX_BYTES_TOTAL", 1092, Unit.BYTES, "pcie_rx_bytes_total"),
    _counter("DCGM_FI_PROF_INT_CYCLES_ACTIVE_TOTAL", 1093, Unit.COUNT, "integer_active_cycles_total"),
    _counter("DCGM_FI_PROF_FP64_CYCLES_ACTIVE_TOTAL", 1094, Unit.COUNT, "fp64_active_cycles_total"),
    _counter("DCGM_FI_PROF_FP32_CYCLES_ACTIVE_TOTAL", 1095, Unit.COUNT, "fp32_active_cycles_total"),
    _counter("DCGM_FI_PROF_FP16_CYCLES_ACTIVE_TOTAL", 1096, Unit.COUNT, "fp16_active_cycles_total"),
)
"""Fields that can be added with a CSV."""

DEFAULT_LABELS = (DcgmLabel("DCGM_FI_DRIVER_VERSION", 1, "driver_version", "DCGM_FI_SYSTEM_DRIVER_VERSION"),)

OPTIONAL_LABELS = (
    DcgmLabel("DCGM_FI_NVML_VERSION", 2, "nvml_version"),
    DcgmLabel("DCGM_FI_DEV_NAME", 50, "model"),
    DcgmLabel("DCGM_FI_DEV_BRAND", 51, "brand"),
    DcgmLabel("DCGM_FI_DEV_NVML_INDEX", 52, "index"),
    DcgmLabel("DCGM_FI_DEV_SERIAL", 53, "serial"),
    DcgmLabel("DCGM_FI_DEV_UUID", 54, "device_uuid"),
    DcgmLabel("DCGM_FI_DEV_MINOR_NUMBER", 55, "minor"),
    DcgmLabel("DCGM_FI_DEV_OEM_INFOROM_VER", 56, "inforom_oem_version"),
    DcgmLabel("DCGM_FI_DEV_PCI_BUSID", 57, "pci_bus_id"),
    DcgmLabel("DCGM_FI_DEV_ECC_INFOROM_VER", 80, "inforom_ecc_version"),
    DcgmLabel("DCGM_FI_DEV_POWER_INFOROM_VER", 81, "inforom_power_version"),
    DcgmLabel("DCGM_FI_DEV_INFOROM_IMAGE_VER", 82, "inforom_image_version"),
    DcgmLabel("DCGM_FI_DEV_VBIOS_VERSION", 85, "vbios_version"),
)

XID_ERRORS_COUNT = DcgmEvent(
    "DCGM_EXP_XID_ERRORS_COUNT",
    MetricType.GAUGE,
    "XID errors in the last window, by code (0 without a code if none).",
    ("last_xid",),
)
XID_ERRORS_TOTAL = DcgmEvent(
    "DCGM_EXP_XID_ERRORS_TOTAL", MetricType.COUNTER, "XID errors since the agent started, by code.", ("last_xid",)
)
CLOCK_EVENTS_COUNT = DcgmEvent(
    "DCGM_EXP_CLOCK_EVENTS_COUNT",
    MetricType.GAUGE,
    "Collections of the last window in which a reason limited the clocks.",
    ("clock_event_reasons",),
)
CLOCK_EVENTS_TOTAL = DcgmEvent(
    "DCGM_EXP_CLOCK_EVENTS_TOTAL",
    MetricType.COUNTER,
    "Times a reason began to limit the clocks since the agent started.",
    ("clock_event_reasons",),
)
PEER_STATUS = DcgmEvent("DCGM_EXP_P2P_STATUS", MetricType.GAUGE, "Direct access between two GPUs; 0 is available.")

FIELDS = DEFAULT_FIELDS + OPTIONAL_FIELDS
LABELS = DEFAULT_LABELS + OPTIONAL_LABELS
EVENTS = (XID_ERRORS_COUNT, XID_ERRORS_TOTAL, CLOCK_EVENTS_COUNT, CLOCK_EVENTS_TOTAL, PEER_STATUS)
