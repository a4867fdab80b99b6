"""Actions that were interrupted, on objects in memory: a change that is not there may still come."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pytest
from sqlalchemy import Engine

from gpusteward.analyzer.judge.activity import ActivityRule
from gpusteward.analyzer.reclaim.cluster import Cluster
from gpusteward.analyzer.reclaim.execution.changes import Change, make_undo_command
from gpusteward.analyzer.reclaim.execution.executor import COMMAND_SECONDS, LATE_SECONDS, SELF, Executor
from gpusteward.analyzer.reclaim.execution.journal import Action, ActionState, Journal, ReclaimError
from gpusteward.analyzer.reclaim.execution.usage_check import UsageCheck
from gpusteward.analyzer.reclaim.execution.warnings import Notices
from gpusteward.analyzer.reclaim.kinds.objects import ACTION, DELETION_COST, KubeObject
from gpusteward.analyzer.reclaim.policies.policy import ReclaimAction
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.core.errors import SourceError
from gpusteward.core.kinds import KINDS
from gpusteward.kubernetes.writes import ForbiddenError, Json
from tests.analyzer.reclaim.memory_cluster import make_reclaimer
from tests.analyzer.reclaim.test_executor import JOB, WARNED, Allowed, RefusingServer, make
from tests.analyzer.reclaim.test_guards import NOW
from tests.analyzer.reclaim.test_usage_check import HELD
from tests.analyzer.reclaim.world import FakeSource

WEB = make("apps/v1", "Deployment", "web", {"replicas": 1})
POD = make("v1", "Pod", "lonely")
SUSPEND = Change(KINDS["apps", "Deployment"], WEB, {"/spec/replicas": 0})
ABORT = Change(KINDS["batch.volcano.sh", "Job"], JOB, {})
EVICT = Change(KINDS["", "Pod"], POD, {})
LOST = SourceError("the connection ended")
COMMANDS = "/apis/bus.volcano.sh/v1alpha1/namespaces/team/commands"


class Killed(BaseException):
    """The process ends here."""


@dataclass
class Site:
    """One object, the journal, and an executor; time passes when the test says so."""

    engine: Engine
    server: RefusingServer
    now: float = NOW
    ends_at: str = ""  # the step after which the process ends
    source: FakeSource = field(default_factory=FakeSource)

    @property
    def journal(self) -> Journal:
        return Journal(self.engine, lambda: "east")

    @cached_property
    def executor(self) -> Executor:
        return Executor(
            Cluster(self.server),
            self.journal,
            permission=Allowed(),
            notices=Notices(None),
            counts=Counter(),
            clock=lambda: self.now,
            monotonic=lambda: self.now,
            on_step=self._end,
        )

    def restart(self) -> None:
        """Another process goes on."""
        del self.executor

    def _end(self, step: str, _action: Action) -> None:
        if step == self.ends_at:
            raise Killed

    @property
    def action(self) -> Action:
        [action] = self.journal.list_newest()
        return action

    def begin(self, change: Change, *, by: str = SELF, action: ReclaimAction = ReclaimAction.SUSPEND) -> None:
        """It is interrupted: the answer of the server is lost, or the process ends."""
        check = UsageCheck(self.source, [HELD], verdict_at=NOW, rule=ActivityRule(), clock=lambda: self.now)
        added = self.journal.add(replace(WARNED, by=by, action=action, created_at=NOW - 60))
        with pytest.raises((SourceError, Killed)):
            self.executor.act(added, change, evidence={}, check=check, facts_at=time.monotonic())
        self.ends_at = ""
        self.restart()
        self.server.refused.clear()
        assert self.action.state is ActionState.ACTING

    def recover(self, *, seconds: float) -> ActionState:
        """A cycle so long after the action was begun; the state afterwards."""
        self.now = NOW + seconds
        self.executor.recover(self.action)
        return self.action.state

    def change(self, one: KubeObject, *, annotations: Json | None = None, **fields: Any) -> None:
        """What the server, or another controller, does."""
        item = self.server.objects[one.path]
        about = item["metadata"] | ({"annotations": annotations} if annotations is not None else {})
        self.server.objects[one.path] = {**item, "metadata": about, **fields}

    def list_annotations(self, one: KubeObject) -> dict[str, str]:
        return dict(self.server.objects[one.path]["metadata"].get("annotations") or {})

    def list_commands(self) -> list[str]:
        """That wait for Volcano."""
        return [item["action"] for path, item in self.server.objects.items() if path.startswith(COMMANDS)]

    def take_commands(self) -> list[str]:
        """As Volcano's controller does: it deletes them, and carries them out later."""
        taken = self.list_commands()
        for path in [each for each in self.server.objects if each.startswith(COMMANDS)]:
            del self.server.objects[path]
        return taken


