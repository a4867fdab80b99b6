"""An action as the journal keeps it, and what clients (API, CLI, UI) can do with reclaim."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from gpusteward.analyzer.reclaim.plan import ActionState, Decision, Mode, Plan
from gpusteward.analyzer.reclaim.policies.policy import ReclaimAction
from gpusteward.core.containers import WorkloadKey
from gpusteward.core.errors import GpustewardError
from gpusteward.core.messages import Message

OPEN_STATES = frozenset({ActionState.ACTING, ActionState.ACTED, ActionState.VERIFIED, ActionState.RESTORING})
"""The object is changed, or may be."""
RESTORABLE_STATES = frozenset({ActionState.ACTED, ActionState.VERIFIED})


class ReclaimError(GpustewardError):
    """What a person asked for is refused; the text says why."""


class TargetObject(NamedTuple):
    """The object that an action changes; not always the workload: a Job of a CronJob, a Workload of Kueue."""

    kind: str
    name: str
    uid: str
    path: str  # in the API of Kubernetes


class Warned(NamedTuple):
    """A warning about an action. Times are unix seconds."""

    keys: tuple[str, ...]  # of the outbox, one per address
    sent_at: float
    delivered_at: float | None = None  # at the first address; None: not yet


class JournalStep(NamedTuple):
    """A move from one state to the next."""

    state: ActionState
    at: float
    by: str
    note: Message = Message("", "")


@dataclass(frozen=True, slots=True)
class Action:
    """One row of the table `actions`: what is planned for, or was done to, one object."""

    id: str
    workload: WorkloadKey
    uid: str  # of the workload
    action: ReclaimAction
    mode: Mode
    state: ActionState
    policy: str
    gpus: float
    idle_since: float
    created_at: float
    updated_at: float
    target: TargetObject | None = None  # None: not chosen yet
    original: Mapping[str, Any] = field(default_factory=dict)  # JSON pointer -> value before; None: absent
    patch: Mapping[str, Any] = field(default_factory=dict)  # JSON pointer -> our value
    evidence: Mapping[str, Any] = field(default_factory=dict)  # proof, signature, guards, reasons, allocations
    warnings: tuple[Warned, ...] = ()
    by: str = ""  # gpusteward, or the person who asked
    acted_at: float | None = None
    ended_at: float | None = None  # restored, reverted, failed
    error: str = ""  # in English; the note of its step has both languages
    steps: tuple[JournalStep, ...] = ()
    waiting_gpus: float | None = None  # restored, and its pods wait for so many GPUs; None: they run

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES

    @property
    def pod_uids(self) -> frozenset[str]:
        """Of the pods that its warnings are about. What was said of other pods, of the same name or not, does not
        count."""
        return frozenset(map(str, self.evidence.get("pods", ())))

    @property
    def begun_at(self) -> float:
        """When its change was begun last."""
        found = (step.at for step in reversed(self.steps) if step.state is ActionState.ACTING)
        return next(found, self.updated_at)

    @property
    def failure(self) -> Message:
        """`error` in both languages."""
        found = (step.note for step in reversed(self.steps) if self.error and step.note.en.startswith(self.error))
        return next(found, Message(self.error, self.error))


class SwitchState(NamedTuple):
    """The panic switch."""

    is_off: bool  # no action may happen
    by: str = ""
    at: float | None = None
    reason: str = ""


class Suspended(NamedTuple):
    """What is changed at the moment, and not restored yet."""

    actions: int
    gpus: float


class ReclaimControl(Protocol):
    """What API and CLI use; implemented by `reclaimer.Reclaimer`. Every method may be called from any thread."""

    @property
    def mode(self) -> Mode: ...

    @property
    def last_plan(self) -> Plan | None:
        """Of the last cycle; None before the first, and in mode off."""

    def read_actions(
        self, *, workload: WorkloadKey | None = None, states: Sequence[ActionState] = (), limit: int = 100
    ) -> list[Action]:
        """The newest first. Raises SourceError if the ledger cannot be read."""

    def read_action(self, action_id: str) -> Action | None:
        """Raises SourceError."""

    def preview(self, workload: WorkloadKey) -> Decision:
        """What suspending it now would change, with every guard. Raises ReclaimError, SourceError."""

    def suspend(self, workload: WorkloadKey, *, by: str) -> Action:
        """Act now because a person says so: guards on time are skipped, all others hold. Raises ReclaimError,
        SourceError."""

    def restore(self, action_id: str, *, by: str) -> Action:
        """Put the original back, in every mode. Raises SourceError, ReclaimError: where it cannot be done from here,
        with the command that does it by hand."""

    def switch_off(self, *, by: str, reason: str = "") -> SwitchState:
        """Stop all actions, also those of other replicas. Raises SourceError."""

    def switch_on(self, *, by: str) -> SwitchState:
        """Raises SourceError."""

    def read_switch(self) -> SwitchState:
        """Raises SourceError."""

    @property
    def suspended(self) -> Suspended | None:
        """What is changed now, of the last cycle; None: not known, since another analyzer holds the Lease, or no cycle
        has run yet."""

    def describe(self) -> Mapping[str, Any]:
        """For /api/v1/health: mode, leader, switch, counts of outcomes, last error."""

    @property
    def counts(self) -> Mapping[tuple[str, str], int]:
        """For metrics: (kind of object, outcome) -> number since the start. Outcomes: warned, acted, verified, failed,
        refused, restored, reverted, dry_run, conflict, no_effect."""
