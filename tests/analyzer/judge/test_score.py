"""Score, capacities and states."""

import numpy as np
import pytest
from pydantic import ValidationError

from gpusteward.analyzer.judge.allocation_columns import read_allocation_columns
from gpusteward.analyzer.judge.gpu_models import MODELS, GpuDefaults, find_capacities, find_model
from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.judge.score import Scoring, Thresholds
from gpusteward.analyzer.tables import STATES, UsageTable
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import State
from gpusteward.messages import unknown_reasons
from gpusteward.simulate.models import MODELS as SIMULATED
from tests.analyzer.usage_tables import AT, GIB, allocation, resting, signal, table_of, working

CAPACITY = signal(Measure.MEMORY_TOTAL, 80 * GIB) | signal(Measure.POWER_LIMIT, 700)


def scores(table: UsageTable, rules: Rules | None = None) -> list[float]:
    return judge(table, rules or Rules(), VerdictHistory(), now=AT)[0].score.tolist()


def states(table: UsageTable, rules: Rules | None = None) -> list[State]:
    return [STATES[code] for code in judge(table, rules or Rules(), VerdictHistory(), now=AT)[0].state]


def busy(core: float, copy: float, memory_gib: float, watts: float) -> dict[tuple[Measure, Stat], float]:
    values = {
        Measure.CORE: core,
        Measure.MEMORY_COPY: copy,
        Measure.MEMORY_USED: memory_gib * GIB,
        Measure.POWER: watts,
    }
    return CAPACITY | {name: value for measure, each in values.items() for name, value in signal(measure, each).items()}


def test_the_score_is_the_weighted_sum_of_four_parts():
    assert scores(table_of(busy(0.785, 0.452, 40, 350))) == pytest.approx([39.25 + 9.04 + 10 + 5])


def test_transcoding_scores_like_the_core():
    video = {(Measure.ENCODER, Stat.MEAN): 0.8, (Measure.DECODER, Stat.MEAN): 0.6}
    assert scores(table_of(busy(0.0, 0.0, 40, 350) | video)) == pytest.approx([40 + 10 + 5])
    assert states(table_of(busy(0.0, 0.0, 2, 35) | video | {(Measure.ENCODER, Stat.PEAK): 0.9})) == [State.NORMAL]


def test_each_part_counts_at_most_100():
    assert scores(table_of(busy(1.2, 1.0, 200, 900))) == [100.0]


def test_weights_are_settings():
    rules = Rules(scoring=Scoring(gpu_util_weight=1, mem_copy_weight=0, mem_used_weight=0, power_weight=0))
    assert scores(table_of(busy(0.3, 0.9, 80, 700)), rules) == pytest.approx([30.0])


def test_a_score_above_100_by_odd_weights_is_100():
    assert scores(table_of(busy(0.9, 0.9, 80, 700)), Rules(scoring=Scoring(gpu_util_weight=2))) == [100.0]


@pytest.mark.parametrize("missing", [Measure.MEMORY_COPY, Measure.MEMORY_USED, Measure.POWER])
def test_the_weight_of_an_unknown_part_goes_to_the_known_ones(missing):
    row = {name: value for name, value in busy(0.5, 0.5, 40, 350).items() if name[0] is not missing}
    assert scores(table_of(row)) == pytest.approx([50.0])


def test_a_busy_mig_instance_can_reach_the_highest_score():
    row = signal(Measure.CORE, 1.0) | signal(Measure.MEMORY_USED, 10 * GIB) | signal(Measure.MEMORY_TOTAL, 10 * GIB)
    assert scores(table_of(row, allocations=[allocation(share="mig", instance="7")])) == pytest.approx([100.0])


def test_without_core_utilization_there_is_no_score_and_no_state():
    row = {name: value for name, value in busy(0.5, 0.5, 40, 350).items() if name[0] is not Measure.CORE}
    assert np.isnan(scores(table_of(row))).all()
    assert states(table_of(row)) == [State.UNKNOWN]


def test_the_blank_values_of_dcgm_are_no_measurement():
    assert np.isnan(scores(table_of(busy(1.4e14, 0.0, 0, 70)))).all()


