"""Properties of load curves: they never decrease, never grow faster than time, and are continuous."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusteward.simulate.load_curves import (
    DAY,
    HOUR,
    Between,
    Breaks,
    Bursts,
    Chain,
    Constant,
    DayAndNight,
    Lifetimes,
    LoadCurve,
    OfficeHours,
    ReducedWork,
    Scaled,
    Steady,
)

pytestmark = pytest.mark.slow

CURVES: dict[str, LoadCurve] = {
    "rest": Constant(0.0),
    "constant": Constant(0.3),
    "steady": Steady(5, 0.9, 0.02),
    "turns": Lifetimes(1000.0, 17.0, 900.0),
    "breaks": Breaks(5, 600.0, 60.0),
    "office hours": OfficeHours(5, 3 * HOUR, 2 * HOUR, 3 * HOUR),
    "day and night": DayAndNight(0.4, 0.3, 12 * HOUR),
    "bursts": Bursts(5, 60.0, DayAndNight(0.4, 0.3, 12 * HOUR), lowest_level=0.1),
    "full bursts": Bursts(5, 60.0, Constant(0.9), lowest_level=0.1),
    "chain": Chain(Breaks(5, 600.0, 60.0), Steady(6, 0.9, 0.02)),
    "scaled": Scaled(Steady(5, 0.9, 0.02), 0.25),
    "yielding": ReducedWork(Steady(5, 0.9, 0.02), 0.7, 1.79e9, 1.79e9 + 100),
    "between": Between(1.79e9, 1.79e9 + 100),
}
moments = st.floats(1.78e9, 1.80e9)
near = st.floats(1.79e9 - 200, 1.79e9 + 400)


@pytest.mark.parametrize("name", CURVES)
@given(at=moments | near, step=st.floats(0, 3 * DAY) | st.floats(0, 100))
def test_a_curve_never_decreases_and_never_grows_faster_than_time(name, at, step):
    counted = CURVES[name](at + step) - CURVES[name](at)
    assert -1e-5 <= counted <= step + 1e-5


@pytest.mark.parametrize("name", CURVES)
@given(at=moments | near)
def test_a_curve_is_continuous(name, at):
    assert abs(CURVES[name](math.nextafter(at, math.inf)) - CURVES[name](at)) < 1e-5


@given(block=st.integers(1_000_000, 1_100_000))
def test_a_ripple_cancels_out_within_its_block(block):
    steady = Steady(9, 0.9, 0.03, fast=20.0, slow=20.0)
    assert steady(20.0 * (block + 1)) - steady(20.0 * block) == pytest.approx(18.0, abs=1e-5)


@given(block=st.integers(20_000_000, 20_100_000))
def test_a_burst_does_all_the_work_of_its_block(block):
    mean_work = DayAndNight(0.4, 0.3, 12 * HOUR)
    bursts = Bursts(9, 90.0, mean_work, lowest_level=0.1)
    start, end = 90.0 * block, 90.0 * (block + 1)
    assert bursts(end) - bursts(start) == pytest.approx(mean_work(end) - mean_work(start), abs=1e-5)


def test_office_hours_are_on_working_days_only():
    office = OfficeHours(3, 0.0, 2 * HOUR, 3 * HOUR)
    monday = 1_789_948_800.0  # 2026-09-21T00:00Z
    days = [office(monday + (day + 1) * DAY) - office(monday + day * DAY) for day in range(7)]
    assert days == pytest.approx([5 * HOUR] * 5 + [0.0] * 2)
    assert office(monday + 9 * HOUR) == office(monday)
    assert office(monday + DAY) == office(monday + 18 * HOUR)


def test_work_is_reduced_only_while_the_load_runs():
    work = ReducedWork(Constant(0.5), 0.8, 100.0, 200.0)
    assert work(100.0) == 50.0
    assert work(200.0) - work(100.0) == pytest.approx(50.0 * 0.2)
    assert work(300.0) - work(200.0) == pytest.approx(50.0)


def test_work_can_be_reduced_forever():
    work = ReducedWork(Constant(0.5), 0.8, 100.0, math.inf)
    assert work(1100.0) - work(100.0) == pytest.approx(100.0)


def test_lifetimes_have_generations_and_start_times():
    lifetimes = Lifetimes(100.0, 10.0, 80.0)
    assert lifetimes.is_on(10.0)
    assert lifetimes.is_on(89.9)
    assert not lifetimes.is_on(90.0)
    assert (lifetimes.generation(9.9), lifetimes.generation(10.0), lifetimes.starts_at(3)) == (-1, 0, 310.0)
