"""The HTTP server of the analyzer: uvicorn, with the limits of connections that it lacks.

Connections are accepted here instead of by uvicorn, so that they are counted before their TLS handshake, and so that
each handshake uses the certificate of that moment. When a limit is reached, the connection that has waited longest for
a complete request (idle or slow) of the client with the most connections is closed in favour of the new one, or else
one whose client has not read its response for some seconds; if all are being served, the new client gets 503, unless
it is the first or second connection of its address: those have a reserve.
"""

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gpusteward.analyzer.api.http.middleware import CERTIFICATE_STATE
from gpusteward.http_server.limits import limit_send_buffer
from gpusteward.http_server.web_config import WebConfig
from gpusteward.logs import Log

log = Log(__name__)

IDLE_SECONDS = 75  # longer than usual scrape intervals, so that scrapers can keep their connection
REPORT_SECONDS = 60.0  # refused connections are logged at most this often
PIECE_BYTES = 4096  # parsed at once; what follows a request in the same piece does not count to its own head
STALLED_SECONDS = 5.0  # a client that reads nothing for so long loses its connection when others need it
ACCEPT_PAUSE_SECONDS = 0.2  # when there are no file descriptors left


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """How many connections there may be, and how long a client may take."""

    connections: int = 1024
    connections_per_client: int = 256  # many clients may be behind one proxy
    reserved_connections: int = 64  # in addition, two for each address: one may be about to end
    read_seconds: float = 10.0  # TLS handshake, headers and body of a request
    write_seconds: float = 30.0  # within which `write_bytes` of a response must be accepted
    write_bytes: int = 64 * 1024
    head_bytes: int = 32 * 1024  # request line and headers; cookies of a sign-in proxy and a token take up to 20 KiB
    sweep_seconds: float = 1.0


