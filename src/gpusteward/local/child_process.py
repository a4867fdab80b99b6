"""A child process that does not outlive this one."""

import ctypes
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

STOP_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1  # of prctl(2)
_libc = ctypes.CDLL(None)


@contextmanager
def run_child(words: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Stopped at the end, and by the kernel (of Linux) if this process is killed. `options`: of Popen."""
    preexec = _die_with_parent if sys.platform == "linux" else None
    with subprocess.Popen(words, preexec_fn=preexec, **options) as child:  # noqa: S603, PLW1509 - words of the callers; prctl only
        try:
            yield child
        finally:
            child.terminate()
            try:
                child.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
