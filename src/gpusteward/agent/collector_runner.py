"""Runs collectors: times each one, contains and counts its failures, logs each failure once, and renders the metrics
about all that.
"""

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from gpusteward import __version__
from gpusteward.core import metrics
from gpusteward.core.errors import OutdatedError, SourceError
from gpusteward.core.exposition import Family, FamilyBuilder, LabelCache
from gpusteward.core.metrics import Metric
from gpusteward.core.node.snapshots import Failure
from gpusteward.logs import Log

RECOVERY_CYCLES = 12
"""After this many cycles without a failure a collector has recovered; an intermittent failure is thus logged once.
The value is our guess."""

MAX_REASONS = 8
"""Logged reasons per collector and GPU: a reason with changing text must not fill the log. All are counted."""

log = Log(__name__)
_Result = TypeVar("_Result")


class CollectorRunner:
    """Runs collectors by name and records durations, error counts and failures."""

    def __init__(self) -> None:
        self.error_counts: dict[str, int] = {}
        self.durations_seconds: dict[str, float] = {}  # of the last run of each
        self.failures: list[Failure] = []  # of this cycle
        self._cycle = 0
        self._logged: dict[tuple[str, str], dict[str, int]] = {}  # collector, GPU -> reason -> cycle last seen in

    def start_cycle(self) -> None:
        """Reset the failures; log the recovery of collectors that have not failed for a while."""
        self.failures = []
        self._cycle += 1
        for key, reasons in list(self._logged.items()):
            recent = {reason: seen for reason, seen in reasons.items() if self._cycle - seen <= RECOVERY_CYCLES}
            self._logged[key] = recent
            if not recent:
                del self._logged[key]
                log.info("collector_recovered", collector=key[0], gpu=key[1] or "-")

    def run(self, collector: str, collect: Callable[[], _Result], default: _Result) -> _Result:
        """Return the result of `collect`, or record a failure and return the default."""
        started = time.perf_counter()
        self.error_counts.setdefault(collector, 0)
        try:
            result = collect()
        except SourceError as error:
            self.fail(Failure(collector, str(error), needs_restart=isinstance(error, OutdatedError)))
            return default
        # The only catch-all: an unexpected error of one collector must not affect the others.
        except Exception as error:  # noqa: BLE001
            self.fail(Failure(collector, f"unexpected {type(error).__name__}: {error}"))
            return default
        else:
            return result
        finally:
            self.durations_seconds[collector] = time.perf_counter() - started

    def fail(self, failure: Failure) -> None:
        """Record a failure; log it when it is new, not in every cycle."""
        self.failures.append(failure)
        self.error_counts[failure.collector] = self.error_counts.get(failure.collector, 0) + 1
        reasons = self._logged.setdefault((failure.collector, failure.gpu_uuid), {})
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


def render_self_metrics(
    runner: CollectorRunner, *, node: str, cycles: int, reloads: Mapping[str, int], labels: LabelCache
) -> list[Family]:
    """Version, number of cycles, and errors, success and duration of every collector."""
    builder = FamilyBuilder()

    def write(metric: Metric, value: float, **more: str) -> None:
        builder.column(metric).append((labels.render((("node", node), *more.items())), value))

    builder.column(metrics.BUILD_INFO).append((labels.render((("version", __version__),)), 1))
    write(metrics.CYCLES, cycles)
    for name, count in sorted(runner.error_counts.items()):
        write(metrics.COLLECTOR_ERRORS, count, collector=name)
    failed = {failure.collector for failure in runner.failures}
    for name, seconds in sorted(runner.durations_seconds.items()):
        write(metrics.COLLECTOR_SUCCESS, int(name not in failed), collector=name)
        write(metrics.COLLECTOR_SECONDS, round(seconds, 6), collector=name)
    for result, count in sorted(reloads.items()):
        write(metrics.CONFIG_RELOADS, count, result=result)
    return builder.families()
