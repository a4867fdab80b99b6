"""Formats numbers and times for people. Unknown is a dash, never 0."""

from datetime import UTC, datetime

UNKNOWN = "–"
_HOUR_MS = 3_600_000
_MICROS = 1_000_000
_GIB = 1 << 30


def hours(gpu_ms: int | None) -> str:
    """GPU-hours: 0.3, 12.5, 1,234."""
    return UNKNOWN if gpu_ms is None else _amount(gpu_ms / _HOUR_MS, small_digits=1)


def money(micros: int | None, currency: str = "") -> str:
    """An amount, with the currency in front if it is given."""
    if micros is None:
        return UNKNOWN
    amount = _amount(micros / _MICROS, small_digits=2)
    return f"{currency} {amount}" if currency else amount


def _amount(value: float, *, small_digits: int) -> str:
    if value == 0:
        return "0"
    digits = small_digits if abs(value) < 1000 else 0
    shown = f"{value:,.{digits}f}"
    # A small amount must not be shown as 0.
    return f"<{10**-digits:.{digits}f}" if value > 0 and not shown.strip("0.,") else shown


def percent(ratio: float | None) -> str:
    if ratio is None:
        return UNKNOWN
    return "<1%" if 0 < ratio < 0.005 else f"{ratio * 100:.0f}%"


def change(ratio: float | None) -> str:
    """`+12%`, `-3%`, `±0%`."""
    if ratio is None:
        return UNKNOWN
    rounded = round(ratio * 100)
    if abs(rounded) > 999:
        return ">+999%"
    return f"{rounded:+d}%".replace("-", "−") if rounded else "±0%"


def score(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}"


def gibibytes(count: int | None) -> str:
    return UNKNOWN if count is None else f"{count / _GIB:.1f} GiB"


def kilowatt_hours(energy_mj: int | None) -> str:
    return UNKNOWN if energy_mj is None else _amount(energy_mj / 3.6e9, small_digits=1)


def moment(at_ms: int | None) -> str:
    """UTC, to the minute."""
    return UNKNOWN if at_ms is None else _utc(at_ms).strftime("%Y-%m-%d %H:%M")


def clock(at_ms: int, *, now_ms: int) -> str:
    """UTC, to the second; with the date if that is not today."""
    text = _utc(at_ms).strftime("%Y-%m-%d %H:%M:%S")
    return text.partition(" ")[2] if date(at_ms) == date(now_ms) else text


def iso(at_ms: int) -> str:
    """For programs: `2026-11-01T08:00:00Z`."""
    return _utc(at_ms).strftime("%Y-%m-%dT%H:%M:%SZ")


def date(at_ms: int) -> str:
    """`2026-11-01`."""
    return _utc(at_ms).strftime("%Y-%m-%d")


def day(at_ms: int) -> str:
    return _utc(at_ms).strftime("%m-%d")


def hour(at_ms: int) -> str:
    return _utc(at_ms).strftime("%H:%M")


def _utc(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC)
