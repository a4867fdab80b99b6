"""Idle workloads as alerts, pushed to every Alertmanager of the settings after every cycle.

An alert fires while its workload is idle. It is resolved when the workload works again or is deleted. While the
workload's activity is unknown it is neither renewed nor resolved, and expires at its `endsAt`. So alerts also end when
gpusteward stops.

Alerts do not go through the outbox: they are a state, not events. A state that could not be pushed in time is replaced
by that of the next cycle; delivered later, it would fire and resolve alerts of the past.
"""

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypedDict

import msgspec
import numpy as np

from gpusteward.analyzer.ledger.snoozes import clean_workload
from gpusteward.analyzer.notify.http_post import post
from gpusteward.analyzer.notify.notices.formatting import safe_label
from gpusteward.analyzer.notify.notices.idle_workloads import NoticeWorkload, NoticeWorkloadBuilder, find_idle_workloads
from gpusteward.analyzer.notify.notices.messages import MessageOptions, describe_idle, describe_outage
from gpusteward.analyzer.notify.outbox.records import DeliveryCounters, DeliveryError
from gpusteward.analyzer.notify.outbox.retry import backoff_seconds
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.notify import AlertmanagerSettings
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.tables import ACTIVITIES
from gpusteward.core.errors import SourceError
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.verdicts import Activity
from gpusteward.http.credentials import basic_authorization
from gpusteward.logs import Log
from gpusteward.messages.notices import OUTAGE_TITLE

log = Log(__name__)

IDLE_ALERT, OUTAGE_ALERT = "GpuWorkloadIdle", "GpustewardSourceLost"
LIFETIME_INTERVALS = 4
"""An alert expires when it is not renewed for this many cycles, as Prometheus does it."""
MAX_LABEL_LENGTH = 253
ALERTS_PER_CALL = 200
KIND = "alert"
FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS = 1.0, 60.0
_PATH = "/api/v2/alerts"


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
            summary, *evidence = describe_idle(workload, options)
            texts = {"summary": summary, "description": "\n".join(evidence), "signature": workload.signature}
            labels = _idle_labels(workload.key, settings)
            yield _alert(labels, texts, starts_at=workload.idle_since, ends_at=expires_at)
        for key, alert in self.firing.items():
            if key in firing or alert.expires_at <= result.at:
                continue
            number = result.workloads.find(key)
            if number is not None and ACTIVITIES[result.workloads.activity[number]] is Activity.UNKNOWN:
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
    ) -> Iterator[NoticeWorkload]:
        """The largest workloads, if there are too many."""
        idle, keys = find_idle_workloads(result, minutes=settings.idle_minutes), result.workloads.keys
        numbers = np.array([one for one in idle if clean_workload(keys[one]) not in snoozed], dtype=np.intp)
        largest = numbers[np.argsort(-result.workloads.gpus[numbers], kind="stable")]
        self.left_out = max(0, len(largest) - settings.max_alerts)
        if len(largest):
            yield from NoticeWorkloadBuilder(result).build(largest[: settings.max_alerts].tolist())


def is_resolved(alert: Alert) -> bool:
    """Only resolved alerts have no annotations."""
    return not alert["annotations"]


def _idle_labels(key: WorkloadKey, settings: AlertmanagerSettings) -> Mapping[str, str]:
    kind, namespace, name, cluster = (safe_label(text, max_length=MAX_LABEL_LENGTH) for text in key)
    labels = {"severity": "info", **settings.labels, "alertname": IDLE_ALERT}
    if key.cluster:
        labels["cluster"] = cluster
    return {**labels, "namespace": namespace, "workload_kind": kind, "workload": name}


def _outage_labels(settings: AlertmanagerSettings) -> Mapping[str, str]:
    return {**settings.labels, "alertname": OUTAGE_ALERT, "severity": "warning"}


def _alert(labels: Mapping[str, str], annotations: dict[str, str], *, starts_at: float, ends_at: float) -> Alert:
    return Alert(
        labels=dict(labels), annotations=annotations, startsAt=_format_utc(starts_at), endsAt=_format_utc(ends_at)
    )


