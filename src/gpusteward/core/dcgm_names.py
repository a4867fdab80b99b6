"""DCGM field names accepted in a CSV: all names of the fields in `core.dcgm`, and those that only DCGM provides."""

import re
from collections.abc import Mapping

from gpusteward.core.dcgm import EVENTS, FIELDS, LABELS, DcgmEvent, DcgmField, DcgmLabel
from gpusteward.core.did_you_mean import suggest

Known = DcgmField | DcgmLabel | DcgmEvent

DCGM_46: Mapping[str, str] = {
    "DCGM_FI_DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS": "DCGM_FI_DEV_POWER_MGMT_LIMIT",
    "DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS": "DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",  # of DCGM 3, still accepted
    "DCGM_FI_DEV_GPU_PSTATE": "DCGM_FI_DEV_PSTATE",
    "DCGM_FI_DEV_FB_USED_RATIO": "DCGM_FI_DEV_FB_USED_PERCENT",
    "DCGM_FI_DEV_PAGE_RETIRED_SBE_TOTAL": "DCGM_FI_DEV_RETIRED_SBE",
    "DCGM_FI_DEV_PAGE_RETIRED_DBE_TOTAL": "DCGM_FI_DEV_RETIRED_DBE",
    "DCGM_FI_DEV_PAGE_RETIRED_PENDING": "DCGM_FI_DEV_RETIRED_PENDING",
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL": "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_TOTAL": "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_TOTAL": "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL": "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL": "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
    "DCGM_FI_DEV_NVLINK_THROUGHPUT_L0": "DCGM_FI_DEV_NVLINK_BANDWIDTH_L0",
    "DCGM_FI_DEV_NVLINK_CRC_ERROR_TOTAL": "DCGM_FI_DEV_NVLINK_ERROR_DL_CRC",
    "DCGM_FI_DEV_NVLINK_RECOVERY_TOTAL": "DCGM_FI_DEV_NVLINK_ERROR_DL_RECOVERY",
    "DCGM_FI_DEV_NVLINK_REPLAY_TOTAL": "DCGM_FI_DEV_NVLINK_ERROR_DL_REPLAY",
    "DCGM_FI_DEV_NVLINK_RECOVERY_SUCCESSFUL_TOTAL": "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS",
    "DCGM_FI_DEV_NVLINK_RECOVERY_FAILED_TOTAL": "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS",
    "DCGM_FI_DEV_NVLINK_RECOVERY_EVENT_TOTAL": "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS",
    "DCGM_FI_SYSTEM_NVML_VERSION": "DCGM_FI_NVML_VERSION",
    "DCGM_FI_DEV_GPU_NAME": "DCGM_FI_DEV_NAME",
    "DCGM_FI_DEV_GPU_BRAND": "DCGM_FI_DEV_BRAND",
    "DCGM_FI_DEV_BOARD_SERIAL": "DCGM_FI_DEV_SERIAL",
    "DCGM_FI_DEV_GPU_UUID": "DCGM_FI_DEV_UUID",
    "DCGM_FI_DEV_GPU_MINOR_NUMBER": "DCGM_FI_DEV_MINOR_NUMBER",
    "DCGM_FI_DEV_PCI_BUS_ID": "DCGM_FI_DEV_PCI_BUSID",
    "DCGM_FI_DEV_INFOROM_OEM_VERSION": "DCGM_FI_DEV_OEM_INFOROM_VER",
    "DCGM_FI_DEV_INFOROM_ECC_VERSION": "DCGM_FI_DEV_ECC_INFOROM_VER",
    "DCGM_FI_DEV_INFOROM_POWER_VERSION": "DCGM_FI_DEV_POWER_INFOROM_VER",
    "DCGM_FI_DEV_INFOROM_IMAGE_VERSION": "DCGM_FI_DEV_INFOROM_IMAGE_VER",
}
"""Names changed in DCGM 4.6, with the same value and unit. Names adopted by dcgm-exporter 4.9 are in `core.dcgm`."""

