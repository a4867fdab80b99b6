"""A load started by hand changes the readings of its GPU only."""

import math

import pytest

from gpusteward.core.errors import ConfigurationError
from gpusteward.core.node.gpus import Place
from gpusteward.core.node.usage_split import split_usage
from gpusteward.simulate.fleets import default_node
from gpusteward.simulate.loads import Load, parse_load
from gpusteward.simulate.workloads import Kind
from tests.simulate.single_workload import NOW, only_reading, single_workload_node, start_of_pod

LOAD = Load(3, 0.9, NOW, NOW + 120)


def device(node, index, at):
    return next(each for each in node.snapshot(at).readings if each.gpu.index == index and not each.gpu.mig)


@pytest.mark.parametrize(
    ("text", "load"),
    [
        ("3=0.9:120", Load(3, 0.9, NOW, NOW + 120)),
        ("3=90%:120s", Load(3, 0.9, NOW, NOW + 120)),
        ("0=1", Load(0, 1.0, NOW, math.inf)),
        (" 15=.5:0.5 ", Load(15, 0.5, NOW, NOW + 0.5)),
    ],
)
def test_a_load_is_written_as_gpu_ratio_and_seconds(text, load):
    assert parse_load(text, now=NOW) == load


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "GPU=RATIO:SECONDS"),
        ("3", "GPU=RATIO:SECONDS"),
        ("-1=0.5", "GPU=RATIO:SECONDS"),
        ("3=fast", "GPU=RATIO:SECONDS"),
        ("3=0.5:", "GPU=RATIO:SECONDS"),
        ("3=0.5:long", "GPU=RATIO:SECONDS"),
        ("3=90:120", "not above 0 and at most 1"),
        ("3=0:120", "not above 0 and at most 1"),
        ("3=101%:120", "not above 0 and at most 1"),
        ("3=0.5:0", "has no effect"),
    ],
)
def test_an_invalid_load_is_refused_with_the_reason_and_an_example(text, reason):
    with pytest.raises(ConfigurationError, match=reason) as caught:
        parse_load(text, now=NOW)
    assert "3=0.9:120" in str(caught.value)


def test_a_load_on_a_missing_gpu_is_refused():
    with pytest.raises(ConfigurationError, match="has GPUs 0 to 7"):
        default_node(1).with_load(Load(8, 0.5, NOW))


def test_a_load_raises_utilization_power_and_heat_while_it_lasts():
    node = default_node(1)
    loaded = node.with_load(LOAD)
    before, during = device(loaded, 3, NOW).signals, device(loaded, 3, NOW + 110).signals
    plain = device(node, 3, NOW).signals
    assert {name for name in plain if plain[name] != before[name]} == {"memory_used_bytes", "memory_free_bytes"}
    assert during["utilization_ratio"] >= 0.9
    assert during["power_watts"] > 0.8 * during["power_limit_watts"]
    assert during["temperature_celsius"] > before["temperature_celsius"] + 10
    after, without = (device(each, 3, NOW + 300).signals for each in (loaded, node))
    assert after["energy_joules_total"] > without["energy_joules_total"] + 30_000
    assert after == without | {"energy_joules_total": after["energy_joules_total"]}


def test_a_load_is_a_process_of_the_host_and_the_parts_still_add_up():
    snapshot = default_node(1).with_load(LOAD).snapshot(NOW + 60)
    (process,) = (each for each in snapshot.processes if each.name == "gpusteward-load")
    assert process.place is Place.HOST
    assert process.sm_ratio == 0.9
    (split,) = (each for each in split_usage(snapshot) if each.gpu.index == 3 and not each.gpu.mig)
    parts = {part.by: part.utilization_ratio for part in split.parts if part.container is None}
    assert parts[Place.HOST] == 0.9
    assert sum(part.utilization_ratio for part in split.parts) == pytest.approx(split.utilization_ratio)


def test_other_work_on_the_gpu_is_reduced_by_the_load():
    at = start_of_pod(Kind.TRAINING, 2) + 900
    node = single_workload_node(Kind.TRAINING, 2)
    loaded = node.with_load(Load(0, 0.8, at))
    trainer, load = loaded.snapshot(at + 30).processes
    assert load.sm_ratio == 0.8
    assert trainer.sm_ratio == pytest.approx(0.2 * node.snapshot(at + 30).processes[0].sm_ratio, abs=0.01)
    assert only_reading(loaded, at + 30).signals["utilization_ratio"] <= 1


def test_a_load_does_not_affect_other_gpus():
    node = default_node(1)
    plain, loaded = (
        [each for each in one.snapshot(NOW + 60).readings if each.gpu.index != 3]
        for one in (node, node.with_load(LOAD))
    )
    assert plain == loaded


def test_a_load_on_a_mig_device_runs_on_its_first_instance():
    loaded = default_node(1).with_load(Load(2, 0.6, NOW))
    parent, first, *_ = (each for each in loaded.snapshot(NOW + 30).readings if each.gpu.index == 2)
    assert first.signals["gr_engine_ratio"] >= 0.6
    assert parent.signals["gr_engine_ratio"] >= 0.6 * 3 / 7 - 1e-4


def test_several_loads_can_run_on_one_gpu():
    loaded = default_node(1).with_load(Load(7, 0.5, NOW)).with_load(Load(7, 0.5, NOW + 60))
    signals = device(loaded, 7, NOW + 100).signals
    processes = [each for each in loaded.snapshot(NOW + 100).processes if each.name == "gpusteward-load"]
    assert [each.sm_ratio for each in processes] == [0.25, 0.5]
    assert len({each.pid for each in processes}) == 2
    assert 0.75 <= signals["utilization_ratio"] <= 1
