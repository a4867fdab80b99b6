"""What reclaim would do now: a decision for each workload, with every guard and its answer. And what clients (API, CLI,
web UI) can do with it. Types only.

`guards.py` answers, `decide.py` makes the decisions, `reclaimer.py` carries them out.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from gpusteward.analyzer.reclaim.execution.changes import Change
from gpusteward.analyzer.reclaim.execution.journal import Action, ActionState
from gpusteward.analyzer.reclaim.permission import Mode, SwitchState
from gpusteward.analyzer.reclaim.policies.policy import Policy, ReclaimAction
from gpusteward.core.messages import Message
from gpusteward.core.namespaces import VisibleNamespaces
from gpusteward.core.node.containers import Workload, WorkloadKey


class Outcome(StrEnum):
    """What a decision comes to in this cycle."""

    ACT = "act"  # in observe mode: would act
    WARN = "warn"  # a warning is due
    WAIT = "wait"  # only time is missing: the window, the grace period, working hours, a budget
    REFUSE = "refuse"  # it would be due, and something forbids it
    NOTHING = "nothing"  # not idle, or the policy only notifies


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


class OtherPod(NamedTuple):
    """A pod without GPUs that would stop too, with means over some minutes of what it uses of its host; None is
    unknown."""

    name: str
    uid: str
    cpu_cores: float | None = None
    disk_bytes_per_second: float | None = None
    network_bytes_per_second: float | None = None


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
    other_pods: tuple[OtherPod, ...] = ()

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
    host_refusals: Mapping[str, int] = field(default_factory=dict)
    """Workloads that would have been warned about or acted on but for what they do on their hosts: by its signal."""

    def limit_to(self, visible: VisibleNamespaces) -> "Plan":
        """As if there were only these namespaces."""
        decisions = tuple(
            each for each in self.decisions if visible.includes(each.workload.cluster, each.workload.namespace)
        )
        return replace(self, decisions=decisions, counts=Counter(each.outcome for each in decisions), host_refusals={})


MOST_ACTIONS = 10_000
"""Read for somebody who sees some namespaces: those of the others are left out afterwards."""


class Suspended(NamedTuple):
    """What is changed at the moment, and not restored yet."""

    actions: int
    gpus: float


class Asker(StrEnum):
    """A person who asks for an action: guards on time do not hold for an operator. Whoever has the link of a warning
    need not wait for the window and the warning; everything else holds, also what the policy says."""

    OPERATOR = "operator"
    LINK = "link"


class ReclaimControl(Protocol):
    """What API and CLI use; implemented by `reclaimer.Reclaimer`. Every method may be called from any thread."""

    @property
    def mode(self) -> Mode: ...

    def read_plan(self, *, visible: VisibleNamespaces | None) -> Plan | None:
        """Of the last cycle, for somebody who sees these namespaces (None: all of them). None before the first cycle,
        and in mode off."""

    def read_actions(
        self,
        *,
        visible: VisibleNamespaces | None,
        workload: WorkloadKey | None = None,
        states: Sequence[ActionState] = (),
        limit: int = 100,
    ) -> list[Action]:
        """The newest first, for somebody who sees these namespaces. Raises SourceError if the ledger cannot be read."""

    def read_action(self, action_id: str, *, visible: VisibleNamespaces | None) -> Action | None:
        """None where there is none in these namespaces. Raises SourceError."""

    def preview(self, workload: WorkloadKey, *, asker: Asker = Asker.OPERATOR) -> Decision:
        """What suspending it now would change, with every guard. Raises ReclaimError, SourceError."""

    def suspend(self, workload: WorkloadKey, *, by: str, asker: Asker = Asker.OPERATOR) -> Action:
        """Act now because a person says so: guards that do not hold for this asker are skipped. Raises ReclaimError,
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
