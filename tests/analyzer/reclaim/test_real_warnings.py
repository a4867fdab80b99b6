"""Warnings through the real outbox to a real receiver: only what arrived there counts."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gpusteward.analyzer.notify.notices.formatting import format_time
from gpusteward.analyzer.notify.notifier import Notifier
from gpusteward.analyzer.reclaim.execution.journal import ActionState
from gpusteward.core.node.containers import WorkloadKey
from tests.analyzer.notify.notifier_setup import QUICK, running_notifier
from tests.analyzer.notify.test_dispatcher import channel
from tests.analyzer.reclaim.test_real_prohibitions import read_replicas, start
from tests.analyzer.reclaim.world import STEP_SECONDS, World
from tests.analyzer.usage_tables import working
from tests.fakes.receivers import Receiver
from tests.kubernetes.cluster import wait_for

pytestmark = pytest.mark.slow


@contextmanager
def warned_in_vain(world: World, receiver: Receiver) -> Iterator[Notifier]:
    """An idle workload, and a receiver that fails; cycles notify and reclaim, as those of the analyzer do."""
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
            run_cycle(world, notifier)
        receiver.wait_for(lambda it: len(it.calls) > 1)
        yield notifier


def run_cycle(world: World, notifier: Notifier) -> None:
    result = world.judge()
    notifier.notify(result)
    world.reclaimer.reclaim(result)
    world.now += STEP_SECONDS


def test_a_warning_counts_from_the_time_it_was_received(world: World, node: str) -> None:
    item = start(world)
    with Receiver() as receiver, warned_in_vain(world, receiver) as notifier:
        assert world.list_failed("web") == ["warned"]
        assert read_replicas(world, item) == 1
        receiver.fault = ""
        repaired_at = world.now
        wait_for(lambda: _tick(world) or _is_delivered(world))
        for _ in range(10):
            run_cycle(world, notifier)
            if read_replicas(world, item) == 0:
                break
        [action] = world.list_actions(ActionState.ACTED, ActionState.VERIFIED)
        assert action.acted_at is not None
        assert action.acted_at - repaired_at >= 1800
        wait_for(lambda: _tick(world) or len(receiver.accepted) >= 2)
    titles = [text.splitlines()[0] for text in receiver.texts]
    assert titles[:2] == [
        f"Idle GPUs {what} given back: {world.namespace}/Deployment/web" for what in ("will be", "were")
    ]
    as_of = receiver.texts[0].splitlines()[1]
    assert as_of == f"As of {format_time(repaired_at - STEP_SECONDS, 'UTC')}", "it says when it was true last"


def test_a_warning_that_waited_is_not_sent_after_the_workload_was_snoozed_or_works_again(
    world: World, node: str
) -> None:
    start(world)
    with Receiver() as receiver, warned_in_vain(world, receiver) as notifier:
        key = WorkloadKey("Deployment", world.namespace, "web")
        world.snoozes[key] = world.now + 86_400
        run_cycle(world, notifier)
        assert not notifier.counters.pending.get("notice")
        del world.snoozes[key]
        run_cycle(world, notifier)
        assert notifier.counters.pending["notice"] == 1
        world.other_row = working()
        run_cycle(world, notifier)
        assert not notifier.counters.pending.get("notice")
        receiver.fault = ""
    assert receiver.accepted == []


def _tick(world: World) -> bool:
    """The dispatcher tries again after some time."""
    world.now += 0.1
    return False


def _is_delivered(world: World) -> bool:
    """Without a cycle in between: time stands still meanwhile."""
    keys = [key for action in world.list_actions() for warned in action.warnings for key in warned.keys]
    return bool(world.sender.read_delivered(keys))
