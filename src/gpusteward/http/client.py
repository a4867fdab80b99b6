"""Requests to one server: limits of time and size, reuse of connections, cancellation from another thread.

Redirects are not followed. Proxies are used only where a caller passes one.
"""

import contextlib
import http.client
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gpusteward.http.connections import Connection, RawResponse, open_connection
from gpusteward.http.credentials import basic_authorization, is_header
from gpusteward.http.decoding import decode
from gpusteward.http.errors import (
    ConnectionLostError,
    HttpError,
    InvalidRequestError,
    NoResponseError,
    ProtocolError,
    RequestCancelledError,
    ResponseTimeoutError,
    ResponseTooLargeError,
    TlsError,
    explain_os_error,
)
from gpusteward.http.urls import HttpUrl
from gpusteward.messages.errors import http_errors as messages


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str  # below the path of the client's URL; with the query
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


def parse_date(header: str) -> float | None:
    """The header `Date` in unix seconds; None where it is missing or no date."""
    from email.utils import parsedate_to_datetime  # loads much, and few callers need it

    try:
        return parsedate_to_datetime(header).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


@dataclass(frozen=True, slots=True)
class Response:
    """`chunks`: the decoded body as it arrives; to be read inside the `with` block of `HttpClient.send`."""

    status: int
    reason: str
    headers: Mapping[str, str]  # names in lower case
    chunks: Iterator[bytes]

    @property
    def date(self) -> float | None:
        """The clock of the server, in unix seconds."""
        return parse_date(self.headers.get("date", ""))

    @property
    def retry_after_seconds(self) -> float:
        """The delay in seconds that the server requests; 0 if there is none or it is a date."""
        text = self.headers.get("retry-after", "")
        return float(text) if text.isascii() and text.isdecimal() and len(text) < 9 else 0.0

    def read(self) -> bytes:
        """The whole body. Raises HttpError."""
        return b"".join(self.chunks)

    def read_start(self, size: int) -> bytes:
        """The beginning of the body, for error texts: it may be endless. Raises HttpError."""
        start = b""
        for chunk in self.chunks:
            start += chunk
            if len(start) >= size:
                break
        return start[:size]

    def lines(self, *, limit_bytes: int) -> Iterator[bytes]:
        """Lines without their ends, each of limited length; an incomplete last line is dropped. Raises HttpError."""
        rest = b""
        for chunk in self.chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines
            if len(rest) > limit_bytes:
                raise ResponseTooLargeError(messages.LINE_TOO_LONG, limit_bytes=limit_bytes)


