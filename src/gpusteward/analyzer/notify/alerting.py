"""Alerts of every cycle, to every Alertmanager of the settings."""

from collections.abc import Mapping
from typing import Any

from gpusteward.analyzer.notify.alertmanager.alerts import LIFE_INTERVALS, OpenAlerts
from gpusteward.analyzer.notify.alertmanager.pusher import AlertPusher
from gpusteward.analyzer.notify.notices.messages import MessageOptions
from gpusteward.analyzer.notify.outbox.delivery_counters import DeliveryCounters
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings


class Alerting:
    """Nothing happens before `start`, nor where no Alertmanager is named."""

    def __init__(self, settings: Settings, counters: DeliveryCounters) -> None:
        self._settings = settings
        self._tally = counters
        self._open = OpenAlerts()
        self._pushers: list[AlertPusher] = []
        self._is_running = False

    def start(self) -> None:
        self._is_running = True
        self._point()

    def stop(self, timeout_seconds: float) -> None:
        self._is_running = False
        for pusher in self._pushers:
            pusher.stop(timeout_seconds)

    def adopt(self, settings: Settings) -> None:
        has_moved = settings.alertmanager != self._settings.alertmanager
        self._settings = settings
        if has_moved and self._is_running:
            self._point()

    def follow(self, result: Result) -> None:
        """A finished cycle: what fires, and what does not any more."""
        if not self._pushers:
            return
        push, notify = self._settings.alertmanager, self._settings.notify
        window_seconds = result.verdicts.usage.window_seconds
        currency = self._settings.prices.currency
        options = MessageOptions(notify.language, notify.time_zone, currency, notify.repeat_hours, window_seconds)
        alerts = [*self._open.follow(result, push, options), *self._open.find(push, now=result.at)]
        for pusher in self._pushers:
            pusher.push(alerts)

    def lose(self, reason: str, *, since: float, now: float) -> None:
        """Nothing can be read."""
        life_seconds = float(LIFE_INTERVALS * self._settings.scheduler.interval)
        alert = self._open.lose(reason, self._settings.alertmanager, since=since, now=now, life=life_seconds)
        for pusher in self._pushers:
            pusher.push([alert])

    def describe(self) -> Mapping[str, Any]:
        return {
            "alertmanagers": len(self._pushers),
            "firing": len(self._open.times),
            "left_out": self._open.left_out,
            "failures": [pusher.failure for pusher in self._pushers if pusher.failure],
        }

    def _point(self) -> None:
        for pusher in self._pushers:
            pusher.stop(0.0)
        settings = self._settings.alertmanager
        self._pushers = [AlertPusher(url, settings, self._tally) for url in settings.url]
        for pusher in self._pushers:
            pusher.start()
