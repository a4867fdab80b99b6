"""The DCGM table: names, units and the signals behind them."""

import pytest

from gpusteward.core import dcgm
from gpusteward.core.dcgm import CONVERT, DcgmField, DcgmLabel, Unit
from gpusteward.core.dcgm_names import DCGM_1, DCGM_46, SERVED, is_unserved, suggest_name
from gpusteward.core.metrics import MetricType
from gpusteward.core.node.signals import FACTS, SIGNALS

WITH_ID: tuple[DcgmField | DcgmLabel, ...] = (*dcgm.FIELDS, *dcgm.LABELS)
CLASSIC = [one.name for one in WITH_ID] + [event.name for event in dcgm.EVENTS]
RENAMED = [one.v49_name for one in WITH_ID if one.v49_name]


def field_of(name: str) -> DcgmField:
    field = SERVED[name]
    assert isinstance(field, DcgmField)
    return field


def test_every_field_uses_known_signals() -> None:
    needed = {signal for field in dcgm.FIELDS for signal in field.signals}
    needed |= {signal for event in dcgm.EVENTS for signal in event.signals}
    assert needed <= SIGNALS.keys()


def test_every_label_uses_a_fact_or_an_attribute_of_the_gpu() -> None:
    own = {"model", "index", "device_uuid", "minor", "pci_bus_id"}
    assert {label.fact for label in dcgm.LABELS} <= {*FACTS, *own}


def test_names_and_ids_are_unique() -> None:
    for values in (CLASSIC, RENAMED, [one.id for one in WITH_ID]):
        assert len(values) == len(set(values))
    assert not set(CLASSIC) & set(RENAMED)


def test_the_default_set_is_25_families_and_the_driver_version() -> None:
    assert len(dcgm.DEFAULT_FIELDS) == 25
    assert [label.name for label in dcgm.DEFAULT_LABELS] == ["DCGM_FI_DRIVER_VERSION"]


@pytest.mark.parametrize(
    ("name", "base", "shown"),
    [
        ("DCGM_FI_DEV_SM_CLOCK", 1_410_000_000.0, 1410),
        ("DCGM_FI_DEV_SM_CLOCK_HERTZ", 1_410_000_000.0, 1_410_000_000.0),
        ("DCGM_FI_DEV_GPU_UTIL", 0.29, 29),
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", 0.29, 0.29),
        ("DCGM_FI_DEV_FB_USED", 4384 * 1048576 + 1048575.0, 4384),
        ("DCGM_FI_DEV_FB_USED_BYTES", 4384 * 1048576.0, 4384 * 1048576.0),
        ("DCGM_FI_DEV_FB_CAPACITY_BYTES", 80 * 2.0**30, 80 * 2.0**30),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 6018625.593, 6018625593),
        ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 6018625.593, 6018625.593),
        ("DCGM_FI_DEV_POWER_USAGE", 112.252, 112.252),
        ("DCGM_FI_DEV_POWER_VIOLATION", 1.5, 1_500_000_000),
        ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", 2_048_000_000.0, 2000),  # KiB / 1000, as DCGM does it
        ("DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND", 2_048_000_000.0, 2_048_000_000),
        ("DCGM_FI_DEV_PCIE_TX_THROUGHPUT", 79_221_000.0, 79221),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.408493, 0.408493),
        ("DCGM_FI_PROF_PCIE_TX_BYTES", 79221.4, 79221),
        ("DCGM_FI_DEV_FAN_SPEED", 0.5, 50),
        ("dcgm_sm_clock", 1_410_000_000.0, 1410),
    ],
)
def test_each_name_has_its_own_unit(name: str, base: float, shown: float) -> None:
    value = CONVERT[field_of(name).unit_of(name)](base)
    assert value == shown
    assert type(value) is type(shown)


def test_eleven_default_fields_change_their_unit_in_4_9() -> None:
    """Hertz twice, joules, ratios four times, bytes three times, bytes per second."""
    assert sum(field.v49_unit is not None for field in dcgm.DEFAULT_FIELDS) == 11


def test_the_help_text_has_the_unit_of_the_name() -> None:
    field = field_of("DCGM_FI_DEV_SM_CLOCK")
    assert field.help_of("DCGM_FI_DEV_SM_CLOCK").endswith("(in MHz).")
    assert field.help_of("DCGM_FI_DEV_SM_CLOCK_HERTZ").endswith("(in Hz).")
    assert field_of("DCGM_FI_DEV_XID_ERRORS").help_of("").endswith("none.")
    assert "usable" not in field_of("DCGM_FI_DEV_FB_USED_PERCENT").help_of("")


def test_nvlink_bandwidth_is_a_gauge_because_it_is_a_rate() -> None:
    assert field_of("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL").kind is MetricType.GAUGE


@pytest.mark.parametrize(
    ("used", "total", "reserved", "ratio"),
    [(30.0, 100.0, 40.0, 0.5), (50.0, 100.0, None, 0.5), (1.0, 10.0, 10.0, None), (None, 10.0, 1.0, None)],
)
def test_used_percent_is_the_share_of_the_usable_memory(
    used: float | None, total: float, reserved: float | None, ratio: float | None
) -> None:
    signals = {"memory_used_bytes": used, "memory_total_bytes": total, "memory_reserved_bytes": reserved}
    known = {name: value for name, value in signals.items() if value is not None}
    assert dcgm.derive_memory_used_ratio(known) == ratio
    assert field_of("DCGM_FI_DEV_FB_USED_PERCENT").unit is Unit.RATIO


def test_all_41_names_of_1_x_are_known() -> None:
    assert len(DCGM_1) == 41
    assert {field_of(name).id for name in ("dcgm_fb_free", "dcgm_fb_used")} == {251, 252}


def test_an_alias_never_hides_a_real_name() -> None:
    assert not (DCGM_46.keys() | DCGM_1.keys()) & {*CLASSIC, *RENAMED}


@pytest.mark.parametrize(
    "name",
    [
        "DCGM_EXP_GPU_HEALTH_STATUS",
        "DCGM_FI_DEV_BAR1_USED",
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_L17",
        "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT",
        "DCGM_FI_DEV_CPU_UTIL_TOTAL",
        "DCGM_FI_PROF_NVDEC0_ACTIVE",
        "DCGM_FI_PROF_C2C_TX_ALL_BYTES",
        "DCGM_FI_PROCESS_NAME",
    ],
)
def test_fields_that_only_dcgm_provides_are_known_but_not_exported(name: str) -> None:
    assert is_unserved(name)
    assert name not in SERVED


@pytest.mark.parametrize(
    "name", ["DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_NVLINK_BANDWIDTH_L0", "DCGM_FI_DEV_GPU_UTILL", "nothing"]
)
def test_exported_and_mistyped_names_are_not_unserved(name: str) -> None:
    assert not is_unserved(name)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("DCGM_FI_DEV_GPU_UTILL", "DCGM_FI_DEV_GPU_UTIL"),
        ("dcgm_fi_dev_gpu_util", "DCGM_FI_DEV_GPU_UTIL"),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIV", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"),
        ("dcgm_sm_clok", "dcgm_sm_clock"),
    ],
)
def test_a_mistyped_name_gets_a_suggestion(wrong: str, meant: str) -> None:
    assert suggest_name(wrong) == f"; did you mean {meant!r}?"


def test_a_name_like_nothing_known_gets_no_suggestion() -> None:
    assert suggest_name("temperature of the room") == ""
