"""One runner times and guards every collector: a fault costs its own part, is counted, and is said once."""

import time
from collections.abc import Callable
from typing import TypeVar

from gpusteward.core.errors import SourceError
from gpusteward.core.snapshots import Failure
from gpusteward.logs import Log

log = Log(__name__)
_Result = TypeVar("_Result")


class Guard:
    """Runs collectors by name and keeps the account of them."""

    def __init__(self) -> None:
        self.error_counts: dict[str, int] = {}
        self.durations_seconds: dict[str, float] = {}  # of the last run of each
        self.failures: list[Failure] = []  # of this cycle
        self._said: dict[str, str] = {}

    def start_cycle(self) -> None:
        self.failures = []

    def run(self, collector: str, collect: Callable[[], _Result], default: _Result) -> _Result:
        """The result, or the default and a failure on the account."""
        started = time.perf_counter()
        self.error_counts.setdefault(collector, 0)
        try:
            result = collect()
        except SourceError as error:
            self.fail(Failure(collector, str(error)))
            return default
        # The one place that catches everything: whatever a collector did not expect must not cost the others theirs.
        except Exception as error:  # noqa: BLE001
            self.fail(Failure(collector, f"unexpected {type(error).__name__}: {error}"))
            return default
        else:
            self._recover(collector)
            return result
        finally:
            self.durations_seconds[collector] = time.perf_counter() - started

    def fail(self, failure: Failure) -> None:
        """Count a failure; log it when it is new, not once a cycle."""
        self.failures.append(failure)
        self.error_counts[failure.collector] = self.error_counts.get(failure.collector, 0) + 1
        key = f"{failure.collector}/{failure.gpu_uuid}"
        if self._said.get(key) != failure.reason:
            self._said[key] = failure.reason
            log.warning(
                "collector_failed",
                collector=failure.collector,
                gpu=failure.gpu_uuid or "-",
                reason=failure.reason,
            )

    def _recover(self, collector: str) -> None:
        if self._said.pop(f"{collector}/", None) is not None:
            log.info("collector_recovered", collector=collector)
