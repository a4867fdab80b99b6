"""A smaller cut of bench/scenes.py: a window with work is never reclaimable."""

import pytest

from bench.scenes import SIGNALS, Signals, judge_scenes, sum_up


@pytest.mark.timeout(300)
@pytest.mark.parametrize("signals", [SIGNALS[2], SIGNALS[4], SIGNALS[6]], ids=lambda each: each.name)
def test_never_reclaimable_in_a_window_with_work(signals: Signals):
    found = sum_up(judge_scenes(signals, seeds=[11], hours=2))
    assert found["windows"] > 400
    assert found["reclaimable"] == 0
    if signals.is_agent:
        assert found["idle"] == 0
