"""Reclaim with one planned, one done and one refused workload, behind the API."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpusteward.analyzer.reclaim.execution.changes import Change
from gpusteward.analyzer.reclaim.execution.journal import (
    Action,
    ActionState,
    JournalStep,
    ReclaimError,
    TargetObject,
    Warned,
)
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject
from gpusteward.analyzer.reclaim.permission import Mode, SwitchState
from gpusteward.analyzer.reclaim.plan import Answer, Asker, Decision, Outcome, Plan, Suspended
from gpusteward.analyzer.reclaim.policies.policy import Policy, ReclaimAction
from gpusteward.core.errors import SourceError
from gpusteward.core.kinds import KINDS, WorkloadClass
from gpusteward.core.messages import Message
from gpusteward.core.namespaces import VisibleNamespaces, sees
from gpusteward.core.node.containers import Workload, WorkloadKey
from gpusteward.messages import reclaim as messages
from tests.analyzer.usage_tables import AT

POLICY = Policy("night-shift", WorkloadClass.SERVING, ReclaimAction.SUSPEND)
IDLE = Answer("idle", True, Message("all {gpus} GPUs are idle", "全部 {gpus} 张 GPU 均空闲"), lambda: {"gpus": 2})
WAITS = Answer("warned", False, Message("the grace period is not over", "宽限期尚未结束"))
FAILURE = messages.NO_EFFECT.fill(minutes=10)


class Job(KubeObject):
    """At a path of its own."""

    path = "/apis/apps/v1/x"


JOB = Job("apps/v1", "Deployment", {"metadata": {"name": "own-job"}, "spec": {"replicas": 3}})
CHANGE = Change(KINDS["apps", "Deployment"], JOB, {"/spec/replicas": 0}, gpus=2.0)


def decide(workload: Workload, outcome: Outcome = Outcome.WAIT) -> Decision:
    return Decision(
        workload=workload,
        policy=POLICY,
        action=ReclaimAction.SUSPEND,
        outcome=outcome,
        ask=lambda: (IDLE, WAITS),
        gpus=2.0,
        idle_since=AT - 7200,
        due_at=AT + 1800,
        changes=(CHANGE,),
        action_id="a1",
    )


def make_action(
    action_id: str, workload: WorkloadKey, state: ActionState = ActionState.VERIFIED, mode: Mode = Mode.ENFORCE
) -> Action:
    return Action(
        id=action_id,
        workload=workload,
        uid=f"uid-{workload.name}",
        action=ReclaimAction.SUSPEND,
        mode=mode,
        state=state,
        policy="night-shift",
        gpus=2.0,
        idle_since=AT - 7200,
        created_at=AT - 3600,
        updated_at=AT - 60,
        target=TargetObject("Deployment", workload.name, f"uid-{workload.name}", "/apis/apps/v1/x"),
        original={"/spec/replicas": 3},
        patch={"/spec/replicas": 0},
        evidence={
            "proof": "integrated",
            "reasons": [Message("All 2 GPUs were idle.", "全部 2 张 GPU 空闲。")],
            "guards": [{"guard": each.guard, "passed": each.passed, "reason": each.reason} for each in (IDLE, WAITS)],
        },
        warnings=(Warned(("k",), AT - 3600, AT - 3590),),
        by="gpusteward",
        acted_at=AT - 60,
        error=FAILURE.en if state is ActionState.FAILED else "",
        steps=(
            JournalStep(
                state, AT - 60, "gpusteward", FAILURE if state is ActionState.FAILED else messages.WARNING_SENT
            ),
        ),
    )


@dataclass
class FakeReclaim:
    """Remembers what was asked of it."""

    workloads: Sequence[Workload]
    mode: Mode = Mode.ENFORCE
    namespaces: list[str] | None = None  # of the setting
    failure: str = ""  # why everything fails
    refusal: str = ""  # why changes are refused
    state: ActionState = ActionState.VERIFIED  # of the actions
    asked: list[tuple[str, ...]] = field(default_factory=list)
    added: list[Action] = field(default_factory=list)  # that were asked for
    switch: SwitchState = field(default_factory=lambda: SwitchState(False))
    counts: Mapping[tuple[str, str], int] = field(default_factory=lambda: {("Deployment", "acted"): 3})

    suspended: Suspended | None = field(default_factory=lambda: Suspended(2, 4.0))

    def read_plan(self, *, visible: VisibleNamespaces | None) -> Plan | None:
        decisions = tuple(decide(each) for each in self.workloads)
        plan = Plan(AT, self.mode, decisions, None, {Outcome.WAIT: len(decisions)})
        return plan if visible is None else plan.limit_to(visible)

    @property
    def actions(self) -> list[Action]:
        return [
            *self.added,
            *self._past,
        ]

    @property
    def _past(self) -> list[Action]:
        return [
            make_action(f"a{number}", WorkloadKey(each.kind, each.namespace, each.name), self.state)
            for number, each in enumerate(self.workloads, 1)
        ]

    def read_actions(
        self,
        *,
        visible: VisibleNamespaces | None,
        workload: WorkloadKey | None = None,
        states: Sequence[ActionState] = (),
        limit: int = 100,
    ) -> list[Action]:
        self._check()
        found = [each for each in self.actions if workload in (None, each.workload) and sees(visible, each.workload)]
        return [each for each in found if not states or each.state in states][:limit]

    def read_action(self, action_id: str, *, visible: VisibleNamespaces | None) -> Action | None:
        self._check()
        return next((each for each in self.actions if each.id == action_id and sees(visible, each.workload)), None)

    def preview(self, workload: WorkloadKey, *, asker: Asker = Asker.OPERATOR) -> Decision:
        self._ask("preview", workload.name, *([asker] if asker is Asker.LINK else []))
        return decide(Workload(workload.kind, workload.namespace, workload.name), Outcome.ACT)

    def suspend(self, workload: WorkloadKey, *, by: str, asker: Asker = Asker.OPERATOR) -> Action:
        self._ask("suspend", workload.name, by, *([asker] if asker is Asker.LINK else []))
        self.added.append(replace(make_action("new", workload, ActionState.ACTED), by=by))
        return self.added[-1]

    def restore(self, action_id: str, *, by: str) -> Action:
        self._ask("restore", action_id, by)
        found = self.read_action(action_id, visible=None)
        assert found is not None
        return replace(found, state=ActionState.RESTORED, ended_at=AT)

    def switch_off(self, *, by: str, reason: str = "") -> SwitchState:
        self._ask("off", by, reason)
        self.switch = SwitchState(True, by, AT, reason)
        return self.switch

    def switch_on(self, *, by: str) -> SwitchState:
        self._ask("on", by)
        self.switch = SwitchState(False, by, AT)
        return self.switch

    def read_switch(self) -> SwitchState:
        self._check()
        return self.switch

    def describe(self) -> Mapping[str, Any]:
        return {"mode": self.mode.value, "namespaces": self.namespaces, "refused_by_cpu": 1, "leader": "me"}

    def _ask(self, *words: str) -> None:
        self._check()
        if self.refusal:
            raise ReclaimError(Message(self.refusal, self.refusal))
        self.asked.append(words)

    def _check(self) -> None:
        if self.failure:
            raise SourceError(self.failure)
