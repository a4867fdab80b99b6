"""Blocking connections: TCP, the tunnel of a proxy, TLS, and a time limit for the whole exchange; `http.client` parses
the responses."""

import contextlib
import http.client
import io
import select
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from gpusteward.http.credentials import basic_authorization
from gpusteward.http.errors import (
    ConfigurationFileError,
    ConnectError,
    ConnectTimeoutError,
    NotSentError,
    TlsError,
    explain_os_error,
)
from gpusteward.http.urls import HttpUrl
from gpusteward.messages.errors import http_errors as messages

_PIECE_BYTES = 1 << 18
_INTERIM = (102, 103)  # besides 100, which http.client skips
_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_TCP_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    # The kernel probes an idle connection, because a load balancer may vanish without closing it.
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


def load_tls_context(ca_file: Path | str | None = None) -> ssl.SSLContext:
    """Trusts the certificates of a file, or those of the system. Raises ConfigurationFileError."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # an SSLError is one too
        reason = explain_os_error(error)
        raise ConfigurationFileError(messages.CA_FILE_UNUSABLE, path=ca_file, reason=reason) from error


class TimedSocket:
    """A connected socket with a time limit for everything that is sent and received.

    The timeout of a plain socket restarts with each received byte.
    """

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        """`deadline`: in the time of `time.monotonic`."""
        self._sock = sock
        self.deadline = deadline
        self.idle_seconds: float | None = None
        """The time of each read, instead of the deadline: for responses without an end."""

    def sendall(self, data: bytes) -> None:
        """Raises OSError."""
        self.start_timeout()
        self._sock.sendall(data)

    def makefile(self, _mode: str = "rb") -> io.BufferedReader:
        """Responses are read from this. It keeps the socket open until it is closed itself."""
        return io.BufferedReader(_TimedReader(self, self._sock.makefile("rb", buffering=0)))

    def close(self) -> None:
        self._sock.close()

    def shut_down(self) -> None:
        """Wake a thread that is blocked in a read or write; closing the socket would not."""
        with contextlib.suppress(OSError):  # already closed
            # The plain socket's method: that of a TLS socket removes the session while the other thread reads.
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def is_readable(self) -> bool:
        """On an idle connection: the server closed it, or sent something that was not requested."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(0))

    def start_timeout(self) -> None:
        """Give the next operation the time that is left. Raises TimeoutError."""
        seconds = self.idle_seconds or self.deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        self._sock.settimeout(seconds)


class _TimedReader(io.RawIOBase):
    def __init__(self, sock: TimedSocket, raw: socket.SocketIO) -> None:
        self._sock = sock
        self._raw = raw
        self.has_ended = False  # the connection

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int | None:  # type: ignore[override]
        self._sock.start_timeout()
        size = self._raw.readinto(buffer)
        self.has_ended = not size
        return size

    def close(self) -> None:
        self._raw.close()
        super().close()


