"""Scrapes every target once per interval, in a thread with its own event loop; a limited number at a time.

Scrapes are spread over the interval, so that those of a thousand targets are a steady load. A slow or unreachable
target occupies one of the concurrent scrapes until its timeout and delays no other.

A page is limited in size and time. Redirects are followed only within the target and without its credentials: behind
one address may be pages of others, as behind a proxy. One connection per target stays open between scrapes, unless it
is encrypted: an idle TLS connection of asyncio has 380 KB of buffers, a closed one 1 MB until it is released, and a
handshake costs 1.5 ms. For a thousand targets memory is the scarcer resource.
"""

import asyncio
import contextlib
import ssl
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urljoin

from gpusteward.analyzer.sources.http_settings import make_credentials, make_tls_context
from gpusteward.analyzer.sources.memory_limits import DEFAULT_LIMITS, MemoryLimits
from gpusteward.analyzer.sources.scrape.sample_store import PageOrigin, SampleStore
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings, parse_target
from gpusteward.analyzer.sources.scrape.targets import ReportedNode, Target, TargetRegistry
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.http.async_connection import AsyncConnection, AsyncResponse, ReceivedBytes, open_async_connection
from gpusteward.http.client import parse_date
from gpusteward.http.errors import NoResponseError, ResponseTimeoutError, ResponseTooLargeError
from gpusteward.http.urls import HttpUrl
from gpusteward.logs import Log
from gpusteward.messages.errors import http_errors
from gpusteward.messages.errors import source_errors as messages

