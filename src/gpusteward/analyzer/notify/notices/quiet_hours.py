"""Quiet hours and the hour of the digest (pure; the time is an argument)."""

from datetime import date, datetime, timedelta

from gpusteward.analyzer.setting_values import read_weekly, read_zone, split_hours

LATEST = timedelta(hours=12)
"""A digest that could not be sent within this time is left out: last week's is no news on Thursday."""


def is_quiet(at: float, hours: str, zone: str) -> bool:
    """Whether people want to be left alone at a moment; a span may go over midnight."""
    span = split_hours(hours)
    if span is None:
        return False
    now = datetime.fromtimestamp(at, read_zone(zone)).time()
    begin, end = span
    return begin <= now < end if begin <= end else now >= begin or now < end


def digest_week(at: float, weekly: str, zone: str) -> date | None:
    """The day of the digest that is due at a moment; None when none is."""
    when = read_weekly(weekly)
    if when is None:
        return None
    day, hour = when
    now = datetime.fromtimestamp(at, read_zone(zone))
    last = now.date() - timedelta(days=(now.weekday() - day) % 7)
    due = datetime.combine(last, hour, now.tzinfo)
    if due > now:
        due -= timedelta(days=7)
    return due.date() if now - due < LATEST else None
