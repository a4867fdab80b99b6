"""Costs of namespaces and idle workloads on /metrics: sums of shares, and no sample where a price is unknown."""

from dataclasses import replace

import numpy as np
import pytest

from gpusteward.analyzer.metrics import analyzer_metrics as metrics
from gpusteward.analyzer.metrics.cost_metrics import cost_families
from gpusteward.analyzer.metrics.result_metrics import result_families
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.core.metrics import Metric
from gpusteward.core.node.containers import Workload
from gpusteward.core.usages import AllocationKey, Measure, Stat
from tests.analyzer.api.server import make_result
from tests.analyzer.usage_tables import AT, allocation, resting, table_of, working

PRICED = {"prices": {"per_gpu_hour": {"H100": 4.0}, "discount_percent": {"team": 25}, "currency": "EUR"}}
SERVER, TRAINER = Workload("Deployment", "team", "server"), Workload("Job", "team", "trainer")
CHEAP = "unpriced model"


def result_of(*held: AllocationKey, busy: tuple[int, ...] = (), settings: dict | None = None) -> Result:
    rows = [working() if number in busy else resting() for number in range(len(held))]
    return make_result(table_of(*rows, allocations=held), settings=Settings.model_validate(settings or PRICED))


def samples_of(result: Result, metric: Metric) -> dict[str, float]:
    return {
        labels: value for family in cost_families(result) if family.metric is metric for labels, value in family.samples
    }


def test_the_cost_of_a_namespace_is_split_by_activity_with_its_discount():
    result = result_of(*[allocation(number, owner=SERVER) for number in range(3)], busy=(0,))
    assert samples_of(result, metrics.NAMESPACE_COST) == {
        '{namespace="team",activity="active",currency="EUR"}': 3.0,
        '{namespace="team",activity="idle",currency="EUR"}': 6.0,
        '{namespace="team",activity="unknown",currency="EUR"}': 0.0,
    }


def test_the_cost_of_ineffective_work_is_a_part_of_that_of_active_gpus():
    held = [allocation(0, owner=SERVER), allocation(1, owner=SERVER), allocation(2, owner=TRAINER)]
    result = result_of(*held, busy=(0, 1))
    verdicts = replace(result.verdicts, ineffective_since=np.array([AT - 60, np.nan, AT - 60]))  # the last one is idle
    result = replace(result, verdicts=verdicts)
    assert samples_of(result, metrics.NAMESPACE_INEFFECTIVE_COST) == {'{namespace="team",currency="EUR"}': 3.0}
    assert samples_of(result, metrics.NAMESPACE_COST)['{namespace="team",activity="active",currency="EUR"}'] == 6.0
    gpus = {part.metric: dict(part.samples) for part in result_families(result)}
    assert gpus[metrics.NAMESPACE_INEFFECTIVE_GPUS] == {'{namespace="team"}': 1.0}
    assert gpus[metrics.EFFECTIVE_GPUS] == {"": 1.0}


def test_the_cost_of_a_million_tokens_is_that_of_all_gpus_of_the_workload():
    held = [allocation(0, owner=SERVER), allocation(1, owner=SERVER), allocation(2, owner=TRAINER)]
    tokens = {(Measure.SERVED_TOKENS, Stat.COUNT): 1_000_000.0}
    table = table_of(working() | tokens, resting() | tokens, working(), allocations=held)
    result = make_result(table, settings=Settings.model_validate(PRICED))
    [(labels, value)] = samples_of(result, metrics.WORKLOAD_TOKEN_COST).items()
    assert f'workload="{SERVER.name}",currency="EUR"' in labels
    assert value == pytest.approx(6.0 * table.window_seconds / 3600)
    silent = table_of(resting() | {(Measure.SERVED_TOKENS, Stat.COUNT): 0.0}, allocations=held[:1])
    result = make_result(silent, settings=Settings.model_validate(PRICED))
    assert samples_of(result, metrics.WORKLOAD_TOKEN_COST) == {}


def test_a_namespace_without_ineffective_work_has_none_of_it():
    result = result_of(allocation(0, owner=SERVER), busy=(0,))
    assert samples_of(result, metrics.NAMESPACE_INEFFECTIVE_COST) == {'{namespace="team",currency="EUR"}': 0.0}
    gpus = {part.metric: dict(part.samples) for part in result_families(result)}
    assert gpus[metrics.NAMESPACE_INEFFECTIVE_GPUS] == {'{namespace="team"}': 0.0}
    assert gpus[metrics.EFFECTIVE_GPUS] == {"": 1.0}


def test_a_sum_with_an_unknown_price_has_no_sample():
    held = [allocation(0, owner=SERVER), allocation(1, owner=SERVER, model=CHEAP), allocation(2, owner=TRAINER)]
    result = result_of(*held, busy=(2,))
    assert 'activity="idle"' not in "".join(samples_of(result, metrics.NAMESPACE_COST))
    assert samples_of(result, metrics.WORKLOAD_IDLE_COST) == {}
    assert len(samples_of(result, metrics.WORKLOAD_IDLE_GPUS)) == 1, "their number is known"


def test_without_prices_there_is_no_cost():
    result = result_of(allocation(), settings={"scheduler": {"interval": 30}})
    assert samples_of(result, metrics.NAMESPACE_COST) == samples_of(result, metrics.WORKLOAD_IDLE_COST) == {}


def test_a_workload_is_idle_since_all_of_it_is_and_its_idle_gpus_count_before():
    held = [allocation(number, owner=owner) for number, owner in enumerate((SERVER, TRAINER, TRAINER))]
    result = result_of(*held, busy=(1,))
    (idle,) = samples_of(result, metrics.WORKLOAD_IDLE_SINCE)
    assert idle.startswith('{namespace="team",workload_kind="Deployment",workload="server",signature="')
    gpus = samples_of(result, metrics.WORKLOAD_IDLE_GPUS)
    assert list(gpus.values()) == [1.0, 1.0]
    assert list(samples_of(result, metrics.WORKLOAD_IDLE_COST).values()) == [3.0, 3.0]


@pytest.mark.parametrize("clusters", [("", ""), ("east", "west")])
def test_the_same_workload_of_two_clusters_has_two_samples(clusters: tuple[str, str]):
    held = [
        replace(one, container=replace(one.container, cluster=name))
        for one, name in zip((allocation(0), allocation(1)), clusters, strict=True)
    ]
    result = result_of(*held)
    names = set(clusters)
    for metric in (metrics.WORKLOAD_IDLE_SINCE, metrics.WORKLOAD_IDLE_GPUS, metrics.WORKLOAD_IDLE_COST):
        samples = samples_of(result, metric)
        assert len(samples) == len(names)
        assert all(any(f'cluster="{name}"' in labels for labels in samples) for name in names if name)