class LimitedProtocol(HttpToolsProtocol):
    """One connection; it has a transport after the TLS handshake. `waiting_since` is None while a complete request is
    being served."""

    def __init__(self, accepted: socket.socket, peer: str, server: "LimitedServer") -> None:
        """`peer`: the address of the client."""
        super().__init__(server.config, server.server_state, server.lifespan.state)
        self.accepted, self.peer = accepted, peer
        self._limits = server.limits
        self._tls = server.web().tls
        self._open = server.open
        self._head_bytes = 0
        self._is_in_head, self._is_request_complete = True, False
        self._unsent: tuple[float, int] = (0.0, 0)  # since when so many bytes are not accepted by the client
        self.waiting_since: float | None = time.monotonic()
        self._deadline = self.waiting_since + self._limits.read_seconds

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        self._has_certificate = bool(tls and tls.getpeercert())
        if self._tls is not None and not self._tls.allows(tls):
            log.debug("connection_refused", reason="the client certificate has none of the allowed names")
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._open.discard(self)

    def data_received(self, data: bytes) -> None:
        if self.waiting_since is not None and self._deadline == float("inf"):  # the first byte after a pause
            self._deadline = time.monotonic() + self._limits.read_seconds
        position = 0
        while position < len(data) and not self.transport.is_closing():
            position += self._parse_piece(data[position : position + PIECE_BYTES])

    def _parse_piece(self, piece: bytes) -> int:
        """How many of these bytes were parsed: of a head never more than the limit."""
        if self._is_in_head:
            piece = piece[: self._limits.head_bytes - self._head_bytes]
        if not piece:
            self.transport.write(render_refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
            self.transport.close()
            return 0
        self._head_bytes += len(piece)
        super().data_received(piece)
        return len(piece)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head, self._is_request_complete = True, False
        self.scope["state"][CERTIFICATE_STATE] = self._has_certificate

    def on_header(self, name: bytes, value: bytes) -> None:
        """Trailers, the headers after a body, are ignored: proxies do not check them as they do headers."""
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head, self._head_bytes = False, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._is_request_complete, self._head_bytes = True, 0
        self._deadline = float("inf")
        self.waiting_since = time.monotonic() if self.cycle.response_complete else None

    def on_response_complete(self) -> None:
        is_last = not self.pipeline  # otherwise the next request is served now
        super().on_response_complete()
        if not is_last:
            return
        self.waiting_since = time.monotonic()
        if not self._is_request_complete and self._deadline == float("inf"):  # the next one began during this one
            self._deadline = self.waiting_since + self._limits.read_seconds

    def is_overdue(self, now: float) -> bool:
        """Whether the client sends its request, or reads the response, too slowly."""
        return now >= self._deadline or (self.transport is not None and self._reads_too_slowly(now))

    def yields_since(self, now: float) -> float | None:
        """Since when it waits for a request or for a client that reads nothing; None: it is being served."""
        since, unsent = self._unsent
        is_stalled = unsent > 0 and now - since >= STALLED_SECONDS
        return since if self.waiting_since is None and is_stalled else self.waiting_since

    def abort(self) -> None:
        """Close at once, without sending what is left."""
        if self.transport is not None:
            self.transport.abort()
        else:
            with suppress(OSError):
                self.accepted.shutdown(socket.SHUT_RDWR)

    def _reads_too_slowly(self, now: float) -> bool:
        since, before = self._unsent
        unsent = self.transport.get_write_buffer_size()
        if unsent == 0 or unsent > before:
            self._unsent = now, unsent
        elif now - since >= self._limits.write_seconds:
            self._unsent = now, unsent
            return before - unsent < self._limits.write_bytes
        return False


class LimitedServer(uvicorn.Server):
    """A server that accepts connections itself. Use `serve(sockets=[...])`."""

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        web: Callable[[], WebConfig] = WebConfig,
        limits: ConnectionLimits | None = None,
    ) -> None:
        super().__init__(config)
        self.web = web
        self.limits = limits or ConnectionLimits()
        self.open: set[LimitedProtocol] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._refused = 0
        self._reported_at = float("-inf")

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        for listening in sockets or []:
            listening.setblocking(False)
            self._start(self._accept(listening))
        self._start(self._sweep())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await super().shutdown(sockets)

    def _start(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:
                log.warning("connection_not_accepted", reason=error)
                await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
                continue
            self._admit(accepted, address[0])

    def _admit(self, accepted: socket.socket, client: str) -> None:
        if not self._ensure_capacity(client):
            self._refuse(accepted)
            return
        limit_send_buffer(accepted)
        connection = LimitedProtocol(accepted, client, self)
        self.open.add(connection)
        self._start(self._begin(connection))

    async def _begin(self, connection: LimitedProtocol) -> None:
        """TLS handshake; from then on the protocol serves the connection."""
        context = self.web().context
        seconds = self.limits.read_seconds if context else None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, connection.accepted, ssl=context, ssl_handshake_timeout=seconds
            )
        except OSError as error:  # timeouts and TLS failures are OSErrors too
            log.debug("connection_ended", client=connection.peer, reason=error)
            self.open.discard(connection)
            connection.accepted.close()

    def _ensure_capacity(self, client: str) -> bool:
        """Below the limits, or after closing a connection that waits for a request."""
        of_clients = Counter(each.peer for each in self.open)
        if of_clients[client] >= self.limits.connections_per_client:
            return self._close_longest_waiting(client)
        reserve = self.limits.reserved_connections if of_clients[client] < 2 else 0
        if len(self.open) < self.limits.connections + reserve:
            return True
        return any(self._close_longest_waiting(each) for each, _ in of_clients.most_common())

    def _close_longest_waiting(self, client: str) -> bool:
        now = time.monotonic()
        since = {each: at for each in self.open if each.peer == client and (at := each.yields_since(now)) is not None}
        longest = min(since, key=since.__getitem__, default=None)
        if longest is None:
            return False
        self.open.discard(longest)
        longest.abort()
        return True

    def _refuse(self, accepted: socket.socket) -> None:
        """Send 503 if the socket accepts it without blocking (not possible with TLS), and close."""
        with accepted, suppress(OSError):
            if self.web().context is None:
                accepted.setblocking(False)
                accepted.send(render_refusal(HTTPStatus.SERVICE_UNAVAILABLE))
                accepted.shutdown(socket.SHUT_WR)
        self._refused += 1
        if time.monotonic() - self._reported_at >= REPORT_SECONDS:
            self._reported_at = time.monotonic()
            log.warning("connections_refused", total=self._refused, limit=self.limits.connections)

    async def _sweep(self) -> None:
        """Close connections of clients that are too slow."""
        while True:
            await asyncio.sleep(self.limits.sweep_seconds)
            now = time.monotonic()
            for connection in [each for each in self.open if each.is_overdue(now)]:
                log.debug("connection_ended", client=connection.peer, reason="the client is too slow")
                connection.abort()


def render_refusal(status: HTTPStatus) -> bytes:
    """A response without a body, after which the connection is closed."""
    lines = (f"HTTP/1.1 {status.value} {status.phrase}", "content-length: 0", "retry-after: 1", "connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
