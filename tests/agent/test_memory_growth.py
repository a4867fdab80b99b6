"""The memory of the agent over thousands of cycles on the fake driver."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.cycles import EVERY, FAST_CYCLES
from bench.nodes import start_node

pytestmark = pytest.mark.slow

MOST_BYTES = 50  # a cycle


@pytest.fixture(scope="module")
def rss(tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    """Bytes after each `EVERY` cycles, of 6,000."""
    with start_node(tmp_path_factory.mktemp("node") / "node", 2, processes=16) as node:
        command = [sys.executable, "-m", "bench.cycles", str(FAST_CYCLES), *node.agent_flags, "--log-level=error"]
        folder = Path(__file__).parents[2]
        done = subprocess.run(command, cwd=folder, env=node.environment, check=True, stdout=subprocess.PIPE)
    return [kib * 1024 for kib in json.loads(done.stdout)]


def growth(rss: list[int], first: int, last: int) -> float:
    """Bytes a cycle between two numbers of cycles."""
    return (rss[last // EVERY - 1] - rss[first // EVERY - 1]) / (last - first)


def test_memory_grows_by_at_most_50_bytes_a_cycle_over_5000_cycles_after_the_first_1000(rss: list[int]):
    assert growth(rss, 1000, FAST_CYCLES) <= MOST_BYTES, rss


def test_memory_grows_no_faster_in_the_first_cycles_when_free_lists_of_the_interpreter_would_fill(rss: list[int]):
    assert growth(rss, 400, 2000) <= MOST_BYTES, rss