@pytest.fixture
def site(engine: Engine) -> Site:
    return Site(engine, RefusingServer(WEB, JOB, POD))


def arrive(site: Site) -> None:
    """The write whose answer was lost."""
    site.change(WEB, annotations={ACTION: site.action.id}, spec={"replicas": 0})


@pytest.mark.parametrize("by", ["alice", SELF])
def test_never_gives_an_action_up_while_its_write_may_still_arrive(site: Site, by: str) -> None:
    site.server.refused["real /apis/apps"] = LOST
    site.begin(SUSPEND, by=by)
    assert site.recover(seconds=1) is ActionState.ACTING
    assert site.recover(seconds=LATE_SECONDS - 1) is ActionState.ACTING
    arrive(site)
    assert site.recover(seconds=LATE_SECONDS) is ActionState.ACTED
    restored = site.executor.restore(site.action, by="alice")
    assert restored.state is ActionState.RESTORED
    assert site.server.objects[WEB.path]["spec"]["replicas"] == 1


@pytest.mark.parametrize(("by", "state"), [("alice", ActionState.FAILED), (SELF, ActionState.WARNED)])
def test_a_write_that_does_not_arrive_has_not_happened(site: Site, by: str, state: ActionState) -> None:
    """What a person asked for is not tried again."""
    site.server.refused["real /apis/apps"] = LOST
    site.begin(SUSPEND, by=by)
    assert site.recover(seconds=LATE_SECONDS) is state
    assert "nothing was done" in site.action.steps[-1].note.en


def test_never_loses_the_record_of_an_eviction_that_arrives_late(site: Site) -> None:
    site.server.refused["real /api/v1/namespaces/team/pods/lonely/eviction"] = LOST
    site.begin(EVICT, by="alice", action=ReclaimAction.EVICT)
    assert site.recover(seconds=LATE_SECONDS - 1) is ActionState.ACTING
    del site.server.objects[POD.path]
    assert site.recover(seconds=LATE_SECONDS) is ActionState.ACTED


def test_deletion_costs_stay_while_the_write_may_arrive_and_not_longer(site: Site) -> None:
    """A pool that is lowered without them would lose replicas at work."""
    site.server.refused["real /apis/apps"] = LOST
    site.begin(Change(KINDS["apps", "Deployment"], WEB, {"/spec/replicas": 0}, {"lonely": (POD, -1000)}))
    site.recover(seconds=LATE_SECONDS - 1)
    assert site.list_annotations(POD) == {DELETION_COST: "-1000"}
    site.recover(seconds=LATE_SECONDS)
    assert site.list_annotations(POD) == {}


def test_an_object_that_was_deleted_meanwhile_ends_its_action_at_once(site: Site) -> None:
    site.server.refused["real /apis/apps"] = LOST
    site.begin(SUSPEND)
    del site.server.objects[WEB.path]
    assert site.recover(seconds=1) is ActionState.ENDED


# A job of Volcano: a command stops it, which Volcano's controller deletes before it carries it out.


def abort(site: Site, step: str) -> None:
    """The process ends after the annotation, or after the command."""
    site.change(JOB, status={"state": {"phase": "Running"}})
    site.ends_at = step
    site.begin(ABORT)
    assert site.list_annotations(JOB)[ACTION] == site.action.id
    assert site.list_commands() == (["AbortJob"] if step == "commanded" else [])


