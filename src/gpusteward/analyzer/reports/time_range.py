"""`7d`, `2026-11-01`, `2026-11-01T08:00:00+08:00` -> a moment. Days without a zone are UTC, as the books count them."""

import re
from datetime import UTC, datetime

SPAN = "[1-9][0-9]{0,4}[hdw]"
_UNITS_MS = {"h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_WAYS = "write a length of time such as 24h, 7d or 4w, or a moment such as 2026-11-01 or 2026-11-01T08:00Z"


def read_moment(text: str, *, before_ms: int) -> int:
    """Milliseconds since 1970; a length of time is counted back from `before_ms`. Raises ValueError."""
    text = text.strip()
    if re.fullmatch(SPAN, text):
        return max(0, before_ms - int(text[:-1]) * _UNITS_MS[text[-1]])
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        raise ValueError(_WAYS) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0, int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000))


def read_range(since: str, until: str | None, *, now_ms: int) -> tuple[int, int]:
    """Both ends; a length of time as `since` is counted back from `until`. Raises ValueError."""
    until_ms = read_moment(until, before_ms=now_ms) if until else now_ms
    since_ms = read_moment(since, before_ms=until_ms)
    if since_ms >= until_ms:
        raise ValueError("since must be before until")
    return since_ms, until_ms
