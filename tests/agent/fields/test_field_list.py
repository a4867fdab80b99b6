"""The CSV of fields, by dcgm-exporter's rules."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusteward.agent.field_list import FieldList, default_fields, parse_fields
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.metrics import MetricType

REPOSITORY = Path(__file__).parents[3]


def parse(text: str) -> FieldList:
    return parse_fields(text, where="counters.csv")


def refuse(text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse(text)
    return str(caught.value)


def test_a_list_keeps_the_order_types_and_help_of_its_file() -> None:
    fields = parse(
        "# Format\n\n"
        "DCGM_FI_DEV_DEC_UTIL ,  gauge, Decoder utilization (in %).\n"
        "DCGM_FI_DRIVER_VERSION, label, Driver Version\n"
        "DCGM_FI_DEV_GPU_TEMP,untyped,\n"
        "DCGM_EXP_XID_ERRORS_COUNT, gauge, XIDs\n"
    )
    assert [(row.name, row.kind, row.help) for row in fields.metrics] == [
        ("DCGM_FI_DEV_DEC_UTIL", MetricType.GAUGE, "Decoder utilization (in %)."),
        ("DCGM_FI_DEV_GPU_TEMP", MetricType.UNTYPED, ""),
        ("DCGM_EXP_XID_ERRORS_COUNT", MetricType.GAUGE, "XIDs"),
    ]
    assert [(row.name, row.field.fact) for row in fields.labels] == [("DCGM_FI_DRIVER_VERSION", "driver_version")]


def test_the_built_in_list_equals_dcgm_exporters() -> None:
    fields = default_fields()
    assert len(fields.metrics) == 25
    assert [row.name for row in fields.labels] == ["DCGM_FI_DRIVER_VERSION"]
    assert default_fields("v4.9").metrics[-1].name == "DCGM_FI_DEV_FB_CAPACITY_BYTES"


def test_an_unknown_field_is_named_with_its_line_and_the_nearest_known_one() -> None:
    text = "# a\n\n# b\nDCGM_FI_DEV_GPU_TEMP, gauge, x\n\n\nDCGM_FI_DEV_GPU_UTILL, gauge, x\n"
    assert refuse(text) == (
        "counters.csv line 7: unknown field 'DCGM_FI_DEV_GPU_UTILL'; did you mean 'DCGM_FI_DEV_GPU_UTIL'?"
    )


def test_the_first_error_is_reported_and_the_others_are_counted() -> None:
    one = "DCGM_FI_DEV_GPU_TEMP, gauge\n"
    assert refuse(one + "NOTHING, gauge, x\n").endswith("(and 1 more invalid line)")
    assert refuse(one + "NOTHING, gauge, x\nDCGM_FI_DEV_FB_USED, meter, x\n").endswith("(and 2 more invalid lines)")


@pytest.mark.parametrize("text", ["", "\n\r\n\n", "# DCGM_FI_DEV_GPU_TEMP, gauge, x\n"])
def test_an_empty_list_is_refused(text: str) -> None:
    assert refuse(text) == "counters.csv: no metrics found, every line is empty or a comment"


def test_a_list_with_only_labels_is_refused() -> None:
    assert "only labels" in refuse("DCGM_FI_DRIVER_VERSION, label, x\n")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (" # indented, is, data", "unknown field '# indented'"),
        ("   ", "expected 3 cells (field, type, help) but found 1 at ''"),
        ("DCGM_FI_DEV_GPU_TEMP, gauge", "expected 3 cells (field, type, help) but found 2"),
        ("DCGM_FI_DEV_GPU_TEMP, gauge, hot, hotter", "put a help text with a comma in double quotes"),
        ("DCGM_FI_DEV_GPU_TEMP\t, gauge, x", r"unknown field 'DCGM_FI_DEV_GPU_TEMP\t'"),
        ('DCGM_FI_DEV_GPU_TEMP, gauge, a "hot" one', "a quote inside a cell"),
        ('DCGM_FI_DEV_GPU_TEMP, gauge, "quoted too late"', "a quote inside a cell"),
        ('DCGM_FI_DEV_GPU_TEMP,gauge,"x" ', "text after the closing quote"),
        ('DCGM_FI_DEV_GPU_TEMP,gauge,"never', "a quote that is never closed"),
        ("DCGM_FI_DEV_GPU_TEMP, histogram, x", "'histogram'; supported types are gauge, counter, untyped, label"),
        ("DCGM_FI_DEV_GPU_TEMP, Gauge, x", "supported types are"),
        ("DCGM_FI_DEV_GPU_TEMP, label, x", "is a number and cannot be a label; use gauge or counter"),
        ("DCGM_FI_DRIVER_VERSION, gauge, x", "is a text and cannot be a gauge; use label"),
        ("DCGM_EXP_XID_ERRORS_COUNT, label, x", "cannot be a label"),
        ("DCGM_EXP_GPU_HEALTH_STATUS, summary, x", "supported types are"),
    ],
)
def test_an_invalid_line_is_refused_with_its_reason(line: str, reason: str) -> None:
    message = refuse(f"DCGM_FI_DEV_FB_USED, gauge, x\r\n{line}")
    assert message.startswith("counters.csv line 2: ")
    assert reason in message


def test_quotes_may_contain_commas_quotes_and_line_breaks() -> None:
    fields = parse('DCGM_FI_DEV_GPU_TEMP,gauge,"a, ""b""\r\n# c"\r\nDCGM_FI_DEV_FB_USED,gauge,x\r\n')
    assert [row.help for row in fields.metrics] == ['a, "b"\n# c', "x"]
    assert "line 3:" in refuse('DCGM_FI_DEV_GPU_TEMP,gauge,"a\nb"\nNOTHING,gauge,x\n')


def test_the_first_row_of_a_field_wins_over_other_names_of_it() -> None:
    fields = parse(
        "dcgm_gpu_temp, gauge, first\n"
        "DCGM_FI_DEV_GPU_TEMP, counter, second\n"
        "DCGM_FI_DEV_GPU_TEMP_CELSIUS, gauge, third\n"
    )
    assert [(row.name, row.help) for row in fields.metrics] == [("dcgm_gpu_temp", "first")]


def test_a_renamed_field_in_another_unit_is_another_field() -> None:
    fields = parse("DCGM_FI_DEV_FB_USED, gauge, x\nDCGM_FI_DEV_FB_USED_BYTES, gauge, x\n")
    assert [row.name for row in fields.metrics] == ["DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USED_BYTES"]


def test_a_field_only_dcgm_has_is_accepted_and_remembered() -> None:
    fields = parse(
        "DCGM_EXP_GPU_HEALTH_STATUS, gauge, x\n"
        "DCGM_FI_PROCESS_NAME, label, x\n"
        "DCGM_FI_DEV_GPU_TEMP, gauge, x\n"
        "DCGM_EXP_GPU_HEALTH_STATUS, gauge, again\n"
    )
    assert fields.unserved == ("DCGM_EXP_GPU_HEALTH_STATUS", "DCGM_FI_PROCESS_NAME")
    assert len(fields.metrics) == 1


def test_a_field_of_a_newer_dcgm_is_accepted_and_remembered() -> None:
    names = ("DCGM_FI_SYSTEM_NEW_THING_TOTAL", "DCGM_FI_DEV_NVLINK_BANDWIDTH_L1", "DCGM_FI_DEV_VGPU_UUID")
    names += ("DCGM_FI_DEV_CPU_TEMP_CELSIUS",)  # of Grace: one letter away from that of GPUs
    fields = parse("".join(f"{name}, gauge, x\n" for name in names))
    assert fields.unserved == names


@pytest.mark.parametrize(
    "name",
    ["DCGM_FI_DVE_GPU_TEMP", "DCGM_FI_DEV_GPU_TMP", "DCGM_FI_DEV_FB_USEED", "DCGM_EXP_P2P_STATUX", "DCGM_FI_dev_X"],
)
def test_a_typing_error_in_a_served_field_is_an_error(name: str) -> None:
    assert f"unknown field {name!r}" in refuse(f"{name}, gauge, x\n")


def test_names_of_hopper_and_blackwell_are_served() -> None:
    names = ("DCGM_FI_DEV_FABRIC_CLIQUE_ID", "DCGM_FI_DEV_NVLINK_ERROR_DL_REPLAY")
    names += ("DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS",)
    assert not parse("".join(f"{name}, gauge, x\n" for name in names)).unserved


ROWS_OF_4_8_4 = """
DCGM_FI_DEV_ SM_CLOCK MEM_CLOCK MEMORY_TEMP GPU_TEMP POWER_USAGE TOTAL_ENERGY_CONSUMPTION POWER_MGMT_LIMIT
ENFORCED_POWER_LIMIT PCIE_REPLAY_COUNTER GPU_UTIL MEM_COPY_UTIL ENC_UTIL DEC_UTIL XID_ERRORS
POWER_VIOLATION THERMAL_VIOLATION SYNC_BOOST_VIOLATION BOARD_LIMIT_VIOLATION LOW_UTIL_VIOLATION RELIABILITY_VIOLATION
FB_FREE FB_USED FB_RESERVED ECC_SBE_VOL_TOTAL ECC_DBE_VOL_TOTAL ECC_SBE_AGG_TOTAL ECC_DBE_AGG_TOTAL
RETIRED_SBE RETIRED_DBE RETIRED_PENDING
NVLINK_CRC_FLIT_ERROR_TOTAL NVLINK_CRC_DATA_ERROR_TOTAL NVLINK_REPLAY_ERROR_TOTAL NVLINK_RECOVERY_ERROR_TOTAL
NVLINK_CRC_ERROR_TOTAL NVLINK_RECOVERY_TOTAL NVLINK_REPLAY_TOTAL
NVLINK_RECOVERY_SUCCESSFUL_TOTAL NVLINK_RECOVERY_FAILED_TOTAL NVLINK_RECOVERY_EVENT_TOTAL
NVLINK_BANDWIDTH_TOTAL NVLINK_BANDWIDTH_L0 FABRIC_HEALTH_SUMMARY FABRIC_HEALTH_MASK VGPU_LICENSE_STATUS
UNCORRECTABLE_REMAPPED_ROWS CORRECTABLE_REMAPPED_ROWS ROW_REMAP_FAILURE
BRAND SERIAL OEM_INFOROM_VER ECC_INFOROM_VER POWER_INFOROM_VER INFOROM_IMAGE_VER VBIOS_VERSION
DCGM_FI_ DRIVER_VERSION NVML_VERSION
DCGM_EXP_ CLOCK_EVENTS_COUNT CLOCK_EVENTS_TOTAL XID_ERRORS_COUNT XID_ERRORS_TOTAL GPU_HEALTH_STATUS P2P_STATUS
DCGM_FI_PROF_ GR_ENGINE_ACTIVE SM_ACTIVE SM_OCCUPANCY PIPE_TENSOR_ACTIVE DRAM_ACTIVE PIPE_FP64_ACTIVE PIPE_FP32_ACTIVE
PIPE_FP16_ACTIVE PCIE_TX_BYTES PCIE_RX_BYTES SM_CYCLES_ELAPSED_TOTAL SM_CYCLES_ACTIVE_TOTAL MMA_CYCLES_ACTIVE_TOTAL
DMMA_CYCLES_ACTIVE_TOTAL HMMA_CYCLES_ACTIVE_TOTAL IMMA_CYCLES_ACTIVE_TOTAL DFMA_CYCLES_ACTIVE_TOTAL
PCIE_TX_BYTES_TOTAL PCIE_RX_BYTES_TOTAL INT_CYCLES_ACTIVE_TOTAL FP64_CYCLES_ACTIVE_TOTAL FP32_CYCLES_ACTIVE_TOTAL
FP16_CYCLES_ACTIVE_TOTAL
"""
"""All rows of dcgm-exporter 4.8.4's list, active or commented out: a prefix, and the names that have it."""


def list_rows() -> list[str]:
    prefix, names = "", []
    for word in ROWS_OF_4_8_4.split():
        if word.endswith("_"):
            prefix = word
        else:
            names.append(prefix + word)
    return names


def test_of_the_rows_of_dcgm_exporter_only_those_in_the_limits_are_missing() -> None:
    names = list_rows()
    assert len(set(names)) == len(names) == 86
    texts = ("_VERSION", "_VER", "_BRAND", "_SERIAL")
    fields = parse("".join(f"{name}, {'label' if name.endswith(texts) else 'gauge'}, x\n" for name in names))
    assert fields.unserved == ("DCGM_EXP_GPU_HEALTH_STATUS",)
    for page in ("docs/limits.md", "docs/zh-CN/limits.md"):
        assert all(f"`{name}`" in (REPOSITORY / page).read_text() for name in fields.unserved)


@given(st.text(alphabet=st.sampled_from('DCGM_FI,"#\r\n\t x') | st.characters(), max_size=80))
def test_any_text_is_a_list_or_a_configuration_error(text: str) -> None:
    with contextlib.suppress(ConfigurationError):
        assert parse(text).metrics or parse(text).unserved
