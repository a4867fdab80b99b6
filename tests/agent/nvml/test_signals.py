"""What `Nvml` reads of whole GPUs, through the real binding."""

import ctypes

import pynvml
import pytest

from gpusteward.agent.nvml import fields, gpm, processes, utilization
from gpusteward.core.node.gpus import GpuReading
from gpusteward.core.node.signals import PROFILING, PROFILING_TOTALS, SIGNALS
from tests.fakes.nvml_library import FakeNvml, Opener
from tests.fakes.nvml_scenarios import (
    ALL_LINKS,
    GIB,
    MIB,
    Scenario,
    a100,
    a100x8,
    h100_gpm,
    not_supported,
    unified_memory,
)

EVERYTHING = frozenset(SIGNALS)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (fields.ENTRY, pynvml.c_nvmlFieldValue_t),
        (processes.ENTRY, pynvml.c_nvmlProcessInfo_v3_t),
        (utilization.SAMPLE, pynvml.c_nvmlSample_t),
        (utilization.LEGACY_ENTRY, pynvml.c_nvmlProcessUtilizationSample_t),
        (utilization.MODERN_ENTRY, pynvml.c_nvmlProcessUtilizationInfo_v1_t),
        (utilization.MODERN_HEADER, pynvml.c_nvmlProcessesUtilizationInfo_v1_t),
        (gpm.METRIC, pynvml.c_nvmlGpmMetric_t),
    ],
)
def test_our_layouts_have_the_size_of_pynvmls_structs(ours, theirs) -> None:
    assert ours.size == ctypes.sizeof(theirs)


def test_eight_gpus_are_read_with_their_identity(open_nvml: Opener) -> None:
    readings = open_nvml(a100x8()).read(frozenset()).readings
    assert [reading.gpu.index for reading in readings] == list(range(8))
    gpu = readings[3].gpu
    assert (gpu.node, gpu.model, gpu.minor) == ("node-1", "NVIDIA A100-SXM4-80GB", 3)
    assert gpu.uuid == "GPU-00000003-aaaa-bbbb-cccc-000000000003"
    assert gpu.pci_bus_id == "00000000:13:00.0"
    assert (gpu.memory_total_bytes, gpu.power_limit_watts) == (80 * GIB, 400.0)
    assert gpu.facts["driver_version"] == "550.54.14"
    assert gpu.facts["nvml_version"] == "12.550.54.14"
    assert gpu.facts["brand"] == "NVIDIA"
    assert gpu.facts["inforom_ecc_version"] == "6.16"
    assert "inforom_power_version" not in gpu.facts


def test_signals_are_in_base_units(open_nvml: Opener) -> None:
    signals = open_nvml(a100x8()).read(EVERYTHING).readings[1].signals
    expected = {
        "sm_clock_hertz": 1.41e9,
        "memory_clock_hertz": 1.593e9,
        "max_sm_clock_hertz": 1.41e9,
        "temperature_celsius": 41,
        "memory_temperature_celsius": 51,
        "power_watts": 210,
        "enforced_power_limit_watts": 400,
        "energy_joules_total": 5_000_000.001,
        "utilization_ratio": 0.51,
        "utilization_mean_ratio": 0.51,
        "memory_copy_ratio": 0.21,
        "encoder_ratio": 0,
        "memory_total_bytes": 80 * GIB,
        "memory_used_bytes": 20 * GIB,
        "memory_reserved_bytes": 600 * MIB,
        "memory_free_bytes": 60 * GIB - 600 * MIB,
        "last_xid": 0,
        "clock_event_reasons": 0,
        "performance_state": 0,
        "thermal_violation_seconds_total": 2,
        "pcie_link_generation": 4,
        "pcie_throughput_rx_bytes_per_second": 2_000_000,
        "row_remap_failure": 0,
        "retired_pages_pending": 0,
        "ecc_double_bit_volatile_total": 0,
        "nvlink_recovery_errors_total": 0,
        "vgpu_license_status": 0,
    }
    assert {name: signals.get(name) for name in expected} == pytest.approx(expected)


