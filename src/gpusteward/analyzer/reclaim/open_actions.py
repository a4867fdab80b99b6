"""What earlier cycles, or an earlier process, have left open: warnings, interrupted actions, changed objects.

Nothing is begun here. Giving back goes on in every mode, whatever the switch and the policy file say, and whoever
leads the ledger: only the Lease is needed, so that two analyzers do not work on the same object.
"""

from collections.abc import Sequence

from gpusteward.analyzer.pool_minutes import find_renamed
from gpusteward.analyzer.reclaim.cluster import Reading, count_gpus
from gpusteward.analyzer.reclaim.components import ReclaimComponents
from gpusteward.analyzer.reclaim.decisions.past import PastActions, find_end
from gpusteward.analyzer.reclaim.decisions.workloads import ReclaimWorkload
from gpusteward.analyzer.reclaim.execution.executor import RULE, Executor
from gpusteward.analyzer.reclaim.execution.journal import (
    RESTORABLE_STATES,
    SELF,
    Action,
    ActionState,
    ReclaimError,
    read_keep,
    read_original,
)
from gpusteward.analyzer.reclaim.execution.warnings import Notices
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject
from gpusteward.analyzer.reclaim.permission import Mode
from gpusteward.analyzer.reclaim.policies.policy import ReclaimAction
from gpusteward.analyzer.reclaim.policies.pool_rule import KeepRule, decide_pool
from gpusteward.analyzer.results import Result
from gpusteward.core.errors import SourceError
from gpusteward.core.gpu_counts import format_gpus
from gpusteward.core.messages import Message
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.logs import Log
from gpusteward.messages import reclaim as messages

log = Log(__name__)

VERIFY_SECONDS = 600.0
"""Pods that are not even being deleted after this long: the change has had no effect, and is undone."""
MARKED_SECONDS = 7200.0
"""For so long after an action the idle spells that it ended are marked: they end when their pods leave the window."""


