"""The stage `reclaim` of a cycle: continue what is open, plan, warn, act. Also what API and CLI call.

An analyzer that is not the leader of the ledger only continues what is open in its own cluster: `continue_open`.

Order within a cycle: actions that were interrupted are continued; those that are done are verified, and looked at for a
change by somebody else; then every idle workload gets a decision; then warnings are sent and actions carried out, the
longest idle first. Before a warning and before an action, what their pods do on their hosts is read; before an action,
everything it is based on is read again.

    open_actions.py             what earlier cycles have left open
    decisions/assessment.py     candidates with all that the guards ask
    decisions/decide.py         decisions
    execution/executor.py       one action on one object
"""

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from gpusteward.analyzer.pool_minutes import RAISED_SECONDS, ManagedPool
from gpusteward.analyzer.reclaim.components import ReclaimComponents
from gpusteward.analyzer.reclaim.decisions.assessment import Assessor, ReclaimCycle, decide_all
from gpusteward.analyzer.reclaim.decisions.decide import (
    decide_one,
    describe_changes,
    is_warning_true,
    list_objections,
    make_action,
    make_evidence,
)
from gpusteward.analyzer.reclaim.decisions.guards import ask_all
from gpusteward.analyzer.reclaim.decisions.host_use import HostSignal
from gpusteward.analyzer.reclaim.decisions.workloads import QUIET_SECONDS, ReclaimWorkload, WorkloadFinder
from gpusteward.analyzer.reclaim.execution.changes import make_undo_command
from gpusteward.analyzer.reclaim.execution.executor import Executor
from gpusteward.analyzer.reclaim.execution.journal import (
    GPUS_SINCE,
    SELF,
    Action,
    ActionState,
    ReclaimError,
    make_action_id,
    read_original,
)
from gpusteward.analyzer.reclaim.execution.usage_check import UsageCheck
from gpusteward.analyzer.reclaim.execution.warnings import Notices
from gpusteward.analyzer.reclaim.open_actions import OpenActions
from gpusteward.analyzer.reclaim.permission import Mode, Permission, SwitchState
from gpusteward.analyzer.reclaim.plan import MOST_ACTIONS, Asker, Decision, Outcome, Plan, Suspended
from gpusteward.analyzer.reclaim.policies.policy import ReclaimAction
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.reclaim import ReclaimSettings
from gpusteward.core.errors import GpustewardError, SourceError
from gpusteward.core.messages import Message
from gpusteward.core.namespaces import VisibleNamespaces, sees
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.logs import Log
from gpusteward.messages import reclaim as messages

log = Log(__name__)

LOCK_SECONDS = 30.0
"""How long a person's request waits for the cycle that is acting."""
CLOSE_SECONDS = 1.0
MOST_FAILURES = 3
"""Of warnings in one cycle."""
MOST_SHOWN_PODS = 200
"""Of workloads that are refused for pods without GPUs: what these do is read in every cycle."""


