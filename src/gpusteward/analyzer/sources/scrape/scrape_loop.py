"""Every target once an interval, in a thread with an event loop of its own; a bounded number at a time.

Targets are spread over the interval, so that a thousand of them are a steady trickle. A target that is slow or gone
holds a place for as long as its scrape may take, and nobody else up.
"""

import asyncio
import contextlib
import ssl
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any, TypeVar

from gpusteward.analyzer.sources.http_settings import make_credentials, make_tls_context
from gpusteward.analyzer.sources.scrape.fetch import Fetcher
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.store import Store
from gpusteward.analyzer.sources.scrape.targets import KnownTargets, Target
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import format_text
from gpusteward.logs import Log

log = Log(__name__)

T = TypeVar("T")

LOOK_SECONDS = 1.0
"""How often the lists of targets are asked; each says itself when it is due."""
CLOSE_SECONDS = 1.0
"""An API server that does not answer holds the thread up, but not the program."""


ASK_SECONDS = 2.0
"""Pages that somebody waits for may have to wait for a place first."""


@dataclass(slots=True)
class Health:
    """How the scrapes of one target went."""

    scrapes: int = 0
    failures_in_a_row: int = 0
    error: str = ""
    scraped_at: float | None = None  # unix seconds
    seconds: float = 0.0
    page_bytes: int = 0
    values: int = 0


