"""Interrupted actions: a process that ends between any two steps, a lost Lease, an API server or a database that does
not respond. Nothing is done twice, nothing is forgotten."""

import json
from pathlib import Path

import pytest

from gpusteward.analyzer.api.v1.reclaim.actions import make_action_row
from gpusteward.analyzer.reclaim.execution.executor import COMMAND_SECONDS, STEPS
from gpusteward.analyzer.reclaim.execution.journal import Action, ActionState, ReclaimError, TargetObject
from gpusteward.analyzer.reclaim.kinds.objects import ACTION, KubeObject
from gpusteward.analyzer.reclaim.open_actions import VERIFY_SECONDS
from gpusteward.analyzer.reclaim.policies.policy import ReclaimAction
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.messages import reclaim as messages
from tests.analyzer.reclaim.custom_kinds import add_pods, create, custom, define
from tests.analyzer.reclaim.memory_cluster import MemoryCluster, make_reclaimer
from tests.analyzer.reclaim.test_real_prohibitions import patch, read_replicas, start
from tests.analyzer.reclaim.world import World, enforce_rules, suspend_policy
from tests.analyzer.usage_tables import working
from tests.kubernetes.cluster import Cluster, Json, path_of, wait_for

pytestmark = pytest.mark.slow


class Killed(BaseException):
    """The process ends here."""


class Killer:
    """Ends the process once, after a step."""

    def __init__(self, step: str) -> None:
        self.step = step

    def __call__(self, step: str, _action: Action) -> None:
        if step == self.step:
            self.step = ""
            raise Killed(step)


ACTING = ("journalled", "patched", "told", "acted")
RESTORING = ("restoring", "unpatched", "restored")


def spec_of(world: World, item: dict) -> str:
    return json.dumps(world.kubernetes.request("GET", path_of(item))["spec"], sort_keys=True)


def count_patches(world: World) -> int:
    """Of Deployments, without those that were refused since the object had just changed. Each change is followed by a
    request that gives its fields up."""
    events = [event for event in world.list_writes() if "deployments" in event["requestURI"]]
    return sum(event["responseStatus"]["code"] == 200 for event in events)


def test_the_steps_are_those_that_are_tried_here() -> None:
    assert set(STEPS) == {*ACTING, *RESTORING, "costs_set", "commanded"}


@pytest.mark.parametrize("step", ACTING)
def test_a_process_that_ends_while_acting(kubernetes: Cluster, tmp_path: Path, node: str, step: str) -> None:
    world = World(kubernetes, tmp_path, on_step=Killer(step))
    item = start(world)
    with pytest.raises(Killed):
        world.run_until_acted()
    was_changed = read_replicas(world, item) == 0
    assert was_changed == (step != "journalled")
    world.start()
    for _ in range(4):
        world.cycle()
    assert read_replicas(world, item) == 0, world.explain()
    assert count_patches(world) == 2, "changed once, whatever happened"
    [action] = world.list_actions()
    assert action.state is ActionState.VERIFIED, world.explain()
    assert action.original == {"/spec/replicas": 1}
    assert world.sender.kinds() == ["warning", "action"], "told once"
    world.close()


@pytest.mark.parametrize("step", RESTORING)
def test_a_process_that_ends_while_restoring(kubernetes: Cluster, tmp_path: Path, node: str, step: str) -> None:
    world = World(kubernetes, tmp_path, on_step=Killer(step))
    item = start(world)
    before = spec_of(world, item)
    [action] = world.run_until_acted()
    with pytest.raises(Killed):
        world.reclaimer.restore(action.id, by="alice")
    world.start()
    world.cycle()
    [action] = world.list_actions()
    assert action.state is ActionState.RESTORED, world.explain()
    assert spec_of(world, item) == before
    assert world.sender.kinds() == ["warning", "action", "restored"]
    assert count_patches(world) == 4
    world.close()


COMMANDS = "/apis/bus.volcano.sh/v1alpha1/namespaces/{}/commands"


