"""What reclaim would do now: a decision for each workload, with every guard and its answer. Types only; pure.

`guards.py` answers, `decide.py` makes the decisions, `reclaimer.py` carries them out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from gpusteward.analyzer.reclaim.policies.policy import Policy, ReclaimAction
from gpusteward.core.containers import Workload
from gpusteward.core.messages import Message


class Mode(StrEnum):
    """How far reclaim goes; chosen by a person."""

    OFF = "off"
    OBSERVE = "observe"  # plans and server-side dry runs
    ENFORCE = "enforce"


class Outcome(StrEnum):
    """What a decision comes to in this cycle."""

    ACT = "act"  # in observe mode: would act
    WARN = "warn"  # a warning is due
    WAIT = "wait"  # only time is missing: the window, the grace period, working hours, a budget
    REFUSE = "refuse"  # it would be due, and something forbids it
    NOTHING = "nothing"  # not idle, or the policy only notifies


class ActionState(StrEnum):
    """Where an action is; each move is written before and after its step."""

    PLANNED = "planned"  # in observe mode the last one
    WARNED = "warned"
    ACTING = "acting"
    ACTED = "acted"
    VERIFIED = "verified"  # its pods are gone
    FAILED = "failed"
    RESTORING = "restoring"
    RESTORED = "restored"
    REFUSED = "refused"
    REVERTED = "reverted"  # somebody else changed the object back
    ENDED = "ended"  # the object is gone, or the idle spell of a warning has ended


Fields = Callable[[], Mapping[str, object]]
"""Computed when an answer is read: few of thousands ever are."""


class Answer(NamedTuple):
    """The answer of one guard."""

    guard: str
    passed: bool | None  # None: not asked, because another guard already says no and this one needs a request
    template: Message
    fields: Fields | None = None  # of the template

    @property
    def reason(self) -> Message:
        """In both languages."""
        return self.template.fill(**self.fields()) if self.fields else self.template


class Change(NamedTuple):
    """What exactly would change on one object."""

    kind: str
    name: str
    path: str  # in the API of Kubernetes
    method: str  # PATCH, or POST for an eviction or a command
    before: Mapping[str, Any]  # JSON pointer -> value; None: absent
    after: Mapping[str, Any]
    gpus: float | None = None  # that become free; None: all of the workload

    @property
    def text(self) -> str:
        """For people: `spec.replicas: 3 -> 0`."""
        return ", ".join(
            f"{_name(key)}: {_show(self.before.get(key))} -> {_show(self.after[key])}" for key in self.after
        )


class Decision(NamedTuple):
    """On one workload."""

    workload: Workload
    policy: Policy | None  # None: it was not looked up, since the workload is not idle
    action: ReclaimAction | None
    outcome: Outcome
    ask: Callable[[], tuple[Answer, ...]]  # all guards, about the facts that the outcome was chosen for
    gpus: float
    idle_since: float | None
    due_at: float | None = None  # when it would be acted on if nothing changes; None: never, or unknown
    changes: tuple[Change, ...] = ()  # empty while the object was not read
    action_id: str = ""  # of the journal, once warned

    @property
    def answers(self) -> tuple[Answer, ...]:
        """Of every guard. Made when they are read: few of thousands of decisions ever are."""
        return self.ask()

    @property
    def failed(self) -> tuple[Answer, ...]:
        """The guards that say no."""
        return tuple(answer for answer in self.answers if answer.passed is False)


@dataclass(frozen=True, slots=True)
class Plan:
    """All decisions of one cycle, the longest idle first."""

    at: float
    mode: Mode
    decisions: tuple[Decision, ...] = ()
    stopped_by: Message | None = None  # the panic switch, or another leader
    counts: Mapping[Outcome, int] = field(default_factory=dict)


def _name(pointer: str) -> str:
    parts = [part.replace("~1", "/").replace("~0", "~") for part in pointer.lstrip("/").split("/")]
    return ".".join(f"[{part}]" if "/" in part or "." in part else part for part in parts).replace(".[", "[")


def _show(value: object) -> str:
    return "(absent)" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
