"""Tables of verdicts, by row."""

from dataclasses import replace

import numpy as np

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.tables import ACTIVITIES, VerdictTable
from gpusteward.core.verdicts import Activity
from tests.analyzer.usage_tables import AT, allocation, table_of, working


def judge_three() -> VerdictTable:
    table = table_of(*[working()] * 3, allocations=[allocation(number) for number in range(3)])
    verdicts, _ = judge(table, Rules(), VerdictHistory(), now=AT)
    return verdicts


def test_work_is_effective_as_long_as_nothing_shows_otherwise():
    verdicts = replace(judge_three(), ineffective_since=np.empty(0))
    assert np.isnan(verdicts.ineffective_since).tolist() == [True] * 3


def test_only_active_rows_are_ineffective():
    verdicts = replace(judge_three(), ineffective_since=np.full(3, AT - 60))
    idle = replace(verdicts, activity=np.full(3, ACTIVITIES.index(Activity.IDLE), np.int8))
    assert (verdicts.is_ineffective.all(), idle.is_ineffective.any()) == (True, False)


def test_rows_that_are_taken_keep_the_time_since_which_they_are_ineffective():
    verdicts = replace(judge_three(), ineffective_since=np.array([np.nan, AT - 600, AT - 60]))
    assert verdicts.take(np.array([1, 2])).ineffective_since.tolist() == [AT - 600, AT - 60]
    assert len(verdicts.take(np.empty(0, np.intp)).ineffective_since) == 0