REDIRECT_LIMIT = 3
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class Fetcher:
    """Fetches the page of one target. Belongs to one event loop."""

    def __init__(
        self,
        url: HttpUrl,
        *,
        limit_bytes: int,
        timeout_seconds: float,
        tls: ssl.SSLContext | None,
        server_name: str = "",
        received: ReceivedBytes | None = None,
    ) -> None:
        """`received`: what all targets are sending at the moment."""
        self._received = received
        self._url = url
        self._limit_bytes = limit_bytes
        self._timeout_seconds = timeout_seconds
        self._tls = tls if url.is_tls else None
        self._server_name = server_name
        self._connection: AsyncConnection | None = None
        self.clock_offset: float | None = None
        """Seconds: the clock of the target, as of its last response, minus our monotonic one. Not minus the clock of
        this machine: that one may step between this scrape and the cycle that compares the two."""

    async def fetch(self, credentials: Mapping[str, str]) -> bytes:
        """The page as it is now. `credentials`: headers. Raises SourceError."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await self._follow_redirects(credentials)
        except TimeoutError as error:
            self.close()
            reason = ResponseTimeoutError(http_errors.RESPONSE_TIMEOUT, seconds=self._timeout_seconds)
            raise SourceError(messages.TARGET_TIMEOUT, reason=reason) from error
        except ResponseTooLargeError as error:
            raise SourceError(messages.TARGET_PAGE_TOO_LARGE, reason=error) from error
        finally:
            if self._tls is not None:
                self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _follow_redirects(self, credentials: Mapping[str, str]) -> bytes:
        path, sent = self._url.path, credentials
        for _ in range(REDIRECT_LIMIT + 1):
            response = await self._get(path, sent)
            if response.status in (401, 403) and sent != credentials:
                raise SourceError(messages.TARGET_REDIRECTED_WITHOUT, status=response.status, path=path[:100])
            if response.status not in _REDIRECTS:
                date = parse_date(response.headers.get(b"date", b"").decode("latin-1"))
                self.clock_offset = None if date is None else date - time.monotonic()
                if response.status != 200:
                    hint = messages.TARGET_HINTS.get(response.status, messages.NO_HINT)
                    raise SourceError(messages.TARGET_STATUS, status=response.status, hint=hint)
                return response.decode_body(limit_bytes=self._limit_bytes)
            path, sent = self._resolve_redirect(response.headers.get(b"location", b""), path), {}
        raise SourceError(messages.TARGET_REDIRECTS, limit=REDIRECT_LIMIT)

    async def _get(self, path: str, headers: Mapping[str, str]) -> AsyncResponse:
        """The server may have closed an idle connection: then the request is repeated on a new one."""
        headers = {
            "Host": self._url.address,
            "Accept": "text/plain;version=0.0.4;q=1,*/*;q=0.1",
            "Accept-Encoding": "gzip",
            "User-Agent": "gpusteward",
            "X-Prometheus-Scrape-Timeout-Seconds": f"{self._timeout_seconds:g}",
            **headers,
        }
        if self._connection is not None and self._connection.is_open:
            try:
                return await self._connection.get(path, headers)
            except NoResponseError:
                self._connection = None
        self._connection = await open_async_connection(
            self._url,
            tls=self._tls,
            server_name=self._server_name,
            limit_bytes=self._limit_bytes,
            received=self._received,
        )
        return await self._connection.get(path, headers)

    def _resolve_redirect(self, location: bytes, path: str) -> str:
        """The new path. Redirects to other servers, which would receive the credentials, raise SourceError."""
        address = urljoin(f"{self._url.scheme}://{self._url.address}{path}", location.decode("latin-1"))
        try:
            url = parse_target(address)  # keeps the case of the host, as in the settings
        except ConfigurationError:
            url = None
        if url is None or (url.scheme, url.address) != (self._url.scheme, self._url.address):
            raise SourceError(messages.TARGET_REDIRECTED_AWAY, address=address[:100])
        return url.path


log = Log(__name__)

T = TypeVar("T")

REFRESH_SECONDS = 1.0
"""How often the target lists are checked; each has its own refresh interval."""
CLOSE_SECONDS = 1.0
"""An API server that does not respond may delay the thread, but not the end of the program."""
QUEUE_SECONDS = 2.0
"""Pages that are read on demand may have to wait for a concurrent scrape to end."""


@dataclass(slots=True)
class TargetHealth:
    """The scrapes of one target."""

    scrapes: int = 0
    failures_in_a_row: int = 0
    error: str = ""
    scraped_at: float | None = None  # unix seconds
    seconds: float = 0.0
    page_bytes: int = 0
    values: int = 0
    clock_offset: float | None = None  # seconds: its clock minus our monotonic one


class ScrapeLoop:
    """Scrapes from `start` to `close`."""

    def __init__(
        self,
        registry: TargetRegistry,
        store: SampleStore,
        settings: ScrapeSettings,
        *,
        limits: MemoryLimits = DEFAULT_LIMITS,
    ) -> None:
        """Raises ConfigurationError for credentials or certificates that cannot be used."""
        self._page_bytes = limits.page
        self._received = ReceivedBytes(limits.pages)
        self._registry = registry
        self._store = store
        self._settings = settings
        self._credentials = make_credentials(settings, section="scrape")
        self._tls = _make_tls_context(settings)
        self.health: dict[str, TargetHealth] = {}
        self.scrape_counts = Counter[str]()  # by result: ok or failed
        self._targets: dict[str, Target] = {}
        self._hosts: set[str] = set()  # of all targets
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._never_scraped: set[str] = set()
        self._had_first_round = threading.Event()
        self._first_round_at = 0.0
        self._closing = asyncio.Event()
        self._slots = asyncio.Semaphore(settings.max_concurrent)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._scrape_all()), name="scrape", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait_for_first_round(self, seconds: float) -> float:
        """When every target of the start had been tried once; the present time if that takes longer."""
        return self._first_round_at if self._had_first_round.wait(seconds) else time.time()

    def fetch_now(self, names: Iterable[str], read: Callable[[str, bytes], T]) -> list[T]:
        """The results of `read` for name and present page of each of these targets; failing targets are left out.

        For any thread but that of the loop. Raises SourceError if all of them fail.
        """
        targets = [target for name in names if (target := self._targets.get(name))]
        if self._loop is None or not targets:
            return []

        async def fetch_all() -> list[T | SourceError]:
            return await asyncio.gather(*(self._fetch_once(target, read) for target in targets))

        work = fetch_all()
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError as error:  # the loop has ended
            work.close()
            raise SourceError(messages.STOPPING) from error
        try:
            results = future.result(self._settings.timeout + QUEUE_SECONDS)
        except (TimeoutError, CancelledError) as error:
            future.cancel()
            raise SourceError(messages.AGENTS_TOO_SLOW) from error
        found = [result for result in results if not isinstance(result, SourceError)]
        if not found:
            raise SourceError(messages.NO_AGENT_RESPONDED, count=len(targets), reason=results[0])
        return found

    def close(self) -> None:
        """Stop scraping without waiting for responses. May be called from any thread."""
        self._is_closed = True
        self._had_first_round.set()
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._closing.set)
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)

    async def _scrape_all(self) -> None:
        self._loop = asyncio.get_running_loop()
        while not self._is_closed:
            # In a thread: a disk or an API server may be slow.
            targets = await asyncio.to_thread(self._registry.refresh, time.monotonic())
            self._update_targets(targets)
            self._store.drop_expired(time.time())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), REFRESH_SECONDS)
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _update_targets(self, targets: Mapping[str, Target]) -> None:
        for name in [name for name, target in self._targets.items() if targets.get(name) != target]:
            self._remove(name)
            if name in targets:  # with other labels, so its series are others too
                self._store.drop(name)
        for name in targets.keys() - self._targets.keys():
            if not self._had_first_round.is_set():
                self._never_scraped.add(name)
            self._targets[name] = targets[name]
            self._tasks[name] = asyncio.create_task(self._scrape_forever(targets[name]))
        self._hosts.clear()
        self._hosts.update(target.url.host for target in self._targets.values())
        self._mark_scraped("")

    def _remove(self, name: str) -> None:
        del self._targets[name]
        self._tasks.pop(name).cancel()
        self.health.pop(name, None)
        self._mark_scraped(name)
        self._store.add_failed_scrape(name, time.time())

    async def _fetch_once(self, target: Target, read: Callable[[str, bytes], T]) -> T | SourceError:
        """The page is released as soon as it is read: there may be many."""
        fetcher = self._make_fetcher(target)
        try:
            async with self._slots:
                return read(target.name, await fetcher.fetch(self._make_headers(target)))
        except SourceError as error:
            return error
        finally:
            fetcher.close()

    def _make_headers(self, target: Target) -> Mapping[str, str]:
        """Raises SourceError for a token that cannot be read."""
        return self._credentials.headers() if target.gets_credentials else {}

    def _make_fetcher(self, target: Target) -> Fetcher:
        settings = self._settings
        return Fetcher(
            target.url,
            limit_bytes=self._page_bytes,
            received=self._received,
            timeout_seconds=settings.timeout,
            tls=self._tls,
            server_name=settings.server_name,
        )

    async def _scrape_forever(self, target: Target) -> None:
        fetcher, interval = self._make_fetcher(target), self._settings.interval
        offset = zlib.crc32(target.name.encode()) / 2**32 * interval  # each target has its own in the interval
        try:
            while True:
                async with self._slots:
                    await self._scrape(target, fetcher)
                self._mark_scraped(target.name)
                await asyncio.sleep(interval - (time.monotonic() - offset) % interval)
        finally:
            fetcher.close()

    def _make_origin(self, target: Target) -> PageOrigin:
        labels = {"instance": target.url.address, **target.labels}
        node = ReportedNode(
            target.node,
            pod=target.pod,
            host=target.url.host,
            hosts=self._hosts,
            is_renamed=bool(target.node) and not target.pod,
            may_be_any=target.may_report_any_node,
        )
        pod_labels = {"namespace": target.namespace, "pod": target.pod} if target.pod else {}
        return PageOrigin(labels, target.fixed_labels, pod_labels, node)

    async def _scrape(self, target: Target, fetcher: Fetcher) -> None:
        health = self.health.setdefault(target.name, TargetHealth())
        at, started = time.time(), time.monotonic()
        try:
            page = await fetcher.fetch(self._make_headers(target))
            health.values = self._store.ingest(target.name, page, at, make_origin=lambda: self._make_origin(target))
            health.page_bytes = len(page)
            health.clock_offset = fetcher.clock_offset
            self._record_result(target, health, "")
        except SourceError as error:
            self._store.add_failed_scrape(target.name, at)
            self._record_result(target, health, str(error))
        # An internal error costs this scrape; the next one tries again.
        except Exception as error:  # noqa: BLE001
            self._store.add_failed_scrape(target.name, at)
            self._record_result(target, health, f"unexpected {type(error).__name__}: {error}")
        health.scraped_at, health.seconds = at, time.monotonic() - started

    def _record_result(self, target: Target, health: TargetHealth, error: str) -> None:
        self.scrape_counts["failed" if error else "ok"] += 1
        health.scrapes += 1
        if error and not health.error:
            log.warning("scrape_failed", target=target.name, reason=error)
        if health.error and not error:
            log.info("scrape_recovered", target=target.name)
        health.failures_in_a_row = health.failures_in_a_row + 1 if error else 0
        health.error = error

    def _mark_scraped(self, name: str) -> None:
        self._never_scraped.discard(name)
        if not self._never_scraped and not self._had_first_round.is_set():
            self._first_round_at = time.time()
            self._had_first_round.set()


def _make_tls_context(settings: ScrapeSettings) -> ssl.SSLContext | None:
    """The system's certificates cost memory, so they are loaded only where a target may need them."""
    texts = (settings.scheme, *settings.targets)
    if not settings.ca_file and not settings.targets_file and not any(text.startswith("https") for text in texts):
        return None
    return make_tls_context(settings, section="scrape")
