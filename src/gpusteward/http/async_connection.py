"""One connection of an event loop: requests are sent one after the other.

httptools parses what arrives as it comes, so a body that grows too large, or headers without an end, are cut off while
they are being sent. For the scrapes of a thousand targets this costs less CPU than threads with blocking connections.

The parser refers to its connection, and the error of a future to the frame that waited for it. Both are dropped with
the response, so that reference counting frees what was received: the garbage collector rarely runs.
"""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

import httptools

from gpusteward.http.decoding import decode
from gpusteward.http.errors import (
    ConnectError,
    ConnectionLostError,
    HttpError,
    NoResponseError,
    ProtocolError,
    ResponseTooLargeError,
    TlsError,
    explain_os_error,
)
from gpusteward.http.urls import HttpUrl
from gpusteward.messages.errors import http_errors as messages

HEADERS_LIMIT_BYTES = 65_536
_READ_BYTES = 262_144  # what asyncio reads at once


async def open_async_connection(
    url: HttpUrl,
    *,
    tls: ssl.SSLContext | None,
    server_name: str,
    limit_bytes: int,
    received: "ReceivedBytes | None" = None,
) -> "AsyncConnection":
    """`server_name`: the name in the certificate, if it is not the host. Raises ConnectError, TlsError."""
    try:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: AsyncConnection(limit_bytes=limit_bytes, received=received),
            url.host,
            url.port,
            ssl=tls,
            server_hostname=(server_name or None) if tls else None,
        )
    except TimeoutError:  # of the caller
        raise
    except ssl.SSLError as error:
        raise TlsError(messages.TLS_FAILED, reason=explain_os_error(error)) from error
    except (OSError, UnicodeError) as error:
        reason = explain_os_error(error) if isinstance(error, OSError) else type(error).__name__
        raise ConnectError(messages.CONNECT_FAILED, reason=reason) from error
    return connection


@dataclass(frozen=True, slots=True)
class AsyncResponse:
    """A response as it was received. The connection keeps nothing of it."""

    status: int
    headers: Mapping[bytes, bytes]  # names in lower case
    chunks: list[bytes]

    def decode_body(self, *, limit_bytes: int) -> bytes:
        """Raises ProtocolError, ResponseTooLargeError."""
        encoding = self.headers.get(b"content-encoding", b"").decode("latin-1")
        return b"".join(decode(self.chunks, encoding, limit_bytes=limit_bytes))


class ReceivedBytes:
    """What several connections are receiving at the moment, limited in total: the connection that has received most is
    refused. Many may be large, but no large one is at the cost of small ones. Belongs to one event loop."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._sizes: dict[AsyncConnection, int] = {}
        self._total = 0

    def add(self, connection: "AsyncConnection", size: int) -> None:
        self._sizes[connection] = self._sizes.get(connection, 0) + size
        self._total += size
        while self._total > self._limit_bytes:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            self.release(largest)
            largest.refuse(ResponseTooLargeError(messages.TOO_MUCH_AT_ONCE, limit_bytes=self._limit_bytes))

    def release(self, connection: "AsyncConnection") -> None:
        self._total -= self._sizes.pop(connection, 0)


class AsyncConnection(asyncio.Protocol):
    """Belongs to one event loop."""

    def __init__(self, *, limit_bytes: int, received: ReceivedBytes | None = None) -> None:
        self._limit_bytes = limit_bytes
        self._all_received = received or ReceivedBytes(limit_bytes)
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[AsyncResponse] | None = None
        self._parser: httptools.HttpResponseParser | None = None  # while a response is received
        self._chunks: list[bytes] = []
        self._headers: dict[bytes, bytes] = {}

    def _end_response(self) -> None:
        self._all_received.release(self)
        self._parser = None
        self._chunks, self._headers = [], {}

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def get(self, path: str, headers: Mapping[str, str]) -> AsyncResponse:
        """Send a request and wait for the whole response. The caller limits the time. Raises HttpError."""
        assert self._transport is not None
        self._parser = httptools.HttpResponseParser(self)
        self._has_head = self._keeps_alive = False
        self._head_bytes = self._body_bytes = self._received_bytes = 0
        self._waiting = asyncio.get_running_loop().create_future()
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        self._transport.write("\r\n".join([*lines, "", ""]).encode("latin-1", "replace"))
        try:
            return await self._waiting
        finally:
            self._waiting = None
            if not self._keeps_alive:
                self.close()

    def close(self) -> None:
        self._end_response()
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._parser is None:
            self.close()  # unrequested data would fill the memory between two requests
            return
        self._received_bytes += len(data)
        self._head_bytes += 0 if self._has_head else len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.refuse(ProtocolError(messages.INVALID_RESPONSE, reason=error))
        else:
            self._check_limits()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._waiting is None or self._waiting.done():
            return
        has_length = b"content-length" in self._headers or b"transfer-encoding" in self._headers
        if self._parser is not None and self._has_head and not has_length:
            self.on_message_complete()  # this response ends with its connection
        elif not self._head_bytes:
            self.refuse(NoResponseError(messages.CLOSED_WITHOUT_RESPONSE))
        elif isinstance(error, OSError):
            self.refuse(ConnectionLostError(messages.CONNECTION_LOST, reason=explain_os_error(error)))
        else:
            self.refuse(ConnectionLostError(messages.CLOSED_EARLY))

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_head:  # trailers are ignored
            self._headers[name.lower()] = value.strip()

    def on_headers_complete(self) -> None:
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._parser is not None and self._body_bytes <= self._limit_bytes:
            self._chunks.append(body)
            self._all_received.add(self, len(body))

    def on_message_complete(self) -> None:
        self._check_limits()
        if self._parser is None:  # refused, or more than one response was sent
            return
        self._keeps_alive = self._parser.should_keep_alive()  # only here: afterwards the parser has forgotten it
        response = AsyncResponse(self._parser.get_status_code(), self._headers, self._chunks)
        self._end_response()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(response)

    def _check_limits(self) -> None:
        if not self._has_head and self._head_bytes > HEADERS_LIMIT_BYTES:
            self.refuse(ResponseTooLargeError(messages.HEADERS_TOO_LARGE))
        elif self._received_bytes > 2 * self._body_bytes + HEADERS_LIMIT_BYTES + _READ_BYTES:
            self.refuse(ProtocolError(messages.TOO_MUCH_FRAMING))
        elif self._body_bytes > self._limit_bytes:
            self.refuse(ResponseTooLargeError(messages.RESPONSE_TOO_LARGE, limit_bytes=self._limit_bytes))

    def refuse(self, error: HttpError) -> None:
        """End the response that is being received with this error."""
        self.close()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
