"""Numbers as people read them (pure)."""

from datetime import datetime

from gpusteward.analyzer.notify.texts import say
from gpusteward.analyzer.setting_values import read_zone

_GIB = 1 << 30
_MICROS = 1_000_000


def say_duration(seconds: float, language: str) -> str:
    """`45 min`, `7 h`, `3 d`: as exact as anybody asks."""
    minutes = int(seconds // 60)
    if minutes < 120:
        return say("minutes", language, number=minutes)
    if minutes < 48 * 60:
        return say("hours", language, number=minutes // 60)
    return say("days", language, number=minutes // 1440)


def say_time(at: float, zone: str) -> str:
    return datetime.fromtimestamp(at, read_zone(zone)).strftime("%Y-%m-%d %H:%M ") + zone


def say_memory(used_bytes: float) -> str:
    return f"{used_bytes / _GIB:.1f} GiB"


def say_money(micros: int, currency: str) -> str:
    return f"{micros / _MICROS:,.2f} {currency}"


def say_gpu_hours(gpu_ms: int) -> str:
    return f"{gpu_ms / 3_600_000:,.1f}"
