"""One runner times and guards every collector: a fault costs its own part, is counted, and is said once."""

import time
from collections.abc import Callable
from typing import TypeVar

from gpusteward.core.errors import OutdatedError, SourceError
from gpusteward.core.snapshots import Failure
from gpusteward.logs import Log

QUIET_CYCLES = 12
"""A failure that stays away so long is over: one that comes and goes is said once, not each time. Our guess."""

MAX_REASONS = 8
"""Message of one place: a reason that reads differently every time must not fill the log. The others are counted."""

log = Log(__name__)
_Result = TypeVar("_Result")


class CollectorRunner:
    """Runs collectors by name and keeps the account of them."""

    def __init__(self) -> None:
        self.error_counts: dict[str, int] = {}
        self.durations_seconds: dict[str, float] = {}  # of the last run of each
        self.failures: list[Failure] = []  # of this cycle
        self._cycle = 0
        self._said: dict[tuple[str, str], dict[str, int]] = {}  # collector, GPU -> reason -> cycle it was last heard in

    def start_cycle(self) -> None:
        """Begin a new account; where nothing has failed for a while, say so."""
        self.failures = []
        self._cycle += 1
        for place, reasons in list(self._said.items()):
            left = {reason: heard for reason, heard in reasons.items() if self._cycle - heard <= QUIET_CYCLES}
            self._said[place] = left
            if not left:
                del self._said[place]
                log.info("collector_recovered", collector=place[0], gpu=place[1] or "-")

    def run(self, collector: str, collect: Callable[[], _Result], default: _Result) -> _Result:
        """The result, or the default and a failure on the account."""
        started = time.perf_counter()
        self.error_counts.setdefault(collector, 0)
        try:
            result = collect()
        except SourceError as error:
            self.fail(Failure(collector, str(error), needs_restart=isinstance(error, OutdatedError)))
            return default
        # The one place that catches everything: whatever a collector did not expect must not cost the others theirs.
        except Exception as error:  # noqa: BLE001
            self.fail(Failure(collector, f"unexpected {type(error).__name__}: {error}"))
            return default
        else:
            return result
        finally:
            self.durations_seconds[collector] = time.perf_counter() - started

    def fail(self, failure: Failure) -> None:
        """Count a failure; log it when it is new, not once a cycle."""
        self.failures.append(failure)
        self.error_counts[failure.collector] = self.error_counts.get(failure.collector, 0) + 1
        reasons = self._said.setdefault((failure.collector, failure.gpu_uuid), {})
        is_new = failure.reason not in reasons
        if is_new and len(reasons) >= MAX_REASONS:
            return
        reasons[failure.reason] = self._cycle
        if is_new:
            log.warning(
                "collector_failed",
                collector=failure.collector,
                gpu=failure.gpu_uuid or "-",
                reason=failure.reason,
            )
