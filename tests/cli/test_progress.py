"""The progress bar: only on a terminal, only on standard error, removed at the end."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Sequence

import pytest

WORK = (
    "from gpusteward.cli.output.tables import show_progress\n"
    "with show_progress('counting', without_terminal='counting ...') as advance:\n"
    "    for done in range(1, 8):\n"
    "        advance(done, 7)\n"
    "print('result')\n"
)
CLEAR_LINE, SHOW_CURSOR = b"\x1b[2K", b"\x1b[?25h"


def run_on_terminal(words: Sequence[str], *, until: bytes = b"") -> tuple[bytes, bytes]:
    """Standard output (a pipe) and standard error (a terminal), up to `until` or to the end."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=theirs, env=env) as process:
        os.close(theirs)
        shown = _read(ours, until)
        if until:
            process.terminate()
        assert process.stdout is not None
        printed = process.stdout.read()
        shown += _read(ours, b"")
    os.close(ours)
    return printed, shown


def _read(terminal: int, until: bytes) -> bytes:
    shown, deadline = b"", time.monotonic() + 60
    while not (until and until in shown) and time.monotonic() < deadline:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            shown += os.read(terminal, 65536)
        except OSError:  # the other end is closed
            return shown
    return shown


def test_on_a_terminal_a_bar_is_shown_and_removed() -> None:
    printed, shown = run_on_terminal([sys.executable, "-c", WORK])
    assert printed == b"result\n", "standard output has no bar"
    assert b"counting" in shown
    assert b"7/7" in shown
    assert b"counting ..." not in shown
    assert shown.rindex(CLEAR_LINE) > shown.rindex(b"7/7"), "the bar is removed"
    assert SHOW_CURSOR in shown


def test_without_a_terminal_one_line_is_printed() -> None:
    done = subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("result\n", "counting ...\n")


def test_without_a_terminal_long_work_prints_a_line_now_and_then() -> None:
    slow = "import gpusteward.cli.output.tables as console; console.LINE_SECONDS = 0\n"
    done = subprocess.run([sys.executable, "-c", slow + WORK], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.splitlines() == ["counting ...", *(f"counting ... {number}/7" for number in range(1, 8))]


def test_without_rich_one_line_is_printed() -> None:
    hide = "import importlib.util as util; util.find_spec = lambda name: None\n"
    printed, shown = run_on_terminal([sys.executable, "-c", hide + WORK])
    assert (printed, shown) == (b"result\n", b"counting ...\r\n")


@pytest.mark.timeout(180)
def test_the_demo_shows_the_progress_of_its_history() -> None:
    words = [sys.executable, "-m", "gpusteward.cli.main", "demo", "--nodes", "30", "--address", "127.0.0.1:0"]
    _, shown = run_on_terminal(words, until=b"/5")  # of five hundred and some hours
    assert b"simulating three weeks of history" in shown
    assert b"history ..." not in shown
