"""The fraction of a GPU that an allocation holds."""

from dataclasses import replace

import numpy as np
import pytest

from gpusteward.analyzer.judge.gpu_fraction import SMALLEST_INSTANCE, compute_gpu_fractions
from gpusteward.core.usages import Measure, Stat
from tests.analyzer.usage_tables import GIB, allocation, signal, table_of


def instance(number: int, *, model: str = "NVIDIA H100 80GB HBM3", gpu: str = "GPU-x"):
    return replace(allocation(number, instance=str(number), share="mig", model=model), gpu_uuid=gpu)


def weights_of(*rows):
    stats = [{} if memory is None else signal(Measure.MEMORY_TOTAL, memory * GIB) for _, memory in rows]
    return compute_gpu_fractions(table_of(*stats, allocations=[held for held, _ in rows])).tolist()


def test_a_whole_gpu_is_one():
    assert weights_of((allocation(0), 80), (allocation(1), None)) == [1, 1]


def test_allocations_of_one_gpu_have_equal_fractions():
    sharing = [replace(allocation(number, share="hami"), gpu_uuid="GPU-x") for number in range(4)]
    assert weights_of(*((held, 10) for held in sharing)) == [0.25] * 4


def test_a_mig_instance_is_its_fraction_of_the_memory_of_the_board():
    (weight,) = weights_of((instance(1), 9.75))
    assert weight == pytest.approx(9.75 * 1024 / 81559)


def test_the_profile_overrides_a_memory_size_that_may_be_that_of_the_board():
    (weight,) = weights_of((instance(1, model="NVIDIA A100-SXM4-80GB MIG 2g.20gb"), 80))
    assert weight == pytest.approx(0.25)


def test_an_instance_of_unknown_size_has_the_smallest_fraction():
    assert weights_of((instance(1, model="a GPU of tomorrow"), None)) == [SMALLEST_INSTANCE]


def test_allocations_of_one_instance_share_its_fraction():
    two = [replace(instance(1), container=allocation(number).container) for number in (1, 2)]
    one, other = weights_of(*((held, 20) for held in two))
    assert one == other == pytest.approx(10 * 1024 / 81559)


def test_fractions_that_exceed_the_board_are_scaled_down():
    weights = weights_of(*((instance(number), 80) for number in range(1, 5)))
    assert weights == pytest.approx([0.25] * 4)


def test_a_device_without_a_uuid_is_identified_by_node_and_index():
    two = [replace(allocation(number), gpu_uuid="") for number in (0, 1)]
    assert weights_of(*((held, 80) for held in two)) == [1, 1]


def test_an_empty_table_has_no_fractions():
    assert compute_gpu_fractions(table_of()).tolist() == []
    assert np.isnan(table_of().column(Measure.CORE, Stat.MEAN)).all()
