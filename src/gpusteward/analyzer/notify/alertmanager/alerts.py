"""Idle workloads as alerts (pure).

An alert fires while its workload is idle. It is resolved when the workload works again or is deleted. While the
workload's activity is unknown it is neither renewed nor resolved, and expires at its `endsAt`. So alerts also end when
gpusteward stops.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple, TypedDict

import numpy as np

from gpusteward.analyzer.ledger.snoozes import clean_workload
from gpusteward.analyzer.notify.notices.formatting import safe_label
from gpusteward.analyzer.notify.notices.idle_workloads import IdleWorkload, IdleWorkloadBuilder, find_idle_workloads
from gpusteward.analyzer.notify.notices.messages import MessageOptions, describe_idle
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.notify import AlertmanagerSettings
from gpusteward.analyzer.tables import ACTIVITIES
from gpusteward.core.containers import WorkloadKey
from gpusteward.core.verdicts import Activity

IDLE_ALERT, OUTAGE_ALERT = "GpuWorkloadIdle", "GpustewardSourceLost"
LIFETIME_INTERVALS = 4
"""An alert expires when it is not renewed for this many cycles, as Prometheus does it."""
MAX_LABEL_LENGTH = 253


class Alert(TypedDict):
    """An alert of Alertmanager's API."""

    labels: dict[str, str]
    annotations: dict[str, str]
    startsAt: str
    endsAt: str


class _Firing(NamedTuple):
    since: float
    expires_at: float


@dataclass(slots=True)
class ActiveAlerts:
    """Which alerts fire."""

    firing: dict[WorkloadKey, _Firing] = field(default_factory=dict)
    outage_since: float | None = None
    left_out: int = 0  # idle workloads beyond `AlertmanagerSettings.max_alerts`

    def update(
        self,
        result: Result,
        settings: AlertmanagerSettings,
        options: MessageOptions,
        *,
        snoozed: Collection[WorkloadKey] = (),
    ) -> Iterator[Alert]:
        """Alerts to push after a cycle: all that fire, and those that are resolved now. `snoozed`: as the ledger has
        them."""
        expires_at = result.at + LIFETIME_INTERVALS * result.settings.scheduler.interval
        firing: dict[WorkloadKey, _Firing] = {}
        for workload in self._select(result, settings, snoozed):
            firing[workload.key] = _Firing(workload.idle_since, expires_at)
            yield _idle_alert(workload, settings, options, ends_at=expires_at)
        for key, alert in self.firing.items():
            if key in firing or alert.expires_at <= result.at:
                continue
            if _is_unknown(result, key):
                firing[key] = alert
            else:
                yield _alert(_idle_labels(key, settings), {}, starts_at=alert.since, ends_at=result.at)
        self.firing = firing

    def start_outage(
        self, settings: AlertmanagerSettings, *, summary: str, description: str, since: float, ends_at: float
    ) -> Alert:
        """Usage cannot be read: a separate alert. The others expire."""
        self.outage_since = since
        annotations = {"summary": summary, "description": description}
        return _alert(_outage_labels(settings), annotations, starts_at=since, ends_at=ends_at)

    def end_outage(self, settings: AlertmanagerSettings, *, now: float) -> Iterator[Alert]:
        """Usage can be read again: resolves the alert if there was one."""
        since, self.outage_since = self.outage_since, None
        if since is not None:
            yield _alert(_outage_labels(settings), {}, starts_at=since, ends_at=now)

    def _select(
        self, result: Result, settings: AlertmanagerSettings, snoozed: Collection[WorkloadKey]
    ) -> Iterator[IdleWorkload]:
        """The largest workloads, if there are too many."""
        idle, keys = find_idle_workloads(result, minutes=settings.idle_minutes), result.workloads.keys
        numbers = np.array([one for one in idle if clean_workload(keys[one]) not in snoozed], dtype=np.intp)
        largest = numbers[np.argsort(-result.workloads.gpus[numbers], kind="stable")]
        self.left_out = max(0, len(largest) - settings.max_alerts)
        if len(largest):
            yield from IdleWorkloadBuilder(result).build(largest[: settings.max_alerts].tolist())


def is_resolved(alert: Alert) -> bool:
    """Only resolved alerts have no annotations."""
    return not alert["annotations"]


def _is_unknown(result: Result, key: WorkloadKey) -> bool:
    number = result.workloads.find(key)
    return number is not None and ACTIVITIES[result.workloads.activity[number]] is Activity.UNKNOWN


def _idle_alert(
    workload: IdleWorkload, settings: AlertmanagerSettings, options: MessageOptions, *, ends_at: float
) -> Alert:
    summary, *evidence = describe_idle(workload, options)
    annotations = {"summary": summary, "description": "\n".join(evidence), "signature": workload.signature}
    return _alert(_idle_labels(workload.key, settings), annotations, starts_at=workload.idle_since, ends_at=ends_at)


def _idle_labels(key: WorkloadKey, settings: AlertmanagerSettings) -> Mapping[str, str]:
    kind, namespace, name, cluster = (safe_label(text, max_length=MAX_LABEL_LENGTH) for text in key)
    own = {"alertname": IDLE_ALERT, "severity": settings.severity}
    if key.cluster:
        own["cluster"] = cluster
    return {**settings.labels, **own, "namespace": namespace, "workload_kind": kind, "workload": name}


def _outage_labels(settings: AlertmanagerSettings) -> Mapping[str, str]:
    return {**settings.labels, "alertname": OUTAGE_ALERT, "severity": "warning"}


def _alert(labels: Mapping[str, str], annotations: dict[str, str], *, starts_at: float, ends_at: float) -> Alert:
    return Alert(
        labels=dict(labels), annotations=annotations, startsAt=_format_utc(starts_at), endsAt=_format_utc(ends_at)
    )


def _format_utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
