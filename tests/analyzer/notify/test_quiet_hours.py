"""Quiet hours and the hour of the digest."""

from datetime import date, datetime
from zoneinfo import ZoneInfo

import pytest

from gpusteward.analyzer.notify.notices.quiet_hours import digest_week, is_quiet
from gpusteward.analyzer.setting_values import read_weekly, read_zone, split_hours

SHANGHAI = "Asia/Shanghai"


def at(text: str, zone: str = SHANGHAI) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("moment", "is_it"),
    [("21:59", False), ("22:00", True), ("23:59", True), ("00:00", True), ("07:59", True), ("08:00", False)],
)
def test_quiet_hours_go_over_midnight_in_their_own_zone(moment: str, is_it: bool):
    assert is_quiet(at(f"2026-09-21 {moment}"), "22:00-08:00", SHANGHAI) is is_it


def test_quiet_hours_within_a_day_and_none_at_all():
    assert is_quiet(at("2026-09-21 12:30"), "12:00-13:00", SHANGHAI)
    assert not is_quiet(at("2026-09-21 13:00"), "12:00-13:00", SHANGHAI)
    assert not is_quiet(at("2026-09-21 03:00"), "", SHANGHAI)


def test_the_digest_is_due_from_its_hour_on_for_half_a_day():
    monday = date(2026, 9, 21)
    assert digest_week(at("2026-09-21 08:59"), "monday 09:00", SHANGHAI) is None
    assert digest_week(at("2026-09-21 09:00"), "monday 09:00", SHANGHAI) == monday
    assert digest_week(at("2026-09-21 20:59"), "Monday 9:00", SHANGHAI) == monday
    assert digest_week(at("2026-09-21 21:00"), "monday 09:00", SHANGHAI) is None
    assert digest_week(at("2026-09-21 10:00"), "", SHANGHAI) is None


def test_a_digest_late_on_sunday_is_still_due_after_midnight():
    assert digest_week(at("2026-09-21 01:00"), "sunday 23:00", SHANGHAI) == date(2026, 9, 20)


@pytest.mark.parametrize(
    ("read", "text"),
    [(split_hours, "22-8"), (split_hours, "25:00-08:00"), (read_weekly, "someday 09:00"), (read_zone, "Mars/Base")],
)
def test_what_cannot_be_read_says_how_to_write_it(read, text: str):
    with pytest.raises(ValueError, match=r"write|hour|unknown"):
        read(text)
