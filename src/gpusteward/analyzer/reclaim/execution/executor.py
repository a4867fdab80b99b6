"""Carries out one action on one object, and undoes it: a state machine whose steps are all in the journal.

The idea. A change of the cluster and a row of a database cannot be written in one transaction. So the row is written
first, with the object, its original values and ours; then the object; then the row again. One patch carries the change
and our annotations, among them the id of the action: both are there or neither. Whoever finds a row in ACTING or
RESTORING compares it with the object, and goes on from there.

Acting:     WARNED -> dry run -> (journal) ACTING -> lease, switch -> deletion costs -> usage once more -> patch
            -> Event, notice -> (journal) ACTED -> VERIFIED
Restoring:  ACTED or VERIFIED -> (journal) RESTORING -> patch -> Event, notice -> (journal) RESTORED

What always holds:
- Nothing is changed whose original values are not in the journal.
- Between the answer of the last look at usage and the write that stops pods nothing blocks: see `usage_check.py`.
- Only the object that was read is written: its uid and its resourceVersion are in the patch.
- Only values that are still ours are put back. What somebody else has set stays, and the action ends as REVERTED.
- A step that is done twice changes nothing: commands, Events and notices have names made of the id of the action.
- An owner's server-side apply wins at any time: a second request takes our entries out of `metadata.managedFields`.

What is left where the process ends after a step, by its name in `STEPS`, and what `recover` makes of it:
- journalled: the object is as it was. A request that was sent may still arrive: only after `LATE_SECONDS` it counts as
  not done, and the action goes back to WARNED. `adopt` finds one that arrives even later.
- costs_set: the same; the costs are in the evidence, and are taken off.
- patched, commanded, told: the annotation is there, so the action is finished. Of a job of Volcano the annotation alone
  stops nothing. A command that is gone may be carried out yet, however long ago the action began: only when this
  process has seen it gone for `COMMAND_SECONDS` it counts as not sent.
- restoring: the object is still ours, and is restored.
- unpatched: the object has its original values and no annotation of ours, so the action is finished.
- acted, restored: nothing.

A write that the server refuses has changed nothing: the action goes back to WARNED (a conflict, a disruption budget)
or ends as REFUSED (a missing right, admission). After any other failure of a request it is open whether it has
happened: the row stays as it is, and the next cycle looks.

Without this, a patch whose answer is lost would leave a workload that nobody restores, or be sent again after its owner
had changed it back; and pods that began to work while something blocked would be stopped.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from gpusteward.analyzer.reclaim.cluster import Cluster
from gpusteward.analyzer.reclaim.execution.changes import (
    Change,
    DroppedFieldError,
    describe_action,
    describe_difference,
    find_dropped,
    format_time,
    is_ours,
    is_restored,
    list_our_annotations,
    make_annotations,
    make_restoring_fields,
    make_withdrawal,
    name_command,
)
from gpusteward.analyzer.reclaim.execution.journal import (
    EARLIER,
    GPUS_SINCE,
    SELF,
    Action,
    ActionState,
    Journal,
    ReclaimError,
    TargetObject,
    read_keep,
    read_original,
)
from gpusteward.analyzer.reclaim.execution.usage_check import UsageCheck
from gpusteward.analyzer.reclaim.execution.warnings import Notices
from gpusteward.analyzer.reclaim.kinds.objects import (
    ACTION,
    DELETION_COST,
    KubeObject,
    annotation,
    keep_original,
)
from gpusteward.analyzer.reclaim.kinds.refusals import find_refusal, is_stopped
from gpusteward.analyzer.reclaim.kinds.targets import find_kind_at
from gpusteward.analyzer.reclaim.permission import Mode, Permission
from gpusteward.core.errors import SourceError
from gpusteward.core.gpu_counts import format_gpus
from gpusteward.core.kinds import WorkloadKind
from gpusteward.core.messages import Message, same_text
from gpusteward.kubernetes.writes import (
    BusyError,
    ConflictError,
    ForbiddenError,
    LateError,
    MissingError,
    RejectedError,
    ReplacedError,
    WriteError,
)
from gpusteward.logs import Log
from gpusteward.messages import reclaim as messages

log = Log(__name__)

RULE = "rule"
"""In the evidence of a lowered pool: the numbers of the rule that gives back, whatever the policy says then."""
MOVED = "moved_from"
"""In the evidence while a lowered pool is lowered further or raised: what was set before."""
MOST_EARLIER = 300
"""Moves of one action that are kept for the sum of its savings, and allocations of one that moves."""
COSTS = "deletion_costs"
"""In the evidence: the deletion costs that were set, by the uid of the pod."""
LATE_SECONDS = 120.0
"""After so long a change that is not there does not come any more: between the entry in the journal and the end of the
write there are at most a slow database, the time of the Lease, and the server's own time limit."""
COMMAND_SECONDS = 600.0
"""A command of Volcano that has been gone for so long is not carried out any more. Longer than its controller needs
under load: an action that waits costs nothing, and one that is given up too early leaves a job that nobody restores.
How long ago the action began says nothing: while the controller is away the command waits, and it may be taken right
before it is looked for."""
FACTS_SECONDS = 15.0
"""How old pods, snoozes, annotations and policies may be at the write: two reads of usage and what is between them take
a second or two. After a stall the next cycle reads them again: the owner may have answered meanwhile."""
RESTORE_ATTEMPTS = 3
"""An object that changes while it is restored is read again."""
STEPS = ("journalled", "costs_set", "patched", "commanded", "told", "acted", "restoring", "unpatched", "restored")
"""The points between two steps, in order, at which `on_step` is called."""
OnStep = Callable[[str, Action], None]


