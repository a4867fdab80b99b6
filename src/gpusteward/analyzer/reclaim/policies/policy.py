"""The policy of one workload, with the origin of every field, and what its owners say: annotations `gpusteward.io/*` of
pods, owners and namespaces.

An annotation can only make a policy more careful. One that cannot be read is taken for the most careful value it could
mean, and this is said: whoever wrote `gpusteward.io/keep: "yesterdayish"` wanted it to be kept.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from math import inf

from gpusteward.analyzer.reclaim.policies.pool_rule import KeepRule
from gpusteward.analyzer.setting_values import read_zone
from gpusteward.core.kinds import WorkloadClass
from gpusteward.core.messages import Message
from gpusteward.core.settings import InvalidSettingError, parse_duration
from gpusteward.messages import policies as messages


class ReclaimAction(StrEnum):
    """What a policy does with an idle workload, the most careful first."""

    NOTIFY = "notify"  # tell the owner
    WEBHOOK = "webhook"  # call the control webhook; another system decides
    SCALE_TO_KEEP = "scale-to-keep"  # lower the replicas of a pool to those that are needed
    SUSPEND = "suspend"  # the kind's own way of stopping without losing the object
    EVICT = "evict"  # bare pods only: the pod is gone afterwards


ACTION_ORDER = tuple(ReclaimAction)
CHANGING_ACTIONS = frozenset({ReclaimAction.SCALE_TO_KEEP, ReclaimAction.SUSPEND, ReclaimAction.EVICT})
"""Actions that change the cluster."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How many workloads may be acted on at most."""

    per_cycle: int = 5
    per_namespace: int = 2  # in one cycle
    per_hour: int = 20


@dataclass(frozen=True, slots=True)
class Hours:
    """Hours of some days of the week; they may span midnight, and belong to the day on which they begin."""

    begin: time
    end: time
    zone: str = "UTC"
    days: frozenset[int] = frozenset(range(7))  # Monday is 0

    def include(self, at: float) -> bool:
        """Whether a time (unix seconds) lies within them."""
        now = datetime.fromtimestamp(at, read_zone(self.zone))
        if self.begin < self.end:
            return now.weekday() in self.days and self.begin <= now.time() < self.end
        if now.time() >= self.begin:
            return now.weekday() in self.days
        return now.time() < self.end and (now.weekday() - 1) % 7 in self.days

    def find_next(self, at: float, *, within: bool) -> float | None:
        """The first time from then on that lies within them, or does not; None: there is none."""
        today = datetime.fromtimestamp(at, read_zone(self.zone))
        edge = datetime.combine(today, self.begin if within else self.end, today.tzinfo)
        times = (at, *((edge + timedelta(days=number)).timestamp() for number in range(9)))
        return next((time for time in times if time >= at and self.include(time) is within), None)


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything that decides about one workload."""

    name: str  # of the policy, or of the defaults of the class
    workload_class: WorkloadClass
    action: ReclaimAction = ReclaimAction.NOTIFY
    window_seconds: float = 3600.0  # idle for this long
    grace_seconds: float = 1800.0  # and this long after the warning
    highest_chance: float | None = None  # of resumption within 30 minutes; None: any
    warnings: int = 1  # at least one
    warning_interval_seconds: float = 900.0
    limits: Limits = Limits()
    working_hours: Hours | None = None  # actions only within them; None: always
    quiet_hours: Hours | None = None  # neither warnings nor actions within them
    on_pressure: bool = False  # act only when a pending pod needs that kind of GPU
    stops_other_pods: bool = False  # pods without GPUs may be stopped as well
    no_requests_seconds: float | None = None  # without requests, they stand for the window; None: they do not
    is_pool: bool = False  # somebody said that its replicas are interchangeable
    keep: KeepRule | None = None  # of a pool; None: careful or keen, by the number of replicas
    keep_until: float | None = None  # gpusteward.io/keep: unix seconds, infinite for "true"; None: not kept
    longest_snooze_seconds: float = 7 * 86_400.0
    origins: Mapping[str, str] = field(default_factory=dict)  # field -> where it comes from
    is_default: bool = False  # no policy of the file matches: at most a notice
    problems: tuple[Message, ...] = ()  # annotations that could not be used, and what is done instead

    def is_kept(self, at: float) -> bool:
        """Whether its owner said that it must not be touched at this time."""
        return self.keep_until is not None and at < self.keep_until


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
