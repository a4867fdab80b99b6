"""The teller's own process, killed at any moment: what was told is delivered, in order."""

import random
import subprocess
import sys
import time
from pathlib import Path

from tests.analyzer.notify.notifier_setup import open_ledger, running_notifier, settings_of, stamps_by_pod
from tests.fakes.receivers import Receiver, wait_until

KILLS = 4


def tell_until_killed(folder: Path, url: str, *, first: int, seconds: float) -> int:
    """The number of the next cycle."""
    command = [
        sys.executable,
        "-m",
        "tests.analyzer.notify.notifier_process",
        f"sqlite:///{folder / 'ledger.db'}",
        url,
        str(first),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]) as process:
        assert process.stdout is not None
        told = [process.stdout.readline()]
        time.sleep(seconds)  # any moment will do
        process.kill()
        told += process.stdout.read().split()
    return int(told[-1]) + 1


def test_a_process_killed_at_any_moment_loses_nothing_that_was_told(tmp_path: Path):
    engine = open_ledger(tmp_path)
    chance = random.Random(7)
    with Receiver() as receiver:
        first = 0
        for _ in range(KILLS):
            first = tell_until_killed(tmp_path, receiver.url, first=first, seconds=chance.uniform(0.0, 0.2))
        settings = settings_of(control={"enabled": True, "api_url": receiver.url})
        with running_notifier(settings, engine) as notifier:
            receiver.wait_for(lambda it: len({call.headers["idempotency-key"] for call in it.accepted}) >= 4 * first)
            wait_until(lambda: not notifier.counters.pending.get("control"))
    engine.dispose()
    stamps = stamps_by_pod(receiver)
    assert len(stamps) == 4
    for seen in stamps.values():
        assert seen == sorted(seen)
        assert len(seen) in (first, first + 1)  # the last may have been told and not said