class Reclaimer:
    """`reclaim` is called by the thread that runs cycles, the other methods by any."""

    def __init__(self, settings: ReclaimSettings, components: ReclaimComponents) -> None:
        self._settings, self._components = settings, components
        self._journal, self._switch, self._lease = components.journal, components.switch, components.lease
        self._permission = Permission(components.lease, components.switch, components.policies)
        self._permission.mode = self.mode
        self._counts: Counter[tuple[str, str]] = Counter()  # (kind of object, outcome) -> number since the start
        self._notices = Notices(components.sender)
        self._executor = Executor(
            components.cluster,
            components.journal,
            permission=self._permission,
            notices=self._notices,
            counts=self._counts,
            clock=components.clock,
            monotonic=components.monotonic,
            on_step=components.on_step,
        )
        self._lock = threading.RLock()
        self._assessor = Assessor(components)
        self._open_actions = OpenActions(components, self._executor, self._notices)
        self._last_plan: Plan | None = None
        self._last_result: Result | None = None
        self._last_error = ""
        self._suspended: Suspended | None = None
        self._unsent: set[WorkloadKey] = set()  # whose warnings failed in the last cycle
        self._tried_at: dict[WorkloadKey, float] = {}  # when an action was tried last that was held back or refused
        self._unwarned: set[str] = set()  # namespaces without a channel; each is logged once

    @property
    def mode(self) -> Mode:
        return Mode(self._settings.mode)

    @property
    def last_plan(self) -> Plan | None:
        return self._last_plan

    def read_plan(self, *, visible: VisibleNamespaces | None) -> Plan | None:
        plan = self._last_plan
        return plan if plan is None or visible is None else plan.limit_to(visible)

    @property
    def counts(self) -> Mapping[tuple[str, str], int]:
        return dict(self._counts)

    @property
    def suspended(self) -> Suspended | None:
        return self._suspended

    def reclaim(self, result: Result) -> None:
        """Raises SourceError if journal or cluster cannot be reached: the next cycle tries again."""
        with self._in_cycle(result):
            self._last_result = result
            if self.mode is Mode.OFF and not self._journal.has_open():
                self._last_plan, self._suspended = None, Suspended(0, 0.0)
                return
            with self._components.cluster.keeping_connections():
                self._run(result)

    def continue_open(self, result: Result) -> None:
        """For an analyzer that is not the leader of the ledger. The leader may be that of another cluster: then nobody
        else gives back what is suspended in this one. Nothing is begun. Of several analyzers of one cluster the one
        that has the Lease does it, and gives the Lease up again for the one that may act. Raises SourceError."""
        with self._in_cycle(result):
            self._last_plan = self._last_result = None
            if not self._journal.has_open():
                self._suspended = Suspended(0, 0.0)
                return
            with self._components.cluster.keeping_connections():
                self._continue_own(result)

    def _continue_own(self, result: Result) -> None:
        opened = self._journal.list_open()
        if not opened and not self._journal.list_waiting():  # what is open is in other clusters
            self._count_suspended(opened)
            return
        if not self._lease.renew():
            self._suspended = None
            if self._lease.error is not None:
                raise self._lease.error
            return
        try:
            reading = self._assessor.open_reading(result)
            self._count_suspended(self._open_actions.continue_all(reading, result))
        finally:
            self._lease.release()

    @contextmanager
    def _in_cycle(self, result: Result) -> Iterator[None]:
        """Raises SourceError, and remembers it."""
        self._settings = result.settings.reclaim
        self._permission.mode = self.mode
        with self._lock:
            try:
                yield
                self._last_error = ""
            except GpustewardError as error:
                self._last_error = str(error)
                raise

    def read_actions(
        self,
        *,
        visible: VisibleNamespaces | None,
        workload: WorkloadKey | None = None,
        states: Sequence[ActionState] = (),
        limit: int = 100,
    ) -> list[Action]:
        most = limit if visible is None else MOST_ACTIONS
        try:
            found = self._journal.list_newest(workload=workload, states=states, limit=most)
            return [each for each in found if sees(visible, each.workload)][:limit]
        except SourceError:  # of a cluster that is not known there is nothing to restore where nothing is open
            if self.mode is Mode.OFF and not self._journal.has_open():
                return []
            raise

    def read_action(self, action_id: str, *, visible: VisibleNamespaces | None) -> Action | None:
        found = self._journal.read(action_id)
        return found if found is not None and sees(visible, found.workload) else None

    def preview(self, workload: WorkloadKey, *, asker: Asker = Asker.OPERATOR) -> Decision:
        with self._locked():
            if self.mode is Mode.OFF:
                raise ReclaimError(messages.NOT_ON, mode=self.mode.value)
            return decide_one(self._read_fresh(workload, asker=asker, renews=False))

    def suspend(self, workload: WorkloadKey, *, by: str, asker: Asker = Asker.OPERATOR) -> Action:
        with self._locked():
            if self.mode is not Mode.ENFORCE:
                raise ReclaimError(messages.NOT_ON, mode=self.mode.value)
            one = self._read_fresh(workload, asker=asker)
            objections = list_objections(ask_all(one.facts), asker)
            if one.changes and not objections:
                objections = list_objections(self._look_again(one).answers, asker)
            if objections or not one.changes:
                reason = objections[0].reason if objections else messages.NOT_INSPECTED
                raise ReclaimError(messages.REFUSED, reason=reason)
            action = one.action
            if action is not None and not action.pod_uids.issuperset(one.facts.pods):
                self._open_actions.end(action, messages.PODS_REPLACED)
                action = None
            action = action or self._journal.add(make_action(one, self._result, self.mode, at=self._now(), by=by))
            actions = self._carry_out(replace(one, action=replace(action, by=by)))
            if actions and actions[0].state is not ActionState.ACTED:
                raise ReclaimError(messages.REFUSED, reason=actions[0].steps[-1].note)
            return actions[0]

    def restore(self, action_id: str, *, by: str) -> Action:
        with self._locked():
            action = self._journal.read(action_id)
            if action is None:
                raise ReclaimError(messages.NO_SUCH_ACTION, action=action_id)
            try:
                if action.state is ActionState.ACTING:  # it was interrupted, and no cycle has looked at it since
                    action = self._executor.recover(action)
                if action.state is ActionState.ACTING:
                    seconds = self._now() - action.begun_at
                    raise ReclaimError(messages.NOT_DONE_YET, action=action_id, seconds=seconds)
                if not action.is_open:
                    raise ReclaimError(messages.NOT_RESTORABLE, action=action_id, state=action.state.value)
                if action.action is ReclaimAction.SCALE_TO_KEEP:
                    self._open_actions.restored_at[action.workload] = self._now()
                return self._executor.restore(action, by=by)
            except SourceError as error:  # a right is missing, or the API server is away
                raise ReclaimError(
                    messages.RESTORE_BY_HAND, reason=error.as_message(), command=make_undo_command(action)
                ) from error
            finally:
                with suppress(SourceError):  # what was done or refused is said in any case
                    self._count_suspended(self._journal.list_open())

    def switch_off(self, *, by: str, reason: str = "") -> SwitchState:
        log.warning("reclaim_switched_off", by=by, reason=reason)
        return self._switch.set(is_off=True, by=by, reason=reason, at=self._now())

    def switch_on(self, *, by: str) -> SwitchState:
        log.warning("reclaim_switched_on", by=by)
        return self._switch.set(is_off=False, by=by, reason="", at=self._now())

    def read_switch(self) -> SwitchState:
        return self._switch.read()

    def list_pools(self) -> Mapping[WorkloadKey, ManagedPool]:
        """Those that are lowered at the moment, or were restored a short time ago. Raises SourceError."""
        now, restored = self._now(), self._open_actions.restored_at
        for key in [key for key, at in restored.items() if now - at > RAISED_SECONDS]:
            del restored[key]
        find_start = self._assessor.start_times.find
        pools = {key: ManagedPool(None, at, find_start(key)) for key, at in restored.items()}
        if not self._journal.has_open():
            return pools
        return pools | {
            each.workload: ManagedPool(read_original(each), each.evidence.get(GPUS_SINCE), find_start(each.workload))
            for each in self._journal.list_open()
            if each.is_open and each.action is ReclaimAction.SCALE_TO_KEEP
        }

    def describe(self) -> Mapping[str, Any]:
        plan = self._last_plan
        return {
            "mode": self.mode.value,
            "namespaces": self._settings.namespaces,
            "holder": self._lease.current,
            "is_holder": self._lease.is_valid,
            "stopped_by": plan.stopped_by.en if plan and plan.stopped_by else "",
            "planned_at": plan.at if plan else None,
            "outcomes": {outcome.value: count for outcome, count in (plan.counts if plan else {}).items()},
            **{f"refused_by_{each}": plan.host_refusals.get(each, 0) if plan else 0 for each in HostSignal},
            "error": self._last_error,
            "suspended": self._suspended.actions if self._suspended else None,
            "suspended_gpus": round(self._suspended.gpus, 4) if self._suspended else None,
        }

    def close(self) -> None:
        """Give the Lease up; an API server that does not respond does not delay the end of the program."""
        thread = threading.Thread(target=self._lease.release, name="release-lease", daemon=True)
        thread.start()
        thread.join(CLOSE_SECONDS)

    # One cycle.

    def _run(self, result: Result) -> None:
        now, reading = self._now(), self._assessor.open_reading(result)
        try:
            self._components.cluster.read_uid()
        except SourceError as error:  # which actions of the ledger are of this cluster is not known
            self._last_plan = Plan(now, self.mode, (), error.as_message()) if self.mode is not Mode.OFF else None
            raise
        self._components.policies.poll()
        if self.mode is Mode.OFF:
            self._last_plan = None
            self._count_suspended(self._open_actions.continue_all(reading, result))
            return
        stop = self._permission.find_stop(renews=self.mode is Mode.ENFORCE)
        objection = stop.reason
        finder = WorkloadFinder(result)
        opened = self._open_actions.continue_all(reading, result)
        self._count_suspended(opened)
        cycle = self._assessor.look(finder, reading, result, opened, stop=stop, now=now)
        workloads = self._assessor.assess_all(cycle)
        if stop.policies is None:  # else which replicas of a pool are surplus is not known
            self._open_actions.end_spells(workloads, cycle.past)
        for each in workloads:
            each.tried_at = self._tried_at.get(each.key, 0.0)
        self._tried_at = {each.key: each.tried_at for each in workloads if each.tried_at}
        self._assessor.add_pressure(workloads)
        decisions = decide_all(workloads, cycle.past)
        refusals = self._ask_hosts(workloads, decisions, cycle) if objection is None else {}
        others = len(result.workloads) - len(workloads)
        self._last_plan = _make_plan(now, self.mode, decisions, objection, refusals, others=others)
        if objection is not None:
            return
        for each, decision in zip(workloads, decisions, strict=True):
            self._renew_warning(each, decision)
        self._warn_all(
            [each for each, decision in zip(workloads, decisions, strict=True) if decision.outcome is Outcome.WARN],
            cycle,
        )
        for number, each in enumerate(workloads):
            if decisions[number].outcome is Outcome.ACT and (self.mode is Mode.OBSERVE or self._lease.is_valid):
                decisions[number] = self._act(each, cycle)
        self._last_plan = _make_plan(now, self.mode, decisions, objection, refusals, others=others)

    def _ask_hosts(
        self, workloads: Sequence[ReclaimWorkload], decisions: list[Decision], cycle: ReclaimCycle
    ) -> Mapping[str, int]:
        """Decide again about those that would be warned about or acted on, with what their pods do on their hosts; how
        many are refused for it, by signal. Those that are refused for pods without GPUs only show what these do."""
        refusals = Counter[str]()
        numbers = [number for number, one in enumerate(decisions) if one.outcome in (Outcome.WARN, Outcome.ACT)]
        due = [workloads[number] for number in numbers]
        shown = _choose_shown(workloads, decisions)
        self._assessor.add_host_use([*due, *(workloads[number] for number in shown)], cycle)
        for number in shown:
            decisions[number] = decide_one(workloads[number])
        refused = [one for one in due if decide_one(one).outcome is Outcome.REFUSE]
        if refused:  # what is left of those chosen for a pending pod may be too few for it
            self._assessor.add_pressure(due)
        for one in refused:
            refusals.update(each.signal.value for each in (one.facts.host.work if one.facts.host else ()))
        for number, one in zip(numbers, due, strict=True):
            before, decisions[number] = decisions[number].outcome, decide_one(one)
            if before is Outcome.ACT and decisions[number].outcome is Outcome.REFUSE:
                self._tried_at[one.key] = cycle.now  # its place in the budget is for another one in the next cycle
        return refusals

    def _count_suspended(self, opened: Sequence[Action]) -> None:
        changed = [action for action in opened if action.is_open]
        self._suspended = Suspended(len(changed), sum(action.gpus for action in changed))

    def _read_fresh(self, key: WorkloadKey, *, asker: Asker | None = None, renews: bool = True) -> ReclaimWorkload:
        """One workload, with everything read now. Raises ReclaimError if the last result does not have it. `renews`:
        the Lease, which is not for one who only looks."""
        result = self._last_result
        number = result.workloads.find(key) if result else None
        if result is None or number is None:
            raise ReclaimError(messages.NO_SUCH_WORKLOAD, workload=key.path)
        read_at = time.monotonic()
        cycle = self._assessor.look(
            WorkloadFinder(result),
            self._assessor.open_reading(result),
            result,
            self._journal.list_open(),
            stop=self._permission.find_stop(renews=renews and self.mode is Mode.ENFORCE),
            now=self._now(),
        )
        one = self._assessor.assess_one(number, cycle, by_person=asker is Asker.OPERATOR)
        if asker is not None:  # a cycle reads it for all workloads together
            self._assessor.add_host_use([one], cycle)
        one.read_at = read_at
        return one

    # Warnings and actions.

    def _warn_all(self, due: Sequence[ReclaimWorkload], cycle: ReclaimCycle) -> None:
        """One that cannot be warned about does not keep the others from being warned: those that failed in the last
        cycle come last. Raises SourceError after a few failures: the database itself may be gone, and each further one
        would cost its time limit."""
        failed: set[WorkloadKey] = set()
        for each in sorted(due, key=lambda one: one.key in self._unsent):
            try:
                self._warn(each, self._assessor.read_again(each, cycle))
            except SourceError as error:
                failed.add(each.key)
                log.warning("warning_not_sent", workload=each.key.path, reason=error)
                if len(failed) >= MOST_FAILURES:
                    self._unsent |= failed
                    raise
        self._unsent = failed

    def _renew_warning(self, one: ReclaimWorkload, decision: Decision) -> None:
        """One that waits for its receiver since an earlier cycle is sent only while it is true, as it is now."""
        is_waiting = decision.outcome is Outcome.WAIT and one.action is not None and bool(one.changes)
        if one.action is not None and is_waiting and self.mode is Mode.ENFORCE and is_warning_true(one.facts):
            text = describe_changes(one)
            self._notices.renew(one.action, text=text, at=self._now(), due_at=decision.due_at)

    def _warn(self, one: ReclaimWorkload, decision: Decision) -> None:
        """The row is written first: the keys of the warning are made of its id, so a second one changes nothing."""
        if decision.outcome is not Outcome.WARN:
            return
        if one.action is not None and not one.action.pod_uids.issuperset(one.facts.pods):
            return  # its pods were replaced a moment ago: the next cycle ends the action, and begins another one
        action = one.action or self._journal.add(make_action(one, self._result, self.mode, at=self._now(), by=SELF))
        text = describe_changes(one)
        warned = self._notices.warn(action, text=text, at=self._now(), due_at=decision.due_at)
        if not warned.keys and self.mode is Mode.ENFORCE:
            namespace, effect = action.workload.namespace, "nothing is reclaimed"
            if namespace not in self._unwarned:
                self._unwarned.add(namespace)
                log.warning("nobody_to_warn", namespace=namespace, effect=effect, help="set notify.channels")
            return
        state = ActionState.PLANNED if self.mode is Mode.OBSERVE else ActionState.WARNED
        warnings = (*action.warnings, warned)
        self._journal.move(action, state, at=self._now(), note=messages.WARNING_SENT, warnings=warnings)
        self._counts[action.workload.kind, "warned"] += 1

    def _act(self, one: ReclaimWorkload, cycle: ReclaimCycle) -> Decision:
        """Everything is read again first; the decision as it is then."""
        self._tried_at[one.key] = cycle.now
        if self.mode is Mode.OBSERVE:
            decision = self._assessor.read_again(one, cycle)
            if decision.outcome is Outcome.ACT and (decision := self._look_again(one)).outcome is Outcome.ACT:
                self._tried_at.pop(one.key)
                self._try_out(one)
            return decision
        decision = decide_one(one)
        try:
            fresh = self._read_fresh(one.key)
            known = one.facts
            fresh.facts = fresh.facts._replace(counts=known.counts, has_pressure=known.has_pressure, host=known.host)
            decision = decide_one(fresh)
            begun = fresh.lowered or fresh.action
            if decision.outcome is Outcome.ACT and begun is not None:
                decision = self._look_again(fresh)
            if decision.outcome is Outcome.ACT and begun is not None:
                self._carry_out(fresh)
            else:
                failed = [each.guard for each in decision.failed]
                log.info("action_not_taken", workload=one.key.path, failed=failed)
        except SourceError as error:  # of the journal or the API server: this action is picked up later
            log.warning("action_interrupted", workload=one.key.path, reason=error)
        return decision

    def _look_again(self, one: ReclaimWorkload) -> Decision:
        """With usage as it is now: the plan says what an action waits for. The write itself has a look of its own."""
        one.facts = one.facts._replace(is_usage_read=True, usage=self._make_check(one).look().problem)
        return decide_one(one)

    def _make_check(self, one: ReclaimWorkload, *, stopped: Collection[str] = ()) -> UsageCheck:
        """Of all GPUs that its action takes away, but for those of pods that were stopped a moment ago."""
        result = self._result
        rows = {row for replica in one.surplus for row in replica.rows}
        pairs = zip(one.rows, one.allocations, strict=True)
        allocations = [each for row, each in pairs if (not rows or row in rows) and each.container.pod not in stopped]
        return UsageCheck(
            self._components.source,
            allocations,
            verdict_at=result.at,
            rule=result.settings.judge.activity,
            clock=self._components.clock,
            counts_silence=one.facts.counts_silence,
            other_pods=[pod for pod in one.list_stopped_pods() if pod.name not in {each.name for each in one.pods}],
            work_seconds=QUIET_SECONDS if one.facts.pool is not None else None,
        )

    def _carry_out(self, one: ReclaimWorkload) -> list[Action]:
        """Each object is an action of its own, with a look at usage of its own."""
        action, evidence = one.action, make_evidence(one, self._result)
        if one.lowered is not None:
            change = replace(one.changes[0], gpus=one.facts.gpus)
            moved = self._executor.lower_further(
                one.lowered, change, evidence=evidence, check=self._make_check(one), facts_at=one.read_at
            )
            self._assessor.forget_objects()
            return [moved]
        assert action is not None
        done: list[Action] = []
        stopped: set[str] = set()
        for number, change in enumerate(one.changes):
            each = action if number == 0 else self._journal.add(replace(action, id=make_action_id()))
            each = replace(each, gpus=one.facts.gpus / len(one.changes))
            check = self._make_check(one, stopped=stopped)
            done.append(self._executor.act(each, change, evidence=evidence, check=check, facts_at=one.read_at))
            if done[-1].state is ActionState.ACTED and one.objects and one.objects.found:
                stopped |= one.objects.found.list_pods_below(change.object.uid)
        self._assessor.forget_objects()
        return done

    def _try_out(self, one: ReclaimWorkload) -> None:
        """Server-side dry runs in observe mode, once per idle spell."""
        action = one.action
        if action is None or any(step.note.en.startswith("dry run") for step in action.steps):
            return
        errors = [error for change in one.changes if (error := self._executor.try_out(change)) is not None]
        note = messages.DRY_RUN_FAILED.fill(reason=errors[0]) if errors else messages.DRY_RUN_ACCEPTED
        evidence = make_evidence(one, self._result)
        self._journal.move(action, ActionState.PLANNED, at=self._now(), note=note, evidence=evidence)
        self._counts[action.workload.kind, "dry_run"] += 1

    @property
    def _result(self) -> Result:
        """That is acted on."""
        assert self._last_result is not None
        return self._last_result

    def _now(self) -> float:
        return self._components.clock()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Raises ReclaimError if a cycle is acting for too long."""
        if not self._lock.acquire(timeout=LOCK_SECONDS):
            raise ReclaimError(messages.BUSY)
        try:
            with self._components.cluster.keeping_connections():
                yield
        finally:
            self._lock.release()


def _choose_shown(workloads: Sequence[ReclaimWorkload], decisions: Sequence[Decision]) -> list[int]:
    """Of those that are refused for pods without GPUs, the longest idle first."""
    chosen, left = list[int](), MOST_SHOWN_PODS
    for number, (one, decision) in enumerate(zip(workloads, decisions, strict=True)):
        if decision.outcome is Outcome.REFUSE and decision.other_pods:
            left -= len(one.list_stopped_pods())
            if left < 0:
                break
            chosen.append(number)
    return chosen


def _make_plan(
    at: float,
    mode: Mode,
    decisions: Sequence[Decision],
    objection: Message | None,
    host_refusals: Mapping[str, int],
    *,
    others: int,
) -> Plan:
    """`others`: workloads that were not considered."""
    counts = Counter(decision.outcome for decision in decisions)
    counts[Outcome.NOTHING] += others
    return Plan(at, mode, tuple(decisions), objection, dict(counts), host_refusals)
