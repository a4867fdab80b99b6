"""Every DCGM field of four GPU models whose counters all have another value, against what the driver says."""

import re
from pathlib import Path

import pytest

from gpusteward.core.dcgm import FIELDS
from tests.agent.test_golden_pages import START, collection
from tests.fakes.machines import Machine
from tests.fakes.nvml_library import FakeNvml
from tests.fakes.nvml_scenarios import ALL_LINKS, MIB, PROFILES, FakeGpu, Scenario

SECONDS = 5  # between the two cycles, by the clock of NVML in `collection`
KIB_SENT, KIB_RECEIVED, KIB_L0 = 3_000_000, 4_000_000, 500_000

# NVML field -> DCGM field, as in DCGM 4.6 (dcgmlib/src/dcgm_fields.cpp).
FIELD_VALUES = {
    (3, 0): "DEV_ECC_SBE_VOL_TOTAL",
    (4, 0): "DEV_ECC_DBE_VOL_TOTAL",
    (5, 0): "DEV_ECC_SBE_AGG_TOTAL",
    (6, 0): "DEV_ECC_DBE_AGG_TOTAL",
    (29, 0): "DEV_RETIRED_SBE",
    (30, 0): "DEV_RETIRED_DBE",
    (31, 0): "DEV_RETIRED_PENDING",
    (38, 0): "DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    (45, 0): "DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
    (52, 0): "DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    (59, 0): "DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
    (74, 0): "DEV_POWER_VIOLATION",
    (75, 0): "DEV_THERMAL_VIOLATION",
    (76, 0): "DEV_SYNC_BOOST_VIOLATION",
    (77, 0): "DEV_BOARD_LIMIT_VIOLATION",
    (78, 0): "DEV_LOW_UTIL_VIOLATION",
    (79, 0): "DEV_RELIABILITY_VIOLATION",
    (82, 0): "DEV_MEMORY_TEMP",
    (83, 0): "DEV_TOTAL_ENERGY_CONSUMPTION",
    (142, 0): "DEV_CORRECTABLE_REMAPPED_ROWS",
    (143, 0): "DEV_UNCORRECTABLE_REMAPPED_ROWS",
    (144, 0): "DEV_ROW_REMAP_PENDING",
    (145, 0): "DEV_ROW_REMAP_FAILURE",
    (161, 0): "DEV_NVLINK_ERROR_DL_REPLAY",
    (162, 0): "DEV_NVLINK_ERROR_DL_RECOVERY",
    (163, 0): "DEV_NVLINK_ERROR_DL_CRC",
    (213, ALL_LINKS): "DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS",
    (214, ALL_LINKS): "DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS",
    (215, ALL_LINKS): "DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS",
}
# What DCGM leaves blank on newer models, and the agent fills from the fields that replaced it.
REPLACED = {
    "DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": ((163, 0),),
    "DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": ((161, 0),),
    "DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": ((162, 0), (215, ALL_LINKS)),
}
NUMBERS = {
    "sm_mhz": "DEV_SM_CLOCK",
    "memory_mhz": "DEV_MEM_CLOCK",
    "video_mhz": "DEV_VIDEO_CLOCK",
    "max_sm_mhz": "DEV_MAX_SM_CLOCK",
    "max_memory_mhz": "DEV_MAX_MEM_CLOCK",
    "temperature": "DEV_GPU_TEMP",
    "pcie_replays": "DEV_PCIE_REPLAY_COUNTER",
    "pcie_generation": "DEV_PCIE_LINK_GEN",
    "pcie_width": "DEV_PCIE_LINK_WIDTH",
    "pcie_tx_kb": "DEV_PCIE_TX_THROUGHPUT",
    "pcie_rx_kb": "DEV_PCIE_RX_THROUGHPUT",
    "gpu_percent": "DEV_GPU_UTIL",
    "memory_percent": "DEV_MEM_COPY_UTIL",
    "encoder_percent": "DEV_ENC_UTIL",
    "decoder_percent": "DEV_DEC_UTIL",
    "clock_reasons": "DEV_CLOCKS_EVENT_REASONS",
    "pstate": "DEV_PSTATE",
    "fabric_clique": "DEV_FABRIC_CLIQUE_ID",
    "fabric_health": "DEV_FABRIC_HEALTH_MASK",
    "fabric_summary": "DEV_FABRIC_HEALTH_SUMMARY",
}
MILLIWATTS = {
    "power_mw": "DEV_POWER_USAGE",
    "power_limit_mw": "DEV_POWER_MGMT_LIMIT",
    "enforced_power_limit_mw": "DEV_ENFORCED_POWER_LIMIT",
}
BYTES = {
    "memory_total": "DEV_FB_TOTAL",
    "memory_free": "DEV_FB_FREE",
    "memory_used": "DEV_FB_USED",
    "memory_reserved": "DEV_FB_RESERVED",
}
GPM_PERCENT = {
    1: "PROF_GR_ENGINE_ACTIVE",
    2: "PROF_SM_ACTIVE",
    3: "PROF_SM_OCCUPANCY",
    4: "PROF_PIPE_INT_ACTIVE",
    5: "PROF_PIPE_TENSOR_ACTIVE",
    6: "PROF_PIPE_TENSOR_DFMA_ACTIVE",
    7: "PROF_PIPE_TENSOR_HMMA_ACTIVE",
    9: "PROF_PIPE_TENSOR_IMMA_ACTIVE",
    10: "PROF_DRAM_ACTIVE",
    11: "PROF_PIPE_FP64_ACTIVE",
    12: "PROF_PIPE_FP32_ACTIVE",
    13: "PROF_PIPE_FP16_ACTIVE",
}
GPM_MIB = {
    20: "PROF_PCIE_TX_BYTES",
    21: "PROF_PCIE_RX_BYTES",
    60: "PROF_NVLINK_RX_BYTES",
    61: "PROF_NVLINK_TX_BYTES",
}
GPM_TOTALS = {
    248: "PROF_SM_CYCLES_ELAPSED_TOTAL",
    249: "PROF_SM_CYCLES_ACTIVE_TOTAL",
    250: "PROF_MMA_CYCLES_ACTIVE_TOTAL",
    251: "PROF_DMMA_CYCLES_ACTIVE_TOTAL",
    252: "PROF_HMMA_CYCLES_ACTIVE_TOTAL",
    253: "PROF_IMMA_CYCLES_ACTIVE_TOTAL",
    254: "PROF_DFMA_CYCLES_ACTIVE_TOTAL",
    255: "PROF_PCIE_TX_BYTES_TOTAL",
    256: "PROF_PCIE_RX_BYTES_TOTAL",
    257: "PROF_INT_CYCLES_ACTIVE_TOTAL",
    258: "PROF_FP64_CYCLES_ACTIVE_TOTAL",
    259: "PROF_FP32_CYCLES_ACTIVE_TOTAL",
    260: "PROF_FP16_CYCLES_ACTIVE_TOTAL",
}


