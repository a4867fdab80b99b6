"""kill -9 at any point leaves the same ledger as an uninterrupted run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


def crash(*arguments: str) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.analyzer.ledger.crash_runs", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.timeout(300)
def test_a_hundred_killed_runs_leave_the_same_ledger_as_an_uninterrupted_one(tmp_path):
    found = crash("100", str(tmp_path))
    assert found["different"] == 0
    assert found["kills"] >= 100
    assert found["rows"] > 100


@pytest.mark.timeout(300)
def test_the_same_holds_for_postgresql(tmp_path, postgres):
    found = crash("6", str(tmp_path), postgres.url)
    assert found["different"] == 0
    assert found["kills"] >= 6