class HttpClient:
    """Sends requests to one server. Safe to use from several threads; each request has its own connection."""

    def __init__(
        self,
        url: HttpUrl,
        *,
        tls: ssl.SSLContext | None = None,
        proxy: HttpUrl | None = None,
        connect_timeout_seconds: float | None = None,
        keeps_connections: bool = False,
        socket_path: str = "",
    ) -> None:
        """`tls` is needed for https. Without a connect timeout that of the request is used. `socket_path`: of the Unix
        socket where the server listens, instead of its host and port."""
        self._url = url
        self._prefix = url.path.rstrip("/")
        self._tls = tls
        self._proxy = proxy
        self._connect_timeout = connect_timeout_seconds
        self._keeps_connections = keeps_connections
        self._socket_path = socket_path
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._is_closed = False

    @property
    def connection_count(self) -> int:
        """Open connections, in use or idle."""
        with self._lock:
            return len(self._idle) + len(self._busy)

    @contextlib.contextmanager
    def send(
        self,
        request: Request,
        *,
        timeout_seconds: float,
        limit_bytes: int | None = None,
        idle_timeout_seconds: float | None = None,
        send_before: float | None = None,
    ) -> Iterator[Response]:
        """The response, whatever its status; its body is read inside the block. Raises HttpError.

        `timeout_seconds` limits the time from connecting to the end of the body. With `idle_timeout_seconds` it ends
        with the headers, and from there on each read may take that long; not for errors, whose bodies are short.
        `limit_bytes` limits the body, both as it is sent and decoded. `send_before`: of the monotonic clock; the body
        is sent only when the server asks for it, and NotSentError says that it did not by then.
        """
        target, headers = self._prefix + request.path, dict(request.headers)
        if not (target.isascii() and target.isprintable() and " " not in target):
            raise InvalidRequestError(messages.INVALID_PATH)
        for name, value in headers.items():
            if not is_header(name, value):
                raise InvalidRequestError(messages.INVALID_HEADER, name=name[:100])
        if self._proxy is not None and not self._url.is_tls:
            target = f"http://{self._url.address}{target}"
            if self._proxy.username:
                authorization = basic_authorization(self._proxy.username, self._proxy.password)
                headers["Proxy-Authorization"] = authorization
        timeout = ResponseTimeoutError(messages.RESPONSE_TIMEOUT, seconds=timeout_seconds)
        deadline = time.monotonic() + timeout_seconds
        connection = self._take(timeout_seconds)
        is_reusable = False
        try:
            with self._translate_errors(timeout):
                raw = connection.send(
                    request.method, target, request.body, headers, deadline=deadline, send_before=send_before
                )
            with contextlib.closing(raw):
                if idle_timeout_seconds is not None and raw.status < 300:
                    connection.idle_seconds = idle_timeout_seconds
                    timeout = ResponseTimeoutError(messages.IDLE_TIMEOUT, seconds=idle_timeout_seconds)
                received = {name.lower(): value for name, value in raw.headers.items()}
                encoding = received.get("content-encoding", "")
                chunks = decode(self._read_body(raw, timeout), encoding, limit_bytes=limit_bytes)
                yield Response(raw.status, raw.reason, received, chunks)
                # A server that refused without asking for the body may still expect it there.
                is_complete = raw.is_complete and send_before is None
                is_reusable = self._keeps_connections and is_complete and not raw.will_close
        finally:
            with self._lock:
                self._busy.discard(connection)
                is_reusable = is_reusable and not self._is_closed
                if is_reusable:
                    self._idle.append(connection)
            if not is_reusable:
                connection.close()

    def close(self) -> None:
        """Close all connections; requests under way fail with RequestCancelledError. Safe from any thread."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            for connection in self._busy:
                connection.shut_down()
        for connection in idle:
            connection.close()

    def _take(self, timeout_seconds: float) -> Connection:
        with self._lock:
            self._refuse_if_closed()
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_readable():
                    self._busy.add(connection)
                    return connection
                connection.close()
        seconds = min(self._connect_timeout or timeout_seconds, timeout_seconds)
        connection = open_connection(
            self._url, tls=self._tls, proxy=self._proxy, timeout_seconds=seconds, socket_path=self._socket_path
        )
        with self._lock:
            if self._is_closed:
                connection.close()
            self._refuse_if_closed()
            self._busy.add(connection)
        return connection

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise RequestCancelledError(messages.CANCELLED)

    def _read_body(self, raw: RawResponse, timeout: ResponseTimeoutError) -> Iterator[bytes]:
        """The body as it arrives. A body that ends before its length is an error."""
        while True:
            with self._translate_errors(timeout):
                piece = raw.read_some()
            if not piece:
                break
            yield piece
        self._refuse_if_closed()

    @contextlib.contextmanager
    def _translate_errors(self, timeout: ResponseTimeoutError) -> Iterator[None]:
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            self._refuse_if_closed()
            raise (timeout if isinstance(error, TimeoutError) else _translate(error)) from error


def _translate(error: OSError | http.client.HTTPException) -> HttpError:
    if isinstance(error, http.client.RemoteDisconnected):
        return NoResponseError(messages.CLOSED_WITHOUT_RESPONSE)
    if isinstance(error, http.client.IncompleteRead):
        return ConnectionLostError(messages.CLOSED_EARLY)
    if isinstance(error, OSError):
        reason = explain_os_error(error)
        if isinstance(error, ssl.SSLError):
            return TlsError(messages.TLS_FAILED, reason=reason)
        return ConnectionLostError(messages.CONNECTION_LOST, reason=reason)
    text = "".join(sign if sign.isprintable() else "?" for sign in str(error)[:200])  # it may repeat what was received
    return ProtocolError(messages.INVALID_RESPONSE, reason=text or type(error).__name__)
