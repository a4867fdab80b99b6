"""Giving back is always allowed, in every mode, whatever switch and policy file say: on a real control plane."""

import json
import subprocess
from pathlib import Path

import pytest

from gpusteward.analyzer.reclaim.execution.executor import COSTS
from gpusteward.analyzer.reclaim.execution.journal import Action, ActionState, ReclaimError
from gpusteward.analyzer.reclaim.kinds.objects import ACTION, DELETION_COST
from gpusteward.analyzer.reclaim.policies.pool_rule import KeepRule
from gpusteward.analyzer.reclaim.policies.resolve import WatchedPolicies
from gpusteward.core.errors import SourceError
from tests.analyzer.reclaim.test_real_prohibitions import patch, read_replicas, start
from tests.analyzer.reclaim.world import World, pool_policy, read_rules
from tests.analyzer.usage_tables import working
from tests.kubernetes.cluster import Json, path_of, wait_for

pytestmark = pytest.mark.slow

MODES = ("off", "observe", "enforce")
STATES = (*MODES, "switched off", "without policies")


def change_state(world: World, state: str, folder: Path) -> None:
    """A restart in another mode, or with a state in which nothing may be begun."""
    if state in MODES:
        world.settings = world.make_settings(state)
    if state == "without policies":
        file = folder / "policies.yaml"
        file.write_text("")
        world.policies = WatchedPolicies(file)
    world.start()
    if state == "switched off":
        world.reclaimer.switch_off(by="alice", reason="incident")


@pytest.mark.parametrize("state", STATES)
def test_restores_in_every_mode(world: World, node: str, tmp_path: Path, state: str) -> None:
    item = start(world, replicas=3)
    [action] = world.run_until_acted()
    change_state(world, state, tmp_path)
    world.cycle()
    assert [
        each.id for each in world.reclaimer.read_actions(visible=None, states=[ActionState.ACTED, ActionState.VERIFIED])
    ] == [action.id]
    assert world.reclaimer.suspended == (1, 3.0)
    assert world.reclaimer.describe()["suspended"] == 1
    assert world.reclaimer.restore(action.id, by="alice").state is ActionState.RESTORED
    assert read_replicas(world, item) == 3
    assert world.reclaimer.suspended == (0, 0.0)
    for _ in range(3):
        world.cycle()
    assert read_replicas(world, item) == 3


def test_never_begins_anything_in_mode_off(world: World, node: str, tmp_path: Path) -> None:
    """Also not what was warned about before."""
    item = start(world)
    world.rest(minutes=75)
    for _ in range(3):
        world.cycle()
    assert world.sender.kinds() == ["warning"]
    change_state(world, "off", tmp_path)
    for _ in range(12):
        world.cycle()
    assert read_replicas(world, item) == 1
    assert world.list_writes() == []
    assert [each.state for each in world.list_actions()] == [ActionState.ENDED]
    assert world.reclaimer.last_plan is None
    with pytest.raises(ReclaimError, match=r"reclaim\.mode is off"):
        world.reclaimer.suspend(world.judge().workloads.keys[0], by="alice")


def test_without_open_actions_mode_off_asks_nothing_of_the_api_server(world: World, node: str, tmp_path: Path) -> None:
    start(world)
    world.settings = world.make_settings("off")
    without = world.kubernetes.add_account(world.own, read_rules())
    world.start(account=without)
    before = len(world.kubernetes.read_audit(without.user))
    result = world.judge()
    reads = len(world.kubernetes.read_audit(without.user))
    world.reclaimer.reclaim(result)
    assert len(world.kubernetes.read_audit(without.user)) == reads >= before
    assert world.reclaimer.suspended == (0, 0.0)
    assert world.reclaimer.read_actions(visible=None) == []


def test_an_owner_who_changes_it_back_is_noticed_in_mode_off(world: World, node: str, tmp_path: Path) -> None:
    item = start(world)
    world.run_until_acted()
    change_state(world, "off", tmp_path)
    patch(world, item, {"spec": {"replicas": 1}})
    world.cycle()
    assert [each.state for each in world.list_actions()] == [ActionState.REVERTED]
    annotations = world.kubernetes.request("GET", path_of(item))["metadata"].get("annotations", {})
    assert ACTION not in annotations


def test_where_a_right_is_missing_the_message_has_the_command_that_undoes_it(
    world: World, node: str, tmp_path: Path
) -> None:
    item = start(world, replicas=2)
    [action] = world.run_until_acted()
    readers = [*read_rules(), {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}]
    world.kubernetes.grant(world.account, readers)
    with pytest.raises(ReclaimError) as raised:
        world.reclaimer.restore(action.id, by="alice")
    text = str(raised.value)
    assert "kubectl patch deployments.apps web --namespace" in text
    command = text[text.index("kubectl patch") :]
    body = json.loads(subprocess.run(["/bin/sh", "-c", _print_last(command)], capture_output=True, check=True).stdout)
    assert body["spec"] == {"replicas": 2}
    patch(world, item, body)  # as kubectl does
    assert read_replicas(world, item) == 2
    assert not [
        name
        for name in world.kubernetes.request("GET", path_of(item))["metadata"].get("annotations", {})
        if name.startswith("gpusteward.io/")
    ]