def list_expected(gpu: FakeGpu) -> dict[str, float]:
    """By DCGM field, in its unit: what the driver says, and nothing that it does not support."""
    found: dict[str, float] = {"DEV_XID_ERRORS": 0, "DEV_VGPU_LICENSE_STATUS": 0}
    found |= {FIELD_VALUES[key]: value for key, (_, value) in gpu.fields.items() if key in FIELD_VALUES}
    found |= {name: gpu.fields[key][1] for name, keys in REPLACED.items() for key in keys if key in gpu.fields}
    found |= {name: gpu.numbers[number] for number, name in NUMBERS.items() if number in gpu.numbers}
    found |= {name: gpu.numbers[number] / 1000 for number, name in MILLIWATTS.items()}
    found |= {name: gpu.numbers[number] // MIB for number, name in BYTES.items()}
    usable = gpu.numbers["memory_total"] - gpu.numbers["memory_reserved"]
    found["DEV_FB_USED_PERCENT"] = gpu.numbers["memory_used"] / usable
    if (138, ALL_LINKS) in gpu.fields:
        # DCGM divides KiB by 1000 and calls it MB.
        found["DEV_NVLINK_BANDWIDTH_TOTAL"] = (KIB_SENT + KIB_RECEIVED) // SECONDS // 1000
        found["DEV_NVLINK_BANDWIDTH_L0"] = 2 * KIB_L0 // SECONDS // 1000
    if gpu.gpm:
        found |= {name: gpu.gpm[id_] / 100 for id_, name in GPM_PERCENT.items()}
        found |= {name: gpu.gpm[id_] * MIB for id_, name in GPM_MIB.items()}
        found |= {name: gpu.gpm[id_] for id_, name in GPM_TOTALS.items()}
    return {f"DCGM_FI_{name}": value for name, value in found.items()}


def send_over_nvlink(gpu: FakeGpu) -> None:
    for key, sent in (
        ((138, ALL_LINKS), KIB_SENT),
        ((139, ALL_LINKS), KIB_RECEIVED),
        ((138, 0), KIB_L0),
        ((139, 0), KIB_L0),
    ):
        if key in gpu.fields:
            kind, value = gpu.fields[key]
            gpu.fields[key] = (kind, value + sent)


def read_page(gpu: FakeGpu, fake_nvml: FakeNvml, folder: Path) -> dict[str, float]:
    """Every field that the page has after two cycles."""
    listed = folder / "fields.csv"
    listed.write_text("".join(f"{each.name}, {each.kind}, help\n" for each in FIELDS))
    machine = Machine(Scenario([gpu]))
    fake_nvml.load(machine.scenario)
    with collection(machine, folder, "--dialects=dcgm", f"--collectors={listed}") as (cycles, pages):
        cycles.run_cycle(now=START, monotonic=0.0)
        send_over_nvlink(gpu)
        fake_nvml.change(machine.scenario)
        cycles.run_cycle(now=START + SECONDS, monotonic=0.0)
        page = pages.render(openmetrics=False, gzip=False).decode()
    samples = re.findall(r"^(DCGM_FI_\w+)\{.*\} (\S+)$", page, re.MULTILINE)
    assert len(samples) == len(dict(samples)), "one sample per field"
    return {name: float(value) for name, value in samples}


@pytest.mark.parametrize("model", PROFILES)
def test_every_field_has_the_value_of_the_driver_and_what_the_model_lacks_is_absent(
    model: str, fake_nvml: FakeNvml, tmp_path: Path
):
    gpu = PROFILES[model](0)
    found = read_page(gpu, fake_nvml, tmp_path)
    expected = list_expected(gpu)
    assert found.keys() == expected.keys()
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("model", PROFILES)
def test_no_counter_of_a_model_is_0_and_no_two_are_equal(model: str):
    """Otherwise the test above could not tell them apart."""
    counted = {each.name for each in FIELDS if each.kind == "counter"}
    values = {name: value for name, value in list_expected(PROFILES[model](0)).items() if name in counted}
    own = {name: value for name, value in values.items() if name.removeprefix("DCGM_FI_") not in REPLACED}
    assert all(values.values())
    assert len(set(own.values())) == len(own)


def test_the_models_have_every_field_that_nvml_gives_but_the_speed_of_a_fan():
    every = {name for make in PROFILES.values() for name in list_expected(make(0))}
    assert {each.name for each in FIELDS} - every == {"DCGM_FI_DEV_FAN_SPEED"}