class HeldBackError(WriteError):
    """The last look at usage forbids the write: nothing was changed."""


class Executor:
    """Belongs to one thread at a time: `reclaimer.Reclaimer` has the lock."""

    def __init__(
        self,
        cluster: Cluster,
        journal: Journal,
        *,
        permission: Permission,
        notices: Notices,
        counts: Counter[tuple[str, str]],
        clock: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
        on_step: OnStep = lambda _step, _action: None,
    ) -> None:
        """`counts`: (kind of object, outcome) -> number. `on_step` is called after each step, by its name in `STEPS`:
        tests end the process there."""
        self._cluster, self._journal, self._permission, self._notices = cluster, journal, permission, notices
        self._counts, self._clock, self._monotonic, self._on_step = counts, clock, monotonic, on_step
        self._gone_since: dict[tuple[str, float], float] = {}  # when the command of an action was seen to be gone first

    def try_out(self, change: Change) -> SourceError | None:
        """A server-side dry run; why it fails. Nothing changes."""
        kind, one = change.kind, change.object
        try:
            if kind.is_evicted:
                self._cluster.evict(one, dry_run=True)
                return None
            fields = {**change.fields, annotation(ACTION): "dry-run"}
            answer = self._cluster.patch(one, fields, dry_run=True)
            if kind.stop:
                self._cluster.send_command(kind, one, name="gpusteward-dry-run", resume=False, dry_run=True)
            return find_dropped(answer, change.fields)
        except SourceError as error:
            return error

    def act(
        self, action: Action, change: Change, *, evidence: Mapping[str, Any], check: UsageCheck, facts_at: float
    ) -> Action:
        """The action as it is then. `check`: of all GPUs that it takes away. `facts_at`: when reading the pods, snoozes
        and policies that it rests on began, by the monotonic clock. Raises SourceError if it is open whether
        the change has happened, or if the journal cannot be written; `recover` continues in a later cycle."""
        failure = self.try_out(change)
        if failure is not None:
            return self._put_back(action, failure)
        one = change.object
        action = self._journal.move(
            action,
            ActionState.ACTING,
            at=self._clock(),
            by=action.by,
            target=TargetObject(one.kind, one.name, one.uid, one.path),
            original=keep_original(one.json, change.fields),
            patch=dict(change.fields),
            evidence={**evidence, COSTS: change.list_costs()} if change.costs else evidence,
        )
        self._on_step("journalled", action)
        objection = self._permission.find_objection()
        if objection is not None:
            return self._return_to_warned(action, objection)
        try:
            self._change(action, change, check, facts_at)
        except WriteError as error:
            self._take_off_costs(action)
            return self._put_back(action, error)
        return self._finish_acting(action, one)

    def lower_further(
        self, action: Action, change: Change, *, evidence: Mapping[str, Any], check: UsageCheck, facts_at: float
    ) -> Action:
        """One action of a pool moves; as `act`, and the originals stay those of the first time."""
        if (failure := self.try_out(change)) is not None:
            return self._journal.move(action, action.state, at=self._clock(), note=failure.as_message())
        listed = [*action.evidence.get("allocations", ()), *evidence["allocations"]][-MOST_EARLIER:]
        new = {**evidence, "allocations": listed, COSTS: change.list_costs()}
        gpus = action.gpus + sum(each["gpus"] for each in (change.make_row(),) if each["gpus"])
        moving = self._begin_move(action, change.fields, gpus=gpus, evidence=new, note=same_text(change.text))
        if (objection := self._permission.find_objection()) is not None:
            return self._stay(moving, objection)
        try:
            self._change(moving, change, check, facts_at)
        except WriteError as error:
            self._take_off_costs(moving)
            return self._stay(moving, error.as_message())
        return self._finish_move(moving)

    def raise_pool(self, action: Action, replicas: int, *, note: Message) -> Action:
        """Some of the replicas of a lowered pool are given back; in every mode. Raises SourceError."""
        _, one = self._read_target(action)
        if one is None:
            return self._close_gone(action)
        if not is_ours(action, one):
            return self.close_reverted(action, one)
        wanted, before = read_original(action), read_keep(action)
        fields, gpus = dict.fromkeys(action.patch, replicas), action.gpus * (wanted - replicas) / (wanted - before)
        self._take_off_costs(action)  # of pods that live on
        moving = self._begin_move(action, fields, gpus=gpus, evidence={COSTS: {}}, note=note)
        try:
            self._give_up_fields(self._cluster.patch(one, fields))
        except WriteError as error:
            return self._stay(moving, error.as_message())
        self._on_step("patched", moving)
        return self._finish_move(moving)

    def _begin_move(
        self, action: Action, fields: Mapping[str, Any], *, gpus: float, evidence: Mapping[str, Any], note: Message
    ) -> Action:
        """The row is written first: with what is set now, and what is to be set."""
        since = action.evidence.get(GPUS_SINCE, action.acted_at)
        earlier = [*action.evidence.get(EARLIER, ()), [since, self._clock(), action.gpus]][-MOST_EARLIER:]
        kept = {**action.evidence, **evidence, EARLIER: earlier, GPUS_SINCE: self._clock()}
        moving = self._journal.move(
            action,
            ActionState.ACTING,
            at=self._clock(),
            note=note,
            patch=dict(fields),
            gpus=gpus,
            evidence={**kept, MOVED: {"patch": dict(action.patch), "gpus": action.gpus}},
        )
        self._on_step("journalled", moving)
        return moving

    def _finish_move(self, action: Action) -> Action:
        evidence = {name: value for name, value in action.evidence.items() if name != MOVED}
        self._count(action, "moved")
        return self._journal.move(action, ActionState.ACTED, at=self._clock(), evidence=evidence)

    def _stay(self, action: Action, note: Message) -> Action:
        """The move has not happened."""
        before = action.evidence[MOVED]
        evidence = {name: value for name, value in action.evidence.items() if name != MOVED}
        log.info("pool_not_moved", action=action.id, reason=note.en)
        return self._journal.move(
            action,
            ActionState.ACTED,
            at=self._clock(),
            note=note,
            patch=before["patch"],
            gpus=before["gpus"],
            evidence=evidence,
        )

    def _recover_move(self, action: Action, one: KubeObject) -> Action:
        """Whether a move that was interrupted has happened; what somebody else has set the next look finds."""
        if is_ours(action, one):
            self._give_up_fields(one)
            return self._finish_move(action)
        if not self._is_late(action):
            return action
        self._take_off_costs(action)
        return self._stay(action, messages.INTERRUPTED)

    def recover(self, action: Action) -> Action:
        """Continue an action that was interrupted in ACTING or RESTORING. As long as a change that is not there may
        still come, the action stays as it is. Raises SourceError."""
        if action.state is ActionState.RESTORING:
            return self.restore(action, by=action.steps[-1].by if action.steps else "gpusteward")
        kind, one = self._read_target(action)
        if one is None:
            return self._finish_acting(action, one) if kind.is_evicted else self._close_gone(action)
        if MOVED in action.evidence:
            return self._recover_move(action, one)
        is_patched = one.annotations.get(ACTION) == action.id
        is_done = one.is_deleted if kind.is_evicted else is_patched
        if kind.stop:  # it is not sent here: work may have come back since usage was read
            is_done = is_patched and (is_stopped(one) or self._is_waiting(action, kind, one))
        if is_done:
            return self._finish_acting(action, one)
        if not self._is_late(action) or (kind.stop and is_patched and not self._is_command_over(action)):
            return action
        self._take_off_costs(action)
        self._give_up_fields(self._remove_annotations(action, one) or one)
        return self._return_to_warned(action, messages.INTERRUPTED)

    def _is_waiting(self, action: Action, kind: WorkloadKind, one: KubeObject) -> bool:
        """Whether the command that stops an object waits for its controller. Raises SourceError."""
        name = name_command(action, "stop")
        return not self._cluster.send_command(kind, one, name=name, resume=False, dry_run=True)

    def _is_late(self, action: Action) -> bool:
        """Whether a write that has not arrived does not come any more."""
        return self._clock() - action.begun_at >= LATE_SECONDS

    def _is_command_over(self, action: Action) -> bool:
        """Whether a command that is not there now, and is not sent any more, cannot be carried out either. By the clock
        of this process: another one, also after a restart, looks for as long again."""
        now = self._monotonic()
        return now - self._gone_since.setdefault((action.id, action.begun_at), now) >= COMMAND_SECONDS

    def _check_stopped(self, action: Action, kind: WorkloadKind, one: KubeObject) -> None:
        """Raises ReclaimError as long as a command may still stop the object: resumed before that, it would be stopped
        afterwards, and nobody would know."""
        if is_stopped(one):
            return
        is_over = self._is_late(action) and not self._is_waiting(action, kind, one) and self._is_command_over(action)
        if not is_over:
            raise ReclaimError(messages.NOT_STOPPED_YET, command=make_withdrawal(action, kind))

    def adopt(self, action: Action) -> Action | None:
        """Whether a change that seemed not to have happened has arrived after all: the action, as done. A request that
        timed out may still be carried out by the server a moment later. Raises SourceError."""
        if action.target is None:
            return None
        kind, one = self._read_target(action)
        if kind.is_evicted or one is None or one.annotations.get(ACTION) != action.id:
            return None
        return self.recover(action) if kind.stop else self._finish_acting(action, one)

    def restore(self, action: Action, *, by: str, note: Message | None = None, has_failed: bool = False) -> Action:
        """Put the original back, only where the value is still ours; the action as it is then. `note`: why; one that
        `has_failed` has had no effect, and ends as FAILED. Raises SourceError, ReclaimError if the value is not ours
        any more."""
        kind, one = self._read_target(action)
        if kind.is_evicted:
            raise ReclaimError(messages.NOT_RESTORABLE_KIND)
        if action.state is not ActionState.RESTORING:
            error = note.en if note and has_failed else ""
            action = self._journal.move(action, ActionState.RESTORING, at=self._clock(), by=by, note=note, error=error)
            self._on_step("restoring", action)
        for attempt in range(RESTORE_ATTEMPTS):
            if attempt:
                kind, one = self._read_target(action)
            if one is None:
                return self._close_gone(action)
            if is_restored(action, one):  # the process ended right after the patch
                return self._finish_restoring(action, one, by=by)
            if not is_ours(action, one):
                closed = self.close_reverted(action, one)
                raise ReclaimError(messages.NOT_OURS, text=closed.failure)
            try:
                if kind.resume:
                    self._check_stopped(action, kind, one)
                    self._cluster.send_command(kind, one, name=name_command(action, "resume"), resume=True)
                one = self._cluster.patch(one, make_restoring_fields(action, one))
            except (ConflictError, MissingError, ReplacedError):
                continue
            self._on_step("unpatched", action)
            return self._finish_restoring(action, one, by=by)
        raise ReclaimError(messages.BUSY)

    def is_expected(self, action: Action) -> bool:
        """Whether a workload that was restored is about to run: it is still there, has not finished, and nobody has
        suspended it again. Raises SourceError."""
        kind, one = self._read_target(action)
        return one is not None and not kind.is_suspended(one.read) and find_refusal(kind, one) is None

    def verify(self, action: Action) -> Action:
        """Its pods are gone."""
        self._take_off_costs(action)  # of those that Kubernetes has not chosen
        ended = self._clock() if self._read_kind(action).is_evicted else None
        self._count(action, "verified")
        return self._journal.move(action, ActionState.VERIFIED, at=self._clock(), ended_at=ended)

    def find_revert(self, action: Action) -> Action | None:
        """Whether somebody else has changed the object back, or removed it: the action, closed. Raises SourceError."""
        kind, one = self._read_target(action)
        if kind.is_evicted:
            return None
        if one is None:
            return self._close_gone(action)
        if not is_ours(action, one):
            return self.close_reverted(action, one)
        self._give_up_fields(one)  # nothing to do, unless a process ended right after its patch
        return None

    def close_reverted(self, action: Action, one: KubeObject) -> Action:
        """Somebody else has changed the value: it is left as it is, and our annotations are taken off. Raises
        SourceError if that has to be tried again: an annotation that stays would say for ever that it is suspended."""
        text = messages.CHANGED_BACK.fill(text=describe_difference(action, one))
        self._take_off_costs(action)
        self._give_up_fields(self._remove_annotations(action, one) or one, is_last=True)
        self._try_event(action, one, "Reverted", text, is_warning=True)
        self._notices.tell("reverted", action, text=text, at=self._clock())
        return self._close(action, ActionState.REVERTED, text)

    def _close_gone(self, action: Action) -> Action:
        """Its pods may live on without it."""
        self._take_off_costs(action)
        return self._close(action, ActionState.ENDED, messages.OBJECT_GONE)

    def _take_off_costs(self, action: Action) -> None:
        """The deletion costs of pods that live on are as they were before; what somebody else has set stays. Raises
        SourceError if that has to be tried again: the action stays open until it has happened."""
        costs = action.evidence.get(COSTS)
        if not costs:
            return
        for pod in self._cluster.list_objects("v1", "Pod", action.workload.namespace):
            if pod.uid not in costs or pod.annotations.get(DELETION_COST) != costs[pod.uid]["ours"]:
                continue
            try:
                changed = self._cluster.patch(pod, {annotation(DELETION_COST): costs[pod.uid]["before"]})
                self._give_up_fields(changed)
            except (MissingError, ReplacedError):  # it is gone
                continue
            except (ForbiddenError, RejectedError) as error:  # a later cycle would be refused as well
                log.warning("deletion_cost_left", path=pod.path, reason=error)

    def _remove_annotations(self, action: Action, one: KubeObject | None) -> KubeObject | None:
        """The object as it is then; None if it is gone. A controller may write to it at the same time: then it is read
        again."""
        for attempt in range(RESTORE_ATTEMPTS):
            if one is None or one.annotations.get(ACTION) != action.id:
                break
            try:
                return self._cluster.patch(one, list_our_annotations(one))
            except ConflictError:
                if attempt + 1 == RESTORE_ATTEMPTS:
                    raise
                _, one = self._read_target(action)
            except (ForbiddenError, RejectedError) as error:  # a later cycle would be refused as well
                log.warning("annotations_left", path=one.path, reason=error)
                break
        return one

    def _give_up_fields(self, one: KubeObject, *, is_last: bool = False) -> None:
        """What fails now is made up for by the next cycle that looks at the object. `is_last`: none will, so that
        SourceError is raised, and the whole step is done again."""
        try:
            self._cluster.give_up_fields(one)
        except (ForbiddenError, MissingError, RejectedError) as error:  # a later cycle would be refused as well
            log.warning("fields_not_given_up", path=one.path, reason=error)
        except SourceError as error:
            if is_last:
                raise
            log.warning("fields_not_given_up", path=one.path, reason=error)

    def _change(self, action: Action, change: Change, check: UsageCheck, facts_at: float) -> None:
        """Raises SourceError: WriteError if nothing has changed."""
        kind, one = change.kind, change.object
        changed = one
        if change.costs:
            self._cluster.set_deletion_costs(change.costs)
            self._on_step("costs_set", action)
        annotations = make_annotations(action, at=self._clock())
        if kind.stop:
            changed = self._cluster.patch(one, annotations)  # stops nothing: the command does
            self._on_step("patched", action)
        try:
            write_before = self._look_again(check, facts_at)
            if kind.is_evicted:
                self._cluster.evict(one, send_before=write_before)
            elif kind.stop:
                name = name_command(action, "stop")
                self._cluster.send_command(kind, one, name=name, resume=False, send_before=write_before)
            else:
                changed = self._cluster.patch(one, {**change.fields, **annotations}, send_before=write_before)
        except WriteError:
            if kind.stop:
                self._give_up_fields(self._remove_annotations(action, changed) or changed)
            raise
        self._on_step("commanded" if kind.stop else "patched", action)
        if not kind.is_evicted:
            self._give_up_fields(changed)

    def _look_again(self, check: UsageCheck, facts_at: float) -> float:
        """Until when the write must be sent. Raises HeldBackError if there must be none. Nothing that can block may
        stand between this and the write."""
        checked = check.look()
        if checked.problem is not None:
            raise HeldBackError(checked.problem)
        if not self._permission.is_leader:
            raise HeldBackError(messages.LEASE_EXPIRED)
        seconds = time.monotonic() - facts_at
        if seconds > FACTS_SECONDS:
            raise HeldBackError(messages.FACTS_OLD.fill(seconds=seconds, most=FACTS_SECONDS))
        return checked.write_before

    def _finish_acting(self, action: Action, one: KubeObject | None) -> Action:
        text = messages.EVENT_ACTED.fill(
            gpus=format_gpus(action.gpus),
            text=describe_action(action),
            since=format_time(action.idle_since),
            action=action.id,
        )
        if one is not None:
            self._try_event(action, one, "Reclaimed", text)
        self._notices.tell("acted", action, text=text, at=self._clock())
        self._on_step("told", action)
        now = self._clock()
        action = self._journal.move(action, ActionState.ACTED, at=now, by=action.by, acted_at=now)
        self._on_step("acted", action)
        self._count(action, "acted")
        log.info("reclaimed", action=action.id, path=action.target.path if action.target else "", gpus=action.gpus)
        return action

    def _finish_restoring(self, action: Action, one: KubeObject, *, by: str) -> Action:
        self._give_up_fields(one, is_last=True)
        self._take_off_costs(action)
        now, has_failed = self._clock(), bool(action.error)
        text = messages.EVENT_RESTORED.fill(text=describe_action(action, undo=True), by=by)
        if not has_failed:  # its pods are gone: a cycle that sees new ones run says so
            text = messages.WAITS_AFTER_RESTORE.fill(text=text, gpus=format_gpus(action.gpus))
        self._try_event(action, one, "Restored", text)
        self._notices.tell("restored", action, text=text, at=now)
        state = ActionState.FAILED if has_failed else ActionState.RESTORED
        action = self._journal.move(
            action,
            state,
            at=now,
            by=by,
            note=action.failure,
            ended_at=now,
            waiting_gpus=None if has_failed else action.gpus,
        )
        self._on_step("restored", action)
        self._count(action, "no_effect" if has_failed else "restored")
        log.info("restored", action=action.id, path=one.path, by=by)
        return action

    def _put_back(self, action: Action, error: SourceError) -> Action:
        """The server has refused: nothing has changed."""
        if isinstance(error, (HeldBackError, LateError)):
            return self._return_to_warned(action, error.as_message())
        if isinstance(error, (ConflictError, ReplacedError, MissingError)):
            self._count(action, "conflict")
            return self._return_to_warned(action, error.as_message())
        if isinstance(error, BusyError) or not isinstance(error, (WriteError, DroppedFieldError)):
            self._count(action, "failed")
            return self._return_to_warned(action, error.as_message())
        self._count(action, "refused")
        self._notices.tell("refused", action, text=error.as_message(), at=self._clock())
        return self._close(action, ActionState.REFUSED, error.as_message())

    def _return_to_warned(self, action: Action, note: Message) -> Action:
        """Nothing was done; a later cycle may try again. What a person asked for is not tried again."""
        if action.by != SELF:
            return self._close(action, ActionState.FAILED, note)
        log.info("action_put_back", action=action.id, reason=note.en)
        before = ActionState.PLANNED if action.mode is Mode.OBSERVE else ActionState.WARNED
        return self._journal.move(action, before, at=self._clock(), note=note)

    def _close(self, action: Action, state: ActionState, text: Message) -> Action:
        now = self._clock()
        if state is not ActionState.REFUSED:
            self._count(action, state.value)
        log.info("action_closed", action=action.id, state=state.value, reason=text.en)
        return self._journal.move(action, state, at=now, note=text, error=text.en, ended_at=now)

    def _read_kind(self, action: Action) -> WorkloadKind:
        assert action.target is not None
        kind = find_kind_at(action.target.path, action.target.kind)
        if kind is None:
            raise ReclaimError(messages.NOT_RESTORABLE, action=action.id, state=action.state.value)
        return kind

    def _read_target(self, action: Action) -> tuple[WorkloadKind, KubeObject | None]:
        """The kind, and the object as it is now; None if it is gone, or another one of the same name. Raises
        SourceError if that is not known: then the action stays open."""
        assert action.target is not None
        one = self._cluster.read_in_any_version(action.target.path)
        return self._read_kind(action), one if one is not None and one.uid == action.target.uid else None

    def _try_event(
        self, action: Action, one: KubeObject, reason: str, text: Message, *, is_warning: bool = False
    ) -> None:
        """An Event that cannot be written costs only itself."""
        name, at = f"gpusteward.{action.id}.{reason.lower()}", format_time(self._clock())
        try:
            self._cluster.add_event(one, name=name, reason=reason, text=text.en, at=at, is_warning=is_warning)
        except SourceError as error:
            log.warning("event_not_written", path=one.path, reason=error)

    def _count(self, action: Action, outcome: str) -> None:
        self._counts[action.target.kind if action.target else action.workload.kind, outcome] += 1
