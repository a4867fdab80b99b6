"""How names, errors and amounts appear in a message (pure).

Names are chosen by tenants: a pod may be called `@all`, `<at user_id="all">`, `[win](http://evil)`, or contain a line
break that forges a second message. Only letters, digits and a few signs without meaning in any chat client are kept; a
dot before a letter becomes `[.]`, so that no client turns the name into a link.
"""

import re
from datetime import datetime

from gpusteward.analyzer.setting_values import read_zone
from gpusteward.core.messages import Language
from gpusteward.messages import notices as messages

MAX_NAME_LENGTH = 120
_NAME_SIGNS = frozenset(" -._+")
_MARKUP = frozenset("@<>[]()*_`~#|\\!")
_DOMAIN_DOT = re.compile(r"\.(?=[^\W\d_])")

_GIB = 1 << 30
_MICROS = 1_000_000
_HOUR_MS = 3_600_000


def safe_name(text: str, *, max_length: int = MAX_NAME_LENGTH) -> str:
    """A name inside a message."""
    return _DOMAIN_DOT.sub("[.]", safe_label(text, max_length=max_length))


def safe_label(text: str, *, max_length: int = MAX_NAME_LENGTH) -> str:
    """A name where no client makes links: a label value."""
    kept = "".join(letter if letter.isalnum() or letter in _NAME_SIGNS else "?" for letter in text[: max_length + 1])
    return _shorten(kept, max_length)


def safe_line(text: str, *, max_length: int = 300) -> str:
    """A foreign sentence such as an error: signs that make mentions, links or new lines are removed."""
    kept = "".join(
        letter if letter.isprintable() and letter not in _MARKUP else " " for letter in text[: max_length + 1]
    )
    return _shorten(_DOMAIN_DOT.sub("[.]", " ".join(kept.replace("://", " ").split())), max_length)


def _shorten(text: str, max_length: int) -> str:
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def format_duration(seconds: float, language: Language) -> str:
    """`45 min`, `7 h`, `3 d`."""
    minutes = int(seconds // 60)
    if minutes < 120:
        return messages.MINUTES.text(language, number=minutes)
    if minutes < 48 * 60:
        return messages.HOURS.text(language, number=minutes // 60)
    return messages.DAYS.text(language, number=minutes // 1440)


def format_time(at: float, zone: str) -> str:
    return datetime.fromtimestamp(at, read_zone(zone)).strftime("%Y-%m-%d %H:%M ") + zone


def format_percent(ratio: float) -> str:
    return f"{ratio * 100:.0f} %"


def format_memory(used_bytes: float) -> str:
    return f"{used_bytes / _GIB:.1f} GiB"


def format_money(micros: int, currency: str) -> str:
    return f"{micros / _MICROS:,.2f} {currency}"


def format_gpu_hours(gpu_ms: int) -> str:
    return f"{gpu_ms / _HOUR_MS:,.1f}"
