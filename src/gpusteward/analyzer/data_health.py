"""How old and how complete the data is: what /health, /api/v1/health, /metrics and the alert rules say about it.

Whether the process is alive is another question: /health answers 200 whatever its status is, so that no probe restarts
an analyzer because its engine is down.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from gpusteward.analyzer.pipeline import CycleStats
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import LATE_INTERVALS, LATE_SECONDS, Settings
from gpusteward.analyzer.tables import ACTIVITIES, DOUBTS, LEVELS, Level, SiteFinding
from gpusteward.core.messages import Message, same_text
from gpusteward.core.verdicts import Activity, Doubt
from gpusteward.messages import data_health as messages

Status = Literal["healthy", "degraded", "warning"]
WARNING_RATIO = 0.5
"""Of unknown allocations. A guess: fewer are usually nodes that are being replaced."""
MENTIONED_RATIO = 0.05
"""From then on they are named, with the reason, though each says it itself."""
_STATUSES: Mapping[Level, Status] = {"degraded": "degraded", "warning": "warning", "info": "healthy"}


@dataclass(frozen=True, slots=True)
class DataHealth:
    """The state of the last result and of the source."""

    is_connected: bool  # whether the last cycle succeeded
    is_late: bool  # whether the last result is older than three intervals or 26 hours
    max_age_seconds: float
    result_at: float | None = None  # unix seconds; None: no cycle has succeeded yet
    age_seconds: float | None = None
    unknown_ratio: float | None = None  # None: without allocations
    targets: int | None = None  # None: an engine is read, which knows its targets
    targets_up: int = 0
    findings: tuple[SiteFinding, ...] = ()  # the worst first; the status is that of the first

    @property
    def is_too_old(self) -> bool:
        """Whether the result says nothing about the present any more."""
        return self.age_seconds is not None and self.age_seconds > self.max_age_seconds

    @property
    def status(self) -> Status:
        """Degraded: nothing can be read, or nothing is known. Warning: something is wrong, and the findings name it."""
        return _STATUSES[self.findings[0].level] if self.findings else "healthy"


def assess_data(
    result: Result | None, *, stats: CycleStats, settings: Settings, target_counts: Mapping[str, int], now: float
) -> DataHealth:
    """`target_counts`: up and down; empty where an engine is read."""
    age = None if result is None else max(0.0, now - result.at)
    health = DataHealth(
        is_connected=stats.finished > 0 and not stats.last_error,
        is_late=result is not None
        and now - result.read_at > min(LATE_INTERVALS * settings.scheduler.interval, LATE_SECONDS),
        max_age_seconds=settings.max_result_age_seconds,
        result_at=None if result is None else result.at,
        age_seconds=age,
        unknown_ratio=_find_unknown_ratio(result),
        targets=sum(target_counts.values()) if target_counts else None,
        targets_up=target_counts.get("up", 0),
    )
    found = [
        *_find_failures(health, stats, interval=settings.scheduler.interval),
        *_find_lost_targets(health, result),
        *_find_unknown(health, result),
        *(result.verdicts.usage.findings if result else ()),
        *_find_missing_metrics(result),
    ]
    return replace(health, findings=sort_findings(found))


def sort_findings(found: Iterable[SiteFinding]) -> tuple[SiteFinding, ...]:
    """The worst first."""
    return tuple(sorted(found, key=lambda one: LEVELS.index(one.level)))


def _find_failures(health: DataHealth, stats: CycleStats, *, interval: float) -> Iterator[SiteFinding]:
    if stats.last_error:
        yield SiteFinding("degraded", "source-failed", messages.SOURCE_FAILED.fill(reason=stats.last_error))
    elif not health.is_connected:
        yield SiteFinding("degraded", "no-result", messages.NO_RESULT)
    if health.is_late and health.age_seconds is not None:
        fields = {"minutes": f"{health.age_seconds / 60:.0f}", "interval": f"{interval / 60:.3g}"}
        yield SiteFinding("warning", "result-old", messages.RESULT_OLD.fill(**fields))


def _find_lost_targets(health: DataHealth, result: Result | None) -> Iterator[SiteFinding]:
    """Of the embedded source; the failures of the last cycle name them."""
    if health.targets is None or health.targets_up == health.targets:
        return
    message = messages.TARGETS_LOST.fill(lost=health.targets - health.targets_up, targets=health.targets)
    failing = list(result.sources.get("failures", ()) if result else ())
    if failing:
        message = messages.NAMED.fill(text=message, names=", ".join(failing[:3]))
    yield SiteFinding("warning" if health.targets_up else "degraded", "targets-lost", message)


def _find_missing_metrics(result: Result | None) -> Iterator[SiteFinding]:
    """Without the video engines a verdict may be wrong, however well the rest is measured."""
    sources = result.sources if result and len(result.verdicts) else {}
    dialects = (dialect for each in (sources, *sources.get("engines", ())) for dialect in each.get("dialects", ()))
    if missing := sorted({name for dialect in dialects for name in dialect.get("missing_metrics", ())}):
        text = messages.NO_VIDEO_FIELDS.fill(fields=", ".join(missing))
        yield SiteFinding("warning", "no-video-fields", text)


def _find_unknown(health: DataHealth, result: Result | None) -> Iterator[SiteFinding]:
    ratio = health.unknown_ratio or 0.0
    if result is None or ratio <= MENTIONED_RATIO:
        return
    total = len(result.verdicts)
    fields = {"unknown": round(ratio * total), "total": total, "reason": find_unknown_reason(result)}
    if ratio == 1:
        yield SiteFinding("degraded", "unknown-gpus", messages.ALL_UNKNOWN.fill(**fields))
    else:
        level: Level = "warning" if ratio > WARNING_RATIO else "info"
        yield SiteFinding(level, "unknown-gpus", messages.PART_UNKNOWN.fill(**fields))


def find_unknown_reason(result: Result) -> Message:
    """Why the most GPUs could not be judged: as the source says it, else the judge."""
    verdicts = result.verdicts
    is_unknown = verdicts.activity == ACTIVITIES.index(Activity.UNKNOWN)
    weights = result.workloads.fractions[is_unknown]
    by_doubt = np.bincount(verdicts.doubt[is_unknown], weights=weights, minlength=len(DOUBTS))
    doubt = DOUBTS[int(np.argmax(by_doubt))]
    if doubt is Doubt.SOURCE and verdicts.usage.unknown:
        return Counter(verdicts.usage.unknown.values()).most_common(1)[0][0]
    return messages.DOUBTS.get(doubt, same_text(doubt.value))


def _find_unknown_ratio(result: Result | None) -> float | None:
    if result is None or not len(result.verdicts):
        return None
    return round(float(np.mean(result.verdicts.activity == ACTIVITIES.index(Activity.UNKNOWN))), 4)
