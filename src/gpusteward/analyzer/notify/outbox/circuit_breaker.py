"""A host that fails again and again is left alone for a while, then tried with one call (pure; time is an argument)."""

from dataclasses import dataclass


@dataclass(slots=True)
class _Record:
    failures: int = 0
    alone_until: float = 0.0
    probing: bool = False


class CircuitBreakers:
    """One record a host that has failed; a host that works has none."""

    def __init__(self, *, failures: int, seconds: float) -> None:
        self._limit = failures
        self._seconds = seconds
        self._records: dict[str, _Record] = {}

    def allows(self, host: str, now: float) -> bool:
        """Whether a call may be made; after a time alone, one at a time."""
        record = self._records.get(host)
        if record is None or record.failures < self._limit:
            return True
        return now >= record.alone_until and not record.probing

    def begin(self, host: str) -> None:
        """A call is under way."""
        record = self._records.get(host)
        if record is not None and record.failures >= self._limit:
            record.probing = True

    def note(self, host: str, *, has_failed: bool, now: float) -> None:
        """A call has ended."""
        if not has_failed:
            self._records.pop(host, None)
            return
        record = self._records.setdefault(host, _Record())
        record.failures += 1
        record.probing = False
        record.alone_until = now + self._seconds

    def open_hosts(self, now: float) -> list[str]:
        """Those that are left alone now."""
        return sorted(host for host, record in self._records.items() if not self.allows(host, now) and record.failures)
