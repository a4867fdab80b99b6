"""One connection to a target: a request out, an answer in, one after the other.

What arrives is parsed by httptools as it comes, so a page that grows too large, or a head that never ends, is cut off
while it is being sent.
"""

import asyncio

import httptools

from gpusteward.core.errors import SourceError

LONGEST_HEAD_BYTES = 65_536
_READ_BYTES = 262_144  # asyncio reads as much at once


class LostError(SourceError):
    """The connection ended before anything was answered."""


class Connection(asyncio.Protocol):
    """Belongs to one event loop."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._head_size = 0
        self._has_head = False
        self._size = 0
        self._received = 0
        self._parts: list[bytes] = []
        self.headers: dict[bytes, bytes] = {}

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def status(self) -> int:
        return self._parser.get_status_code()

    @property
    def body(self) -> bytes:
        return b"".join(self._parts)

    async def ask(self, request: bytes) -> None:
        """Send a request and wait for the whole answer. Raises SourceError."""
        assert self._transport is not None
        self._begin()
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        await self._waiting
        if not self._parser.should_keep_alive():
            self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._waiting is None or self._waiting.done():
            self.close()  # nobody asked: whoever talks on his own would fill our memory between two scrapes
            return
        self._received += len(data)
        self._head_size += 0 if self._has_head else len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(SourceError(f"this is no HTTP: {error}"))
        else:
            self._refuse_large()

    def connection_lost(self, error: Exception | None) -> None:
        if self._has_head and not self._has_length():
            self.on_message_complete()  # an answer that ends with its connection
        elif self._head_size:
            self._fail(SourceError("the answer broke off" + (f": {error}" if error else "")))
        else:
            self._fail(LostError("the target hung up" + (f": {error}" if error else "")))

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_head:  # what follows the body is of no interest
            self.headers[name.lower()] = value.strip()

    def on_headers_complete(self) -> None:
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size <= self._limit:
            self._parts.append(body)

    def on_message_complete(self) -> None:
        self._refuse_large()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _has_length(self) -> bool:
        return b"content-length" in self.headers or b"transfer-encoding" in self.headers

    def _refuse_large(self) -> None:
        if not self._has_head and self._head_size > LONGEST_HEAD_BYTES:
            self._fail(SourceError("the head of the answer does not end"))
        elif self._received > 2 * self._size + LONGEST_HEAD_BYTES + _READ_BYTES:
            self._fail(SourceError("the answer is more wrapping than page"))
        elif self._size > self._limit:
            self._fail(SourceError(f"the page is larger than {self._limit} bytes; raise scrape.page_limit_bytes"))

    def _fail(self, error: SourceError) -> None:
        self.close()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
