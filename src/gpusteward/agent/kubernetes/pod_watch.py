"""The pods of this node, kept up to date by a watch in its own thread.

Lists once, then watches. After a lost connection the watch continues from the last resource version and lists again
only if the API server no longer has that version. The last known pods stay available while the API server is down.

The list is read in pages of limited size: a node may have thousands of pods, and a pod half a megabyte of annotations.
"""

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import urlencode

import msgspec

from gpusteward.agent.kubernetes.pods import Pod, PodDecoder
from gpusteward.core.errors import SourceError
from gpusteward.kubernetes.api import LINE_LIMIT_BYTES, ApiServer, GoneError, TooLargeError, Watch
from gpusteward.logs import Log

PAGE_SIZE = 100
PAGE_LIMIT_BYTES = 2 << 20  # twice as much is in memory while it is read; 100 pods of usual size are 1 MB
WATCH_SECONDS = 300  # up to twice that at random, so that not all nodes reconnect at the same time
GRACE_SECONDS = 15  # how much later than requested the server may end a watch
IDLE_SECONDS = 2 * WATCH_SECONDS + GRACE_SECONDS  # not random: it is part of an error that is logged once
RECOVERY_SECONDS = 1  # of the first watch after a failure: a 410 comes at once, so that silence means success
STOP_SECONDS = 1.0
MAX_REASONS = 8  # logged per outage: a reason with changing text must not fill the log
log = Log(__name__)


