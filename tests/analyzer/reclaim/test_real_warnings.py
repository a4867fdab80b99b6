"""Warnings through the real outbox to a real receiver: only what arrived there counts."""

from typing import Any

import pytest

from gpusteward.analyzer.reclaim.plan import ActionState
from tests.analyzer.notify.notifier_setup import QUICK, running_notifier
from tests.analyzer.notify.test_dispatcher import channel
from tests.analyzer.reclaim.test_real_prohibitions import read_replicas, start
from tests.analyzer.reclaim.world import World
from tests.fakes.receivers import Receiver
from tests.kubernetes.cluster import wait_for

pytestmark = pytest.mark.slow


def test_a_warning_counts_from_the_time_it_was_received(world: World, node: str) -> None:
    item = start(world)
    with Receiver() as receiver:
        sections: dict[str, Any] = {"notify": channel(receiver) | {"idle_minutes": 100_000}, "outbox": QUICK}
        world.settings = world.settings.model_validate(
            {"reclaim": world.settings.reclaim.model_dump(exclude={"signing_key"}), **sections}
        )
        with running_notifier(world.settings, world.engine, clock=lambda: world.now) as notifier:
            world.sender = notifier  # type: ignore[assignment]
            world.start()
            receiver.fault = "500"
            world.rest(minutes=65)
            for _ in range(10):
                world.cycle()
            receiver.wait_for(lambda it: len(it.calls) > 1)
            assert world.list_failed("web") == ["warned"]
            assert read_replicas(world, item) == 1
            receiver.fault = ""
            repaired_at = world.now
            wait_for(lambda: _tick(world) or _is_delivered(world))
            for _ in range(10):
                world.cycle()
                if read_replicas(world, item) == 0:
                    break
            [action] = world.list_actions(ActionState.ACTED, ActionState.VERIFIED)
            assert action.acted_at is not None
            assert action.acted_at - repaired_at >= 1800
            wait_for(lambda: _tick(world) or len(receiver.accepted) >= 2)


def _tick(world: World) -> bool:
    """The dispatcher tries again after some time."""
    world.now += 0.1
    return False


def _is_delivered(world: World) -> bool:
    """Without a cycle in between: time stands still meanwhile."""
    keys = [key for action in world.list_actions() for warned in action.warnings for key in warned.keys]
    return bool(world.sender.read_delivered(keys))
