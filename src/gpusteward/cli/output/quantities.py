"""Numbers as people write them. What is not known is a dash, never a zero."""

import re
import time

from gpusteward.core.errors import ConfigurationError

UNKNOWN = "-"
_SPANS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def percent(ratio: float | None) -> str:
    """`0%` was measured as nothing at all; what was measured and rounds to it is `<1%`."""
    if ratio is None:
        return UNKNOWN
    return "<1%" if 0 < ratio < 0.005 else f"{ratio * 100:.0f}%"


def score(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}"


def memory(count: float | None) -> str:
    """Binary units, as nvidia-smi counts."""
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


def span(seconds: float | None) -> str:
    """The two largest units: `3d 4h`, `12m`, `40s`; from five minutes on nobody counts seconds."""
    if seconds is None:
        return UNKNOWN
    left = int(max(0.0, seconds))
    if left >= 300:
        left = round(left / 60) * 60
    parts: list[str] = []
    for unit in ("d", "h", "m", "s"):
        amount, left = divmod(left, _SPANS[unit])
        if amount or parts:
            parts.append(f"{amount}{unit}")
    kept = [part for part in parts[:2] if not part.startswith("0")]
    return " ".join(kept) or "0s"


def since(moment: float | None, now: float) -> str:
    """How long ago."""
    return UNKNOWN if moment is None else span(now - moment)


def clock(moment: float | None) -> str:
    """Date and time here, to the minute, with the name of the zone: servers and texts may speak of another."""
    return UNKNOWN if moment is None else time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(moment))


def measured(name: str, value: float) -> str:
    """A value of the evidence by the unit in its name: `core_ratio.peak`, `memory_used_bytes.mean`."""
    measure = name.partition(".")[0]
    if measure.endswith("_ratio") or measure == "coverage":
        return percent(value)
    if measure.endswith("_seconds"):
        return span(value)
    if measure.endswith("_bytes"):
        return memory(value)
    if measure.endswith("_watts"):
        return watts(value)
    if measure.endswith("_hertz"):
        return f"{value / 1e6:.0f} MHz"
    return f"{value:g}"


def read_span(text: str) -> float:
    """Seconds of `90s`, `30m`, `2h`, `7d`, `1w`. Raises ConfigurationError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip())
    if not found:
        raise ConfigurationError(f"{text!r} is not a length of time: write 90s, 30m, 2h, 7d or 1w")
    return float(found[1]) * _SPANS[found[2]]