DCGM_1: Mapping[str, str] = {
    "dcgm_sm_clock": "DCGM_FI_DEV_SM_CLOCK",
    "dcgm_memory_clock": "DCGM_FI_DEV_MEM_CLOCK",
    "dcgm_memory_temp": "DCGM_FI_DEV_MEMORY_TEMP",
    "dcgm_gpu_temp": "DCGM_FI_DEV_GPU_TEMP",
    "dcgm_power_usage": "DCGM_FI_DEV_POWER_USAGE",
    "dcgm_total_energy_consumption": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "dcgm_pcie_tx_throughput": "DCGM_FI_DEV_PCIE_TX_THROUGHPUT",
    "dcgm_pcie_rx_throughput": "DCGM_FI_DEV_PCIE_RX_THROUGHPUT",
    "dcgm_pcie_replay_counter": "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "dcgm_gpu_utilization": "DCGM_FI_DEV_GPU_UTIL",
    "dcgm_mem_copy_utilization": "DCGM_FI_DEV_MEM_COPY_UTIL",
    "dcgm_enc_utilization": "DCGM_FI_DEV_ENC_UTIL",
    "dcgm_dec_utilization": "DCGM_FI_DEV_DEC_UTIL",
    "dcgm_xid_errors": "DCGM_FI_DEV_XID_ERRORS",
    "dcgm_power_violation": "DCGM_FI_DEV_POWER_VIOLATION",
    "dcgm_thermal_violation": "DCGM_FI_DEV_THERMAL_VIOLATION",
    "dcgm_sync_boost_violation": "DCGM_FI_DEV_SYNC_BOOST_VIOLATION",
    "dcgm_board_limit_violation": "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION",
    "dcgm_low_util_violation": "DCGM_FI_DEV_LOW_UTIL_VIOLATION",
    "dcgm_reliability_violation": "DCGM_FI_DEV_RELIABILITY_VIOLATION",
    "dcgm_fb_free": "DCGM_FI_DEV_FB_FREE",
    "dcgm_fb_used": "DCGM_FI_DEV_FB_USED",
    "dcgm_ecc_sbe_volatile_total": "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
    "dcgm_ecc_dbe_volatile_total": "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "dcgm_ecc_sbe_aggregate_total": "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",
    "dcgm_ecc_dbe_aggregate_total": "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
    "dcgm_retired_pages_sbe": "DCGM_FI_DEV_RETIRED_SBE",
    "dcgm_retired_pages_dbe": "DCGM_FI_DEV_RETIRED_DBE",
    "dcgm_retired_pages_pending": "DCGM_FI_DEV_RETIRED_PENDING",
    "dcgm_nvlink_flit_crc_error_count_total": "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "dcgm_nvlink_data_crc_error_count_total": "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
    "dcgm_nvlink_replay_error_count_total": "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "dcgm_nvlink_recovery_error_count_total": "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
    "dcgm_nvlink_bandwidth_total": "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
    "dcgm_fi_prof_gr_engine_active": "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "dcgm_fi_prof_sm_active": "DCGM_FI_PROF_SM_ACTIVE",
    "dcgm_fi_prof_sm_occupancy": "DCGM_FI_PROF_SM_OCCUPANCY",
    "dcgm_fi_prof_pipe_tensor_active": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "dcgm_fi_prof_dram_active": "DCGM_FI_PROF_DRAM_ACTIVE",
    "dcgm_fi_prof_pcie_tx_bytes": "DCGM_FI_PROF_PCIE_TX_BYTES",
    "dcgm_fi_prof_pcie_rx_bytes": "DCGM_FI_PROF_PCIE_RX_BYTES",
}
"""The lower-case names of dcgm-exporter 1.x."""


def _spellings() -> dict[str, Known]:
    renamed: tuple[DcgmField | DcgmLabel, ...] = (*FIELDS, *LABELS)
    everything: tuple[Known, ...] = (*renamed, *EVENTS)
    known = {one.name: one for one in everything}
    known |= {one.v49_name: one for one in renamed if one.v49_name}
    return known | {other: known[name] for others in (DCGM_46, DCGM_1) for other, name in others.items()}


SERVED: dict[str, Known] = _spellings()
"""All names of everything this agent can export."""


def is_unserved(name: str) -> bool:
    """Whether this can be a field of DCGM that NVML does not provide: DCGM's own modules, NVSwitch, CPU, ConnectX, ...

    DCGM gets new names with every release, so that any well-formed one is taken for real, except one that is a single
    typing error away from a name served here. Another number (`..._L1`) is another field, not a typing error.
    """
    if _WELL_FORMED.fullmatch(name) is None or name in SERVED:
        return False
    # Fields of vGPU guests (`VGPU_UUID`) and of Grace (`CPU_TEMP_CELSIUS`) are one letter away from those of GPUs.
    return "_VGPU_" in name or "_CPU_" in name or not any(_is_one_edit(name, served) for served in SERVED)


def suggest_name(name: str) -> str:
    """`; did you mean 'DCGM_FI_DEV_GPU_UTIL'?`, or empty if no known name is similar."""
    # Reversed, so that of two names that differ only in case the classic one is suggested.
    return suggest(name, reversed(SERVED))


_WELL_FORMED = re.compile(r"DCGM_(FI|EXP)(_[A-Z0-9]+)+")


def _is_one_edit(name: str, other: str) -> bool:
    """Whether one letter was added, left out or replaced, or two neighbours were swapped."""
    if abs(len(name) - len(other)) > 1:
        return False
    start = _count_common(name, other)
    end = _count_common(name[start:][::-1], other[start:][::-1])
    name, other = name[start : len(name) - end], other[start : len(other) - end]
    if len(name) <= 1 and len(other) <= 1:
        return not (name + other).isdigit()
    return len(name) == 2 and name == other[::-1]


def _count_common(name: str, other: str) -> int:
    """The number of letters at the beginning that both have."""
    return next((n for n, (a, b) in enumerate(zip(name, other, strict=False)) if a != b), min(len(name), len(other)))
