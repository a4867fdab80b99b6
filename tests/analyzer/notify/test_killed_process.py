"""A notifier whose process is killed at any moment: every stored notice is delivered, in order."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.analyzer.notify.notifier_process import HOOK
from tests.analyzer.notify.notifier_setup import open_ledger, running_notifier, settings_of
from tests.fakes.receivers import Receiver
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

KILLS = 4
PODS = 4


def run_until_killed(folder: Path, url: str, *, first: int, cycles: int) -> int:
    """Kill the process after it has reported so many cycles, wherever it is then. Returns the next cycle's number."""
    database = f"sqlite:///{folder / 'ledger.db'}"
    command = [sys.executable, "-m", "tests.analyzer.notify.notifier_process", database, url, str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]) as process:
        assert process.stdout is not None
        reported = [process.stdout.readline() for _ in range(cycles)]
        process.kill()
        reported += process.stdout.read().split()
    return int(reported[-1]) + 1


def test_a_process_killed_at_any_moment_loses_no_stored_notice(tmp_path: Path):
    engine = open_ledger(tmp_path)
    chance = random.Random(7)
    with Receiver() as receiver:
        first = 0
        for _ in range(KILLS):
            first = run_until_killed(tmp_path, receiver.url, first=first, cycles=chance.randint(1, 12))
        settings = settings_of(notify={"channels": {"ops": receiver.url + HOOK}})
        with running_notifier(settings, engine) as notifier:
            receiver.wait_for(lambda it: len(set(it.texts)) >= PODS * first)
            wait_until(lambda: not notifier.counters.pending.get("notice"))
    engine.dispose()
    seen: dict[int, list[int]] = {}
    for text in dict.fromkeys(receiver.texts):  # the first arrival of each
        notice = json.loads(text)
        seen.setdefault(notice["pod"], []).append(notice["number"])
    assert len(seen) == PODS
    for numbers in seen.values():
        assert numbers == sorted(numbers)
        assert len(numbers) in (first, first + 1)  # the last cycle may have been stored but not reported
