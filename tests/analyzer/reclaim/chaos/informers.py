"""Every version of every object, as the API server tells it."""

import contextlib
import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tests.kubernetes.cluster import Cluster, Json
from tests.kubernetes.control_plane import ADMIN_TOKEN

OnChange = Callable[[str, Json], None]
"""ADDED, MODIFIED or DELETED, and the object."""


class Informer:
    """The objects of one kind in all namespaces, by uid; a thread keeps them current."""

    def __init__(self, cluster: Cluster, version: str, plural: str, kind: str, on_change: OnChange) -> None:
        self._cluster, self._on_change = cluster, on_change
        self.version, self.kind = version, kind
        self._path = f"/apis/{version}/{plural}" if "/" in version else f"/api/{version}/{plural}"
        self.objects: dict[str, Json] = {}
        self.gaps = 0  # times at which versions may have been missed
        self._is_stopped = False
        self._connection: http.client.HTTPSConnection | None = None
        page = cluster.request("GET", self._path)
        self._resource_version = str(page["metadata"]["resourceVersion"])
        for item in page["items"]:
            self._apply("ADDED", item)
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"watch {plural}")
        self._thread.start()

    def list(self) -> list[Json]:
        return list(self.objects.values())

    def stop(self) -> None:
        self._is_stopped = True
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(2)
        self._thread.join(10)

    def _run(self) -> None:
        while not self._is_stopped:
            with contextlib.suppress(OSError, http.client.HTTPException):
                for event in self._watch():
                    if event["type"] == "ERROR":
                        self.gaps += 1
                        break
                    self._resource_version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._apply(event["type"], event["object"])

    def _watch(self) -> Iterator[Json]:
        trusted = ssl.create_default_context(cafile=self._cluster.ca_path)
        self._connection = http.client.HTTPSConnection(self._cluster.address, self._cluster.port, context=trusted)
        query = f"?watch=1&allowWatchBookmarks=true&resourceVersion={self._resource_version}"
        with contextlib.closing(self._connection) as connection:
            connection.request("GET", self._path + query, headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
            response = connection.getresponse()
            while line := response.readline():
                yield json.loads(line)

    def _apply(self, change: str, item: dict[str, Any]) -> None:
        item = {"apiVersion": self.version, "kind": self.kind, **item}
        uid = item["metadata"]["uid"]
        if change == "DELETED":
            self.objects.pop(uid, None)
        else:
            self.objects[uid] = item
        self._on_change(change, item)
