"""Waits for a condition, not for a time."""

import time
from collections.abc import Callable

SHORTEST_SECONDS, LONGEST_SECONDS = 0.002, 0.5


def wait_until(
    condition: Callable[[], object], seconds: float = 60, about: Callable[[], object] = lambda: "waited in vain"
) -> None:
    """Asks often at first and seldom after a long wait, because a condition may cost a request.

    Fails the test if it does not come true; `about` says why.
    """
    started = time.monotonic()
    while not condition():
        waited = time.monotonic() - started
        assert waited < seconds, about()
        time.sleep(min(max(SHORTEST_SECONDS, waited / 20), LONGEST_SECONDS))