class Rounds:
    """Scrapes until it is closed."""

    def __init__(self, known: KnownTargets, store: Store, settings: ScrapeSettings) -> None:
        """Raises ConfigurationError for credentials or certificates that cannot be used."""
        self._known = known
        self._store = store
        self._settings = settings
        self._credentials = make_credentials(settings, section="scrape")
        self._tls = _make_tls_context(settings)
        self.health: dict[str, Health] = {}
        self.asked = Counter[str]()  # scrapes by result: ok or failed
        self._followed: dict[str, Target] = {}
        self._followers: dict[str, asyncio.Task[None]] = {}
        self._untried: set[str] = set()
        self._had_first = threading.Event()
        self._first_at = 0.0
        self._closing = asyncio.Event()
        self._places = asyncio.Semaphore(settings.max_concurrent)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="scrape", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait_for_first(self, seconds: float) -> float:
        """When every target known at the start had been tried; now, if that takes longer than so many seconds."""
        return self._first_at if self._had_first.wait(seconds) else time.time()

    def read_now(self, names: Iterable[str], read: Callable[[bytes], T]) -> list[T]:
        """What `read` makes of the pages of these targets as they are now; who does not answer is left out.

        For any thread but the loop's. Raises SourceError if nobody answers.
        """
        targets = [target for name in names if (target := self._followed.get(name))]
        if self._loop is None or not targets:
            return []
        answers = self._wait_for(self._read_all(targets, read), self._loop)
        found = [answer for answer in answers if not isinstance(answer, SourceError)]
        if not found:
            facts = {"count": len(targets), "reason": answers[0]}
            raise SourceError(format_text("none of {count} {count:|agent|agents} answered: {reason}", facts))
        return found

    def _wait_for(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
        try:
            asked = asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError as error:
            work.close()
            raise SourceError("nothing is scraped any more") from error
        try:
            return asked.result(self._settings.timeout + ASK_SECONDS)
        except (TimeoutError, CancelledError) as error:
            asked.cancel()
            raise SourceError("the agents took too long to answer") from error

    def close(self) -> None:
        """Stop scraping, without waiting for anybody. May be called from any thread."""
        self._is_over = True
        self._had_first.set()
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._closing.set)
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        asyncio.run(self._scrape_all())

    async def _scrape_all(self) -> None:
        self._loop = asyncio.get_running_loop()
        while not self._is_over:
            # In a thread: a disk or an API server may take its time.
            targets = await asyncio.to_thread(self._known.look, time.monotonic())
            self._adopt(targets)
            self._store.forget_silent(time.time())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), LOOK_SECONDS)
        for task in self._followers.values():
            task.cancel()
        await asyncio.gather(*self._followers.values(), return_exceptions=True)

    def _adopt(self, targets: Mapping[str, Target]) -> None:
        for name in [name for name, target in self._followed.items() if targets.get(name) != target]:
            self._leave(name)
            if name in targets:  # with other labels, so its series are others too
                self._store.forget(name)
        for name in targets.keys() - self._followed.keys():
            if not self._had_first.is_set():
                self._untried.add(name)
            self._followed[name] = targets[name]
            self._followers[name] = asyncio.create_task(self._follow(targets[name]))
        self._note_tried("")

    def _leave(self, name: str) -> None:
        del self._followed[name]
        self._followers.pop(name).cancel()
        self.health.pop(name, None)
        self._note_tried(name)
        self._store.miss(name, time.time())

    async def _read_all(self, targets: Iterable[Target], read: Callable[[bytes], T]) -> list[T | SourceError]:
        return await asyncio.gather(*(self._read_once(target, read) for target in targets))

    async def _read_once(self, target: Target, read: Callable[[bytes], T]) -> T | SourceError:
        """The page is let go as soon as it is read: there may be many."""
        fetcher = self._make_fetcher(target)
        try:
            async with self._places:
                return read(await fetcher.fetch(self._credentials.headers()))
        except SourceError as error:
            return error
        finally:
            fetcher.close()

    def _make_fetcher(self, target: Target) -> Fetcher:
        settings = self._settings
        return Fetcher(
            target.url,
            limit_bytes=settings.page_limit_bytes,
            timeout_seconds=settings.timeout,
            tls=self._tls,
            server_name=settings.server_name,
        )

    async def _follow(self, target: Target) -> None:
        fetcher = self._make_fetcher(target)
        try:
            while True:
                async with self._places:
                    await self._scrape(target, fetcher)
                self._note_tried(target.name)
                await asyncio.sleep(self._until_next(target.name))
        finally:
            fetcher.close()

    def _until_next(self, name: str) -> float:
        """To the next moment of this target; each has its own place in the interval."""
        interval = self._settings.interval
        place = zlib.crc32(name.encode()) / 2**32 * interval
        return interval - (time.monotonic() - place) % interval

    async def _scrape(self, target: Target, fetcher: Fetcher) -> None:
        health = self.health.setdefault(target.name, Health())
        at, started = time.time(), time.monotonic()
        try:
            page = await fetcher.fetch(self._credentials.headers())
            health.values = self._store.ingest(target.name, page, at, labels=_labels_of(target))
            health.page_bytes = len(page)
            self._note(target, health, "")
        except SourceError as error:
            self._store.miss(target.name, at)
            self._note(target, health, str(error))
        # A fault nobody foresaw costs this scrape; the next one tries again.
        except Exception as error:  # noqa: BLE001
            self._store.miss(target.name, at)
            self._note(target, health, f"unexpected {type(error).__name__}: {error}")
        health.scraped_at, health.seconds = at, time.monotonic() - started

    def _note(self, target: Target, health: Health, error: str) -> None:
        self.asked["failed" if error else "ok"] += 1
        health.scrapes += 1
        if error and not health.error:
            log.warning("target_lost", target=target.name, reason=error)
        if health.error and not error:
            log.info("target_found", target=target.name)
        health.failures_in_a_row = health.failures_in_a_row + 1 if error else 0
        health.error = error

    def _note_tried(self, name: str) -> None:
        self._untried.discard(name)
        if not self._untried and not self._had_first.is_set():
            self._first_at = time.time()
            self._had_first.set()


def _labels_of(target: Target) -> Mapping[str, str]:
    return {"instance": target.url.address, **target.labels}


def _make_tls_context(settings: ScrapeSettings) -> ssl.SSLContext | None:
    """The system's certificates cost memory, so they are loaded only where a target may need them."""
    texts = (settings.scheme, *settings.targets)
    if not settings.ca_file and not settings.targets_file and not any(text.startswith("https") for text in texts):
        return None
    return make_tls_context(settings, section="scrape")
