"""Quiet hours and the time of the digest."""

from datetime import date, datetime
from zoneinfo import ZoneInfo

import pytest

from gpusteward.analyzer.notify.notices.digest import find_due_digest
from gpusteward.analyzer.notify.notices.routing import is_quiet
from gpusteward.analyzer.setting_values import read_weekly, read_zone, split_hours

SHANGHAI = "Asia/Shanghai"


def at(text: str, zone: str = SHANGHAI) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("clock_time", "expected"),
    [("21:59", False), ("22:00", True), ("23:59", True), ("00:00", True), ("07:59", True), ("08:00", False)],
)
def test_quiet_hours_may_span_midnight_in_their_time_zone(clock_time: str, expected: bool):
    assert is_quiet(at(f"2026-09-21 {clock_time}"), "22:00-08:00", SHANGHAI) is expected


def test_quiet_hours_within_a_day_or_not_set():
    assert is_quiet(at("2026-09-21 12:30"), "12:00-13:00", SHANGHAI)
    assert not is_quiet(at("2026-09-21 13:00"), "12:00-13:00", SHANGHAI)
    assert not is_quiet(at("2026-09-21 03:00"), "", SHANGHAI)


def test_a_digest_is_due_for_twelve_hours():
    monday = date(2026, 9, 21)
    assert find_due_digest(at("2026-09-21 08:59"), "monday 09:00", SHANGHAI) is None
    assert find_due_digest(at("2026-09-21 09:00"), "monday 09:00", SHANGHAI) == monday
    assert find_due_digest(at("2026-09-21 20:59"), "Monday 9:00", SHANGHAI) == monday
    assert find_due_digest(at("2026-09-21 21:00"), "monday 09:00", SHANGHAI) is None
    assert find_due_digest(at("2026-09-21 10:00"), "", SHANGHAI) is None


def test_a_digest_late_on_sunday_is_still_due_after_midnight():
    assert find_due_digest(at("2026-09-21 01:00"), "sunday 23:00", SHANGHAI) == date(2026, 9, 20)


@pytest.mark.parametrize(
    ("read", "text"),
    [(split_hours, "22-8"), (split_hours, "25:00-08:00"), (read_weekly, "someday 09:00"), (read_zone, "Mars/Base")],
)
def test_an_error_shows_the_expected_format(read, text: str):
    with pytest.raises(ValueError, match=r"write|hour|unknown"):
        read(text)