def start_volcano(kubernetes: Cluster, folder: Path, step: str) -> tuple[World, Json]:
    """A job of Volcano whose analyzer has ended after that step, and runs again."""
    define(kubernetes, "batch.volcano.sh", "Job")
    define(kubernetes, "bus.volcano.sh", "Command", "v1alpha1")
    world = World(kubernetes, folder, on_step=Killer(step))
    job = create(kubernetes, custom("batch.volcano.sh/v1", "Job", "mpi", world.namespace, {}))
    add_pods(kubernetes, job)
    kubernetes.wait_for_pods(world.namespace, 2)
    with pytest.raises(Killed):
        world.run_until_acted()
    world.start()
    return world, job


def list_commands(world: World) -> list[Json]:
    found = world.kubernetes.request("GET", COMMANDS.format(world.namespace))["items"]
    return [{"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", **each} for each in found]


def has_annotation(world: World, item: Json) -> bool:
    return ACTION in (world.kubernetes.request("GET", path_of(item))["metadata"].get("annotations") or {})


@pytest.mark.parametrize("step", ["patched", "commanded"])
def test_a_job_of_volcano_is_aborted_once_whether_its_process_ends_before_or_after_the_command(
    kubernetes: Cluster, tmp_path: Path, node: str, step: str
) -> None:
    """Before it nothing was stopped: after a while the next process starts again, and looks at usage before the
    command."""
    world, job = start_volcano(kubernetes, tmp_path, step)
    reads = len(world.source.reads)
    world.cycle()
    assert len(world.source.reads) == reads, "it is not acted on at first sight"
    [action] = world.list_actions()
    assert action.state is (ActionState.ACTING if step == "patched" else ActionState.ACTED), world.explain()
    assert has_annotation(world, job)
    if step == "patched":
        world.cycle()
        world.rest(minutes=COMMAND_SECONDS / 60)
        world.cycle()
    world.cycle()
    assert [each["action"] for each in list_commands(world)] == ["AbortJob"], world.explain()
    assert world.list_actions()[0].state is ActionState.ACTED, world.explain()
    world.close()


def test_never_loses_the_record_of_a_job_that_volcano_is_about_to_abort(
    kubernetes: Cluster, tmp_path: Path, node: str
) -> None:
    """Its controller deletes the command first, and writes the phase afterwards."""
    world, job = start_volcano(kubernetes, tmp_path, "commanded")
    for command in list_commands(world):
        kubernetes.delete(command)
    world.cycle()
    [action] = world.list_actions()
    assert action.state is ActionState.ACTING, world.explain()
    assert has_annotation(world, job)
    patch(world, job, {"status": {"state": {"phase": "Aborting"}}})
    world.cycle()
    assert [each.state for each in world.list_actions()] == [ActionState.ACTED], world.explain()
    assert world.reclaimer.restore(action.id, by="alice").state is ActionState.RESTORED
    assert [each["action"] for each in list_commands(world)] == ["ResumeJob"]
    assert not has_annotation(world, job)
    world.close()


def test_a_person_restores_an_interrupted_action_that_no_cycle_has_recovered(
    kubernetes: Cluster, tmp_path: Path, node: str
) -> None:
    world = World(kubernetes, tmp_path, on_step=Killer("patched"))
    item = start(world)
    with pytest.raises(Killed):
        world.run_until_acted()
    assert read_replicas(world, item) == 0
    world.start(holder="analyzer-1")  # it does not hold the Lease
    [action] = world.list_actions()
    assert action.state is ActionState.ACTING
    assert make_action_row(action, "en").is_restorable
    assert world.reclaimer.restore(action.id, by="alice").state is ActionState.RESTORED
    assert read_replicas(world, item) == 1
    assert not has_annotation(world, item)
    world.close()


