"""Quiet hours and the time of the weekly digest (pure; the time is an argument)."""

from datetime import date, datetime, timedelta

from gpusteward.analyzer.setting_values import read_weekly, read_zone, split_hours

MAX_DIGEST_DELAY = timedelta(hours=12)
"""A digest that could not be sent within this time is skipped: on Thursday the previous week is no longer news."""


def is_quiet(at: float, hours: str, zone: str) -> bool:
    """Whether a time lies within the quiet hours, which may span midnight."""
    span = split_hours(hours)
    if span is None:
        return False
    now = datetime.fromtimestamp(at, read_zone(zone)).time()
    begin, end = span
    return begin <= now < end if begin <= end else now >= begin or now < end


def find_due_digest(at: float, weekly: str, zone: str) -> date | None:
    """The day of the digest that is due at this time; None when none is due."""
    when = read_weekly(weekly)
    if when is None:
        return None
    day, hour = when
    now = datetime.fromtimestamp(at, read_zone(zone))
    last = now.date() - timedelta(days=(now.weekday() - day) % 7)
    due = datetime.combine(last, hour, now.tzinfo)
    if due > now:
        due -= timedelta(days=7)
    return due.date() if now - due < MAX_DIGEST_DELAY else None
