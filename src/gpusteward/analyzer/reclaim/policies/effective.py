"""The policy that applies to one workload, with the origin of every field."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from enum import StrEnum
from math import ceil

from gpusteward.analyzer.setting_values import read_zone
from gpusteward.core.messages import Message

_ROUNDING = 1e-9


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


class WorkloadClass(StrEnum):
    """How people use a workload; it decides the default windows."""

    INTERACTIVE = "interactive"  # notebooks, workspaces, bare pods
    BATCH = "batch"  # jobs that run through
    SERVING = "serving"  # replicas that wait for requests


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
class KeepRule:
    """The pool rule: how many replicas stay where replicas are interchangeable, which only a person can know: traffic
    can go to any of them. What is above is surplus, and is given back by lowering the replicas, longest idle pods
    first. It gains with size: few replicas have no surplus."""

    window_seconds: float = 7200.0  # W
    headroom: float = 1.25  # g

    def compute_keep(self, most_active: int) -> int:
        """How many replicas stay, at least one. `most_active`: at once, over the window."""
        return ceil(self.headroom * most_active - _ROUNDING) + 1


@dataclass(frozen=True, slots=True)
class EffectivePolicy:
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
    keep: KeepRule | None = None  # None: not a pool of interchangeable replicas
    keep_until: float | None = None  # gpusteward.io/keep: unix seconds, infinite for "true"; None: not kept
    longest_snooze_seconds: float = 7 * 86_400.0
    origins: Mapping[str, str] = field(default_factory=dict)  # field -> where it comes from
    is_default: bool = False  # no policy of the file matches: at most a notice
    problems: tuple[Message, ...] = ()  # annotations that could not be used, and what is done instead

    def is_kept(self, at: float) -> bool:
        """Whether its owner said that it must not be touched at this time."""
        return self.keep_until is not None and at < self.keep_until