def test_a_lease_that_is_lost_in_mid_action_stops_this_and_all_further_actions(
    kubernetes: Cluster, tmp_path: Path, node: str
) -> None:
    """Another analyzer takes the Lease after the action was written to the journal, and before the change."""

    def steal(step: str, _action: Action) -> None:
        if step == "journalled" and not stolen:
            stolen.append(step)
            found = kubernetes.request("GET", lease)
            found["spec"]["holderIdentity"] = "analyzer-1"
            kubernetes.request("PUT", lease, found)

    stolen: list[str] = []
    world = World(kubernetes, tmp_path, on_step=steal)
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{world.own}/leases/gpusteward-reclaim"
    items = [start(world, name) for name in ("a", "b")]
    world.rest(minutes=65)
    for _ in range(10):
        world.cycle()
    assert stolen
    assert [read_replicas(world, item) for item in items] == [1, 1]
    assert {each.state for each in world.list_actions()} == {ActionState.WARNED}
    notes = [step.note.en for each in world.list_actions() for step in each.steps]
    assert any("the Lease was lost" in note for note in notes), notes
    assert [event for event in world.list_writes() if "deployments" in event["requestURI"]] == []
    world.close()


def test_the_owner_restores_by_hand(world: World, node: str) -> None:
    item = start(world)
    world.run_until_acted()
    patch(world, item, {"spec": {"replicas": 1}})
    world.cycle()
    [action] = world.list_actions()
    assert action.state is ActionState.REVERTED
    assert "spec.replicas: 0 -> 1" in action.error
    with pytest.raises(ReclaimError, match="nothing to restore"):
        world.reclaimer.restore(action.id, by="alice")
    assert read_replicas(world, item) == 1


def test_a_value_that_is_not_ours_any_more_is_not_restored(world: World, node: str) -> None:
    item = start(world)
    [action] = world.run_until_acted()
    patch(world, item, {"spec": {"replicas": 5}})
    with pytest.raises(ReclaimError, match="not ours any more"):
        world.reclaimer.restore(action.id, by="alice")
    assert read_replicas(world, item) == 5
    assert world.list_actions()[0].state is ActionState.REVERTED


def test_an_object_that_is_deleted_meanwhile_ends_its_action(world: World, node: str) -> None:
    item = start(world)
    world.run_until_acted()
    world.kubernetes.delete(item)
    wait_for(lambda: not world.kubernetes.exists(item))
    world.cycle()
    assert world.list_actions()[0].state is ActionState.ENDED


def test_after_a_restore_it_is_left_alone_for_the_cool_down(world: World, node: str) -> None:
    item = start(world)
    [action] = world.run_until_acted()
    world.reclaimer.restore(action.id, by="alice")
    wait_for(lambda: len(world.kubernetes.list_pods(world.namespace)) == 1)
    world.kubernetes.wait_for_pods(world.namespace, 1)
    world.rest(minutes=75)
    for _ in range(12):
        world.cycle()
    assert "cool_down" in world.list_failed("web")
    assert read_replicas(world, item) == 1


def test_a_change_without_effect_is_undone(world: World, node: str) -> None:
    """A controller that does not know the annotation: the pods stay."""
    define(world.kubernetes, "serving.kserve.io", "InferenceService")
    spec = {"predictor": {"minReplicas": 1}}
    item = create(world.kubernetes, custom("serving.kserve.io/v1", "InferenceService", "old", world.namespace, spec))
    add_pods(world.kubernetes, item)
    world.kubernetes.wait_for_pods(world.namespace, 2)
    world.run_until_acted()
    world.now += VERIFY_SECONDS
    world.cycle()
    [action] = world.list_actions()
    assert action.state is ActionState.FAILED, world.explain()
    assert "still there" in action.error
    annotations = world.kubernetes.request("GET", path_of(item))["metadata"].get("annotations", {})
    assert annotations == {}


