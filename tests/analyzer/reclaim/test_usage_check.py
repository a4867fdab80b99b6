"""Usage is read once more right before an action: by every signal that the judge takes for work, and fresh."""

import time
from collections.abc import Sequence

import pytest

from gpusteward.analyzer.judge.activity import ActivityRule
from gpusteward.analyzer.reclaim.execution import usage_check
from gpusteward.analyzer.reclaim.execution.usage_check import WRITE_SECONDS, UsageCheck, WorkSource, find_longest_age
from gpusteward.analyzer.sources.usage_source import Chart, Points
from gpusteward.core.containers import Container
from gpusteward.core.errors import SourceError
from gpusteward.core.usages import AllocationKey, Measure

AT = 1_800_000_000.0
HELD = AllocationKey("GPU-1", "", Container("team", "pod", "uid", "main"), "node", "0", "H100", "exclusive")
OTHER = AllocationKey("GPU-2", "", Container("team", "pod", "uid", "main"), "node", "1", "H100", "exclusive")
QUIET: Points = [(AT - 60, 0.0), (AT - 30, 0.0)]


class Source:
    """Has these lines, of every GPU."""

    def __init__(self, **lines: Points) -> None:
        self.lines = {Measure[name]: points for name, points in lines.items()}
        self.others: Points | None = None  # the core of the second GPU, if it differs

    def read_work(self, allocations: Sequence[AllocationKey], at: float, *, seconds: float) -> list[Chart]:
        charts = [Chart(one, self.lines) for one in allocations]
        return charts if self.others is None else [charts[0], Chart(allocations[1], {Measure.CORE: self.others})]


def look(source: WorkSource | None, *, allocations: Sequence[AllocationKey] = (HELD,)) -> str:
    check = UsageCheck(source, allocations, verdict_at=AT - 20, rule=ActivityRule(), clock=lambda: AT)
    found = check.look().problem
    return found.en if found else ""


def test_an_idle_gpu_is_idle() -> None:
    assert look(Source(CORE=QUIET, PCIE=[(AT - 30, 500e3)], DRAM=[(AT - 30, 0.004)])) == ""


@pytest.mark.parametrize(
    ("measure", "value"),
    [
        *[("CORE", 0.01), ("ENCODER", 0.8), ("DECODER", 0.6), ("VIDEO", 0.2), ("BUSY", 0.001), ("ENGINE", 0.1)],
        *[("SM_ACTIVE", 0.01), ("PCIE", 300e6), ("NVLINK", 2e9), ("DRAM", 0.2), ("ENCODER", 80.0)],
    ],
)
def test_any_signal_that_the_judge_knows_is_work(measure: str, value: float) -> None:
    assert "GPU-1" in look(Source(**{"CORE": QUIET, measure: [(AT - 60, value), (AT - 30, 0.0)]}))


@pytest.mark.parametrize("points", [[], [(AT - 290, 0.0)], [(AT - 30, 1.4e14)]])
def test_without_a_recent_value_it_is_not_called_idle(points: Points) -> None:
    assert "fresh sample" in look(Source(CORE=points, ENCODER=[]))


@pytest.mark.parametrize(
    ("interval", "longest"), [(5.0, 30.0), (15.0, 30.0), (20.0, 40.0), (30.0, 60.0), (60.0, 60.0), (300.0, 60.0)]
)
def test_a_sample_may_be_two_scrape_intervals_old_within_limits(interval: float, longest: float) -> None:
    times = [AT - interval * number for number in reversed(range(4))]
    assert find_longest_age(times) == longest
    for age, is_fresh in ((longest - 0.5, True), (longest + 0.5, False)):
        points = [(moment - age, 0.0) for moment in times]
        assert (look(Source(CORE=points)) == "") is is_fresh


def test_a_single_sample_says_nothing_about_the_interval() -> None:
    assert find_longest_age([AT]) == 30.0


def test_every_gpu_needs_a_fresh_sample() -> None:
    source = Source(CORE=QUIET)
    assert look(source, allocations=[HELD, OTHER]) == ""
    source.others = [(AT - 400, 0.0), (AT - 370, 0.0)]
    assert "GPU-2" in look(source, allocations=[HELD, OTHER])


def test_a_source_that_cannot_be_read_proves_nothing() -> None:
    class Broken(Source):
        def read_work(self, allocations: Sequence[AllocationKey], at: float, *, seconds: float) -> list[Chart]:
            raise SourceError("down")

    assert "down" in look(Broken())
    assert "no source" in look(None)


def test_a_slow_answer_proves_nothing_and_its_samples_have_aged(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that hangs for 40 s answers with what it had before."""
    moments = iter([1000.0, 1000.0 + 40.0, 1000.0, 1000.0 + 11.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(moments))
    assert "is 70 s old" in look(Source(CORE=QUIET))
    assert "in 11 s" in look(Source(CORE=[(AT - 30, 0.0), (AT - 5, 0.0)]))


def test_the_write_must_follow_within_seconds_of_the_answer() -> None:
    check = UsageCheck(Source(CORE=QUIET), [HELD], verdict_at=AT, rule=ActivityRule(), clock=lambda: AT)
    before = time.monotonic()
    checked = check.look()
    assert checked.problem is None
    assert before + WRITE_SECONDS <= checked.write_before <= time.monotonic() + usage_check.WRITE_SECONDS
