"""A program of ours as a child that never outlives us."""

import ctypes
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

STOP_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1  # of prctl(2)
_libc = ctypes.CDLL(None)


@contextmanager
def run_child(command: str, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """`gpusteward COMMAND FLAGS`, stopped at the end of the `with`, and by the kernel if we are killed.

    Ctrl-C in a terminal is for us alone: a child that ends before its `with` has ended by itself.
    """
    words = [sys.executable, "-m", "gpusteward.cli.main", command, *flags]
    with subprocess.Popen(words, process_group=0, preexec_fn=_die_with_parent) as child:  # noqa: S603, PLW1509 - our own words; prctl only
        try:
            yield child
        finally:
            _stop(child)


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _stop(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
