"""What the run under faults counts as a change of the cluster: a job of Volcano is stopped by a command."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpusteward.analyzer.reclaim.execution.journal import ActionState, JournalStep
from tests.analyzer.reclaim.chaos.fleet import Subject
from tests.analyzer.reclaim.chaos.invariants import ACTION, INVARIANTS, Observer, check_journal
from tests.analyzer.reclaim.test_guards import OPEN
from tests.kubernetes.cluster import Json

UNRECORDED = INVARIANTS[10]
STATES = (ActionState.WARNED, ActionState.ACTING)


def see_job(observer: Observer, *, action: str | None) -> None:
    annotations = {} if action is None else {ACTION: action}
    metadata = {"name": "mpi", "uid": "job", "annotations": annotations}
    observer.see("MODIFIED", {"kind": "Job", "metadata": metadata, "spec": {}})


def see_command(observer: Observer, change: str, *, action: str, name: str) -> None:
    command: Json = {"kind": "Command", "metadata": {"name": name, "uid": name}, "action": action}
    observer.see(change, {**command, "target": {"uid": "job"}})


@pytest.fixture
def observer() -> Observer:
    job: Json = {"kind": "Job", "metadata": {"name": "mpi", "uid": "job"}, "spec": {}}
    observer = Observer(
        [Subject("mpi", "team", "VolcanoJob", target_uid="job", objects={"job": job})], window_seconds=60
    )
    observer.moment.now = 3600.0
    return observer


def find_violations(observer: Observer, folder: Path, *states: ActionState) -> dict[str, int]:
    steps = tuple(JournalStep(state, 0.0, "gpusteward") for state in states)
    moves = folder / "moves.log"
    moves.write_text("".join(json.dumps([OPEN.id, state.value, 0.0, ""]) + "\n" for state in states))
    check_journal(observer, [replace(OPEN, state=states[-1], steps=steps)], moves, {})
    return dict(observer.violations)


def test_an_annotation_without_a_command_has_stopped_nothing(observer: Observer, tmp_path: Path) -> None:
    """The process ended, or was held back, between the two."""
    see_job(observer, action=OPEN.id)
    see_job(observer, action=None)
    assert observer.suspensions == []
    assert find_violations(observer, tmp_path, *STATES, ActionState.WARNED) == {}


def test_never_overlooks_a_command_whose_action_was_given_up(observer: Observer, tmp_path: Path) -> None:
    """Also where the annotation was taken off before the phase showed it."""
    see_job(observer, action=OPEN.id)
    see_command(observer, "ADDED", action="AbortJob", name=f"gpusteward-{OPEN.id}-stop")
    see_command(observer, "DELETED", action="AbortJob", name=f"gpusteward-{OPEN.id}-stop")
    see_job(observer, action=None)
    assert [each.action for each in observer.suspensions] == [OPEN.id]
    assert observer.suspensions[0].released_at is not None
    assert find_violations(observer, tmp_path, *STATES, ActionState.WARNED) == {UNRECORDED: 1}


def test_a_job_that_is_resumed_is_not_suspended_twice(observer: Observer) -> None:
    see_job(observer, action=OPEN.id)
    see_command(observer, "ADDED", action="AbortJob", name=f"gpusteward-{OPEN.id}-stop")
    see_command(observer, "ADDED", action="ResumeJob", name=f"gpusteward-{OPEN.id}-resume")
    see_job(observer, action=None)
    assert [each.action for each in observer.suspensions] == [OPEN.id]