def test_every_signal_of_the_table_can_be_read_somewhere(open_nvml: Opener) -> None:
    scenario = h100_gpm()
    scenario.gpus[0].numbers |= {"fan_percent": 30, "fabric_state": 3, "fabric_health": 0x1AA}
    scenario.gpus[0].gpm |= dict.fromkeys(range(248, 261), 1.0)
    scenario.gpus[0].fields |= dict.fromkeys(((id_, 0) for id_ in (161, 162, 163)), ("ull", 0))
    scenario.gpus[0].fields |= dict.fromkeys(((id_, ALL_LINKS) for id_ in (213, 214, 215)), ("ull", 0))
    nvml = open_nvml(scenario)
    nvml.read(EVERYTHING)
    assert set(nvml.read(EVERYTHING).readings[0].signals) == EVERYTHING


def test_only_what_is_wanted_is_read(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    nvml = open_nvml(a100x8())
    nvml.read(EVERYTHING)
    reading = nvml.read(frozenset({"memory_copy_ratio"})).readings[0]
    assert dict(reading.signals) == {"memory_copy_ratio": 0.2}


def test_a_gpu_that_supports_nothing_has_no_licence_and_no_failures(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    nvml = open_nvml(not_supported())
    for _cycle in range(2):
        found = nvml.read(EVERYTHING)
        assert [reading.signals for reading in found.readings] == [{"vgpu_license_status": 0}] * 2
        assert found.failures == []
        assert not any(reading.processes_known for reading in found.readings)


def test_unsupported_calls_are_not_repeated_until_nvml_is_opened_again(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    nvml = open_nvml(not_supported())
    nvml.read(EVERYTHING)
    before = fake_nvml.calls
    nvml.read(EVERYTHING)
    per_gpu = 3  # the process lists
    assert fake_nvml.calls - before <= 2 * per_gpu + 2  # and the count of GPUs, and perhaps the XID thread
    fake_nvml.change(a100x8())
    nvml.release()
    assert nvml.read(EVERYTHING).readings[0].signals["temperature_celsius"] == 40


def test_impossible_values_are_dropped(open_nvml: Opener) -> None:
    gpu = a100(0)
    gpu.numbers |= {"temperature": 3000, "gpu_percent": 8 * 10**8, "encoder_percent": 101, "pstate": 32}
    gpu.numbers |= {"memory_free": 2**64 - 1, "power_mw": 2**32 - 1}
    gpu.fields |= {(82, 0): ("uint", 255), (83, 0): ("double", float("inf")), (3, 0): ("sll", -1)}
    signals = open_nvml(Scenario([gpu])).read(EVERYTHING).readings[0].signals
    absent = {"temperature_celsius", "utilization_ratio", "utilization_mean_ratio", "encoder_ratio"}
    absent |= {"performance_state", "memory_free_bytes", "memory_temperature_celsius", "power_watts"}
    absent |= {"energy_joules_total", "ecc_single_bit_volatile_total"}
    assert absent.isdisjoint(signals)
    assert signals["memory_copy_ratio"] == 0.2


@pytest.mark.parametrize("milliwatts", [2**32 - 1, 2**32 - 2, 4_294_967_000])
def test_a_power_of_millions_of_watts_is_absent(open_nvml: Opener, milliwatts: int) -> None:
    gpu = a100(0)
    gpu.numbers |= dict.fromkeys(("power_mw", "power_limit_mw", "enforced_power_limit_mw"), milliwatts)
    (reading,) = open_nvml(Scenario([gpu])).read(EVERYTHING).readings
    assert {name for name in reading.signals if name.endswith("_watts")} == set()
    assert reading.gpu.power_limit_watts is None


@pytest.mark.parametrize("no_memory_v2", [0, 1])
def test_a_gpu_with_one_byte_of_memory_has_no_memory_values(open_nvml: Opener, no_memory_v2: int) -> None:
    gpu = a100(0)
    gpu.numbers |= {"memory_total": 1, "no_memory_v2": no_memory_v2}
    (reading,) = open_nvml(Scenario([gpu])).read(EVERYTHING).readings
    assert {name for name in reading.signals if name.startswith("memory_") and name.endswith("_bytes")} == set()
    assert reading.gpu.memory_total_bytes is None


@pytest.mark.parametrize("kind", ["int", "sll", "uint"])
def test_temperatures_below_0_are_absent(open_nvml: Opener, kind: str) -> None:
    gpu = a100(0)
    gpu.numbers["temperature"] = 2**32 - 5
    gpu.fields[82, 0] = (kind, 2**32 - 5 if kind == "uint" else -5)
    (reading,) = open_nvml(Scenario([gpu])).read(EVERYTHING).readings
    assert {name for name in reading.signals if "temperature" in name} == set()


@pytest.mark.parametrize("no_memory_v2", [0, 1])
def test_parts_of_the_memory_above_all_of_it_are_absent(open_nvml: Opener, no_memory_v2: int) -> None:
    gpu = a100(0)
    gpu.numbers |= {"memory_used": 200 * GIB, "memory_free": 2**62, "no_memory_v2": no_memory_v2}
    signals = open_nvml(Scenario([gpu])).read(EVERYTHING).readings[0].signals
    assert signals["memory_total_bytes"] == 80 * GIB
    assert {"memory_used_bytes", "memory_free_bytes"}.isdisjoint(signals)


def test_a_power_limit_of_0_is_none_and_clocks_of_terahertz_are_absent(open_nvml: Opener) -> None:
    gpu = a100(0)
    gpu.numbers |= {"power_limit_mw": 0, "enforced_power_limit_mw": 0, "sm_mhz": 2**32 - 2, "video_mhz": 10**6}
    (reading,) = open_nvml(Scenario([gpu])).read(EVERYTHING).readings
    absent = {"power_limit_watts", "enforced_power_limit_watts", "sm_clock_hertz", "video_clock_hertz"}
    assert absent.isdisjoint(reading.signals)
    assert reading.gpu.power_limit_watts is None
    assert reading.signals["memory_clock_hertz"] == 1.593e9


@pytest.mark.parametrize("field_id", [29, 30, 31, 142, 143, 144, 145])
def test_a_negative_number_of_rows_or_pages_is_absent(open_nvml: Opener, field_id: int) -> None:
    gpu = a100(0)
    before = open_nvml(Scenario([a100(0)])).read(EVERYTHING).readings[0].signals
    gpu.fields[field_id, 0] = ("uint", 2**32 - 5)
    signals = open_nvml(Scenario([gpu])).read(EVERYTHING).readings[0].signals
    assert len(before.keys() - signals.keys()) == 1


def test_gpus_of_one_uuid_are_ignored_and_named_in_every_cycle(open_nvml: Opener) -> None:
    scenario = a100x8()
    scenario.gpus[5].texts["uuid"] = scenario.gpus[2].uuid
    nvml = open_nvml(scenario)
    for _cycle in range(3):
        found = nvml.read(EVERYTHING)
        assert [reading.gpu.index for reading in found.readings] == [0, 1, 3, 4, 6, 7]
        assert {process.pid for process in found.processes} == {1000, 1001, 1003, 1004, 1006, 1007}
        assert [failure.reason for failure in found.failures] == [
            f"GPU {index} is ignored: another GPU has the same uuid" for index in (2, 5)
        ]


def test_without_memory_v2_reserved_memory_is_absent(open_nvml: Opener) -> None:
    gpu = a100(0)
    gpu.numbers["no_memory_v2"] = 1
    nvml = open_nvml(Scenario([gpu]))
    for _cycle in range(2):
        signals = nvml.read(EVERYTHING).readings[0].signals
        assert signals["memory_used_bytes"] == 20 * GIB + 600 * MIB
        assert "memory_reserved_bytes" not in signals


def test_a_memory_temperature_with_a_wrong_value_type_is_read_correctly(open_nvml: Opener) -> None:
    gpu = a100(0)
    gpu.fields[82, 0] = ("double", 2.5e-322)  # 51 as an unsigned integer
    assert open_nvml(Scenario([gpu])).read(EVERYTHING).readings[0].signals["memory_temperature_celsius"] == 51


def test_nvlink_throughput_is_a_rate_between_two_reads(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    clock, scenario = Clock(), Scenario([a100(0)])
    nvml = open_nvml(scenario, clock=clock)
    assert "nvlink_bytes_per_second" not in nvml.read(EVERYTHING).readings[0].signals
    for field_id in (138, 139):
        scenario.gpus[0].fields[field_id, ALL_LINKS] = ("ull", 1024 + 5 * 1000)
    fake_nvml.change(scenario)
    clock.now += 5
    signals = nvml.read(EVERYTHING).readings[0].signals
    assert signals["nvlink_bytes_per_second"] == 2 * 1000 * 1024
    assert signals["nvlink_l0_bytes_per_second"] == 0
    scenario.gpus[0].fields[138, ALL_LINKS] = ("ull", 0)
    fake_nvml.change(scenario)
    clock.now += 5
    assert "nvlink_bytes_per_second" not in nvml.read(EVERYTHING).readings[0].signals
    scenario.gpus[0].fields[138, ALL_LINKS] = ("ull", 2**64 - 1)
    fake_nvml.change(scenario)
    clock.now += 5
    assert "nvlink_bytes_per_second" not in nvml.read(EVERYTHING).readings[0].signals


def test_newer_generations_count_nvlink_errors_in_other_fields(open_nvml: Opener) -> None:
    gpu = a100(0)
    del gpu.fields[52, 0], gpu.fields[59, 0]
    gpu.fields |= {(161, 0): ("ull", 4), (215, ALL_LINKS): ("ull", 6)}
    signals = open_nvml(Scenario([gpu])).read(EVERYTHING).readings[0].signals
    assert signals["nvlink_replay_errors_total"] == 4
    assert signals["nvlink_recovery_errors_total"] == 6


def test_profiling_needs_two_samples(open_nvml: Opener) -> None:
    nvml = open_nvml(h100_gpm())
    assert PROFILING.isdisjoint(nvml.read(EVERYTHING).readings[0].signals)
    signals = nvml.read(EVERYTHING).readings[0].signals
    assert signals["gr_engine_ratio"] == 0.615
    assert signals["tensor_ratio"] == 0.44
    assert signals["pcie_tx_bytes_per_second"] == 100 * MIB
    assert signals["nvlink_rx_bytes_per_second"] == 3000 * MIB


def test_profiling_totals_are_read_as_the_driver_counts_them(open_nvml: Opener) -> None:
    scenario = h100_gpm()
    scenario.gpus[0].gpm |= {248: 9e15, 249: 7e15, 255: 123456789012.0}
    nvml = open_nvml(scenario)
    nvml.read(EVERYTHING)
    signals = nvml.read(EVERYTHING).readings[0].signals
    assert (signals["sm_cycles_total"], signals["sm_active_cycles_total"]) == (9e15, 7e15)
    assert signals["pcie_tx_bytes_total"] == 123456789012


def test_a_driver_that_does_not_know_profiling_totals_still_profiles(open_nvml: Opener) -> None:
    scenario = h100_gpm()
    scenario.gpus[0].numbers["no_gpm_totals"] = 1
    nvml = open_nvml(scenario)
    for _cycle in range(2):
        nvml.read(EVERYTHING)
    signals = nvml.read(EVERYTHING).readings[0].signals
    assert signals["gr_engine_ratio"] == 0.615
    assert PROFILING_TOTALS.isdisjoint(signals)


def test_a_profiling_value_that_is_nan_is_dropped(open_nvml: Opener) -> None:
    scenario = h100_gpm()
    scenario.gpus[0].gpm |= {5: float("nan"), 10: 250.0, 11: -1.0, 20: float("inf")}
    nvml = open_nvml(scenario)
    nvml.read(EVERYTHING)
    signals = nvml.read(EVERYTHING).readings[0].signals
    assert {"tensor_ratio", "dram_ratio", "fp64_ratio", "pcie_tx_bytes_per_second"}.isdisjoint(signals)
    assert signals["sm_active_ratio"] == 0.58


def test_an_expired_vgpu_licence_is_reported(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    scenario = Scenario([a100(0)])
    scenario.gpus[0].numbers |= {"licence_supported": 1, "licence_state": 1}
    nvml = open_nvml(scenario)
    assert nvml.read(EVERYTHING).readings[0].signals["vgpu_license_status"] == 1
    scenario.gpus[0].numbers["licence_state"] = 0
    fake_nvml.change(scenario)
    assert nvml.read(EVERYTHING).readings[0].signals["vgpu_license_status"] == 0


def test_a_gpu_without_licences_has_the_status_0_as_in_dcgm(open_nvml: Opener) -> None:
    scenario = Scenario([a100(0)])
    del scenario.gpus[0].numbers["licence_supported"]
    assert open_nvml(scenario).read(EVERYTHING).readings[0].signals["vgpu_license_status"] == 0


def test_the_health_of_the_fabric_is_known_only_where_there_is_one(open_nvml: Opener) -> None:
    scenario = Scenario([a100(0), a100(1), a100(2)])
    scenario.gpus[1].numbers |= {"fabric_state": 3, "fabric_clique": 7, "fabric_health": 0x1AA, "fabric_summary": 2}
    scenario.gpus[2].numbers |= {"fabric_state": 0}
    absent, present, unsupported = (one.signals for one in open_nvml(scenario).read(EVERYTHING).readings)
    names = ("fabric_clique_id", "fabric_health_mask", "fabric_health_summary")
    assert [present[name] for name in names] == [7, 0x1AA, 2]
    assert set(names).isdisjoint(absent.keys() | unsupported.keys())


def test_an_older_driver_has_the_health_of_the_fabric_without_its_summary(open_nvml: Opener) -> None:
    scenario = Scenario([a100(0)])
    scenario.gpus[0].numbers |= {"fabric_state": 3, "fabric_health": 0x1AA, "fabric_summary": 2, "no_fabric_v3": 1}
    nvml = open_nvml(scenario)
    for _cycle in range(2):
        signals = nvml.read(EVERYTHING).readings[0].signals
        assert signals["fabric_health_mask"] == 0x1AA
        assert "fabric_health_summary" not in signals


def test_nvlink_errors_of_hopper_and_blackwell_have_their_own_signals(open_nvml: Opener) -> None:
    scenario = Scenario([a100(0)])
    scenario.gpus[0].fields |= {(id_, 0): ("ull", id_) for id_ in (161, 162, 163)}
    scenario.gpus[0].fields |= {(id_, ALL_LINKS): ("ull", id_) for id_ in (213, 214, 215)}
    signals = open_nvml(scenario).read(EVERYTHING).readings[0].signals
    assert signals["nvlink_dl_crc_errors_total"] == 163
    assert signals["nvlink_link_recoveries_failed_total"] == 214


def test_a_driver_that_counts_nvlink_errors_of_hopper_only_without_a_scope_is_not_read_as_0(open_nvml: Opener) -> None:
    """With a scope this driver answers about a link that does not exist."""
    scenario = Scenario([a100(0)])
    for id_ in (161, 162, 163):
        scenario.gpus[0].fields |= {(id_, 0): ("ull", id_), (id_, ALL_LINKS): ("ull", 0)}
    signals = open_nvml(scenario).read(EVERYTHING).readings[0].signals
    names = ("nvlink_dl_replay_errors_total", "nvlink_dl_recovery_errors_total", "nvlink_dl_crc_errors_total")
    assert [signals[name] for name in names] == [161, 162, 163]


def test_a_changed_power_limit_is_followed(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    scenario = Scenario([a100(0)])
    nvml = open_nvml(scenario)
    nvml.read(EVERYTHING)
    scenario.gpus[0].numbers["enforced_power_limit_mw"] = 250_000
    fake_nvml.change(scenario)
    assert nvml.read(EVERYTHING).readings[0].gpu.power_limit_watts == 250


def test_clock_events_are_counted_when_a_reason_begins(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    scenario = Scenario([a100(0)])
    scenario.gpus[0].numbers["clock_reasons"] = 0x4
    nvml = open_nvml(scenario)

    def counts_with(mask: int) -> GpuReading:
        scenario.gpus[0].numbers["clock_reasons"] = mask
        fake_nvml.change(scenario)
        return nvml.read(EVERYTHING).readings[0]

    assert set(counts_with(0x4).clock_event_counts.values()) == {0}
    assert counts_with(0x20).clock_event_counts["sw_thermal"] == 1
    assert counts_with(0x24).clock_event_counts["power_cap"] == 1
    nvml.release()
    reading = counts_with(0x60)
    assert (reading.clock_event_counts["sw_thermal"], reading.clock_event_counts["hw_thermal"]) == (1, 1)


def test_peer_status_is_read_only_if_wanted(open_nvml: Opener) -> None:
    nvml = open_nvml(a100x8())
    assert nvml.read(frozenset()).readings[2].peer_status == {}
    assert nvml.read(frozenset(), peers=True).readings[2].peer_status == dict.fromkeys({0, 1, 3, 4, 5, 6, 7}, 0)


MEMORY = {name for name in SIGNALS if name.startswith("memory_") and name.endswith("_bytes")}


def test_a_gpu_that_shares_the_memory_of_the_cpu_has_no_memory_of_its_own_but_processes(open_nvml: Opener) -> None:
    found = open_nvml(unified_memory()).read(EVERYTHING)
    (reading,) = found.readings
    assert not MEMORY & reading.signals.keys()
    assert reading.gpu.memory_total_bytes is None
    assert (reading.signals["utilization_ratio"], reading.processes_known) == (0.72, True)
    assert [each.memory_bytes for each in found.processes] == [42 * GIB, 3 * GIB, 43 * MIB]
    assert [each.sm_ratio for each in found.processes] == [0.72, 0.0, 0.0]
    assert found.failures == []


@pytest.mark.parametrize("without_v2", [0, 1])
def test_a_memory_of_size_0_is_no_memory_info(open_nvml: Opener, without_v2: int) -> None:
    scenario = Scenario([a100(0)])
    scenario.gpus[0].numbers |= dict.fromkeys(("memory_total", "memory_used", "memory_free", "memory_reserved"), 0)
    scenario.gpus[0].numbers |= {"no_memory_v2": 1} if without_v2 else {}
    (reading,) = open_nvml(scenario).read(EVERYTHING).readings
    assert not MEMORY & reading.signals.keys()
    assert reading.gpu.memory_total_bytes is None


@pytest.mark.parametrize(("busy", "is_known"), [(72, False), (0, True)])
def test_without_memory_info_a_busy_gpu_shows_that_processes_are_hidden(
    open_nvml: Opener, *, busy: int, is_known: bool
) -> None:
    scenario = unified_memory()
    scenario.gpus[0].lines.clear()
    scenario.gpus[0].numbers["gpu_percent"] = busy
    found = open_nvml(scenario).read(EVERYTHING)
    assert found.readings[0].processes_known is is_known
    assert ["hostPID" in failure.reason for failure in found.failures] == ([] if is_known else [True])
