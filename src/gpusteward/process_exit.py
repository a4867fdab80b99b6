"""The end of a program that has started threads."""

import os
import sys
import threading
import time

THREADS_GRACE_SECONDS = 1.0


def exit_without_threads(code: int) -> None:
    """Wait for all other threads, and end the process at once if some are left. The last call of a program.

    Python must not shut down its interpreter while threads run, also daemon threads: one that writes to the log holds
    the lock of standard error, or one returns from a C library, and the process is aborted. Nothing is logged here,
    for the same reason.
    """
    deadline = time.monotonic() + THREADS_GRACE_SECONDS
    for thread in _list_others():
        thread.join(max(0.0, deadline - time.monotonic()))
    if _list_others():
        sys.stdout.flush()
        os._exit(code)


def _list_others() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
