"""Content of the agent's HTTP endpoints: /metrics, /healthz, /readyz and /snapshot."""

import threading

import msgspec

from gpusteward.agent.collection import Collection
from gpusteward.agent.metrics_page import MetricsPage


class AgentEndpoints:
    """Serves the result of the last cycle; never waits for NVML, the kubelet or the API server."""

    def __init__(self, collection: Collection, page: MetricsPage, thread: threading.Thread) -> None:
        self._collection = collection
        self._page = page
        self._thread = thread

    def metrics(self, *, openmetrics: bool, gzip: bool) -> bytes:
        return self._page.render(openmetrics=openmetrics, gzip=gzip)

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
