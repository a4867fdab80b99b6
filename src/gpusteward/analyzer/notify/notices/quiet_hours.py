"""Quiet hours and the hour of the digest (pure; the time is an argument)."""

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

_HOURS = re.compile(r"([0-2]?\d:[0-5]\d)\s*-\s*([0-2]?\d:[0-5]\d)")
_WEEKLY = re.compile(r"([a-z]+)\s+([0-2]?\d:[0-5]\d)", re.IGNORECASE)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

LATEST = timedelta(hours=12)
"""A digest that could not be sent within this time is left out: last week's is no news on Thursday."""


def split_hours(text: str) -> tuple[time, time] | None:
    """`22:00-08:00`; None for an empty text. Raises ValueError."""
    if not text.strip():
        return None
    match = _HOURS.fullmatch(text.strip())
    if match is None:
        raise ValueError("write two times, such as 22:00-08:00")
    return _read_time(match[1]), _read_time(match[2])


def read_weekly(text: str) -> tuple[int, time] | None:
    """`monday 09:00` as day of the week and time; None for an empty text. Raises ValueError."""
    if not text.strip():
        return None
    match = _WEEKLY.fullmatch(text.strip())
    if match is None or match[1].lower() not in _DAYS:
        raise ValueError("write a day and a time, such as monday 09:00")
    return _DAYS.index(match[1].lower()), _read_time(match[2])


def read_zone(name: str) -> tzinfo:
    """Raises ValueError for a zone this machine does not know."""
    if name.strip().upper() == "UTC":
        return UTC  # also where no tzdata is installed
    try:
        return ZoneInfo(name.strip())
    except (KeyError, ValueError, OSError) as error:
        raise ValueError("unknown time zone; write one such as Asia/Shanghai (the package tzdata has them)") from error


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


def _read_time(text: str) -> time:
    hour, minute = (int(part) for part in text.split(":"))
    return time(hour, minute)
