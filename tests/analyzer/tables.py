"""Comparisons of usage tables and their verdicts."""

import numpy as np

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.judge.workloads import WorkloadTable, judge_workloads
from gpusteward.analyzer.tables import ACTIVITIES, DOUBTS, SIGNATURES, STATES, STEPS, UsageTable, VerdictTable
from gpusteward.core.usages import Measure, Stat, Usage

RowKey = tuple[str, str, str, str, str]


def index_rows(table: UsageTable) -> dict[RowKey, int]:
    """Rows by the identity of their allocation."""
    return {
        (one.gpu_uuid, one.gpu_instance, one.container.namespace, one.container.pod, one.container.name): row
        for row, one in enumerate(table.allocations)
    }


def of_pod(table: UsageTable, pod: str) -> Usage:
    (row,) = [row for row, one in enumerate(table.allocations) if one.container.pod == pod]
    return table.usage(row)


def assert_alike(
    one: UsageTable, other: UsageTable, *, but: tuple[tuple[Measure, Stat], ...] = (), rtol: float = 1e-9
) -> None:
    """The same allocations with the same numbers, in any order."""
    mine, theirs = index_rows(one), index_rows(other)
    assert mine.keys() == theirs.keys()
    assert mine
    here, there = list(mine.values()), [theirs[key] for key in mine]
    assert one.stats.keys() == other.stats.keys(), one.stats.keys() ^ other.stats.keys()
    for key in one.stats.keys() - set(but):
        np.testing.assert_allclose(
            one.stats[key][here], other.stats[key][there], rtol=rtol, atol=rtol, err_msg=str(key)
        )
    np.testing.assert_allclose(one.coverage[here], other.coverage[there])
    assert [one.unknown.get(row) for row in here] == [other.unknown.get(row) for row in there]
    assert [one.allocations[row] for row in here] == [other.allocations[row] for row in there]


def verdicts_of(table: UsageTable) -> dict[tuple[str, ...], tuple[object, ...]]:
    """As words, by GPU and by workload key."""
    verdicts, _ = judge(table, Rules(), VerdictHistory(), now=table.at)
    joined = judge_workloads(verdicts, Rules())
    doubts = [(DOUBTS[code].value, table.unknown.get(row, "")) for row, code in enumerate(verdicts.doubt)]
    of_gpus = zip(words_of(verdicts), doubts, strict=True)
    of_workloads = zip(words_of(joined), joined.gpus.tolist(), joined.idle_gpus.tolist(), strict=True)
    return dict(zip(index_rows(table), of_gpus, strict=True)) | dict(zip(joined.keys, of_workloads, strict=True))


def words_of(table: VerdictTable | WorkloadTable) -> list[tuple[object, ...]]:
    codes = zip(table.activity, table.state, table.signature, table.step, table.idle_since, strict=True)
    return [
        (ACTIVITIES[activity].value, STATES[state].value, SIGNATURES[signature].value, STEPS[step].value, str(since))
        for activity, state, signature, step, since in codes
    ]
