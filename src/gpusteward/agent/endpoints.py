"""What the HTTP server is told: the page, and the truth about the agent's health."""

import threading

import msgspec

from gpusteward.agent.collection import Collection
from gpusteward.agent.metrics_page import MetricsPage


class AgentEndpoints:
    """Answers from the last cycle; nothing here waits for NVML, the kubelet or the API server."""

    def __init__(self, collection: Collection, page: MetricsPage, worker: threading.Thread) -> None:
        self._collection = collection
        self._pages = page
        self._worker = worker

    def metrics(self, *, openmetrics: bool, gzip: bool) -> bytes:
        return self._pages.render(openmetrics=openmetrics, gzip=gzip)

    def health(self) -> tuple[bool, str]:
        """Alive as long as the worker lives; a driver that hangs is not mended by a restart, so it is only said.

        A driver that was upgraded under a running agent is mended so: a new container gets the new library.
        """
        if not self._worker.is_alive():
            return False, "the collecting thread has died; restart the agent"
        snapshot = self._collection.last_snapshot
        outdated = [each.reason for each in snapshot.failures if each.needs_restart] if snapshot else []
        if outdated and self._collection.has_seen_gpus:
            return False, outdated[0]
        return True, "ok" if not self._pages.is_stale else f"ok, but {self._describe_age()}"

    def ready(self) -> tuple[bool, str]:
        """Ready while the page is fresh and NVML answers; one GPU that does not costs only itself."""
        if self._pages.is_stale:
            return False, self._describe_age()
        snapshot = self._collection.last_snapshot
        if snapshot is None or snapshot.readings:
            return True, "ok"
        broken = [each.reason for each in snapshot.failures if each.collector == "nvml"]
        return (False, f"NVML: {broken[0]}") if broken else (True, "ok")

    def snapshot(self) -> bytes:
        return msgspec.json.encode(self._collection.last_snapshot)

    def _describe_age(self) -> str:
        age = self._pages.age_seconds
        if age is None:
            return "the first collection has not finished yet"
        return f"the last collection is {age:.0f} s old: a call to the driver may hang"
