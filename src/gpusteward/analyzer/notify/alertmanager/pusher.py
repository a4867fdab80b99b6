"""Pushes alerts to one Alertmanager each, in a thread of its own.

Not through the outbox: an alert is a state, not an event. What could not be pushed in time is replaced by the state of
the next cycle; played back in order it would open and close alerts of yesterday.
"""

import base64
import random
import threading
from collections.abc import Sequence

import msgspec

from gpusteward.analyzer.notify.alertmanager.alerts import Alert, has_ended
from gpusteward.analyzer.notify.errors import DeliveryError
from gpusteward.analyzer.notify.http_post import post
from gpusteward.analyzer.notify.outbox.delivery_counters import DeliveryCounters
from gpusteward.analyzer.settings.notify import AlertmanagerSettings
from gpusteward.logs import Log

log = Log(__name__)

BATCH = 200
KIND = "alert"
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 1.0, 60.0
_PATH = "/api/v2/alerts"


class AlertPusher:
    """One Alertmanager."""

    def __init__(self, url: str, settings: AlertmanagerSettings, counters: DeliveryCounters) -> None:
        self._url = url.rstrip("/") + _PATH
        self._settings = settings
        self._tally = counters
        self._lock = threading.Lock()
        self._batches: list[bytes] = []
        self._ends: dict[frozenset[tuple[str, str]], Alert] = {}  # not known to have arrived
        self._version = 0
        self._work, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="alertmanager", daemon=True)
        self.failure = ""

    def start(self) -> None:
        self._thread.start()

    def push(self, alerts: Sequence[Alert]) -> None:
        """The state of a cycle, in place of one that is not pushed yet; of that one, the ends are still told."""
        with self._lock:
            for alert in alerts:
                self._ends.pop(_name(alert), None)
            every = [*alerts, *self._ends.values()]
            ends = [alert for alert in every if has_ended(alert)]
            self._ends = {_name(alert): alert for alert in ends[: self._settings.max_alerts]}
            self._batches = [msgspec.json.encode(every[at : at + BATCH]) for at in range(0, len(every), BATCH)]
            self._version += 1
        self._work.set()

    def stop(self, timeout_seconds: float) -> None:
        self._stopping.set()
        self._work.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        wait = FIRST_WAIT_SECONDS
        while not self._stopping.is_set():
            self._work.wait()
            self._work.clear()
            if self._stopping.is_set():
                return
            if self._push_all():
                wait = FIRST_WAIT_SECONDS
            else:
                self._stopping.wait(wait * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, guards nothing
                wait = min(2 * wait, LONGEST_WAIT_SECONDS)
                self._work.set()

    def _push_all(self) -> bool:
        """Whether all of it arrived; what has is not sent again."""
        with self._lock:
            batches, version = list(self._batches), self._version
        for number, batch in enumerate(batches):
            if not self._push(batch):
                return self._keep(batches[number:], version)
        return self._keep([], version)

    def _keep(self, left: list[bytes], version: int) -> bool:
        with self._lock:
            if version == self._version:
                self._batches = left
                self._ends = self._ends if left else {}
            return not self._batches

    def _push(self, batch: bytes) -> bool:
        try:
            post(self._url, batch, headers=self._headers(), timeout=self._settings.timeout)
        except DeliveryError as error:
            if str(error) != self.failure:
                log.warning("alerts_not_pushed", reason=error)
            self.failure = str(error)
            self._tally.add("failed", KIND)
            return False
        self.failure = ""
        self._tally.add("sent", KIND)
        return True

    def _headers(self) -> dict[str, str]:
        settings = self._settings
        if token := settings.bearer_token.get_secret_value():
            return {"Authorization": f"Bearer {token}"}
        if not settings.username:
            return {}
        pair = f"{settings.username}:{settings.password.get_secret_value()}"
        return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


def _name(alert: Alert) -> frozenset[tuple[str, str]]:
    """As an Alertmanager tells one from another."""
    return frozenset(alert["labels"].items())
