"""More idle workloads than objects can be read for in one cycle."""

import contextlib

import pytest
from sqlalchemy import Engine

from gpusteward.analyzer.reclaim.decisions import assessment as module
from gpusteward.analyzer.reclaim.execution.journal import Action, Journal
from gpusteward.analyzer.reclaim.kinds.objects import ACTION, KubeObject
from gpusteward.analyzer.reclaim.plan import Outcome
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.core.errors import SourceError
from gpusteward.core.namespaces import NamespacePattern, VisibleNamespaces
from tests.analyzer.reclaim import memory_cluster
from tests.analyzer.reclaim.memory_cluster import STEP, MemoryCluster, MemoryFleet, make_reclaimer
from tests.analyzer.usage_tables import AT

MOST = 20


def test_every_idle_workload_gets_its_turn_and_none_acts_before(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose objects were not read has no policy yet: it waits, and is not taken for one that is due."""
    monkeypatch.setattr(module, "MOST_INSPECTIONS", MOST)
    settings = Settings.model_validate({"reclaim": {"mode": "observe"}})
    cluster, fleet, now = MemoryCluster(50), MemoryFleet(settings, 50, idle=50), [AT]
    reclaimer = make_reclaimer(settings, cluster, engine, clock=lambda: now[0])
    seen: set[str] = set()
    before: set[str] = set()
    for number in range(6):
        now[0] = AT + number * STEP
        reclaimer.reclaim(fleet.judge(now[0]))
        plan = reclaimer.last_plan
        assert plan is not None
        read = {decision.workload.name for decision in plan.decisions if decision.policy is not None}
        assert len(read - before) <= MOST
        unread = [decision for decision in plan.decisions if decision.policy is None]
        assert {decision.outcome for decision in unread} <= {Outcome.WAIT}
        assert unread or number >= 2
        seen |= read
        before = read
    assert len(seen) == 50


def test_the_owners_of_other_workloads_are_not_read(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A namespace may have hundreds of pods: the verdicts know to whom they belong."""
    monkeypatch.setattr(memory_cluster, "NAMESPACES", 1)
    settings = Settings.model_validate({"reclaim": {"mode": "observe"}})
    cluster, fleet = MemoryCluster(100), MemoryFleet(settings, 100, idle=3)
    reclaimer = make_reclaimer(settings, cluster, engine, clock=lambda: AT)
    reclaimer.reclaim(fleet.judge(AT))
    assert reclaimer.last_plan is not None
    assert all(decision.policy is not None for decision in reclaimer.last_plan.decisions)
    assert cluster.requests <= 3 * 2 + 5


def test_before_a_warning_the_objects_are_read_again(engine: Engine) -> None:
    """Who opts out after the objects were read for a plan is not warned."""
    settings = Settings.model_validate({"reclaim": {"mode": "observe"}})
    cluster, fleet, now = MemoryCluster(3), MemoryFleet(settings, 3, idle=3), [AT]
    reclaimer = make_reclaimer(settings, cluster, engine, clock=lambda: now[0])
    for number in range(14):
        now[0] = AT + number * STEP
        if number == 8:
            requests = cluster.requests
            cluster.annotate("Deployment", 0, {"gpusteward.io/keep": "true"})
        reclaimer.reclaim(fleet.judge(now[0]))
        if number == 8:
            assert cluster.requests == requests, "the plan has the objects of an earlier cycle"
    actions = reclaimer.read_actions(visible=None)
    assert sorted(action.workload.name for action in actions) == ["w-1", "w-2"]
    own = VisibleNamespaces(frozenset({NamespacePattern(actions[0].workload.namespace)}))
    nobody = VisibleNamespaces(frozenset({NamespacePattern("nobody")}))
    assert actions[0] in reclaimer.read_actions(visible=own)
    assert reclaimer.read_action(actions[0].id, visible=own) == actions[0]
    assert (reclaimer.read_actions(visible=nobody), reclaimer.read_action(actions[0].id, visible=nobody)) == ([], None)
    plan = reclaimer.read_plan(visible=nobody)
    assert plan is not None
    assert (plan.decisions, dict(plan.counts)) == ((), {})


def test_a_refusal_ends_with_its_reason_while_the_objects_are_kept(engine: Engine) -> None:
    """An API server that could not list for a moment delays nothing for longer than a cycle."""

    class FailingOnce(MemoryCluster):
        failure: SourceError | None = SourceError("the API server does not respond")

        def list_objects(self, version: str, kind: str, namespace: str, *, query: str = "") -> list[KubeObject]:
            if kind == "ScaledObject" and self.failure is not None:
                raise self.failure
            return super().list_objects(version, kind, namespace, query=query)

    settings = Settings.model_validate({"reclaim": {"mode": "observe"}})
    cluster, fleet, now = FailingOnce(1), MemoryFleet(settings, 1, idle=1), [AT]
    reclaimer = make_reclaimer(settings, cluster, engine, clock=lambda: now[0])
    failed = []
    for number in range(2):
        now[0] = AT + number * STEP
        reclaimer.reclaim(fleet.judge(now[0]))
        assert reclaimer.last_plan is not None
        failed.append([answer.guard for answer in reclaimer.last_plan.decisions[0].failed])
        cluster.failure = None
    assert "kind" in failed[0]
    assert "kind" not in failed[1]


def test_an_object_that_is_being_changed_is_read_again_in_the_next_cycle(engine: Engine) -> None:
    """An interrupted action that is given up leaves it as it was."""
    settings = Settings.model_validate({"reclaim": {"mode": "observe"}})
    cluster, fleet, now = MemoryCluster(1), MemoryFleet(settings, 1, idle=1), [AT]
    cluster.annotate("Deployment", 0, {ACTION: "interrupted"})
    reclaimer = make_reclaimer(settings, cluster, engine, clock=lambda: now[0])
    failed = []
    for number in range(2):
        now[0] = AT + number * STEP
        reclaimer.reclaim(fleet.judge(now[0]))
        assert reclaimer.last_plan is not None
        failed.append([answer.guard for answer in reclaimer.last_plan.decisions[0].failed])
        cluster.annotate("Deployment", 0, {})
    assert "kind" in failed[0]
    assert "kind" not in failed[1]


@pytest.mark.parametrize("refused", [1, 3])
def test_a_warning_is_never_postponed_by_those_that_cannot_be_sent(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    """The rows of the longest idle workloads are refused in every cycle; all others are warned about."""
    settings = Settings.model_validate({"reclaim": {"mode": "observe"}})
    fleet, now, add = MemoryFleet(settings, 5, idle=5), [AT], Journal.add

    def refuse_first(journal: Journal, action: Action) -> Action:
        if int(action.workload.name.removeprefix("w-")) < refused:
            raise SourceError("refused")
        return add(journal, action)

    monkeypatch.setattr(Journal, "add", refuse_first)
    reclaimer = make_reclaimer(settings, MemoryCluster(5), engine, clock=lambda: now[0])
    for number in range(20):
        now[0] = AT + number * STEP
        with contextlib.suppress(SourceError):
            reclaimer.reclaim(fleet.judge(now[0]))
    warned = {action.workload.name for action in reclaimer.read_actions(visible=None)}
    assert warned == {f"w-{number}" for number in range(refused, 5)}
