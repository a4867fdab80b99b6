"""Pushes the alerts of every cycle to every Alertmanager of the settings.

Alerts do not go through the outbox: they are a state, not events. A state that could not be pushed in time is replaced
by that of the next cycle; delivered later, it would fire and resolve alerts of the past.
"""

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from gpusteward.analyzer.notify.alertmanager.alerts import LIFETIME_INTERVALS, ActiveAlerts, Alert, is_resolved
from gpusteward.analyzer.notify.errors import DeliveryError
from gpusteward.analyzer.notify.http_post import post
from gpusteward.analyzer.notify.notices.messages import MessageOptions, describe_outage
from gpusteward.analyzer.notify.outbox.delivery_counters import DeliveryCounters
from gpusteward.analyzer.notify.outbox.retry import backoff_seconds
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.notify import AlertmanagerSettings
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.core.containers import WorkloadKey
from gpusteward.core.errors import SourceError
from gpusteward.http.credentials import basic_authorization
from gpusteward.logs import Log
from gpusteward.messages.notices import OUTAGE_TITLE

log = Log(__name__)

ALERTS_PER_CALL = 200
KIND = "alert"
FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS = 1.0, 60.0
_PATH = "/api/v2/alerts"


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
        settings, notify = self._settings.alertmanager, self._settings.notify
        options = MessageOptions(
            language=notify.language,
            time_zone=notify.time_zone,
            currency=self._settings.prices.currency,
            repeat_hours=notify.repeat_hours,
            window_seconds=result.verdicts.usage.window_seconds,
        )
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
