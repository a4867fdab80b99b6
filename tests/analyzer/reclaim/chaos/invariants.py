"""What must hold, checked while it runs and at the end."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpusteward.analyzer.reclaim.execution.journal import Action, ActionState
from tests.analyzer.reclaim.chaos.fleet import Subject, describe_original
from tests.kubernetes.cluster import Json

ACTION = "gpusteward.io/action"
INVARIANTS = (
    "active workloads suspended",
    "workloads suspended without complete data",
    "workloads suspended while switched off",
    "workloads suspended twice",
    "workloads suspended after two reverts",
    "workloads suspended without a delivered warning and its grace period",
    "workloads suspended for the idle time or by the warning of earlier pods",
    "workloads suspended without a policy for them",
    "workloads not restored to the exact original",
    "journal events lost",
    "changes of the cluster without a journal entry",
    "actions left open or in a wrong state",
)
ENDED = (ActionState.RESTORED, ActionState.REVERTED, ActionState.FAILED, ActionState.ENDED, ActionState.REFUSED)


@dataclass
class Suspension:
    """One that was seen in the cluster. Times are simulated."""

    subject: Subject
    action: str
    at: float
    pods_started_at: float  # the newest of its pods
    released_at: float | None = None


@dataclass
class Moment:
    """What is true in the cycle that runs."""

    now: float
    active: set[str] = field(default_factory=set)  # uids of pods that work, also since the verdict
    doubtful: set[str] = field(default_factory=set)  # uids of pods whose usage is not known
    pods: Mapping[str, Sequence[str]] = field(default_factory=dict)  # name of the workload -> uids
    started: Mapping[str, float] = field(default_factory=dict)  # name of the workload -> when its newest pod started
    is_switched_off: bool = False
    has_policies: bool = True


class Observer:
    """Sees every version of every object that reclaim may change."""

    def __init__(self, subjects: Sequence[Subject], *, window_seconds: float) -> None:
        self._by_target = {each.target_uid: each for each in subjects}
        self._window = window_seconds
        self.moment = Moment(0.0)
        self.suspensions: list[Suspension] = []
        self._open: dict[str, Suspension] = {}  # by uid of the object
        self.restarted: set[str] = set()  # uids of pods that their owners have deleted
        self.violations: Counter[str] = Counter()
        self.details: list[str] = []
        self.versions = 0

    def add(self, subject: Subject) -> None:
        self._by_target[subject.target_uid] = subject

    def blame(self, invariant: str, text: str) -> None:
        assert invariant in INVARIANTS, invariant
        self.violations[invariant] += 1
        self.details.append(f"{invariant}: {text}")

    def see(self, change: str, item: Json) -> None:
        if item["kind"] == "Command":
            self._see_command(change, item)
            return
        subject = self._by_target.get(item["metadata"]["uid"])
        if subject is None:
            return
        self.versions += 1
        uid, action = item["metadata"]["uid"], (item["metadata"].get("annotations") or {}).get(ACTION, "")
        before = self._open.get(uid)
        if before is not None and before.action != action:
            before.released_at = self.moment.now
            del self._open[uid]
            if action:
                self.blame(INVARIANTS[3], f"{subject.name}: {before.action} and {action} at once")
            elif describe_original(item) != describe_original(subject.objects[uid]):
                self.blame(INVARIANTS[8], f"{subject.name}: {describe_original(item)}")
        # Where a command stops the object, the annotation stops nothing: a process may end, or be held back, after it.
        if action and not subject.is_stopped_by_command and (before is None or before.action != action):
            self._open[uid] = self.suspend(subject, action)

    def _see_command(self, change: str, command: Json) -> None:
        """One that stops an object is its suspension, whatever the object shows."""
        subject = self._by_target.get(command["target"]["uid"])
        if subject is not None and change == "ADDED" and command["action"] == "AbortJob":
            action = command["metadata"]["name"].removeprefix("gpusteward-").removesuffix("-stop")
            self._open[subject.target_uid] = self.suspend(subject, action)

    def suspend(self, subject: Subject, action: str) -> Suspension:
        """A workload was suspended just now."""
        moment, pods = self.moment, set(self.moment.pods.get(subject.name, ()))
        suspension = Suspension(subject, action, moment.now, moment.started.get(subject.name, 0.0))
        if any(each.action == action for each in self.suspensions):
            self.blame(INVARIANTS[3], f"{subject.name}: {action} again")
        self.suspensions.append(suspension)
        is_young = moment.now - subject.schedule.last_work(moment.now) < self._window
        if not subject.is_pool and (pods & moment.active or is_young):
            self.blame(INVARIANTS[0], f"{subject.name} at {moment.now}, young {is_young}")
        if not subject.is_pool and pods & moment.doubtful:
            self.blame(INVARIANTS[1], f"{subject.name} at {moment.now}")
        if moment.is_switched_off:
            self.blame(INVARIANTS[2], f"{subject.name} at {moment.now}")
        if not subject.is_pool and moment.now - suspension.pods_started_at < self._window:
            self.blame(INVARIANTS[6], f"{subject.name} at {moment.now}, its pods since {suspension.pods_started_at}")
        if not moment.has_policies:
            self.blame(INVARIANTS[7], f"{subject.name} at {moment.now}")
        if subject.is_gitops and sum(each.subject is subject for each in self.suspensions) > 2:
            self.blame(INVARIANTS[4], subject.name)
        return suspension

    def see_pod(self, change: str, item: Json) -> None:
        """A pod at work must never be deleted, but by its owner: that may show only in the next cycle."""
        uid = item["metadata"]["uid"]
        if change == "DELETED" and uid in self.moment.active and uid not in self.restarted:
            self.blame(INVARIANTS[0], f"pod {item['metadata']['name']} at {self.moment.now}")


def check_journal(observer: Observer, actions: Sequence[Action], moves: Path, delivered: Mapping[str, float]) -> int:
    """At the end; the number of journal events that were stored."""
    by_id = {action.id: action for action in actions}
    for suspension in observer.suspensions:
        action = by_id.get(suspension.action)
        steps = action.steps if action else ()
        if not {step.state for step in steps} >= {ActionState.ACTING, ActionState.ACTED}:
            name, told = suspension.subject.name, [f"{step.state.value} {step.note.en}".rstrip() for step in steps]
            observer.blame(INVARIANTS[10], f"{name}: {suspension.action} {told} acted at {suspension.at}")
    seen = {suspension.action: suspension for suspension in observer.suspensions}
    for action in actions:
        has_acted = any(step.state is ActionState.ACTED for step in action.steps)
        if has_acted and action.id not in seen:
            observer.blame(INVARIANTS[10], f"{action.workload.path}: {action.id} was never seen in the cluster")
        is_evicted = action.target is not None and action.target.kind == "Pod"
        if action.state not in ENDED and not (is_evicted and action.state is ActionState.VERIFIED) and has_acted:
            observer.blame(INVARIANTS[11], f"{action.workload.path}: {action.id} is {action.state}")
        if has_acted:
            _check_warning(observer, action, delivered, seen.get(action.id))
    return _check_moves(observer, by_id, moves)


def _check_warning(
    observer: Observer, action: Action, delivered: Mapping[str, float], suspension: Suspension | None
) -> None:
    begun = next(step.at for step in action.steps if step.state is ActionState.ACTING)
    times = [delivered[key] for warned in action.warnings for key in warned.keys if key in delivered]
    last = begun - GRACE_SHARE * observer._window
    if not times or min(times) > last:
        observer.blame(INVARIANTS[5], f"{action.workload.path}: {action.id}, delivered {times}, acted {begun}")
    if suspension is None or suspension.subject.is_pool:  # its surplus replicas are others in every cycle
        return
    if not any(suspension.pods_started_at <= each <= last for each in times):
        since = suspension.pods_started_at
        observer.blame(INVARIANTS[6], f"{action.workload.path}: delivered {times}, its pods since {since}")


GRACE_SHARE = 0.5
"""Of the window: the grace period of the policies of the run."""


def _check_moves(observer: Observer, by_id: Mapping[str, Action], moves: Path) -> int:
    """Every state that the processes have stored is still in the journal."""
    lines = moves.read_text().splitlines()
    for line in lines:
        action_id, state, at, note = json.loads(line)
        action = by_id.get(action_id)
        steps = [(step.state.value, step.at, step.note.en) for step in action.steps] if action else []
        if (state, at, note) not in steps:
            observer.blame(INVARIANTS[9], f"{action_id} {state} at {at}: {note}")
    return len(lines)
