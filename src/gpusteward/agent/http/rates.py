"""The rate limit of a web config file: a token bucket."""

import threading
import time
from collections.abc import Callable


class TokenBucket:
    """Lets `burst` requests through at once, and one more every `interval_seconds`."""

    def __init__(self, interval_seconds: float, burst: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = interval_seconds
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._filled_at = clock()
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Whether one more request may pass now."""
        with self._lock:
            now = self._clock()
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at) / self._interval)
            self._filled_at = now
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True