class OpenActions:
    """Belongs to one thread at a time: `reclaimer.Reclaimer` has the lock."""

    def __init__(
        self,
        components: ReclaimComponents,
        executor: Executor,
        notices: Notices,
    ) -> None:
        self._journal, self._lease, self._clock = components.journal, components.lease, components.clock
        self._executor, self._notices = executor, notices
        self.restored_at: dict[WorkloadKey, float] = {}  # pools: their replicas start because of us
        self._looked_at: set[str] = set()  # actions put back whose object, read in this cycle, has not changed

    def continue_all(self, reading: Reading, result: Result) -> list[Action]:
        """What earlier cycles, or an earlier process, have left open; as it is then."""
        mode = Mode(result.settings.reclaim.mode)
        self._looked_at.clear()
        found, writes = self._journal.list_open(), self._journal.writes
        may_write = any(action.target is not None for action in found) and self._may_write()
        for action in found:
            may_write = may_write and self._may_write()
            try:
                if action.state in (ActionState.PLANNED, ActionState.WARNED):
                    self._continue_warned(action, mode, may_write=may_write)
                elif action.state in (ActionState.ACTING, ActionState.RESTORING) and may_write:
                    self._executor.recover(action)
                elif action.state in RESTORABLE_STATES:
                    self._watch(action, reading, result, may_write=may_write)
            except (SourceError, ReclaimError) as error:  # costs this action only
                log.warning("action_not_continued", action=action.id, state=action.state.value, reason=error)
        given_back = {action.id for action in found}  # in this cycle: its pods were read before that
        for action in self._journal.list_waiting():
            if action.id in given_back:
                continue
            try:
                self._follow(action, reading)
            except (SourceError, ReclaimError) as error:
                log.warning("action_not_followed", action=action.id, reason=error)
        return found if self._journal.writes == writes else self._journal.list_open()

    def _follow(self, action: Action, reading: Reading) -> None:
        """Whether the pods of a restored workload run."""
        waiting = find_waiting(action, reading) if self._executor.is_expected(action) else None
        if waiting == action.waiting_gpus:
            return
        note = messages.NOT_WAITING if waiting is None else describe_waiting(waiting)
        self._journal.move(action, action.state, at=self._clock(), note=note, waiting_gpus=waiting)

    def _may_write(self) -> bool:
        """Many actions, or a slow API server, take longer than the Lease lasts."""
        return self._lease.is_valid or self._lease.renew()

    def _continue_warned(self, action: Action, mode: Mode, *, may_write: bool) -> None:
        """One of another mode has warned nobody, or is not wanted any more."""
        if may_write and self._executor.adopt(action) is not None:
            return
        if may_write:
            self._looked_at.add(action.id)
        if action.mode is not mode and (action.target is None or action.id in self._looked_at):
            self.end(action, messages.SPELL_ENDED)
            return
        warnings = self._notices.update(action.warnings)
        if warnings != action.warnings:
            self._journal.move(
                action, action.state, at=self._clock(), note=messages.WARNING_DELIVERED, warnings=warnings
            )

    def _watch(self, action: Action, reading: Reading, result: Result, *, may_write: bool) -> None:
        """Whether the pods of an action are gone, and whether somebody has changed its object back."""
        if may_write and self._executor.find_revert(action) is not None:
            return
        now = self._clock()
        if action.action is ReclaimAction.SCALE_TO_KEEP and may_write:
            before = self._journal.writes
            self._give_back(action, result)
            if self._journal.writes != before:
                return
        if action.state is ActionState.VERIFIED and now - (action.acted_at or now) < MARKED_SECONDS:
            self._journal.mark_spells(action)
        if action.state is not ActionState.ACTED:
            return
        remaining = self._list_remaining(action, reading)
        if not remaining:
            if may_write:  # takes deletion costs off
                self._executor.verify(action)
            return
        is_late = now - max(action.acted_at or now, action.begun_at) >= VERIFY_SECONDS and not any(
            pod.is_deleted for pod in remaining
        )
        if is_late and may_write and action.action is not ReclaimAction.EVICT:
            note = messages.NO_EFFECT.fill(minutes=VERIFY_SECONDS / 60)
            self._executor.restore(action, by=SELF, note=note, has_failed=True)

    def _list_remaining(self, action: Action, reading: Reading) -> list[KubeObject]:
        """Pods that the action should have removed and that are still there."""
        assert action.target is not None
        pods = reading.list_pods_below(action.workload.namespace, [action.uid, action.target.uid])
        if action.action is not ReclaimAction.SCALE_TO_KEEP:
            acted_on = {one.get("pod_uid") for one in action.evidence.get("allocations", ())}
            is_cron = action.workload.kind == "CronJob"  # its next Job is none of our business
            return [pod for pod in pods if not is_cron or pod.uid in acted_on]
        return pods[read_keep(action) :]

    def _give_back(self, action: Action, result: Result) -> None:
        """What a lowered pool needs again, by the rule that has lowered it: in this cycle, in every mode, whatever the
        switch says. Of a pool whose replicas are not known all of them."""
        key = action.workload if action.workload in result.pools else find_renamed(result.pools, action.workload)
        minutes = result.pools.get(key)
        if minutes is None:  # not read in this cycle
            return
        wanted, running = read_original(action), read_keep(action)
        rule = KeepRule(**action.evidence.get(RULE, {}))
        found = decide_pool(minutes, rule, cycle_seconds=float(result.settings.scheduler.interval))
        needed = wanted if found.wanted != wanted else found.remaining
        if needed >= wanted:
            self._executor.restore(action, by=SELF, note=messages.NEEDED_AGAIN.fill(keep=wanted))
            self.restored_at[action.workload] = self._clock()
        elif needed > running:
            self._executor.raise_pool(action, needed, note=messages.NEEDED_AGAIN.fill(keep=needed))

    def end_spells(self, workloads: Sequence[ReclaimWorkload], past: PastActions) -> None:
        """Warnings of a workload that is not idle any more, or of an earlier spell, are over. Where a write was begun,
        only after its object was looked at: the write may have arrived late."""
        idle = {(one.key.without_cluster, one.uid): one for one in workloads if one.facts.idle_since is not None}
        unread = {one.action.id for one in workloads if one.action is not None and one.is_unread_pool}
        for key, action in past.waiting.items():
            one = idle.get(key)
            if action.id in unread:
                continue
            if action.target is not None and action.id not in self._looked_at:
                continue
            reason = find_end(action, one.facts if one else None)
            if reason is not None:
                self.end(action, reason)
                if one is not None:
                    one.action = None
                    one.facts = one.facts._replace(warnings=())

    def end(self, action: Action, text: Message) -> None:
        now = self._clock()
        self._journal.move(action, ActionState.ENDED, at=now, note=text, ended_at=now)


def find_waiting(action: Action, reading: Reading) -> float | None:
    """How many GPUs the pods of a restored workload wait for; None: all of them run. Raises SourceError."""
    assert action.target is not None
    uids = {action.target.uid, *(() if action.workload.kind == "CronJob" else (action.uid,))}
    pods = reading.list_asking_below(action.workload.namespace, uids)
    waiting = [pod for pod in pods if pod.status.get("phase") != "Running"]
    if pods and not waiting:
        return None
    # Before its controller has made pods, or while it is in a queue, and where only an allocated claim would tell.
    if not pods or any(pod.spec.get("resourceClaims") for pod in waiting):
        return action.gpus
    return min(action.gpus, float(sum(sum(count_gpus(pod).values()) for pod in waiting)))


def describe_waiting(gpus: float) -> Message:
    return messages.RESTORED_WAITING.fill(gpus=format_gpus(gpus))


def _read_keep(action: Action) -> int:
    """The replicas that stay, of a pool."""
    return int(next(iter(action.patch.values()), 0))