@pytest.mark.parametrize("action_of_policy", [ReclaimAction.SUSPEND, ReclaimAction.NOTIFY])
def test_a_person_can_suspend_what_is_idle_at_once_and_nothing_else(
    world: World, node: str, action_of_policy: ReclaimAction
) -> None:
    """The preview shows what would change, also where the policy only tells."""
    item = start(world)
    world.policies.policy = suspend_policy(action=action_of_policy)
    key = WorkloadKey("Deployment", world.namespace, "web")
    world.other_row = working()
    world.cycle()
    with pytest.raises(ReclaimError, match="not idle"):
        world.reclaimer.suspend(key, by="alice")
    world.other_row = world.empty
    world.rest(minutes=20)
    world.cycle()
    world.cycle()
    preview = world.reclaimer.preview(key)
    assert [change.text for change in preview.changes] == ["spec.replicas: 1 -> 0"]
    action = world.reclaimer.suspend(key, by="alice")
    assert (action.state, action.by) == (ActionState.ACTED, "alice")
    assert read_replicas(world, item) == 0
    annotations = world.kubernetes.request("GET", path_of(item))["metadata"]["annotations"]
    assert annotations[ACTION] == action.id
    assert annotations["gpusteward.io/reclaimed-by"] == "alice"
    assert annotations["gpusteward.io/original-replicas"] == "1"


def test_a_database_that_is_away_means_that_nothing_is_done(world: World, node: str) -> None:
    item = start(world)
    world.rest(minutes=65)
    for _ in range(3):
        world.cycle()
    with world.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE actions RENAME TO away")
    writes = len(world.list_writes())
    for _ in range(10):
        with pytest.raises(Exception, match="journal"):
            world.cycle()
        world.now += 300
    assert len(world.list_writes()) == writes
    assert read_replicas(world, item) == 1


def test_an_api_server_that_is_away_costs_the_stage_and_nothing_else(
    kubernetes: Cluster, tmp_path: Path, node: str
) -> None:
    with kubernetes.another_api_server() as server:
        world = World(server.cluster, tmp_path)
        item = start(world)
        world.rest(minutes=65)
        for _ in range(3):
            world.cycle()
        result = world.judge()
        server.stop()
        world.now += 2400
        world.reclaimer.reclaim(result)
        plan = world.reclaimer.last_plan
        assert plan is not None
        assert plan.stopped_by is not None
        server.start()
        world.now -= 2100
        world.run_until_acted()
        assert read_replicas(world, item) == 0
        world.close()


def test_a_change_that_arrives_after_its_request_was_given_up_is_not_lost(world: World, node: str) -> None:
    """The server carries a request out although the client has waited long enough, and has looked already."""
    item = start(world)
    world.rest(minutes=65)
    for _ in range(2):
        world.cycle()
    [action] = world.list_actions()
    target = TargetObject("Deployment", "web", item["metadata"]["uid"], path_of(item))
    late = {"target": target, "original": {"/spec/replicas": 1}, "patch": {"/spec/replicas": 0}}
    world.journal.move(action, ActionState.WARNED, at=world.now, note=messages.INTERRUPTED, **late)
    patch(world, item, {"spec": {"replicas": 0}, "metadata": {"annotations": {ACTION: action.id}}})
    wait_for(lambda: not world.kubernetes.list_pods(world.namespace))
    world.cycle()
    assert world.list_actions()[0].state is ActionState.ACTED, world.explain()
    world.reclaimer.restore(action.id, by="alice")
    assert read_replicas(world, item) == 1