def test_a_restore_is_said_although_open_actions_cannot_be_listed_afterwards(
    world: World, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database goes away between the two: the owner must not be told that nothing was restored."""
    item = start(world, replicas=2)
    [action] = world.run_until_acted()

    def fail() -> list[Action]:
        raise SourceError("the database does not respond")

    monkeypatch.setattr(world.journal, "list_open", fail)
    assert world.reclaimer.restore(action.id, by="alice").state is ActionState.RESTORED
    assert read_replicas(world, item) == 2


def _print_last(command: str) -> str:
    """The last word of a command, as a shell reads it."""
    return f'set -- {command}; for last; do :; done; printf %s "$last"'


def start_pool(world: World) -> tuple[Json, list[str]]:
    """Six replicas, of which two work: four are kept."""
    item = start(world, "pool", replicas=6)
    names = sorted(each["metadata"]["name"] for each in world.kubernetes.wait_for_pods(world.namespace, 6))
    world.policies.policy = pool_policy(KeepRule(3600.0, headroom=1.25, patience_seconds=600.0))
    world.put_to_work(names[:2])
    return item, names


def lower(world: World) -> None:
    for _ in range(16):
        world.cycle()
        if world.list_actions(ActionState.ACTED, ActionState.VERIFIED):
            return
    raise AssertionError(world.explain())


def list_costs(world: World) -> dict[str, str]:
    """Deletion costs of pods that live on."""
    pods = (each["metadata"] for each in world.kubernetes.list_pods(world.namespace))
    living = [each for each in pods if "deletionTimestamp" not in each]
    return {
        each["name"]: each["annotations"][DELETION_COST]
        for each in living
        if DELETION_COST in (each.get("annotations") or {})
    }


@pytest.mark.parametrize("state", STATES)
def test_a_lowered_pool_is_scaled_up_again_in_every_mode_and_state(
    world: World, node: str, tmp_path: Path, state: str
) -> None:
    item, _ = start_pool(world)
    lower(world)
    assert read_replicas(world, item) == 4
    wait_for(lambda: len(world.kubernetes.list_pods(world.namespace)) == 4)
    change_state(world, state, tmp_path)
    world.rows = {each["metadata"]["name"]: working() for each in world.kubernetes.list_pods(world.namespace)}
    world.cycle()
    assert read_replicas(world, item) == 6, world.explain()
    assert world.list_actions()[0].state is ActionState.RESTORED
    assert world.list_actions()[0].waiting_gpus == 2.0, (
        "the cycle had read its pods before: nothing shows that they run"
    )


@pytest.mark.parametrize("state", STATES)
def test_never_leaves_deletion_costs_on_living_pods_after_a_revert(
    world: World, node: str, tmp_path: Path, state: str
) -> None:
    """Somebody scales the pool up again before Kubernetes has removed the pods; one had a cost of its own before."""
    item, names = start_pool(world)
    for number, name in enumerate(names[2:]):
        own = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": world.namespace}}
        patch(world, own, {"metadata": {"annotations": {DELETION_COST: str(number)}}})
    before = list_costs(world)

    def change_back(step: str, _action: object) -> None:
        if step == "patched":
            patch(world, item, {"spec": {"replicas": 6}})

    world.on_step = change_back
    world.start()
    lower(world)
    assert world.list_actions()[0].evidence[COSTS], "they were set"
    world.on_step = lambda _step, _action: None
    change_state(world, state, tmp_path)
    world.cycle()
    assert world.list_actions()[0].state is ActionState.REVERTED, world.explain()
    after = list_costs(world)
    assert after == {name: cost for name, cost in before.items() if name in after}


@pytest.mark.parametrize("step", ["costs_set", "patched"])
def test_never_leaves_deletion_costs_on_living_pods_after_a_crash(
    world: World, node: str, tmp_path: Path, step: str
) -> None:
    class Killed(BaseException):
        """The process ends here."""

    def end(reached: str, _action: object) -> None:
        if reached == step:
            raise Killed

    item, _ = start_pool(world)
    world.on_step = end
    world.start()
    with pytest.raises(Killed):
        lower(world)
    world.on_step = lambda _step, _action: None
    change_state(world, "switched off", tmp_path)
    if step == "costs_set":
        world.cycle()
        assert len(list_costs(world)) == 2, "the write may still arrive"
        world.cycle()
        assert list_costs(world) == {}
        assert read_replicas(world, item) == 6
        return
    world.cycle()
    [action] = world.list_actions()
    world.reclaimer.restore(action.id, by="alice")
    assert list_costs(world) == {}


def test_never_gives_back_what_another_analyzer_holds_the_lease_for(world: World, node: str) -> None:
    item, _ = start_pool(world)
    lower(world)
    wait_for(lambda: len(world.kubernetes.list_pods(world.namespace)) == 4)
    world.rows = {each["metadata"]["name"]: working() for each in world.kubernetes.list_pods(world.namespace)}
    world.settings = world.make_settings("off")
    world.start(holder="analyzer-1")
    world.cycle()
    assert read_replicas(world, item) == 4, "analyzer-0 holds it"