def _format_utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class AlertPublisher:
    """All Alertmanagers. Does nothing before `start`, nor without an Alertmanager in the settings."""

    def __init__(self, settings: Settings, counters: DeliveryCounters) -> None:
        self._settings = settings
        self._counters = counters
        self._alerts = ActiveAlerts()
        self._pushers: list[AlertPusher] = []
        self._is_running = False

    def start(self) -> None:
        self._is_running = True
        self._start_pushers()

    def stop(self, timeout_seconds: float) -> None:
        self._is_running = False
        for pusher in self._pushers:
            pusher.stop(timeout_seconds)

    def apply_settings(self, settings: Settings) -> None:
        has_changed = settings.alertmanager != self._settings.alertmanager
        self._settings = settings
        if has_changed and self._is_running:
            self._start_pushers()

    def publish(self, result: Result, *, snoozed: Collection[WorkloadKey] = ()) -> None:
        """The alerts of a successful cycle: firing and resolved. Those of `snoozed` workloads are resolved."""
        if not self._pushers:
            return
        settings = self._settings.alertmanager
        options = MessageOptions.of(self._settings, window_seconds=result.verdicts.usage.window_seconds)
        firing_and_resolved = self._alerts.update(result, settings, options, snoozed=snoozed)
        self._push([*firing_and_resolved, *self._alerts.end_outage(settings, now=result.at)])

    def publish_outage(self, reason: str | SourceError, *, since: float, now: float) -> None:
        """Usage cannot be read."""
        language = self._settings.notify.language
        alert = self._alerts.start_outage(
            self._settings.alertmanager,
            summary=OUTAGE_TITLE.text(language),
            description=describe_outage(reason, language),
            since=since,
            ends_at=now + LIFETIME_INTERVALS * self._settings.scheduler.interval,
        )
        self._push([alert])

    def describe(self) -> Mapping[str, Any]:
        """For /api/v1/health."""
        return {
            "alertmanagers": len(self._pushers),
            "firing": len(self._alerts.firing),
            "left_out": self._alerts.left_out,
            "failures": [pusher.failure for pusher in self._pushers if pusher.failure],
        }

    def _push(self, alerts: Sequence[Alert]) -> None:
        for pusher in self._pushers:
            pusher.push(alerts)

    def _start_pushers(self) -> None:
        for pusher in self._pushers:
            pusher.stop(0.0)
        settings = self._settings.alertmanager
        self._pushers = [AlertPusher(url, settings, self._counters) for url in settings.url]
        for pusher in self._pushers:
            pusher.start()


class AlertPusher:
    """One Alertmanager, called by its own thread."""

    def __init__(self, url: str, settings: AlertmanagerSettings, counters: DeliveryCounters) -> None:
        self._url = url.rstrip("/") + _PATH
        self._settings = settings
        self._counters = counters
        self._lock = threading.Lock()
        self._batches: list[bytes] = []
        self._resolved: dict[frozenset[tuple[str, str]], Alert] = {}  # not known to have been received
        self._version = 0
        self._work, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="alertmanager", daemon=True)
        self.failure = ""

    def start(self) -> None:
        self._thread.start()

    def push(self, alerts: Sequence[Alert]) -> None:
        """The state of a cycle. It replaces a state that is not pushed yet, except for its resolved alerts."""
        with self._lock:
            for alert in alerts:
                self._resolved.pop(_identity(alert), None)
            every = [*alerts, *self._resolved.values()]
            resolved = [alert for alert in every if is_resolved(alert)]
            self._resolved = {_identity(alert): alert for alert in resolved[: self._settings.max_alerts]}
            parts = range(0, len(every), ALERTS_PER_CALL)
            self._batches = [msgspec.json.encode(every[begin : begin + ALERTS_PER_CALL]) for begin in parts]
            self._version += 1
        self._work.set()

    def stop(self, timeout_seconds: float) -> None:
        self._stopping.set()
        self._work.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            self._work.wait()
            self._work.clear()
            if self._stopping.is_set():
                return
            if self._push_all():
                failures = 0
            else:
                failures += 1
                backoff = backoff_seconds(failures, first=FIRST_BACKOFF_SECONDS, longest=LONGEST_BACKOFF_SECONDS)
                self._stopping.wait(backoff)
                self._work.set()

    def _push_all(self) -> bool:
        """Whether everything was received; received parts are not sent again."""
        with self._lock:
            batches, version = list(self._batches), self._version
        for number, batch in enumerate(batches):
            if not self._push(batch):
                return self._keep_unsent(batches[number:], version)
        return self._keep_unsent([], version)

    def _keep_unsent(self, batches: list[bytes], version: int) -> bool:
        with self._lock:
            if version == self._version:
                self._batches = batches
                self._resolved = self._resolved if batches else {}
            return not self._batches

    def _push(self, batch: bytes) -> bool:
        try:
            post(self._url, batch, headers=self._headers(), timeout=self._settings.timeout)
        except DeliveryError as error:
            if str(error) != self.failure:
                log.warning("alerts_not_pushed", reason=error)
            self.failure = str(error)
            self._counters.add("failed", KIND)
            return False
        self.failure = ""
        self._counters.add("sent", KIND)
        return True

    def _headers(self) -> dict[str, str]:
        settings = self._settings
        if token := settings.bearer_token.get_secret_value():
            return {"Authorization": f"Bearer {token}"}
        if not settings.username:
            return {}
        return {"Authorization": basic_authorization(settings.username, settings.password.get_secret_value())}


def _identity(alert: Alert) -> frozenset[tuple[str, str]]:
    """Alertmanager identifies an alert by its labels."""
    return frozenset(alert["labels"].items())
