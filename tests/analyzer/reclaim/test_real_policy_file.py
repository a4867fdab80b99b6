"""Only what a policy of the file says is done, on a real control plane."""

from pathlib import Path

import pytest

from gpusteward.analyzer.reclaim.execution.journal import ActionState
from gpusteward.analyzer.reclaim.policies.resolve import WatchedPolicies
from tests.analyzer.reclaim.test_real_prohibitions import expect_nothing, read_replicas, start
from tests.analyzer.reclaim.world import World

pytestmark = pytest.mark.slow

SUSPEND_ALL = "policies: [{name: all, action: suspend, window: 60m, grace: 30m, highest_chance: 1}]"


@pytest.fixture
def file(world: World, tmp_path: Path) -> Path:
    """The policy file of the reclaimer: everything that is idle for an hour is suspended."""
    path = tmp_path / "policies.yaml"
    path.write_text(SUSPEND_ALL)
    use(world, path)
    return path


def use(world: World, path: Path | None) -> None:
    """A new process with this policy file."""
    world.policies = WatchedPolicies(path)
    world.start()


def test_a_policy_of_the_file_acts(world: World, node: str, file: Path) -> None:
    item = start(world)
    world.run_until_acted()
    assert read_replicas(world, item) == 0


@pytest.mark.parametrize(
    "text",
    [
        "policies: [{name: narrow, action: suspend, window: 60m, match: {namespaces: team-of-others}}]",
        "policies: []",
        "policies: [{name: without-action, window: 60m, grace: 30m, highest_chance: 1}]",
    ],
    ids=["narrow", "none", "without action"],
)
def test_never_acts_where_no_policy_of_the_file_matches(world: World, node: str, file: Path, text: str) -> None:
    file.write_text(text)
    item = start(world)
    world.rest(minutes=600)
    expect_nothing(world, item, "policy")
    assert world.sender.kinds() == [], "nor is anybody warned"
    assert world.reclaimer.last_plan is not None
    assert world.reclaimer.last_plan.stopped_by is None, "such a file is no error"


UNUSABLE = {
    "missing": None,
    "empty": "",
    "cut off": "policies:\n",
    "invalid": f"{SUSPEND_ALL}\nwindw: 5\n",
    "empty match": "policies:\n- name: a\n  action: suspend\n  window: 60m\n  match:\n    namespaces: ''\n",
}


@pytest.mark.parametrize("when", ["at the start", "later", "after the warning"])
@pytest.mark.parametrize("text", UNUSABLE.values(), ids=list(UNUSABLE))
def test_never_acts_while_the_policy_file_is_empty_or_invalid(
    world: World, node: str, file: Path, text: str | None, when: str
) -> None:
    item = start(world)
    if when == "after the warning":
        world.rest(minutes=75)
        for _ in range(2):
            world.cycle()
        assert world.sender.kinds() == ["warning"]
    warned = len(world.sender.notices)
    file.unlink()
    if text is not None:
        file.write_text(text)
    if when == "at the start":
        use(world, file)
    world.rest(minutes=75)
    expect_nothing(world, item, "policy_file")
    use(world, file)
    expect_nothing(world, item, "policy_file")  # a restart changes nothing
    assert len(world.sender.notices) == warned, "nobody is warned"
    plan = world.reclaimer.last_plan
    assert plan is not None
    assert plan.stopped_by is not None
    assert str(file) in plan.stopped_by.en
    file.write_text(SUSPEND_ALL)
    world.run_until_acted()
    assert read_replicas(world, item) == 0


def test_never_acts_without_a_policy_file(world: World, node: str) -> None:
    use(world, None)
    item = start(world)
    world.rest(minutes=75)
    expect_nothing(world, item, "policy_file")
    plan = world.reclaimer.last_plan
    assert plan is not None
    assert plan.stopped_by is not None
    assert "gpusteward policies --example" in plan.stopped_by.en


def test_never_acts_on_a_file_that_became_invalid_between_the_plan_and_the_change(
    world: World, node: str, file: Path
) -> None:
    item = start(world)
    world.on_step = lambda step, _action: file.write_text("") if step == "journalled" else None
    world.start()
    world.work()
    world.rest(minutes=75)
    for _ in range(12):
        world.cycle()
    assert read_replicas(world, item) == 1
    assert world.list_writes() == []
    assert world.list_actions()[0].state is ActionState.WARNED, world.explain()
