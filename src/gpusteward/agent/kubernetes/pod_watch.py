"""The pods of this node, kept up to date by a watch in a thread of its own.

Lists once, then follows; goes on from the last version it saw after a lost connection and lists anew only if the API
server no longer remembers that version. What it last knew stays visible while the API server is away.
"""

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import urlencode

import msgspec

from gpusteward.agent.kubernetes.pod_records import Pod, PodReader
from gpusteward.core.errors import SourceError
from gpusteward.kubernetes.api import ApiServer, GoneError, Watch
from gpusteward.logs import Log

__all__ = ["Backoff", "Pod", "PodWatch"]

PAGE_SIZE = 250
WATCH_SECONDS = 300  # and up to twice that, so that not every node asks again at once
GRACE_SECONDS = 15  # by which the server may be late to end a watch
STOP_SECONDS = 1.0
log = Log(__name__)


class _Version(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _ListVersion(_Version, rename="camel"):
    next_page: str | None = msgspec.field(default=None, name="continue")


class _PodList(msgspec.Struct):
    metadata: _ListVersion
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Object(msgspec.Struct):
    metadata: _Version


class _Status(msgspec.Struct):
    code: int = 0
    message: str = ""


@dataclass(slots=True)
class Backoff:
    """How long to wait after the next fault: doubled each time, never the same on two nodes."""

    first_seconds: float = 1.0
    longest_seconds: float = 30.0
    faults: int = 0

    def wait_seconds(self) -> float:
        jitter = 0.5 + os.urandom(1)[0] / 512
        return float(min(self.first_seconds * 2 ** min(self.faults, 16), self.longest_seconds)) * jitter


class PodWatch:
    """`pods` is an immutable mapping by uid, replaced as a whole; a static pod is there under both of its uids."""

    def __init__(
        self, api: ApiServer, node: str, *, label_patterns: Sequence[str] = (), backoff: Backoff | None = None
    ) -> None:
        """Raises ConfigurationError for a pattern that is not a regular expression."""
        self.pods: Mapping[str, Pod] = MappingProxyType({})
        self.failure: str | None = None
        self.has_listed = False  # `pods` has been complete at least once
        self._has_tried = threading.Event()  # with or without success
        self._api = api
        self._node = node
        self._reader = PodReader(label_patterns)
        self._backoff = backoff or Backoff()
        self._by_name: dict[tuple[str, str], Pod] = {}  # one name is one pod at a time: a namesake replaces it
        self._version = ""  # empty: list first
        self._list_from = "0"
        self._stopping = threading.Event()
        self._stream: Watch | None = None
        self._thread = threading.Thread(target=self._run, name="pods", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait_for_first(self, seconds: float) -> None:
        """Wait until the pods are listed or cannot be, at most so long."""
        self._has_tried.wait(seconds)

    def stop(self) -> None:
        """End the watch, even in the middle of a read; returns within about a second."""
        self._stopping.set()
        if (stream := self._stream) is not None:
            stream.interrupt()
        if self._thread.ident is not None:
            self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._attempt()
            self._stopping.wait(self._backoff.wait_seconds())

    def _attempt(self) -> None:
        """List if there is nothing to go on from, then follow until the watch ends."""
        try:
            if not self._version:
                self._list()
            self._follow()
        except GoneError:  # everyday life: the server forgets old versions, a list mends it
            self._version, self._list_from = "", ""
            self._backoff.faults += 1
        except SourceError as error:
            self._fail(str(error))
        # A thread that died would leave the pods of this moment standing for ever, and nobody would know.
        except Exception as error:  # noqa: BLE001
            self._version = ""
            self._fail(f"unexpected {type(error).__name__}: {error}")

    def _list(self) -> None:
        """Version 0 is what the server has in memory, cheap however large the cluster; after a 410 the newest."""
        found: dict[tuple[str, str], Pod] = {}
        where = {"resourceVersion": self._list_from} if self._list_from else {}
        while True:
            page = self._api.read_json(self._path(limit=PAGE_SIZE, **where), _PodList)
            found |= {(pod.namespace, pod.name): pod for pod in self._read_all(page.items or ())}
            if not page.metadata.next_page or self._stopping.is_set():
                break
            where = {"continue": page.metadata.next_page}
        self._version, self._list_from = page.metadata.resource_version, "0"
        self._by_name = found
        self._publish()
        self.has_listed = True
        self._has_tried.set()

    def _follow(self) -> None:
        seconds = WATCH_SECONDS + os.urandom(1)[0] * WATCH_SECONDS // 255
        path = self._path(
            watch="true", allowWatchBookmarks="true", resourceVersion=self._version, timeoutSeconds=seconds
        )
        with self._api.watch(path, idle_timeout_seconds=seconds + GRACE_SECONDS) as stream:
            self._stream = stream  # before the flag is looked at: stop() does it the other way round
            try:
                if not self._stopping.is_set():
                    self._succeed()
                    self._take_all(stream)
            finally:
                self._stream = None

    def _path(self, **parameters: str | int) -> str:
        return "/api/v1/pods?" + urlencode({"fieldSelector": f"spec.nodeName={self._node}", **parameters})

    def _take_all(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            if self._stopping.is_set():
                break
            self._take(line)

    def _take(self, line: bytes) -> None:
        """One event. What cannot be understood may have been a change, so the pods are listed again."""
        try:
            event = msgspec.json.decode(line, type=_Event)
            if event.type == "ERROR":
                self._refuse(msgspec.json.decode(event.object, type=_Status))
            version = msgspec.json.decode(event.object, type=_Object).metadata.resource_version
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            self._version = ""
            raise SourceError(f"the API server sent something that is not an event: {error}") from error
        if event.type != "BOOKMARK":
            self._apply(event)
        self._version = version or self._version
        self._backoff.faults = 0

    def _refuse(self, status: _Status) -> None:
        self._version = ""
        if status.code == 410:
            raise GoneError(status.message)
        raise SourceError(f"the API server ended the watch with {status.code}: {status.message[:300]}")

    def _apply(self, event: _Event) -> None:
        for pod in self._read_all([event.object]):
            key, known = (pod.namespace, pod.name), self._by_name.get((pod.namespace, pod.name))
            if event.type != "DELETED":
                self._by_name[key] = pod
            elif known is not None and known.uid == pod.uid:
                del self._by_name[key]
            if self._by_name.get(key) != known:
                self._publish()

    def _read_all(self, items: Iterable[msgspec.Raw]) -> Iterable[Pod]:
        """One pod that cannot be read costs itself."""
        for item in items:
            try:
                yield self._reader.read(item)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                log.warning("pod_unreadable", reason=error)

    def _publish(self) -> None:
        pods = {pod.static_uid: pod for pod in self._by_name.values() if pod.static_uid}
        self.pods = MappingProxyType(pods | {pod.uid: pod for pod in self._by_name.values()})

    def _succeed(self) -> None:
        if self.failure is not None:
            log.info("pods_recovered", pods=len(self._by_name))
        self.failure = None

    def _fail(self, reason: str) -> None:
        """Keep the reason; say it once, and not at all for the sake of a stop."""
        if not self._stopping.is_set() and reason != self.failure:
            log.warning("pods_unreadable", reason=reason)
        self.failure = reason
        self._backoff.faults += 1
        self._has_tried.set()
