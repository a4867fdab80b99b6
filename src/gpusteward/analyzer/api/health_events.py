"""Sends an event when the health of the data changes: without it a page would not learn that results stopped coming."""

from gpusteward.analyzer.api.dependencies import ApiDependencies
from gpusteward.analyzer.api.event_feed import describe_health
from gpusteward.analyzer.data_health import Status


class HealthEvents:
    """Used on the event loop only."""

    def __init__(self, dependencies: ApiDependencies) -> None:
        self._dependencies = dependencies
        self._status: Status | None = None  # None: not known yet

    def check(self) -> None:
        """Send an event if the status is not that of the last call."""
        status = self._dependencies.assess_data().status
        if self._status not in (None, status):
            event = describe_health(status, at=self._dependencies.clock())
            self._dependencies.events.send_from_thread(event, limit=lambda _: event)
        self._status = status
