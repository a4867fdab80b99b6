"""Content of the agent's HTTP endpoints: /metrics, /livez, /healthz, /readyz and /snapshot."""

import threading
import time
from collections.abc import Callable

import msgspec

from gpusteward.agent.collection import Collection
from gpusteward.agent.metrics_page import MetricsPage

STUCK_SECONDS = 600.0
"""A cycle takes milliseconds. What hangs for so long is not waiting for a slow driver any more."""


class AgentEndpoints:
    """Serves the result of the last cycle; never waits for NVML, the kubelet or the API server."""

    def __init__(
        self,
        collection: Collection,
        page: MetricsPage,
        thread: threading.Thread,
        *,
        requires_gpus: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._requires_gpus = requires_gpus
        self._clock = clock
        self._collection = collection
        self._page = page
        self._thread = thread

    def metrics(self, *, openmetrics: bool, gzip: bool) -> bytes:
        return self._page.render(openmetrics=openmetrics, gzip=gzip)

    def live(self) -> tuple[bool, str]:
        """As `health`, and the current cycle does not hang for minutes. Lost GPUs do not matter, nor does old data."""
        is_healthy, reason = self.health()
        since = self._collection.running_since
        hangs_seconds = 0.0 if since is None else self._clock() - since
        if is_healthy and hangs_seconds > STUCK_SECONDS:
            return False, f"a collection cycle has been running for {hangs_seconds:.0f} s; restart the agent"
        return is_healthy, reason

    def health(self) -> tuple[bool, str]:
        """Healthy while the collection thread is alive and a restart would not help.

        A hanging driver call is only reported: a restart does not fix it. A driver that was upgraded while the agent
        runs makes the agent unhealthy: a new container gets the new library.
        """
        if not self._thread.is_alive():
            return False, "the collection thread has died; restart the agent"
        snapshot = self._collection.last_snapshot
        outdated = [each.reason for each in snapshot.failures if each.needs_restart] if snapshot else []
        if outdated and self._collection.has_seen_gpus:
            return False, outdated[0]
        if self._requires_gpus and snapshot and not snapshot.readings:
            return False, "there is no GPU (--health-require-gpus)"
        return True, "ok" if not self._page.is_stale else f"ok, but {self._describe_age()}"

    def ready(self) -> tuple[bool, str]:
        """Ready while the page is fresh and NVML works; a single failing GPU does not change that."""
        if self._page.is_stale:
            return False, self._describe_age()
        snapshot = self._collection.last_snapshot
        if snapshot is None or snapshot.readings:
            return True, "ok"
        broken = [each.reason for each in snapshot.failures if each.collector == "nvml"]
        return (False, f"NVML: {broken[0]}") if broken else (True, "ok")

    def snapshot(self) -> bytes:
        return msgspec.json.encode(self._collection.last_snapshot)

    def _describe_age(self) -> str:
        age = self._page.age_seconds
        if age is None:
            return "the first collection has not finished yet"
        return f"the last collection is {age:.0f} s old: a driver call may hang"