def test_never_loses_the_record_of_a_job_that_volcano_is_about_to_abort(site: Site) -> None:
    """Its controller has deleted the command, and the phase does not show it yet."""
    abort(site, "commanded")
    site.take_commands()
    assert site.recover(seconds=1) is ActionState.ACTING
    assert site.recover(seconds=LATE_SECONDS + 1) is ActionState.ACTING
    assert ACTION in site.list_annotations(JOB)
    site.change(JOB, status={"state": {"phase": "Aborting"}})
    assert site.recover(seconds=LATE_SECONDS + 2) is ActionState.ACTED
    assert ACTION in site.list_annotations(JOB)


def test_never_sends_the_command_again_since_work_may_have_come_back(site: Site) -> None:
    """It is begun anew later, with another look at usage."""
    abort(site, "patched")
    assert site.recover(seconds=LATE_SECONDS) is ActionState.ACTING
    assert site.recover(seconds=LATE_SECONDS + COMMAND_SECONDS - 1) is ActionState.ACTING
    assert site.recover(seconds=LATE_SECONDS + COMMAND_SECONDS) is ActionState.WARNED
    assert site.list_annotations(JOB) == {}
    assert site.list_commands() == []


@pytest.mark.parametrize("is_late", [False, True])
def test_never_gives_an_action_up_by_its_age_when_volcano_has_just_taken_the_command(site: Site, is_late: bool) -> None:
    """Volcano was away, and so was the analyzer: how long ago the action began says nothing."""
    abort(site, "commanded")
    if is_late:  # right after the cycle has read the phase
        site.server.before_create = site.take_commands
    else:
        site.take_commands()
    assert site.recover(seconds=86_400) is ActionState.ACTING
    assert site.recover(seconds=86_400 + COMMAND_SECONDS - 1) is ActionState.ACTING
    site.restart()
    assert site.recover(seconds=86_400 + COMMAND_SECONDS) is ActionState.ACTING
    assert ACTION in site.list_annotations(JOB)
    site.change(JOB, status={"state": {"phase": "Aborting"}})
    assert site.recover(seconds=86_400 + COMMAND_SECONDS + 1) is ActionState.ACTED


def test_never_counts_a_command_as_gone_before_it_can_have_arrived(site: Site) -> None:
    abort(site, "patched")
    assert site.recover(seconds=1) is ActionState.ACTING
    assert site.recover(seconds=COMMAND_SECONDS + 1) is ActionState.ACTING


def test_never_counts_the_command_of_an_earlier_begin(site: Site) -> None:
    """Another analyzer has given it up meanwhile, and begun it again."""
    abort(site, "patched")
    assert site.recover(seconds=LATE_SECONDS) is ActionState.ACTING
    for state in (ActionState.WARNED, ActionState.ACTING):
        site.journal.move(site.action, state, at=NOW + 86_400)
    assert site.recover(seconds=86_400 + COMMAND_SECONDS) is ActionState.ACTING
    assert site.recover(seconds=86_400 + 2 * COMMAND_SECONDS) is ActionState.WARNED


def test_never_loses_the_record_of_a_job_whose_command_waits_for_volcano(site: Site) -> None:
    """Its controller is away."""
    abort(site, "commanded")
    assert site.recover(seconds=COMMAND_SECONDS + 1) is ActionState.ACTED
    assert ACTION in site.list_annotations(JOB)
    assert site.list_commands() == ["AbortJob"]


def acted(site: Site) -> None:
    """A job whose command was just sent."""
    site.change(JOB, status={"state": {"phase": "Running"}})
    site.ends_at = "acted"
    check = UsageCheck(site.source, [HELD], verdict_at=NOW, rule=ActivityRule(), clock=lambda: NOW)
    with pytest.raises(Killed):
        site.executor.act(site.journal.add(WARNED), ABORT, evidence={}, check=check, facts_at=time.monotonic())
    site.ends_at = ""
    site.restart()
    assert (site.action.state, site.list_commands()) == (ActionState.ACTED, ["AbortJob"])


