"""Usage is read once more right before an action: by every signal that the judge takes for work."""

import pytest

from gpusteward.analyzer.judge.activity import ActivityRule
from gpusteward.analyzer.reclaim.execution.usage_check import OLDEST_SECONDS, find_work
from gpusteward.analyzer.sources.usage_source import Chart, Points
from gpusteward.core.containers import Container
from gpusteward.core.errors import SourceError
from gpusteward.core.usages import AllocationKey, Measure

AT = 1_800_000_000.0
HELD = AllocationKey("GPU-1", "", Container("team", "pod", "uid", "main"), "node", "0", "H100", "exclusive")
QUIET: Points = [(AT - 60, 0.0), (AT - 30, 0.0)]


class Source:
    """Has these lines."""

    def __init__(self, **lines: Points) -> None:
        self.lines = {Measure[name]: points for name, points in lines.items()}

    def read_work(self, allocation: AllocationKey, at: float, *, seconds: float) -> Chart:
        return Chart(allocation, self.lines)


def look(source: Source) -> str:
    found = find_work(source, [HELD], at=AT, seconds=600, rule=ActivityRule())
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


@pytest.mark.parametrize("points", [[], [(AT - OLDEST_SECONDS - 1, 0.0)], [(AT - 30, 1.4e14)]])
def test_without_a_recent_value_it_is_not_called_idle(points: Points) -> None:
    assert look(Source(CORE=points, ENCODER=[])) != ""


def test_a_source_that_cannot_be_read_proves_nothing() -> None:
    class Broken(Source):
        def read_work(self, allocation: AllocationKey, at: float, *, seconds: float) -> Chart:
            raise SourceError("down")

    assert "down" in look(Broken())
