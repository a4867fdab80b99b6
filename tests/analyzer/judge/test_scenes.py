"""A cut of the scenes, all of which `bench.scenes` runs: a window with work is never reclaimable, and rarely idle where
all of the time is measured."""

from itertools import pairwise

import numpy as np
import pytest

from tests.analyzer.judge.scene_rows import COLLECTED, Row, Scene, Signals
from tests.analyzer.judge.scenes import MOST_IDLE, SCENES, SIGNALS, WINDOW, judge_scenes, sum_up

BY_NAME = {signals.name: signals for signals in SIGNALS}
RARE = next(scene for scene in SCENES if scene.name == "request of 3 s every 10 min")
SKIPPED = (3, 55)
"""Seeds with which a scrape every 30 s skips the collection with the only work of a window."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["gauges, 60 s", "profiling, 30 s", "profiling, 15 s", "HAMi, 30 s", "agent, 30 s"])
def test_never_reclaimable_in_a_window_with_work(name: str):
    signals = BY_NAME[name]
    found = sum_up(judge_scenes(signals, seeds=[12], hours=2))
    assert found["windows"] > (50 if signals.is_hami else 400)
    assert found["reclaimable"] == 0
    if signals.is_agent or signals.has_profiling:
        assert found["idle"] <= MOST_IDLE * found["windows"]


@pytest.mark.timeout(300)
def test_never_reclaimable_where_a_scrape_has_skipped_the_collection_with_the_work():
    found = sum_up(judge_scenes(BY_NAME["profiling, 30 s"], seeds=SKIPPED, scenes=[RARE]))
    assert (found["idle"], found["reclaimable"]) == (2, 0)


@pytest.mark.parametrize(("cycle", "is_missed"), [(WINDOW, True), (WINDOW - 30, False)])
def test_never_reclaimable_where_windows_leave_out_the_time_between_them(cycle: int, *, is_missed: bool):
    """A request in every window: for some always between the last sample of one and the first sample of the next."""

    def ask(after: int) -> Scene:
        return Scene(f"{after} s", "Deployment", lambda _, seconds: 1.0 * ((np.arange(seconds) - after) % WINDOW < 3))

    scenes = [ask(after) for after in range(-30, 30, 6)]
    found = sum_up(judge_scenes(BY_NAME["agent, 30 s"], seeds=[3], scenes=scenes, cycle=cycle))
    assert (found["idle"] > 10) is is_missed
    assert found["reclaimable"] == 0


@pytest.mark.parametrize(("step", "skips"), [(30, True), (15, False)])
def test_the_model_skips_collections_at_equal_intervals(step: int, *, skips: bool):
    """A table whose scrapes and collections had one phase would flatter."""
    signals, skipped = Signals("", step, has_profiling=True), 0
    for seed in range(20):
        row = Row.draw(RARE, "one", seed, hours=3)
        seen = [row.find_newest(scrape, signals) for scrape in row.list_scrapes(step)]
        skipped += sum(after - before > 1.5 * COLLECTED for before, after in pairwise(seen))
    assert (skipped > 0) is skips