class _Version(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _ListVersion(_Version, rename="camel"):
    next_page: str | None = msgspec.field(default=None, name="continue")


class _PodPage(msgspec.Struct):
    metadata: _ListVersion
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Versioned(msgspec.Struct):
    metadata: _Version


class _WatchError(msgspec.Struct):
    code: int = 0
    message: str = ""


@dataclass(slots=True)
class Backoff:
    """The delay before the next attempt: doubled after each failure, with jitter."""

    first_seconds: float = 1.0
    longest_seconds: float = 30.0
    failures: int = 0

    def wait_seconds(self) -> float:
        jitter = 0.5 + os.urandom(1)[0] / 512
        return float(min(self.first_seconds * 2 ** min(self.failures, 16), self.longest_seconds)) * jitter


class PodWatch:
    """`pods` is an immutable mapping by uid, replaced as a whole; a static pod is listed under both of its uids."""

    def __init__(
        self, api: ApiServer, node: str, *, label_patterns: Sequence[str] = (), backoff: Backoff | None = None
    ) -> None:
        """Raises ConfigurationError for an invalid regular expression."""
        self.pods: Mapping[str, Pod] = MappingProxyType({})
        self.failure: str | None = None
        self.has_listed = False  # `pods` was complete at least once
        self._has_tried = threading.Event()  # the first list succeeded or failed
        self._api = api
        self._node = node
        self._reader = PodDecoder(label_patterns)
        self._backoff = backoff or Backoff()
        self._by_name: dict[tuple[str, str], Pod] = {}  # namespace, name: a new pod of the same name replaces the old
        self.resource_version = ""  # of the last event; empty: list first
        self._is_outdated = False  # the server's cache may be older than what was known: list the newest state
        self._logged: set[str] = set()  # reasons of the current outage
        self._stopping = threading.Event()
        self._stream: Watch | None = None
        self._thread = threading.Thread(target=self._run, name="pods", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait_for_first_list(self, seconds: float) -> None:
        """Wait until the first list succeeded or failed, at most this long."""
        self._has_tried.wait(seconds)

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Stop the watch, also during a read; returns within about a second."""
        self._stopping.set()
        if (stream := self._stream) is not None:
            stream.interrupt()
        if self._thread.ident is not None:
            self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._run_once()
            self._stopping.wait(self._backoff.wait_seconds())

    def _run_once(self) -> None:
        """Watch until the watch ends. List first if there is no resource version, or the server no longer has it."""
        try:
            if self.resource_version:
                with contextlib.suppress(GoneError):  # normal: the server drops old versions
                    self._watch()
                    return
                self._forget_version()
            self._list()
            self._watch()
        except GoneError:  # normal: the next page of a list has expired, or a watch right after it
            self._forget_version()
            self._backoff.failures += 1
        except SourceError as error:
            self._fail(str(error))
        # If the thread died, the pods would stay outdated without any failure being reported.
        except Exception as error:  # noqa: BLE001
            self.resource_version = ""
            self._fail(f"unexpected {type(error).__name__}: {error}")

    def _forget_version(self) -> None:
        self.resource_version, self._is_outdated = "", True

    def _list(self) -> None:
        """List all pods; until then the previous ones stay."""
        found: dict[tuple[str, str], Pod] = {}
        for page_version, pods in self._read_pages():
            version = page_version
            for pod in pods:
                known = self._by_name.get((pod.namespace, pod.name))
                found[pod.namespace, pod.name] = known if known == pod else pod  # not both in memory
        self._by_name, self.resource_version, self._is_outdated = found, version, False
        self._publish()
        self.has_listed = True
        self._succeed()
        self._has_tried.set()

    def _read_pages(self) -> Iterator[tuple[str, list[Pod]]]:
        """The resource version and the pods of each page of a list.

        Version 0 is served from the server's cache, cheap in any cluster, but as a whole whatever the limit says. If
        that is too large, or older than what was known, the newest state is read in pages; those that are too large,
        in smaller ones.
        """
        size, where = PAGE_SIZE, {} if self._is_outdated else {"resourceVersion": "0"}
        while True:
            limit_bytes = PAGE_LIMIT_BYTES if size > 1 else LINE_LIMIT_BYTES
            try:
                page = self._api.read_json(self._path(limit=size, **where), _PodPage, limit_bytes=limit_bytes)
            except TooLargeError:
                if size == 1:
                    raise
                size, where = (PAGE_SIZE, {}) if "resourceVersion" in where else (max(size // 4, 1), where)
                continue
            about, pods = page.metadata, list(self._read_all(page.items or ()))
            del page  # else its text would be in memory together with that of the next one
            yield about.resource_version, pods
            if not about.next_page or self._stopping.is_set():
                break
            where = {"continue": about.next_page}

    def _watch(self) -> None:
        seconds, idle_seconds = WATCH_SECONDS + os.urandom(1)[0] * WATCH_SECONDS // 255, IDLE_SECONDS
        if self.failure is not None:
            seconds, idle_seconds = RECOVERY_SECONDS, RECOVERY_SECONDS + GRACE_SECONDS
        path = self._path(
            watch="true", allowWatchBookmarks="true", resourceVersion=self.resource_version, timeoutSeconds=seconds
        )
        with self._api.watch(path, idle_timeout_seconds=idle_seconds) as stream:
            self._stream = stream  # set before the flag is checked; stop() does it in the opposite order
            try:
                if not self._stopping.is_set():
                    for line in stream:
                        if self._stopping.is_set():
                            break
                        self._handle_event(line)
                    self._succeed()
            finally:
                self._stream = None

    def _path(self, **parameters: str | int) -> str:
        return "/api/v1/pods?" + urlencode({"fieldSelector": f"spec.nodeName={self._node}", **parameters})

    def _handle_event(self, line: bytes) -> None:
        """Handle one watch event. After an invalid line the pods are listed again, as it may have been a change."""
        try:
            event = msgspec.json.decode(line, type=_Event)
            if event.type == "ERROR":
                error = msgspec.json.decode(event.object, type=_WatchError)
                self.resource_version = ""
                if error.code == 410:
                    raise GoneError(error.message)
                raise SourceError(f"the API server ended the watch with {error.code}: {error.message[:300]}")
            version = msgspec.json.decode(event.object, type=_Versioned).metadata.resource_version
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as invalid:
            self.resource_version = ""
            raise SourceError(f"the API server sent an invalid watch event: {invalid}") from invalid
        if event.type != "BOOKMARK":
            self._apply(event)
        self.resource_version = version or self.resource_version
        self._succeed()

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
        """Decode pods; skip and log invalid ones."""
        for item in items:
            try:
                yield self._reader.read(item)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                log.warning("pod_unreadable", reason=error)

    def _publish(self) -> None:
        pods = {pod.static_uid: pod for pod in self._by_name.values() if pod.static_uid}
        self.pods = MappingProxyType(pods | {pod.uid: pod for pod in self._by_name.values()})

    def _succeed(self) -> None:
        """The pods are complete: a list is in, an event after all earlier ones, or the end of a watch without any."""
        if self.failure is not None:
            log.info("pods_recovered", pods=len(self._by_name))
        self.failure = None
        self._logged.clear()
        self._backoff.failures = 0

    def _fail(self, reason: str) -> None:
        """Keep the reason; log it once per outage, and not while stopping."""
        if not self._stopping.is_set() and reason not in self._logged and len(self._logged) < MAX_REASONS:
            self._logged.add(reason)
            log.warning("pods_unreadable", reason=reason)
        self.failure = reason
        self._backoff.failures += 1
        self._has_tried.set()
