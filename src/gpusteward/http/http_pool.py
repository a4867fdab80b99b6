"""Connections that outlive a request, and answers read piece by piece.

`http.client`: a whole HTTP library needs three times its CPU for the same answer, and memory that `serve` has to spare
for the fleet. Redirects are not followed and proxies of the environment not used.
"""

import contextlib
import select
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from urllib.parse import urlsplit

_PIECE_BYTES = 1 << 18
_UNPACKED_BYTES = 1 << 20
_EITHER = zlib.MAX_WBITS | 32  # gzip or zlib, as the answer itself says


class ConnectTimeoutError(OSError):
    """Nobody took the call in time."""


class AnswerTimeoutError(OSError):
    """The time for the whole answer is over."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The head of an answer, and its body for who wants it."""

    status: int
    headers: Mapping[str, str]
    pieces: Iterator[bytes]


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    body: bytes | None
    headers: Mapping[str, str]


class Wire:
    """Connections to one server. Safe to use from several threads; each request has one for itself."""

    def __init__(self, url: str, *, context: ssl.SSLContext | None, connect_timeout_seconds: float) -> None:
        parts = urlsplit(url)
        self.prefix = parts.path
        self._host, self._port = parts.hostname or "", parts.port
        self._context = context
        self._connect_timeout = connect_timeout_seconds
        self._lock = threading.Lock()
        self._idle: list[HTTPConnection] = []
        # With their sockets: http.client lets go of one when an answer says that it will close.
        self._open: dict[HTTPConnection, socket.socket] = {}

    @contextlib.contextmanager
    def send(self, request: Request, *, timeout_seconds: float) -> Iterator[Answer]:
        """The answer; its body is to be read within the block. Raises OSError, HTTPException."""
        deadline = time.monotonic() + timeout_seconds
        connection = self._take()
        channel = connection.sock
        is_reusable = False
        try:
            channel.settimeout(timeout_seconds)
            connection.request(request.method, self.prefix + request.path, request.body, dict(request.headers))
            with connection.getresponse() as response:
                headers = {name.lower(): value for name, value in response.getheaders()}
                yield Answer(response.status, headers, _unpack(_read(response, channel, deadline), headers))
                is_reusable = response.isclosed() and not response.will_close
        except TimeoutError as error:
            raise AnswerTimeoutError from error
        finally:
            self._put_back(connection, is_reusable=is_reusable)

    def hang_up(self) -> None:
        """Drop everything. Closing does not wake who waits for an answer; shutting the socket down does."""
        with self._lock:
            idle, self._idle = self._idle, []
            for channel in self._open.values():
                with contextlib.suppress(OSError):
                    channel.shutdown(socket.SHUT_RDWR)
        for connection in idle:
            connection.close()

    def _take(self) -> HTTPConnection:
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if not _was_left(connection):
                    self._open[connection] = connection.sock
                    return connection
                connection.close()
        return self._connect()

    def _connect(self) -> HTTPConnection:
        if self._context is None:
            connection = HTTPConnection(self._host, self._port, timeout=self._connect_timeout)
        else:
            connection = HTTPSConnection(self._host, self._port, timeout=self._connect_timeout, context=self._context)
        try:
            connection.connect()
        except TimeoutError as error:
            self._put_back(connection, is_reusable=False)
            raise ConnectTimeoutError from error
        except OSError:
            self._put_back(connection, is_reusable=False)
            raise
        with self._lock:
            self._open[connection] = connection.sock
        return connection

    def _put_back(self, connection: HTTPConnection, *, is_reusable: bool) -> None:
        with self._lock:
            self._open.pop(connection, None)
            if is_reusable:
                self._idle.append(connection)
        if not is_reusable:
            connection.close()


def _was_left(connection: HTTPConnection) -> bool:
    """Nothing is to be said on an idle connection but that it is over."""
    waiting = select.poll()
    waiting.register(connection.sock, select.POLLIN)
    return bool(waiting.poll(0))


def _read(response: HTTPResponse, connection: socket.socket, deadline: float) -> Iterator[bytes]:
    """The body as it arrives. An end before its end is an error."""
    left = response.length  # None: in chunks, or until the server hangs up
    while left is None or left > 0:
        if (seconds := deadline - time.monotonic()) <= 0:
            raise AnswerTimeoutError
        connection.settimeout(seconds)
        piece = _read_piece(response, left)
        if not piece:
            break
        left = left if left is None else left - len(piece)
        yield piece
    if left:
        raise IncompleteRead(b"", left)
    response.close()


def _read_piece(response: HTTPResponse, left: int | None) -> bytes:
    """What is there, without waiting for more. `HTTPResponse.read1` loses count of a body of known length."""
    if left is None:
        return response.read1(_PIECE_BYTES)
    return response.fp.read1(min(_PIECE_BYTES, left))


def _unpack(pieces: Iterator[bytes], headers: Mapping[str, str]) -> Iterator[bytes]:
    packing = headers.get("content-encoding", "identity").strip().lower()
    if packing == "identity":
        return pieces
    if packing not in ("gzip", "deflate"):
        raise HTTPException(f"the answer is packed as {packing[:40]!r}; set prometheus.accept_encoding to gzip")
    return _inflate(pieces)


def _inflate(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Bounded at each step: a small piece may hold a large one."""
    unpacker = zlib.decompressobj(_EITHER)
    try:
        for piece in pieces:
            yield unpacker.decompress(piece, _UNPACKED_BYTES)
            while unpacker.unconsumed_tail:
                yield unpacker.decompress(unpacker.unconsumed_tail, _UNPACKED_BYTES)
    except zlib.error as error:
        raise HTTPException(f"the answer cannot be unpacked: {error}") from error
    if not unpacker.eof:
        raise IncompleteRead(b"")
