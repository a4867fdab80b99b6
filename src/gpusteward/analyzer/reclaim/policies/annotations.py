"""What owners say about their workloads: the annotations `gpusteward.io/*` of pods, owners and namespaces.

An annotation can only make a policy more careful. One that cannot be read is taken for the most careful value it could
mean, and this is said: whoever wrote `gpusteward.io/keep: "yesterdayish"` wanted it to be kept.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from math import inf

from gpusteward.analyzer.reclaim.policies.effective import ReclaimAction
from gpusteward.core.messages import Message
from gpusteward.core.settings import InvalidSettingError, parse_duration
from gpusteward.messages import policies as messages

PREFIX = "gpusteward.io/"
KEEP = f"{PREFIX}keep"
WINDOW = f"{PREFIX}idle-window"
GRACE = f"{PREFIX}grace"
ACTION = f"{PREFIX}action"
WARNINGS = f"{PREFIX}warnings"
INTERCHANGEABLE = f"{PREFIX}interchangeable"
ANNOTATIONS: Mapping[str, Message] = {
    KEEP: messages.ABOUT_KEEP,
    WINDOW: messages.ABOUT_WINDOW,
    GRACE: messages.ABOUT_GRACE,
    ACTION: messages.ABOUT_ACTION,
    WARNINGS: messages.ABOUT_WARNINGS,
    INTERCHANGEABLE: messages.ABOUT_INTERCHANGEABLE,
}
"""All annotations, with a sentence each."""
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0", "")
_MOST_WARNINGS = 10
LONGEST_ANNOTATION = 256
"""Characters. Whoever may create a pod writes them, and every cycle reads them."""
_SHOWN_CHARACTERS = 40
LONGEST_SECONDS = 366 * 86_400.0
"""Who wants a longer window or grace period wants to keep it; and later times could not be shown."""


@dataclass
class OwnerAnnotations:
    """The values of the annotations of one object. None: not set."""

    keep_until: float | None = None  # infinite for "true", 0 for "false"
    window_seconds: float | None = None
    grace_seconds: float | None = None
    action: ReclaimAction | None = None
    warnings: int | None = None
    is_interchangeable: bool | None = None
    problems: list[Message] = field(default_factory=list)


def read_annotations(annotations: Mapping[str, str]) -> OwnerAnnotations:
    """Never raises: a value that cannot be read is a problem, and the most careful outcome."""
    annotated = OwnerAnnotations()
    for name, read in _READERS.items():
        if name in annotations:
            read(_shorten(annotations[name].strip()), annotated)
    return annotated


def _shorten(value: str) -> str:
    """Of a value that is too long the beginning, with a mark that no reader accepts."""
    return value if len(value) <= LONGEST_ANNOTATION else f"{value[:_SHOWN_CHARACTERS]}…"


def read_keep(value: str) -> float:
    """Until when (unix seconds): `true` is for ever, `false` 0, a date until its end (UTC). Raises ValueError."""
    if value.lower() in _TRUE:
        return inf
    if value.lower() in _FALSE:
        return 0.0
    if len(value) == len("2027-01-31"):
        day = date.fromisoformat(value) + timedelta(days=1)
        return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
    moment = datetime.fromisoformat(value)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _read_keep(value: str, annotated: OwnerAnnotations) -> None:
    try:
        annotated.keep_until = read_keep(value)
    except (ValueError, OverflowError):
        annotated.keep_until = inf
        annotated.problems.append(messages.BAD_KEEP.fill(name=KEEP, value=repr(value)))


def _read_seconds(name: str, attribute: str) -> Callable[[str, OwnerAnnotations], None]:
    def read(value: str, annotated: OwnerAnnotations) -> None:
        try:
            seconds = parse_duration(value)
            setattr(annotated, attribute, min(seconds, LONGEST_SECONDS))
            if seconds > LONGEST_SECONDS:
                annotated.keep_until = inf
        except InvalidSettingError as error:
            annotated.keep_until = inf
            annotated.problems.append(messages.BAD_DURATION.fill(name=name, value=repr(value), problem=error.problem))

    return read


def _read_action(value: str, annotated: OwnerAnnotations) -> None:
    try:
        annotated.action = ReclaimAction(value.lower())
    except ValueError:
        annotated.action = ReclaimAction.NOTIFY
        words = ", ".join(ReclaimAction)
        annotated.problems.append(messages.BAD_ACTION.fill(name=ACTION, value=repr(value), words=words))


def _read_warnings(value: str, annotated: OwnerAnnotations) -> None:
    if value.isdecimal() and len(value) < len("100") and 1 <= int(value) <= _MOST_WARNINGS:
        annotated.warnings = int(value)
        return
    annotated.warnings = _MOST_WARNINGS
    annotated.problems.append(messages.BAD_WARNINGS.fill(name=WARNINGS, value=repr(value), most=_MOST_WARNINGS))


def _read_interchangeable(value: str, annotated: OwnerAnnotations) -> None:
    if value.lower() in (*_TRUE, *_FALSE):
        annotated.is_interchangeable = value.lower() in _TRUE
        return
    annotated.is_interchangeable = False
    annotated.problems.append(messages.BAD_INTERCHANGEABLE.fill(name=INTERCHANGEABLE, value=repr(value)))


_READERS: Mapping[str, Callable[[str, OwnerAnnotations], None]] = {
    KEEP: _read_keep,
    WINDOW: _read_seconds(WINDOW, "window_seconds"),
    GRACE: _read_seconds(GRACE, "grace_seconds"),
    ACTION: _read_action,
    WARNINGS: _read_warnings,
    INTERCHANGEABLE: _read_interchangeable,
}
