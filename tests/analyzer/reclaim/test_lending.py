"""Lending: how many GPUs, for how long, with what probability, from which workloads."""

import pytest

from gpusteward.analyzer.reclaim.lending import HORIZONS, IdleGpus, find_lendable
from gpusteward.core.node.containers import WorkloadKey
from tests.analyzer.reclaim.spell_tables import HOUR, NOTEBOOK, spell, table_of
from tests.analyzer.spells import make_history

OTHER = WorkloadKey("Notebook", "team", "restless")
UNKNOWN = WorkloadKey("Job", "team", "train")
AT = 2000.0
"""Hours after 1970: 08:00 on a day."""


@pytest.fixture
def history():
    quiet = [spell(40 * number, 40 * number + 30, key=NOTEBOOK) for number in range(20)]
    restless = [spell(40 * number, 40 * number + 4.5, key=OTHER, allocation=2) for number in range(20)]
    return make_history(table_of([*quiet, *restless], at=AT), at=AT * HOUR)


def idle(key: WorkloadKey, gpus: float, *, hours: float = 4.0, model: str = "H100") -> IdleGpus:
    return IdleGpus(key, model, gpus, (AT - hours) * HOUR)


def test_gpus_are_lendable_whose_workloads_stayed_idle_for_that_long(history):
    found = find_lendable([idle(NOTEBOOK, 2), idle(OTHER, 1), idle(UNKNOWN, 8)], history)
    assert [each.horizon for each in found] == list(HORIZONS)
    hour = found[0]
    assert (hour.gpus, hour.probability, hour.unknown_gpus) == (2, 1.0, 8)
    assert hour.expected_gpus == 2  # the restless one always came back within the hour
    assert [(each.workload, each.probability, each.of) for each in hour.workloads] == [
        (NOTEBOOK, 1.0, "workload"),
        (OTHER, 0.0, "workload"),
        (UNKNOWN, None, ""),
    ]


def test_the_longer_the_less(history):
    found = find_lendable([idle(NOTEBOOK, 2, hours=20)], history)
    gpus = {each.horizon: each.gpus for each in found}
    assert gpus["1h"] == gpus["4h"] == 2
    assert gpus["morning"] in (0, 2)
    assert [each.seconds for each in found][:2] == [HOUR, 4 * HOUR]


def test_models_are_counted_apart(history):
    found = find_lendable([idle(NOTEBOOK, 0.5), idle(NOTEBOOK, 1, model="A100")], history)
    assert {(each.model, each.gpus) for each in found if each.horizon == "1h"} == {("A100", 1), ("H100", 0.5)}


def test_nothing_idle_is_nothing_to_lend(history):
    assert find_lendable([], history) == ()