class _HeadReader:
    """The lines of a head, with another name for Content-Type. The parser of the standard library is that of e-mails:
    while it reads the headers it looks for the parts that a Content-Type promises, takes seconds for the parameters of
    a long one, and raises errors of any kind for a wrong one."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream = stream

    def readline(self, size: int) -> bytes:
        line = self._stream.readline(size)
        return b"X-" + line if line[:13].lower() == b"content-type:" else line

    def close(self) -> None:
        self._stream.close()


class RawResponse(http.client.HTTPResponse):
    """A response whose headers have arrived; its body is read piece by piece, as it was sent."""

    def __init__(self, timed: TimedSocket, method: str, on_continue: Callable[[], None] = lambda: None) -> None:
        """Read up to the end of the headers. `on_continue` is called when the server asks for the body with the status
        100. Raises http.client.HTTPException, OSError, and what `on_continue` raises."""
        super().__init__(timed, method=method)  # type: ignore[arg-type]  # it only calls makefile
        self._on_continue = on_continue
        stream, self.fp = self.fp, _HeadReader(self.fp)  # type: ignore[assignment]
        with contextlib.ExitStack() as on_error:
            on_error.callback(self.close)
            try:
                self.begin()
                while self.status in _INTERIM:
                    self.headers = None  # type: ignore[assignment]  # so that it begins again
                    self.begin()
            finally:
                self.fp = self.fp and stream  # None: closed
            self.headers["Content-Type"] = self.headers.get("X-Content-Type", "")
            if self.headers.defects:  # what follows such a line is no header for it: also the length of the body
                raise http.client.HTTPException("a line that is not a header")
            if self.fp.raw.has_ended:  # type: ignore[attr-defined]
                raise http.client.IncompleteRead(b"")
            on_error.pop_all()

    def _read_status(self) -> tuple[str, int, str]:
        version, status, reason = super()._read_status()  # type: ignore[misc]
        if status == http.client.CONTINUE:
            self._on_continue()
        return version, status, reason

    @property
    def is_complete(self) -> bool:
        """Whether the body was read to its end, so that another response may follow."""
        return self.length == 0 or self.isclosed()

    def read_some(self) -> bytes:
        """What has arrived of the body, without waiting for more; empty at its end. Raises as the constructor."""
        piece = self.read1(_PIECE_BYTES)
        if not piece and self.length:
            raise http.client.IncompleteRead(b"", self.length)
        return piece


class Connection(TimedSocket):
    """An open connection to a server."""

    def __init__(self, url: HttpUrl, sock: socket.socket, deadline: float) -> None:
        super().__init__(sock, deadline)
        self._host = url.host_header

    def send(
        self,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
        *,
        deadline: float,
        send_before: float | None = None,
    ) -> RawResponse:
        """Send a request and read the head of its response. Raises http.client.HTTPException, OSError.

        `send_before`: a time until which the server must ask for the body (Expect: 100-continue, RFC 9110), else
        NotSentError is raised. A server that hangs has the head only, and does not carry out the request when it goes
        on after the client has left.
        """
        self.deadline, self.idle_seconds = deadline, None
        if send_before is None:
            head = self._encode_head(method, target, body, headers)
            self.sendall(head + (body or b""))  # at once: a server that gets the head alone begins, and waits
            return RawResponse(self, method)
        is_asked = False

        def send_body() -> None:
            nonlocal is_asked
            if is_asked:  # a proxy asked, and the server behind it asks again
                return
            if time.monotonic() >= send_before:
                raise NotSentError(messages.NOT_SENT)
            is_asked = True
            self.deadline = deadline
            self.sendall(body or b"")

        self.deadline = send_before
        try:
            self.sendall(self._encode_head(method, target, body or b"", {**headers, "Expect": "100-continue"}))
            return RawResponse(self, method, send_body)
        except TimeoutError as error:
            if is_asked:
                raise
            raise NotSentError(messages.NOT_SENT) from error

    def _encode_head(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
        """Request line and headers. The headers must be valid."""
        own = {"Host": self._host, "Accept-Encoding": "identity"}
        if body is not None or method in _METHODS_WITH_BODY:
            own["Content-Length"] = str(len(body or b""))
        given = {name.lower() for name in headers}
        own = {name: value for name, value in own.items() if name.lower() not in given}
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in (own | dict(headers)).items())]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


def open_connection(
    url: HttpUrl, *, tls: ssl.SSLContext | None, proxy: HttpUrl | None, timeout_seconds: float, socket_path: str = ""
) -> Connection:
    """`socket_path`: a Unix socket where the server listens. Raises ConnectError, ConnectTimeoutError, TlsError."""
    near = proxy or url
    deadline = time.monotonic() + timeout_seconds
    try:
        with contextlib.ExitStack() as on_error:
            if socket_path:
                sock = on_error.enter_context(socket.socket(socket.AF_UNIX))
                sock.settimeout(timeout_seconds)
                sock.connect(socket_path)
            else:
                sock = on_error.enter_context(socket.create_connection((near.host, near.port), timeout_seconds))
                for level, option, value in _TCP_OPTIONS:
                    sock.setsockopt(level, option, value)
            if proxy is not None and url.is_tls:
                _open_tunnel(TimedSocket(sock, deadline), url, proxy)
            if tls is not None and url.is_tls:
                sock.settimeout(max(deadline - time.monotonic(), 0.001))
                sock = tls.wrap_socket(sock, server_hostname=url.host)
                on_error.callback(sock.close)
            on_error.pop_all()
            return Connection(url, sock, deadline)
    except TimeoutError as error:
        raise ConnectTimeoutError(messages.CONNECT_TIMEOUT, seconds=timeout_seconds) from error
    except OSError as error:
        if isinstance(error, ssl.SSLError):
            raise TlsError(messages.TLS_FAILED, reason=explain_os_error(error)) from error
        raise ConnectError(messages.CONNECT_FAILED, reason=explain_os_error(error)) from error
    except (UnicodeError, http.client.HTTPException) as error:  # a host name that DNS cannot have; a proxy that is none
        raise ConnectError(messages.CONNECT_FAILED, reason=type(error).__name__) from error


def _open_tunnel(sock: TimedSocket, url: HttpUrl, proxy: HttpUrl) -> None:
    head = [f"CONNECT {url.address} HTTP/1.1", f"Host: {url.address}"]
    if proxy.username:
        head.append(f"Proxy-Authorization: {basic_authorization(proxy.username, proxy.password)}")
    sock.sendall("\r\n".join([*head, "", ""]).encode("latin-1"))
    with RawResponse(sock, "CONNECT") as response:
        status = response.status
    if status != 200:
        raise ConnectError(messages.PROXY_REFUSED, status=status)
