"""Readings of each GPU model, and their plausibility."""

import pytest

from gpusteward.core.node.signals import PROFILING, SIGNALS, Scope
from gpusteward.simulate.fleets import LayoutContext, mig_gpu
from gpusteward.simulate.models import MODELS, GpuModel
from gpusteward.simulate.nodes import SimulatedNode
from gpusteward.simulate.seeded_random import SeededRandom
from gpusteward.simulate.workloads import Kind
from tests.simulate.single_workload import HOUR, NOW, only_reading, single_workload_node, start_of_pod

SIMULATED = PROFILING - {"integer_ratio", *(f"tensor_{kind}_ratio" for kind in ("imma", "hmma", "dfma"))}

every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
sliceable = pytest.mark.parametrize("model", [model for model in MODELS.values() if model.mig_profiles])


def sliced_node(model: GpuModel) -> SimulatedNode:
    context = LayoutContext(SeededRandom(5), SeededRandom(6), model)
    kinds = (Kind.INFERENCE, Kind.KEEP_ALIVE, Kind.PARKED)
    return SimulatedNode("sliced", [mig_gpu(context, kinds=kinds, free=1)], model=model, seed=5)


@every_model
def test_every_signal_is_one_of_the_table(model):
    assert set(only_reading(single_workload_node(Kind.TRAINING, 1, model=model), NOW).signals) <= set(SIGNALS)


@every_model
def test_only_hopper_and_newer_models_have_profiling_signals(model):
    names = set(only_reading(single_workload_node(Kind.TRAINING, 1, model=model), NOW).signals)
    is_new = any(name in model.name for name in ("H100", "H200", "B200"))
    assert (names & PROFILING) == (SIMULATED if is_new else set())


@every_model
def test_missing_hardware_reports_nothing(model):
    signals = only_reading(single_workload_node(Kind.PARKED, 1, model=model), NOW).signals
    assert ("fan_ratio" in signals) is ("GeForce" in model.name)
    assert ("memory_temperature_celsius" in signals) is model.has_hbm
    assert ("nvlink_bytes_per_second" in signals) is (model.nvlinks > 0)
    assert ("ecc_double_bit_volatile_total" in signals) is ("GeForce" not in model.name)
    assert ("retired_pages_pending" in signals) is model.name.startswith("Tesla")
    assert not {"retired_pages_pending", "row_remap_failure"} <= set(signals)


@every_model
@pytest.mark.parametrize("kind", [Kind.TRAINING, Kind.PARKED, Kind.EMPTY, Kind.INFERENCE, Kind.KEEP_ALIVE])
def test_power_temperature_and_clocks_stay_within_the_models_limits(model, kind):
    node = single_workload_node(kind, 3, model=model)
    for number in range(40):
        signals = only_reading(node, NOW + 613.7 * number).signals
        assert model.idle_watts - 0.01 <= signals["power_watts"] <= model.power_limit_watts
        assert 25 <= signals["temperature_celsius"] <= 85
        lowest = model.idle_sm_clock_mhz * 1e6
        assert lowest - 8e6 <= signals["sm_clock_hertz"] <= signals["max_sm_clock_hertz"] + 8e6
        assert all(0 <= value <= 1 for name, value in signals.items() if name.endswith("_ratio"))
        assert signals["last_xid"] == 0


@every_model
def test_work_raises_power_temperature_and_clocks_and_with_hbm_so_does_a_context(model):
    worked = single_workload_node(Kind.TRAINING, 3, model=model)
    busy = only_reading(worked, start_of_pod(Kind.TRAINING, 3) + HOUR / 3).signals
    rested = only_reading(single_workload_node(Kind.PARKED, 3, model=model), NOW).signals
    empty = only_reading(single_workload_node(Kind.EMPTY, 3, model=model), start_of_pod(Kind.EMPTY, 3) + HOUR).signals
    assert busy["power_watts"] > 0.7 * model.power_limit_watts
    assert empty["power_watts"] == pytest.approx(model.idle_watts)
    assert model.idle_watts < rested["power_watts"] < 0.5 * model.power_limit_watts
    assert busy["temperature_celsius"] > rested["temperature_celsius"] + 10
    assert busy["sm_clock_hertz"] > 3 * empty["sm_clock_hertz"]
    awake = rested["max_sm_clock_hertz"] if model.has_hbm else empty["sm_clock_hertz"]
    assert rested["sm_clock_hertz"] == pytest.approx(awake, rel=0.01)
    assert busy["memory_copy_ratio"] > 0.3
    assert rested["memory_copy_ratio"] == 0
    assert (busy["clock_event_reasons"], rested["clock_event_reasons"]) == (0, 1)


