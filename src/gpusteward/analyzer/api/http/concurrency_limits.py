"""Runs slow requests to the source or the database in their own threads: limited in number and in time.

A few requests beyond the limit wait for their turn, more get a 503 problem, so that clients cannot slow down cycles.
One client may have a share of all requests only.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from starlette.types import Scope

from gpusteward.analyzer.api.http.identities import Identity
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.reclaim.execution.journal import ReclaimError
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.core.namespaces import VisibleNamespaces
from gpusteward.logs import Log
from gpusteward.messages.errors import api_errors

log = Log(__name__)

CONCURRENT_REQUESTS = 2
WAITING_REQUESTS = 16
"""Of one kind: the pages that several people open at the same moment."""
PATIENCE_SECONDS = 10.0
SOURCE_TIMEOUT_SECONDS = 15.0
LEDGER_TIMEOUT_SECONDS = 60.0
RECLAIM_TIMEOUT_SECONDS = 60.0
T = TypeVar("T")


class ConcurrencyLimit:
    """Counts running and waiting requests of one kind. Used on the event loop only."""

    def __init__(
        self,
        resource: Message,
        *,
        size: int = CONCURRENT_REQUESTS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._running = asyncio.Semaphore(size)
        self._places = WAITING_REQUESTS
        self._patience_seconds = patience_seconds
        self._resource = resource

    async def acquire(self) -> None:
        """Wait for a turn. Raises a 503 problem when too many wait already, or none ends in time."""
        if self._running.locked() and self._places == 0:
            raise self._busy()
        self._places -= 1
        try:
            async with asyncio.timeout(self._patience_seconds):
                await self._running.acquire()
        except TimeoutError as error:
            raise self._busy() from error
        finally:
            self._places += 1

    def release(self) -> None:
        self._running.release()

    def _busy(self) -> ProblemError:
        headers = {"Retry-After": "2"}
        return ProblemError(503, "busy", api_errors.TOO_MANY_REQUESTS, headers=headers, resource=self._resource)


def run_in_thread(function: Callable[[], T]) -> asyncio.Future[T]:
    """Run it in a daemon thread: unlike those of a pool, the end of the program does not wait for it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    future.add_done_callback(lambda done: done.cancelled() or done.exception())  # marks the exception as retrieved

    def work() -> None:
        try:
            settle = partial(future.set_result, function())
        except Exception as error:  # noqa: BLE001 - passed to the caller
            settle = partial(future.set_exception, error)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(lambda: future.done() or settle())

    threading.Thread(target=work, name="request", daemon=True).start()
    return future


@dataclass(frozen=True, slots=True)
class _Backend:
    """Where a request reads from: its time limit, and the problems it can end with."""

    name: str
    timeout_seconds: float
    too_slow: Message


_SOURCE = _Backend("engine", SOURCE_TIMEOUT_SECONDS, api_errors.ENGINE_TOO_SLOW)
_LEDGER = _Backend("ledger", LEDGER_TIMEOUT_SECONDS, api_errors.LEDGER_TOO_SLOW)
_RECLAIM = _Backend("reclaim", RECLAIM_TIMEOUT_SECONDS, api_errors.RECLAIM_TOO_SLOW)


async def query_source(read: Callable[[], T], limit: ConcurrencyLimit, *, visible: VisibleNamespaces | None) -> T:
    """`visible`: what the client may see. Raises a 503 or 504 problem."""
    return await _query(_SOURCE, lambda: hide_errors(read, visible), limit)


async def query_ledger(read: Callable[[], T], limit: ConcurrencyLimit) -> T:
    """Raises a 503 or 504 problem."""
    return await _query(_LEDGER, read, limit)


async def query_reclaim(act: Callable[[], T], limit: ConcurrencyLimit, *, visible: VisibleNamespaces | None) -> T:
    """`visible`: what the client may see. Raises a 409 problem for what is refused, or a 503 or 504 problem."""
    try:
        return await _query(_RECLAIM, lambda: hide_errors(act, visible), limit)
    except ReclaimError as error:
        raise ProblemError.from_error(409, "refused", error) from error


def hide_errors(read: Callable[[], T], visible: VisibleNamespaces | None) -> T:
    """The text of an error may name anything: queries contain names of namespaces."""
    try:
        return read()
    except SourceError as error:
        if visible is None:
            raise
        log.warning("reading for a viewer of some namespaces failed", reason=str(error))
        raise SourceError(api_errors.HIDDEN_ERROR) from None


async def _query(backend: _Backend, read: Callable[[], T], limit: ConcurrencyLimit) -> T:
    """A query that exceeds the time limit counts as running until its thread ends."""
    await limit.acquire()
    future = run_in_thread(read)
    future.add_done_callback(lambda _: limit.release())
    try:
        async with asyncio.timeout(backend.timeout_seconds):
            return await asyncio.shield(future)
    except SourceError as error:
        headers = {"Retry-After": "10"}
        raise ProblemError.from_error(503, f"{backend.name}-failed", error, headers=headers) from error
    except TimeoutError as error:
        raise ProblemError(504, f"{backend.name}-slow", backend.too_slow) from error


class ClientShare(NamedTuple):
    """How many may be under way."""

    of_one_client: int
    of_all: int


EVENTS_PATH = "/api/v1/events"
OTHERS = "others"
SHARES: Mapping[str, ClientShare] = {
    "/metrics": ClientShare(8, 64),
    EVENTS_PATH: ClientShare(16, 128),  # each window of a browser has one
    OTHERS: ClientShare(32, 256),  # a browser sends at most 6 at once
}
_KEY = "gpusteward.share"


class ClientShares:
    """Counts requests until their responses are sent. Used on the event loop only.

    A client is an address and who it has proved to be: people behind one proxy, one ingress or the API server have one
    address, and each their own share. Who has proved to be somebody gets at most half of all, from however many
    addresses. `/metrics` and event streams are counted by themselves; probes are not counted.
    """

    def __init__(self, shares: Mapping[str, ClientShare] = SHARES) -> None:
        self._shares = shares
        self._of_clients = Counter[tuple[str, str, str]]()  # kind, address (`*`: all of them), identity
        self._of_kinds = Counter[str]()

    def take(self, scope: Scope, identity: Identity) -> None:
        """Raises a 503 problem. `release` gives it back."""
        if _KEY in scope:
            return
        kind = scope["path"] if scope["path"] in self._shares else OTHERS
        address = scope["client"][0] if scope.get("client") else ""
        name = f"{identity} {identity.credential}"
        key, everywhere = (kind, address, name), (kind, "*", name)
        share = self._shares[kind]
        is_known = bool(identity.user or identity.credential)
        if (
            self._of_clients[key] >= share.of_one_client
            or self._of_kinds[kind] >= share.of_all
            or (is_known and self._of_clients[everywhere] >= share.of_all // 2)
        ):
            message = api_errors.TOO_MANY_LISTENERS if kind == EVENTS_PATH else api_errors.TOO_MANY_OF_CLIENT
            problem = "too-many-listeners" if kind == EVENTS_PATH else "busy"
            raise ProblemError(503, problem, message, headers={"Retry-After": "30" if kind == EVENTS_PATH else "2"})
        scope[_KEY] = key, everywhere
        self._of_clients.update((key, everywhere))
        self._of_kinds[kind] += 1

    def release(self, scope: Scope) -> None:
        """Nothing happens where none was taken."""
        keys = scope.pop(_KEY, ())
        if keys:
            self._of_kinds[keys[0][0]] -= 1
        for key in keys:
            self._of_clients[key] -= 1
            if not self._of_clients[key]:
                del self._of_clients[key]
