"""When a failed call is repeated: exponential backoff, and a circuit breaker per host (time is an argument)."""

import random
from dataclasses import dataclass


def backoff_seconds(failures: int, *, first: float, longest: float) -> float:
    """Doubles with every failure; random, so that many calls are not repeated at the same time."""
    return min(first * 2.0 ** min(failures - 1, 32), longest) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


@dataclass(slots=True)
class _FailingHost:
    failures: int = 0
    open_until: float = 0.0
    is_probing: bool = False


class CircuitBreakers:
    """One circuit breaker per host. After enough failures in a row it opens; when its time is over, one call probes."""

    def __init__(self, *, failures: int, seconds: float) -> None:
        self._limit = failures
        self._seconds = seconds
        self._hosts: dict[str, _FailingHost] = {}  # hosts without failures have no entry

    def allows(self, host: str, now: float) -> bool:
        """Whether a call may be made now."""
        state = self._hosts.get(host)
        if state is None or state.failures < self._limit:
            return True
        return now >= state.open_until and not state.is_probing

    def begin(self, host: str) -> None:
        """A call has started."""
        state = self._hosts.get(host)
        if state is not None and state.failures >= self._limit:
            state.is_probing = True

    def end(self, host: str, *, has_failed: bool, now: float) -> None:
        """A call has ended."""
        if not has_failed:
            self._hosts.pop(host, None)
            return
        state = self._hosts.setdefault(host, _FailingHost())
        state.failures += 1
        state.is_probing = False
        state.open_until = now + self._seconds

    def open_hosts(self, now: float) -> list[str]:
        """Hosts that are not called at the moment."""
        return sorted(host for host, state in self._hosts.items() if not self.allows(host, now) and state.failures)
