"""Numbers with units. An unknown value is a dash, never a zero."""

import time
from collections.abc import Sequence
from datetime import datetime

from gpusteward.core.gpu_counts import format_gpus

UNKNOWN = "-"
MICROS = 1_000_000
_UNIT_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def percent(ratio: float | None) -> str:
    """`0%` is exactly zero; a positive value that rounds to zero is `<1%`."""
    if ratio is None:
        return UNKNOWN
    return "<1%" if 0 < ratio < 0.005 else f"{ratio * 100:.0f}%"


def chance(share: float | None) -> str:
    """Of an estimate: without a border for small values."""
    return UNKNOWN if share is None else f"{share:.0%}"


def score(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}"


def gpus(count: float | None) -> str:
    """A number of GPUs; a share is a fraction."""
    return UNKNOWN if count is None else format_gpus(count)


def whole(count: float | None) -> str:
    """`1,204`; below ten with a decimal, so that a few are not none."""
    if count is None:
        return UNKNOWN
    return f"{count:.1f}" if 0 < count < 10 else f"{count:,.0f}"


def hours(count: float | None) -> str:
    """GPU-hours: `238.0`, `32,359`."""
    return UNKNOWN if count is None else f"{count:,.0f}" if count >= 1000 else f"{count:.1f}"


def money(micros: float | None, currency: str = "") -> str:
    """Millionths of a currency: `884.41 USD`, `12,345 USD`."""
    if micros is None:
        return UNKNOWN
    amount = micros / MICROS
    return f"{amount:,.0f} {currency}".rstrip() if amount >= 10_000 else f"{amount:,.2f} {currency}".rstrip()


def amount(value: float | None) -> str:
    """An amount of money without its currency."""
    return money(None if value is None else value * MICROS)


def first_name(names: Sequence[str], total: int | None = None) -> str:
    """`n1 +3`: the first, and the number of others; `total`: if there are more than these."""
    others = max(total or 0, len(names)) - 1
    return UNKNOWN if not names else names[0] if others == 0 else f"{names[0]} +{others}"


def all_names(names: Sequence[str]) -> str:
    return ", ".join(names) or UNKNOWN


def memory(count: float | None) -> str:
    """In binary units, as in nvidia-smi."""
    if count is None:
        return UNKNOWN
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}" if unit == "GiB" else f"{count / size:.0f} {unit}"
    return f"{count:.0f} B"


def watts(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f} W"


def celsius(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f} C"


def duration(seconds: float | None) -> str:
    """The two largest units: `3d 4h`, `12m`, `40s`; no seconds from five minutes on."""
    if seconds is None:
        return UNKNOWN
    left = int(max(0.0, seconds))
    if left >= 300:
        left = round(left / 60) * 60
    parts: list[str] = []
    for unit, size in _UNIT_SECONDS.items():
        amount, left = divmod(left, size)
        if amount or parts:
            parts.append(f"{amount}{unit}")
    kept = [part for part in parts[:2] if not part.startswith("0")]
    return " ".join(kept) or "0s"


def local_time(at: float | None) -> str:
    """Date and time to the minute, with the time zone: the server may be in another one."""
    try:
        return UNKNOWN if at is None else time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(at))
    except (ValueError, OverflowError, OSError):  # a server may say anything
        return UNKNOWN


def clock_time(at: float, *, now: float) -> str:
    """The time of day to the second; with the date if that is not today."""
    try:
        then, today = time.localtime(at), time.localtime(now)
    except (ValueError, OverflowError, OSError):
        return UNKNOWN
    return time.strftime("%H:%M:%S" if then[:3] == today[:3] else "%Y-%m-%d %H:%M:%S", then)


def iso_time(text: str) -> str:
    """A time of the API."""
    try:
        return local_time(datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError):
        return UNKNOWN


def evidence(name: str, value: float) -> str:
    """A value with the unit in its name: `core_ratio.peak`, `memory_used_bytes.mean`."""
    measure = name.partition(".")[0]
    if measure.endswith("_ratio") or measure == "coverage":
        return percent(value)
    if measure.endswith("_seconds"):
        return duration(value)
    if measure.endswith("_bytes"):
        return memory(value)
    if measure.endswith("_watts"):
        return watts(value)
    if measure.endswith("_hertz"):
        return f"{value / 1e6:.0f} MHz"
    return f"{value:g}"