def test_tensor_and_memory_activity_come_with_work_only():
    busy = only_reading(single_workload_node(Kind.TRAINING, 3), start_of_pod(Kind.TRAINING, 3) + HOUR / 3).signals
    rested = only_reading(single_workload_node(Kind.PARKED, 3), NOW).signals
    assert all(busy[name] > 0 for name in SIMULATED - {"fp64_ratio"})
    assert all(rested[name] == 0 for name in SIMULATED)
    assert busy["tensor_ratio"] < busy["sm_active_ratio"] < busy["gr_engine_ratio"]


@every_model
def test_utilizations_are_whole_percents(model):
    node = single_workload_node(Kind.STARVED, 3, model=model)
    for number in range(50):
        signals = only_reading(node, NOW + 3.3 * number).signals
        for name in ("utilization_ratio", "utilization_mean_ratio", "memory_copy_ratio"):
            assert signals[name] == round(signals[name], 2)


@sliceable
def test_a_mig_device_is_followed_by_its_instances(model):
    parent, *instances = sliced_node(model).snapshot(NOW).readings
    assert parent.is_mig_parent
    assert [reading.gpu.mig.profile[:2] for reading in instances] == ["3g", "2g", "1g", "1g"]
    assert {reading.gpu.mig.parent_uuid for reading in instances} == {parent.gpu.uuid}
    assert len({reading.gpu.mig.gpu_instance_id for reading in instances}) == 4
    assert all(reading.gpu.uuid.startswith("MIG-") for reading in instances)


@sliceable
def test_an_instance_reports_its_own_signals_and_copies_but_none_of_the_device(model):
    parent, *instances = sliced_node(model).snapshot(NOW).readings
    for reading in instances:
        scopes = {SIGNALS[name].scope for name in reading.signals}
        assert Scope.DEVICE not in scopes
        assert reading.signals["temperature_celsius"] == parent.signals["temperature_celsius"]
        assert ("gr_engine_ratio" in reading.signals) is model.has_gpm
    refused = {"utilization_ratio", "utilization_mean_ratio", "memory_copy_ratio", "encoder_ratio", "decoder_ratio"}
    assert not refused & set(parent.signals)
    assert "power_watts" in parent.signals


@sliceable
def test_the_memory_of_the_instances_fits_into_their_parent(model):
    parent, *instances = sliced_node(model).snapshot(NOW).readings
    assert parent.signals["memory_used_bytes"] == sum(each.signals["memory_used_bytes"] for each in instances)
    usable = parent.signals["memory_total_bytes"] - parent.signals["memory_reserved_bytes"]
    assert sum(each.gpu.memory_total_bytes for each in instances) <= usable


def test_a_busy_instance_keeps_only_its_slices_of_the_device_busy():
    parent, _, keep_alive, *_ = sliced_node(MODELS["b200"]).snapshot(NOW).readings
    assert 0 < keep_alive.signals["gr_engine_ratio"] <= 0.3
    assert parent.signals["gr_engine_ratio"] >= keep_alive.signals["gr_engine_ratio"] * 2 / 7 - 1e-4


@sliceable
def test_no_process_utilization_is_known_on_an_instance(model):
    processes = sliced_node(model).snapshot(NOW).processes
    assert processes
    assert all(process.sm_ratio is None and process.memory_bytes for process in processes)