def test_memory_and_power_come_from_the_metric_then_the_model_then_the_default():
    allocations = [
        allocation(0),
        allocation(1),
        allocation(2, model="NVIDIA Z900"),
        allocation(3, share="mig", instance="7"),
    ]
    table = table_of(
        signal(Measure.MEMORY_TOTAL, 5.0) | signal(Measure.POWER_LIMIT, 6.0), {}, {}, {}, allocations=allocations
    )
    found = find_capacities(table, read_allocation_columns(allocations), defaults=GpuDefaults(memory_mb=1, power_w=99))
    np.testing.assert_array_equal(found.memory_bytes, [5.0, 81559 << 20, 1 << 20, np.nan])
    np.testing.assert_array_equal(found.power_limit_watts, [6.0, 700.0, 99.0, np.nan])
    np.testing.assert_array_equal(found.idle_watts, [71.0, 71.0, np.nan, np.nan])


def test_a_total_of_0_is_no_total():
    found = find_capacities(
        table_of(signal(Measure.MEMORY_TOTAL, 0.0)), read_allocation_columns([allocation()]), defaults=GpuDefaults()
    )
    assert found.memory_bytes.tolist() == [81559 << 20]


@pytest.mark.parametrize("model", SIMULATED.values(), ids=SIMULATED)
def test_the_table_of_models_knows_every_simulated_model(model):
    facts = find_model(model.name)
    assert facts is not None
    assert (facts.memory_mib, facts.power_limit_watts, facts.idle_watts) == (
        model.memory_mib,
        model.power_limit_watts,
        model.idle_watts,
    )


@pytest.mark.parametrize(
    ("name", "memory_mib", "watts"),
    [
        ("NVIDIA A100 80GB PCIe", 81920, 300),
        ("NVIDIA-A100-PCIE-40GB", 40960, 250),
        ("Tesla V100S-PCIE-32GB", 32768, 250),
        ("NVIDIA-NVIDIA H100 NVL", 95830, 400),
        ("NVIDIA A10G", 23028, 300),
        ("NVIDIA GeForce RTX 4090 D", 24564, 425),
    ],
)
def test_a_model_is_found_however_it_is_spelled(name, memory_mib, watts):
    facts = find_model(name)
    assert facts is not None
    assert (facts.memory_mib, facts.power_limit_watts) == (memory_mib, watts)


def test_an_unknown_model_is_not_guessed():
    assert find_model("NVIDIA A1000") is None
    assert find_model("") is None


def test_no_model_is_shadowed_by_an_earlier_one():
    assert [find_model(" ".join(model.words)) for model in MODELS] == list(MODELS)


@pytest.mark.parametrize(
    ("core", "state"),
    [(0.099, State.IDLE), (0.1, State.LOW), (0.199, State.LOW), (0.2, State.NORMAL), (0.7, State.HIGH)],
)
def test_a_score_becomes_a_state(core, state):
    rules = Rules(scoring=Scoring(gpu_util_weight=1, mem_copy_weight=0, mem_used_weight=0, power_weight=0))
    assert states(table_of(signal(Measure.CORE, core)), rules) == [state]


def test_thresholds_are_settings():
    assert states(table_of(working()), Rules(thresholds=Thresholds(low_utilization=99))) == [State.LOW]


def test_a_loaded_model_that_did_nothing_is_idle_whatever_its_score():
    table = table_of(resting(72, watts=110))
    assert scores(table)[0] > Thresholds().low_utilization - 2
    assert states(table) == [State.IDLE]


def test_a_row_that_must_not_be_judged_has_neither_score_nor_state():
    table = table_of(working(), unknown={0: unknown_reasons.REPORTED_BY_TWO_NODES})
    assert np.isnan(scores(table)).all()
    assert states(table) == [State.UNKNOWN]


def test_a_setting_out_of_range_is_refused():
    with pytest.raises(ValidationError):
        Thresholds(idle=101)
    with pytest.raises(ValidationError):
        Rules.model_validate({"scoring": {"gpu_util": 1}})


def test_every_setting_has_a_description():
    models = [Rules]
    while models:
        for field in models.pop().model_fields.values():
            assert field.description
            if isinstance(field.annotation, type) and hasattr(field.annotation, "model_fields"):
                models.append(field.annotation)
