"""What requests of inference servers forbid, and what their silence allows, on a real control plane."""

import pytest

from gpusteward.analyzer.reclaim.execution.journal import ActionState
from gpusteward.core.verdicts import Signature
from tests.analyzer.judge.test_requests import blips, served
from tests.analyzer.reclaim.test_real_prohibitions import expect_nothing, read_replicas, start
from tests.analyzer.reclaim.world import World
from tests.analyzer.usage_tables import resting

pytestmark = pytest.mark.slow


def test_a_server_that_nobody_asks_is_suspended(world: World, node: str) -> None:
    item = start(world)
    world.other_row = resting() | served()
    [action] = world.run_until_acted()
    assert action.state is ActionState.ACTED
    assert action.evidence["signature"] == Signature.NO_REQUESTS
    assert read_replicas(world, item) == 0


def test_never_while_its_server_has_requests_however_still_its_gpus_are(world: World, node: str) -> None:
    item = start(world)
    world.other_row = resting() | served(2)
    world.rest(minutes=300)
    expect_nothing(world, item, "signature")


def test_never_by_silence_of_the_counters_alone(world: World, node: str) -> None:
    """The GPU works in less than 1 % of the time: nobody has said that this is enough."""
    item = start(world)
    world.other_row = blips() | served()
    world.rest(minutes=300)
    expect_nothing(world, item, "signature")


def test_never_counts_idle_time_in_which_the_gpu_worked(world: World, node: str) -> None:
    """Five hours of health checks, then none: the window begins after the last one."""
    item = start(world)
    world.other_row = blips() | served()
    world.rest(minutes=300)
    world.other_row = resting() | served()
    world.rest(minutes=40)
    expect_nothing(world, item, "window", cycles=3)
    world.rest(minutes=20)
    for _ in range(10):
        world.cycle()
    assert read_replicas(world, item) == 0, world.explain()
