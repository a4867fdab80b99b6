"""A cut of the scenes of useful work, all of which `bench.useful` judges: what stands still is found, what works is
never accused, and what is idle stays idle."""

from collections import Counter

import pytest

from tests.analyzer.judge.useful import FOUND_MINUTES, Found, Signals, Way, judge_scenes
from tests.analyzer.judge.useful_scenes import SCENES, Truth

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SHORT = [scene for scene in SCENES if not scene.is_long]
SEED = 1
SIDES = ((Signals.GAUGES, Way.PAGES), (Signals.PROFILING, Way.ENGINE), (Signals.AGENT, Way.ENGINE))
Judged = tuple[Signals, Way, list[Found]]


def sum_called(found: list[Found], *truths: Truth) -> Counter[str]:
    return sum((one.called[truth] for one in found for truth in truths), Counter[str]())


@pytest.fixture(scope="module", params=SIDES, ids=" ".join)
def judged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    signals, way = request.param
    found = judge_scenes(signals, way, seed=SEED, folder=tmp_path_factory.mktemp("engine"), scenes=SHORT, hours=3.5)
    return signals, way, found


def test_what_stands_still_is_found_with_a_witness_after_half_an_hour_and_without_after_two(judged: Judged):
    signals, way, found = judged
    limit = FOUND_MINUTES[way.has_hosts(signals)]
    seen = [one for one in found if one.called[Truth.STALLED] and signals.shows(one.scene)]
    assert len(seen) >= 19
    assert not [(one.scene.name, one.minutes) for one in seen if one.minutes > limit]


def test_nothing_that_works_is_accused_idle_or_reclaimable(judged: Judged):
    _, _, found = judged
    worked = sum_called(found, Truth.WORKS)
    assert worked["windows"] > 900
    assert {worked[each] for each in ("stalled", "keep-alive", "idle", "reclaimable")} == {0}


def test_what_waits_without_being_stuck_is_not_stalled(judged: Judged):
    waits = sum_called(judged[2], Truth.WAITS)
    assert waits["windows"] > 100
    assert waits["stalled"] == waits["keep-alive"] == 0


def test_what_is_idle_stays_idle_and_is_reclaimable_where_the_time_is_integrated(
    judged: Judged,
):
    signals, _, found = judged
    for one in found:
        if not one.rested or not signals.shows(one.scene):
            continue
        assert one.rested["idle"] == one.rested["windows"], one.scene.name
        if signals.proves(one.scene):
            assert one.rested["reclaimable"] >= 0.9 * one.rested["windows"], one.scene.name
        else:
            assert not one.rested["reclaimable"], one.scene.name