@pytest.mark.parametrize(
    ("is_taken", "seconds"),
    [(True, 1), (True, COMMAND_SECONDS - 1), (True, COMMAND_SECONDS + 1), (False, COMMAND_SECONDS + 1)],
)
def test_never_resumes_a_job_before_volcano_has_aborted_it(site: Site, is_taken: bool, seconds: float) -> None:
    """Or it would be aborted afterwards, and nobody would know. The command waits while Volcano is away."""
    acted(site)
    if is_taken:
        site.take_commands()
    site.now += seconds
    with pytest.raises(
        ReclaimError, match=r"not carried out.*kubectl delete commands\.bus\.volcano\.sh gpusteward-id-stop"
    ):
        site.executor.restore(site.action, by="alice")
    assert site.action.state is ActionState.RESTORING
    assert "ResumeJob" not in site.list_commands()
    assert ACTION in site.list_annotations(JOB)
    site.take_commands()
    site.change(JOB, status={"state": {"phase": "Aborting"}})
    assert site.recover(seconds=seconds + 60) is ActionState.RESTORED
    assert site.list_commands() == ["ResumeJob"]
    assert site.list_annotations(JOB) == {}


def test_a_person_who_withdraws_the_command_gets_the_job_back_without_a_stop(site: Site) -> None:
    acted(site)
    site.take_commands()  # kubectl delete
    for seconds in (0, COMMAND_SECONDS - 1):
        site.now = NOW + COMMAND_SECONDS + seconds
        with pytest.raises(ReclaimError, match="not carried out"):  # Volcano may have taken it right before
            site.executor.restore(site.action, by="alice")
    assert site.recover(seconds=2 * COMMAND_SECONDS) is ActionState.RESTORED
    assert site.list_annotations(JOB) == {}


def test_who_undoes_it_by_hand_withdraws_the_command_too(site: Site) -> None:
    acted(site)
    first, *_ = make_undo_command(site.action).split(" && ")
    name = f"gpusteward-{site.action.id}-stop"
    assert first == f"kubectl delete commands.bus.volcano.sh {name} --namespace team --ignore-not-found"


# A person restores what no cycle has recovered: the analyzer is a reader, or reclaim is stopped.


def restore(site: Site) -> Callable[[], Action]:
    namespace = make("v1", "Namespace", "kube-system", uid="east")
    site.server.objects["/api/v1/namespaces/kube-system"] = {**namespace.json, "kind": "Namespace"}
    reclaimer = make_reclaimer(Settings(), Cluster(site.server), site.engine, clock=lambda: site.now)
    return lambda: reclaimer.restore(site.action.id, by="alice")


def test_a_person_restores_an_interrupted_action_that_no_cycle_has_recovered(site: Site) -> None:
    site.ends_at = "patched"
    site.begin(SUSPEND)
    assert site.server.objects[WEB.path]["spec"]["replicas"] == 0
    assert restore(site)().state is ActionState.RESTORED
    assert site.server.objects[WEB.path]["spec"]["replicas"] == 1
    assert site.list_annotations(WEB) == {}


def test_who_restores_is_told_that_the_change_may_still_come_and_can_restore_it_then(site: Site) -> None:
    site.server.refused["real /apis/apps"] = LOST
    site.begin(SUSPEND, by="bob")
    site.now += 30
    with pytest.raises(ReclaimError, match=r"30 s ago.*may still come"):
        restore(site)()
    assert site.action.state is ActionState.ACTING
    arrive(site)
    assert restore(site)().state is ActionState.RESTORED
    assert site.server.objects[WEB.path]["spec"]["replicas"] == 1


def test_who_restores_is_told_that_nothing_was_done(site: Site) -> None:
    site.server.refused["real /apis/apps"] = LOST
    site.begin(SUSPEND, by="bob")
    site.now += LATE_SECONDS
    with pytest.raises(ReclaimError, match="failed: there is nothing to restore"):
        restore(site)()


def test_an_interrupted_action_that_cannot_be_looked_at_has_the_command_that_undoes_it(site: Site) -> None:
    site.ends_at = "patched"
    site.begin(SUSPEND)
    undo = restore(site)
    site.server.refused["real /apis/apps"] = ForbiddenError("no right")
    with pytest.raises(ReclaimError, match=r"no right.*kubectl patch deployments\.apps web"):
        undo()
