"""Idle workloads as alerts of an Alertmanager (pure).

An alert fires while its workload is idle. It is resolved when the workload works again or is gone; while nothing is
known of the workload it is neither renewed nor resolved, and ends by itself when its time is over. So it also ends when
gpusteward does.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from gpusteward.analyzer.judge.workloads import WorkloadKey
from gpusteward.analyzer.notify.notices.findings import FindingMaker, IdleFinding, idle_workloads
from gpusteward.analyzer.notify.notices.formatting import bare, line
from gpusteward.analyzer.notify.notices.messages import MessageOptions, describe_idle
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.notify import AlertmanagerSettings
from gpusteward.analyzer.tables import ACTIVITIES
from gpusteward.core.verdicts import Activity

IDLE_ALERT, LOST_ALERT = "GpuWorkloadIdle", "GpustewardSourceLost"
LIFE_INTERVALS = 4
"""An alert that is not renewed for so many cycles ends: as Prometheus does it."""
LONGEST_LABEL = 253

Alert = dict[str, Any]


@dataclass(slots=True)
class OpenAlerts:
    """What fires: since when, and until when without being renewed."""

    times: dict[WorkloadKey, tuple[float, float]] = field(default_factory=dict)
    lost_since: float | None = None
    left_out: int = 0  # idle workloads beyond `alertmanager.max_alerts`

    def follow(self, result: Result, settings: AlertmanagerSettings, options: MessageOptions) -> Iterator[Alert]:
        """What has to be told about a cycle: every alert that fires, and those that do not any more."""
        ends_at = result.at + LIFE_INTERVALS * result.settings.scheduler.interval
        firing: dict[WorkloadKey, tuple[float, float]] = {}
        for finding in self._choose(result, settings):
            firing[finding.key] = (finding.idle_since, ends_at)
            yield _idle_alert(finding, settings, options, ends_at=ends_at)
        for key, (since, until) in self.times.items():
            if key in firing or until <= result.at:
                continue
            if _is_unknown(result, key):
                firing[key] = (since, until)
            else:
                yield _alert(_labels(key, settings), {}, starts_at=since, ends_at=result.at)
        self.times = firing

    def lose(self, reason: str, settings: AlertmanagerSettings, *, since: float, now: float, life: float) -> Alert:
        """Nothing can be read: that is an alert of its own, and the others run out."""
        self.lost_since = since
        annotations = {"summary": "gpusteward cannot read the usage of GPUs", "description": line(reason)}
        return _alert(_lost_labels(settings), annotations, starts_at=since, ends_at=now + life)

    def find(self, settings: AlertmanagerSettings, *, now: float) -> Iterator[Alert]:
        """It can be read again."""
        since, self.lost_since = self.lost_since, None
        if since is not None:
            yield _alert(_lost_labels(settings), {}, starts_at=since, ends_at=now)

    def _choose(self, result: Result, settings: AlertmanagerSettings) -> Iterator[IdleFinding]:
        """The largest, if there are too many."""
        numbers = np.array(idle_workloads(result, minutes=settings.idle_minutes), dtype=np.intp)
        largest = numbers[np.argsort(-result.workloads.gpus[numbers], kind="stable")]
        self.left_out = max(0, len(largest) - settings.max_alerts)
        if len(largest):
            yield from FindingMaker(result).make(largest[: settings.max_alerts].tolist())


def has_ended(alert: Alert) -> bool:
    """Only one that ends has nothing to say."""
    return not alert["annotations"]


def _is_unknown(result: Result, key: WorkloadKey) -> bool:
    number = result.workloads.find(key)
    return number is not None and ACTIVITIES[result.workloads.activity[number]] is Activity.UNKNOWN


def _idle_alert(
    finding: IdleFinding, settings: AlertmanagerSettings, options: MessageOptions, *, ends_at: float
) -> Alert:
    summary, *evidence = describe_idle(finding, options)
    annotations = {"summary": summary, "description": "\n".join(evidence), "signature": finding.signature}
    return _alert(_labels(finding.key, settings), annotations, starts_at=finding.idle_since, ends_at=ends_at)


def _labels(key: WorkloadKey, settings: AlertmanagerSettings) -> Mapping[str, str]:
    kind, namespace, name = (bare(text, longest=LONGEST_LABEL) for text in key)
    own = {"alertname": IDLE_ALERT, "severity": settings.severity}
    return {**settings.labels, **own, "namespace": namespace, "workload_kind": kind, "workload": name}


def _lost_labels(settings: AlertmanagerSettings) -> Mapping[str, str]:
    return {**settings.labels, "alertname": LOST_ALERT, "severity": "warning"}


def _alert(labels: Mapping[str, str], annotations: Mapping[str, str], *, starts_at: float, ends_at: float) -> Alert:
    times = {"startsAt": _stamp(starts_at), "endsAt": _stamp(ends_at)}
    return {"labels": dict(labels), "annotations": dict(annotations), **times}


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
