"""What actions have given back."""

from dataclasses import replace

import pytest

from gpusteward.analyzer.reclaim.execution.journal import Action, ActionState, Saving, measure_saving
from gpusteward.analyzer.reclaim.permission import Mode
from gpusteward.core.node.containers import WorkloadKey
from tests.analyzer.api.fake_reclaim import make_action
from tests.analyzer.usage_tables import AT

HOUR = 3600.0
DONE = replace(
    make_action("a", WorkloadKey("Job", "vision", "trainer")),
    acted_at=AT,
    evidence={"allocations": [{"model": "H100"}, {"model": "A100"}]},
)
PRICES = {"H100": 4_000_000, "A100": 2_000_000}


def measure(action: Action, *, since: float = 0.0, now: float = AT + 2 * HOUR) -> Saving | None:
    return measure_saving(action, lambda model, _: PRICES.get(model, 0), since=since, now=now)


def test_two_gpus_for_two_hours_at_the_mean_price_of_their_models():
    assert measure(DONE) == Saving(4.0, 12_000_000, True)


def test_it_ends_with_the_restore_and_begins_with_the_period():
    restored = replace(DONE, state=ActionState.RESTORED, ended_at=AT + HOUR)
    assert measure(restored) == Saving(2.0, 6_000_000, False)
    assert measure(DONE, since=AT + HOUR) == Saving(2.0, 6_000_000, True)
    assert measure(restored, since=AT + 1.5 * HOUR) is None


def test_a_pool_that_has_moved_saves_what_it_gave_back_at_each_time():
    earlier = [[AT, AT + HOUR / 2, 8.0], [AT + HOUR / 2, AT + HOUR, 4.0]]
    moved = replace(DONE, gpus=1.0, evidence={**DONE.evidence, "earlier": earlier, "gpus_since": AT + HOUR})
    assert measure(moved) == Saving(4.0 + 2.0 + 1.0, 21_000_000, True)
    assert measure(moved, since=AT + HOUR / 2) == Saving(2.0 + 1.0, 9_000_000, True)


def test_without_a_price_there_is_no_amount():
    unknown = replace(DONE, evidence={"allocations": [{"model": "H100"}, {"model": "new"}]})
    assert measure(unknown) == Saving(4.0, None, True)
    assert measure(replace(DONE, evidence={})) == Saving(4.0, None, True)


@pytest.mark.parametrize(
    "action",
    [
        replace(DONE, mode=Mode.OBSERVE),
        replace(DONE, state=ActionState.FAILED),
        replace(DONE, state=ActionState.WARNED, acted_at=None),
    ],
)
def test_dry_runs_failures_and_warnings_save_nothing(action: Action):
    assert measure(action) is None
