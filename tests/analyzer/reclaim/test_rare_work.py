"""The last look at usage, where a policy lets silence of a server stand for idleness: rare work only, none just now."""

from collections.abc import Sequence

from gpusteward.analyzer.judge.activity import ActivityRule
from gpusteward.analyzer.reclaim.execution.usage_check import find_problem
from gpusteward.analyzer.sources.usage_source import Chart
from gpusteward.core.messages import Message
from gpusteward.core.node.containers import Container
from gpusteward.core.usages import AllocationKey, Measure

HELD = AllocationKey("GPU-1", "", Container("team", "server"), "n1")
BEGIN, STEP = 1000.0, 15.0


def check(busy: Sequence[float], **others: Sequence[float]) -> Message | None:
    times = [BEGIN + STEP * number for number in range(len(busy))]
    lines = {Measure.BUSY: busy, Measure.CORE: [0.0] * len(busy)}
    lines |= {Measure(name): values for name, values in others.items()}
    chart = Chart(HELD, {measure: list(zip(times, values, strict=True)) for measure, values in lines.items()})
    return find_problem([chart], since=BEGIN, at=times[-1] + 1, rule=ActivityRule(), may_work=True)


def test_work_in_less_than_one_per_cent_of_the_time_does_not_hold_back():
    assert check([0.0] * 39 + [0.001]) is None


def test_never_acts_while_another_signal_shows_work():
    assert check([0.001] * 24, tensor_ratio=[0.6] * 24) is not None


def test_never_acts_right_after_work_began():
    assert check([0.0] * 39 + [0.3]) is not None
