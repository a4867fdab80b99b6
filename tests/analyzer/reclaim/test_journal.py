"""The journal and the switch, in every database the ledger can be kept in."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy import Engine

from gpusteward.analyzer.ledger.database.db_engine import open_engine
from gpusteward.analyzer.ledger.database.schema_version import create_tables
from gpusteward.analyzer.reclaim.execution.journal import (
    OPEN_STATES,
    Action,
    ActionState,
    Journal,
    JournalStep,
    TargetObject,
    Warned,
)
from gpusteward.analyzer.reclaim.permission import Switch, SwitchState
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.messages.reclaim import WARNING_DELIVERED, WARNING_SENT
from tests.analyzer.reclaim.test_guards import NOW, OPEN

ACTION = replace(
    OPEN,
    state=ActionState.PLANNED,
    target=TargetObject("Notebook", "nb", "uid-1", "/apis/kubeflow.org/v1/namespaces/ml/notebooks/nb"),
    original={"/spec/replicas": 3, "/metadata/annotations/说明": None},
    patch={"/spec/replicas": 0},
    evidence={"proof": "integrated", "reasons": ['it\'s \\ "quoted" 中文 \U0001f642']},
    warnings=(Warned(("key-1", "key-2"), NOW - 60, None),),
    steps=(JournalStep(ActionState.PLANNED, NOW - 60, "gpusteward", WARNING_SENT),),
)


def east() -> str:
    return "uid-of-east"


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    create_tables(engine)
    yield engine
    engine.dispose()


def make(action_id: str, state: ActionState, *, cluster: str = "", name: str = "nb", **changes: object) -> Action:
    workload = WorkloadKey("Notebook", "ml", name, cluster)
    return replace(ACTION, id=action_id, state=state, workload=workload, **changes)  # type: ignore[arg-type]


def test_an_action_is_read_as_it_was_written_and_moved(engine: Engine):
    journal = Journal(engine, east)
    assert journal.read(journal.add(ACTION).id) == ACTION
    moved = journal.move(ACTION, ActionState.ACTING, at=NOW, by="alice", note=WARNING_DELIVERED, acted_at=NOW)
    assert journal.read(ACTION.id) == moved
    assert moved.steps[-1] == JournalStep(ActionState.ACTING, NOW, "alice", WARNING_DELIVERED)
    assert journal.read("another") is None


def test_of_two_who_move_an_action_one_is_refused(engine: Engine):
    journal = Journal(engine, east)
    journal.add(ACTION)
    journal.move(ACTION, ActionState.ACTING, at=NOW)
    with pytest.raises(SourceError, match=ACTION.id):
        Journal(engine, east).move(ACTION, ActionState.ENDED, at=NOW)
    assert [each.state for each in journal.list_newest()] == [ActionState.ACTING]


def test_never_forgets_a_step_that_another_analyzer_has_written_meanwhile(engine: Engine):
    """Both have read it in the same state; one has noted that its warning was delivered."""
    journal = Journal(engine, east)
    journal.add(ACTION)
    first = journal.move(ACTION, ActionState.PLANNED, at=NOW + 1, note=WARNING_DELIVERED)
    with pytest.raises(SourceError, match=ACTION.id):
        Journal(engine, east).move(ACTION, ActionState.ENDED, at=NOW + 2)
    assert journal.read(ACTION.id) == first
    assert journal.move(first, ActionState.ENDED, at=NOW + 2).steps[-2].note == WARNING_DELIVERED


def test_lists_are_limited_to_workload_and_state(engine: Engine):
    journal = Journal(engine, east)
    rows = [
        make("planned", ActionState.PLANNED, created_at=NOW - 5),
        make("acted", ActionState.ACTED, name="other", created_at=NOW - 4),
        make("of-east", ActionState.WARNED, cluster="east", created_at=NOW - 3),
        make("of-west", ActionState.WARNED, cluster="west", created_at=NOW - 2),
        make("restored", ActionState.RESTORED, created_at=NOW - 1, ended_at=NOW),
    ]
    for row in rows:
        journal.add(row)
    assert [each.id for each in journal.list_newest(limit=2)] == ["restored", "of-west"]
    assert [each.id for each in journal.list_newest(states=[ActionState.ACTED])] == ["acted"]
    own = [each.id for each in journal.list_newest(workload=rows[3].workload)]
    assert own == ["restored", "of-west", "of-east", "planned"], "the name of the cluster has changed: its uid decides"
    assert [each.id for each in journal.list_open()] == ["planned", "acted", "of-east", "of-west"]


def test_never_hides_what_can_be_restored_behind_later_evictions(engine: Engine):
    """An evicted pod is verified for ever, and nothing brings it back."""
    journal = Journal(engine, east)
    journal.add(make("suspended", ActionState.VERIFIED, created_at=NOW - 10))
    for number in range(3):
        journal.add(make(f"evicted-{number}", ActionState.VERIFIED, created_at=NOW - number, ended_at=NOW))
    assert [each.id for each in journal.list_newest(states=tuple(OPEN_STATES), limit=2)] == ["suspended", "evicted-0"]
    assert [each.id for each in journal.list_newest(limit=2)] == ["evicted-0", "evicted-1"]


def test_never_reads_or_changes_an_action_of_another_cluster(engine: Engine):
    """Two clusters without names on one ledger: only the uids of their namespaces kube-system differ."""
    mine, others = Journal(engine, east), Journal(engine, lambda: "uid-of-west")
    action = mine.add(make("acted", ActionState.ACTED, acted_at=NOW))
    mine.add(make("restored", ActionState.RESTORED, acted_at=NOW - 20, ended_at=NOW))
    assert (others.list_newest(), others.list_open(), others.read("acted")) == ([], [], None)
    assert others.list_newest(workload=action.workload) == []
    assert others.list_past(NOW - 100, acted_since=NOW - 100) == [], "nor counted for limits"
    with pytest.raises(SourceError, match="acted"):
        others.move(action, ActionState.ENDED, at=NOW, ended_at=NOW)
    assert [each.id for each in mine.list_open()] == ["acted"]
    assert len(mine.list_past(NOW - 100, acted_since=NOW - 100)) == 2


def test_never_begins_an_action_while_the_cluster_is_not_known(engine: Engine):
    def fail() -> str:
        raise SourceError("kube-system cannot be read")

    unknown = Journal(engine, fail)
    Journal(engine, east).add(ACTION)
    for use in (
        lambda: unknown.add(make("new", ActionState.PLANNED)),
        lambda: unknown.move(ACTION, ActionState.ACTING, at=NOW),
        lambda: unknown.read(ACTION.id),
        unknown.list_open,
        unknown.list_newest,
        lambda: unknown.list_past(0, acted_since=0),
    ):
        with pytest.raises(SourceError, match="kube-system"):
            use()
    assert [each.state for each in Journal(engine, east).list_newest()] == [ActionState.PLANNED]


def test_an_open_action_is_made_again_only_when_its_row_has_changed(engine: Engine):
    journal, other_replica = Journal(engine, east), Journal(engine, east)
    for name in ("same", "moved", "ended"):
        journal.add(make(name, ActionState.WARNED))
    same, moved, ended = sorted(journal.list_open(), key=lambda each: ("same", "moved", "ended").index(each.id))
    other_replica.move(moved, ActionState.WARNED, at=moved.updated_at, note=Message("warned again", "再次警告"))
    other_replica.move(ended, ActionState.ENDED, at=NOW, ended_at=NOW)
    found = {each.id: each for each in journal.list_open()}
    assert found["same"] is same
    assert [step.note.en for step in found["moved"].steps][-1] == "warned again"
    assert set(found) == {"same", "moved"}


def test_outcomes_are_those_that_were_undone_or_have_changed_an_object(engine: Engine):
    journal = Journal(engine, east)
    for row in (
        make("reverted", ActionState.REVERTED, ended_at=NOW - 100),
        make("reverted-long-ago", ActionState.REVERTED, ended_at=NOW - 10_000),
        make("acted", ActionState.VERIFIED, acted_at=NOW - 10),
        make("ended-by-itself", ActionState.ENDED, ended_at=NOW - 100),
    ):
        journal.add(row)
    found = journal.list_past(NOW - 1000, acted_since=NOW - 60)
    assert sorted((each.state, each.acted_at, each.ended_at) for each in found) == [
        (ActionState.REVERTED, None, NOW - 100),
        (ActionState.VERIFIED, NOW - 10, None),
    ]


def test_the_switch_is_what_was_set_last(engine: Engine):
    switch = Switch(engine, None, namespace="")
    assert switch.read() == SwitchState(False)
    assert switch.find_reason() is None
    switch.set(is_off=True, by="alice", reason="升级", at=NOW)
    assert Switch(engine, None, namespace="").read() == SwitchState(True, "alice", NOW, "升级")
    assert (reason := switch.find_reason()) is not None
    assert "alice" in reason.en
    switch.set(is_off=False, by="bob", reason="", at=NOW + 1)
    assert switch.find_reason() is None