def test_a_late_change_is_not_forgotten_while_another_analyzer_holds_the_lease(world: World, node: str) -> None:
    """The pods are gone, so the idle spell seems to be over: the action is kept until its object can be looked at."""
    item = start(world)
    world.rest(minutes=65)
    for _ in range(2):
        world.cycle()
    [action] = world.list_actions()
    target = TargetObject("Deployment", "web", item["metadata"]["uid"], path_of(item))
    late = {"target": target, "original": {"/spec/replicas": 1}, "patch": {"/spec/replicas": 0}}
    world.journal.move(action, ActionState.WARNED, at=world.now, note=messages.INTERRUPTED, **late)
    patch(world, item, {"spec": {"replicas": 0}, "metadata": {"annotations": {ACTION: action.id}}})
    wait_for(lambda: not world.kubernetes.list_pods(world.namespace))
    first = world.reclaimer
    world.start(holder="analyzer-1")
    world.cycle()
    assert world.list_actions()[0].state is ActionState.WARNED, world.explain()
    first.close()  # gives the Lease up
    world.reclaimer.switch_off(by="alice")  # looking is no action
    world.cycle()
    assert world.list_actions()[0].state is ActionState.ACTED, world.explain()


def test_annotations_that_could_not_be_taken_off_after_a_revert_are_taken_off_later(
    world: World, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = start(world)
    world.run_until_acted()
    patch(world, item, {"spec": {"replicas": 1}})

    def fail(*_: object, **__: object) -> None:
        raise SourceError(Message("the connection is lost", "the connection is lost"))

    with monkeypatch.context() as broken:
        broken.setattr(world.cluster, "patch", fail)
        broken.setattr(world.lease, "renew", lambda: True)
        world.cycle()
    assert world.list_actions()[0].state is not ActionState.REVERTED
    world.cycle()
    assert world.list_actions()[0].state is ActionState.REVERTED, world.explain()
    assert ACTION not in (world.kubernetes.request("GET", path_of(item))["metadata"].get("annotations") or {})


class OtherCluster(MemoryCluster):
    """Another cluster, without any of these workloads; its Lease is always free."""

    def read_uid(self) -> str:
        return "another-cluster"

    def create_lease(self, namespace: str, name: str, spec: Json) -> KubeObject:
        return KubeObject("coordination.k8s.io/v1", "Lease", {"spec": spec})


def test_never_closes_an_action_of_another_cluster_on_the_same_ledger(world: World, node: str) -> None:
    """Neither cluster has a name. The object does not exist in the other one, and is still there in its own."""
    item = start(world)
    [action] = world.run_until_acted()
    other = make_reclaimer(world.settings, OtherCluster(0), world.engine, clock=lambda: world.now)
    assert world.result is not None
    other.reclaim(world.result)
    assert other.read_actions(visible=None) == []
    with pytest.raises(ReclaimError, match="there is no action"):
        other.restore(action.id, by="alice")
    assert [each.state for each in world.list_actions()] == [ActionState.ACTED]
    world.reclaimer.restore(action.id, by="alice")
    assert read_replicas(world, item) == 1


def test_never_begins_anything_while_the_cluster_is_not_known(world: World, node: str) -> None:
    """The right to read kube-system is missing: the plan and health say so. With the right it goes on by itself."""
    item = start(world)
    rules = enforce_rules()
    names = {"resourceNames": [world.own, world.namespace]}
    world.kubernetes.grant(
        world.account, [rule | names if rule["resources"] == ["namespaces"] else rule for rule in rules]
    )
    wait_for(lambda: not may_read_kube_system(world))
    world.work()
    world.rest(minutes=75)
    for _ in range(3):
        with pytest.raises(SourceError, match="kube-system"):
            world.cycle()
    plan = world.reclaimer.last_plan
    assert plan is not None
    assert plan.stopped_by is not None
    assert "kube-system" in plan.stopped_by.en
    assert "403" in str(world.reclaimer.describe()["error"])
    with pytest.raises(SourceError, match="kube-system"):
        world.reclaimer.suspend(WorkloadKey("Deployment", world.namespace, "web"), by="alice")
    assert world.list_writes() == []
    world.kubernetes.grant(world.account, rules)
    wait_for(lambda: may_read_kube_system(world))
    world.run_until_acted()
    assert read_replicas(world, item) == 0


def may_read_kube_system(world: World) -> bool:
    try:
        return world.cluster.read("/api/v1/namespaces/kube-system") is not None
    except SourceError:
        return False
