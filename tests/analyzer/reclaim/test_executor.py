"""Single steps of an action, with a cluster that refuses some of them."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
from sqlalchemy import Engine

from gpusteward.analyzer.judge.activity import ActivityRule
from gpusteward.analyzer.reclaim.cluster import Cluster
from gpusteward.analyzer.reclaim.execution.changes import Change
from gpusteward.analyzer.reclaim.execution.executor import SELF, Executor
from gpusteward.analyzer.reclaim.execution.journal import Action, ActionState, Journal
from gpusteward.analyzer.reclaim.execution.usage_check import UsageCheck
from gpusteward.analyzer.reclaim.execution.warnings import Notices
from gpusteward.analyzer.reclaim.kinds.objects import ACTION, DELETION_COST, KubeObject
from gpusteward.analyzer.reclaim.permission import Permission
from gpusteward.core.errors import SourceError
from gpusteward.core.kinds import KINDS
from gpusteward.core.messages import Message
from gpusteward.kubernetes.api import NotFoundError
from gpusteward.kubernetes.writes import ApiWriter, ConflictError, ForbiddenError, Json
from gpusteward.messages import reclaim as messages
from tests.analyzer.reclaim.test_guards import NOW, OPEN
from tests.analyzer.reclaim.test_usage_check import HELD
from tests.analyzer.reclaim.world import FakeSource

WARNED = replace(OPEN, state=ActionState.WARNED, by=SELF)


class RefusingServer(ApiWriter):
    """Keeps objects by path. `refused`: words in the address of a write -> the error; dry runs have `dry` in theirs."""

    def __init__(self, *objects: KubeObject, refused: Mapping[str, SourceError] | None = None) -> None:
        super().__init__("http://127.0.0.1:1")
        self.objects = {one.path: {"apiVersion": one.version, "kind": one.kind, **one.json} for one in objects}
        self.refused = dict(refused or {})
        self.writes: list[tuple[str, bool]] = []
        self.before_create: Callable[[], object] = lambda: None  # what happens while the request is on its way

    def read_json(self, path: str, kind: Any, *, limit_bytes: int | None = None, accept: str = "") -> Any:
        if "?limit=" in path:
            below = f"{path.partition('?')[0]}/"
            found = {"items": [item for each, item in self.objects.items() if each.startswith(below)]}
            return msgspec.json.decode(msgspec.json.encode(found), type=kind)
        if path not in self.objects:
            raise NotFoundError("not found", http_status=404)
        return self.objects[path]

    def patch(self, path: str, body: Json, *, dry_run: bool = False, send_before: float | None = None) -> Json:
        self._refuse_write(path, dry_run)
        item = self.objects[path]
        found: Json = {**item, "metadata": {**item["metadata"]}, "spec": {**item["spec"], **body.get("spec", {})}}
        notes = {**found["metadata"].get("annotations", {}), **body["metadata"].get("annotations", {})}
        found["metadata"]["annotations"] = {name: value for name, value in notes.items() if value is not None}
        if not dry_run:
            self.objects[path] = found
        return found

    def create(self, path: str, body: Json, *, dry_run: bool = False, send_before: float | None = None) -> Json:
        self._refuse_write(path, dry_run)
        self.before_create()
        created = f"{path}/{body['metadata'].get('name', '')}"
        if created in self.objects:
            raise ConflictError("already exists")
        if not dry_run:
            self.objects[created] = body
        return body

    def _refuse_write(self, path: str, dry_run: bool) -> None:
        self.writes.append((path, dry_run))
        for word, error in self.refused.items():
            if word in (f"dry {path}" if dry_run else f"real {path}"):
                raise error


class Allowed(Permission):
    """Nobody objects."""

    is_leader = True  # type: ignore[assignment]

    def __init__(self) -> None: ...

    def find_objection(self) -> Message | None:
        return None


def make(version: str, kind: str, name: str, spec: Any = None, **metadata: Any) -> KubeObject:
    about = {"name": name, "namespace": "team", "uid": name, "resourceVersion": "1", **metadata}
    return KubeObject(version, kind, {"metadata": about, "spec": spec or {}, "status": {}})


def act(engine: Engine, server: RefusingServer, change: Change, *, source: FakeSource | None = None) -> Action:
    journal = Journal(engine, lambda: "east")
    executor = Executor(
        Cluster(server),
        journal,
        permission=Allowed(),
        notices=Notices(None),
        counts=Counter(),
        clock=lambda: NOW,
    )
    check = UsageCheck(source or FakeSource(), [HELD], verdict_at=NOW, rule=ActivityRule(), clock=lambda: NOW)
    return executor.act(journal.add(WARNED), change, evidence={}, check=check, facts_at=time.monotonic())


JOB = make("batch.volcano.sh/v1alpha1", "Job", "mpi")


def test_the_dry_run_also_tries_the_command(engine: Engine) -> None:
    server = RefusingServer(JOB, refused={"dry /apis/bus": ForbiddenError("no right")})
    action = act(engine, server, Change(KINDS["batch.volcano.sh", "Job"], JOB, {}))
    assert action.state is ActionState.REFUSED
    assert {dry_run for _, dry_run in server.writes} == {True}


def test_a_command_that_is_refused_leaves_no_annotations(engine: Engine) -> None:
    """Or the next cycle would take the annotation for an action that was done."""
    server = RefusingServer(JOB, refused={"real /apis/bus": ForbiddenError("no right")})
    action = act(engine, server, Change(KINDS["batch.volcano.sh", "Job"], JOB, {}))
    assert action.state is ActionState.REFUSED
    assert server.objects[JOB.path]["metadata"]["annotations"] == {}


def test_work_that_began_before_the_command_takes_the_annotations_off_again(engine: Engine) -> None:
    """The annotation of a job of Volcano stops nothing; the command does."""
    server = RefusingServer(JOB, refused={})
    working = FakeSource(working={HELD.container.pod})
    action = act(engine, server, Change(KINDS["batch.volcano.sh", "Job"], JOB, {}), source=working)
    assert action.state is ActionState.WARNED
    assert "work was seen" in action.steps[-1].note.en
    assert server.objects[JOB.path]["metadata"]["annotations"] == {}
    assert [path for path, dry_run in server.writes if "commands" in path and not dry_run] == []


def test_the_journal_keeps_what_happened_in_both_languages(engine: Engine) -> None:
    refusal = ForbiddenError(messages.NOT_CHANGED, field="spec.suspend")
    server = RefusingServer(JOB, refused={"dry /apis/bus": refusal})
    refused = act(engine, server, Change(KINDS["batch.volcano.sh", "Job"], JOB, {}))
    stored = Journal(engine, lambda: "east").read(refused.id)
    assert stored is not None
    assert stored.steps[-1].note == stored.failure == refusal.as_message()
    assert stored.error == refusal.text("en") != refusal.text("zh")


def test_a_pool_that_is_not_lowered_keeps_the_deletion_costs_of_its_owner(engine: Engine) -> None:
    pool = make("apps/v1", "Deployment", "pool", {"replicas": 3})
    pods = [make("v1", "Pod", "a", annotations={DELETION_COST: "7"}), make("v1", "Pod", "b")]
    server = RefusingServer(pool, *pods, refused={"real /apis/apps": ConflictError("changed meanwhile")})
    costs = {pod.name: (pod, -1000 + number) for number, pod in enumerate(pods)}
    action = act(engine, server, Change(KINDS["apps", "Deployment"], pool, {"/spec/replicas": 1}, costs))
    assert action.state is ActionState.WARNED
    notes = [server.objects[pod.path]["metadata"]["annotations"] for pod in pods]
    assert notes == [{DELETION_COST: "7"}, {}]
    assert ACTION not in server.objects[pool.path]["metadata"].get("annotations", {})


def test_a_pool_that_begins_to_work_keeps_the_deletion_costs_of_its_owner(engine: Engine) -> None:
    pool, pod = make("apps/v1", "Deployment", "pool", {"replicas": 3}), make("v1", "Pod", "a")
    server = RefusingServer(pool, pod, refused={})
    change = Change(KINDS["apps", "Deployment"], pool, {"/spec/replicas": 1}, {"a": (pod, -1000)})
    action = act(engine, server, change, source=FakeSource(working={HELD.container.pod}))
    assert action.state is ActionState.WARNED
    assert server.objects[pod.path]["metadata"]["annotations"] == {}
    assert server.objects[pool.path]["spec"]["replicas"] == 3
