"""Handles one connection: TLS handshake, then its requests one after the other: access checks, routes, responses.

The headers are parsed by `http.client`, the request line here: `http.server` would load half a megabyte of modules for
it. Limits of the time and size of a request keep a client that sends byte by byte from occupying a connection.
"""

import http.client
import io
import json
import re
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

from gpusteward import __version__
from gpusteward.agent.http.connections import ClientConnection, ScrapeSlots
from gpusteward.core.exposition import TEXT_TYPE
from gpusteward.http_server.limits import find_long_header
from gpusteward.http_server.local_clients import is_local_request
from gpusteward.http_server.negotiation import accepts_gzip, choose_format
from gpusteward.http_server.web_config import WebConfig
from gpusteward.logs import Log

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from gpusteward.agent.endpoints import AgentEndpoints

log = Log(__name__)

MAX_REQUEST_BYTES = 16 * 1024  # line and headers; a scraper sends about 300
MAX_LINE_BYTES = 4 * 1024
MAX_BODY_BYTES = 64 * 1024  # read and discarded: closing with unread bytes would cut off our response
JOINED_BYTES = 8 * 1024  # smaller bodies are sent together with their headers
OPEN_PATHS = frozenset({"/livez", "/healthz", "/readyz", "/health"})  # the kubelet's probes send no password

_LONE_CARRIAGE_RETURN = re.compile(rb"\r(?!\n)")
_VERSION = re.compile(r"HTTP/(\d{1,10})\.(\d{1,10})")

PLAIN = "text/plain; charset=utf-8"
JSON = "application/json"
HTML = "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Reply:
    """One response of the server."""

    status: HTTPStatus
    body: bytes
    content_type: str = PLAIN
    headers: Mapping[str, str] = field(default_factory=dict)


def error_response(
    status: HTTPStatus, message: str, *, hint: str = "", headers: Mapping[str, str] | None = None
) -> Reply:
    """The JSON shape of every error: code, message and a hint."""
    error = {"code": status.name.lower(), "message": message, "hint": hint}
    return Reply(status, json.dumps({"error": error}).encode() + b"\n", JSON, headers or {})


def render_head(reply: Reply, extra: Iterable[tuple[str, str]]) -> bytes:
    """Status line and headers."""
    headers = {
        "Content-Type": reply.content_type,
        "Content-Length": str(len(reply.body)),
        "X-Content-Type-Options": "nosniff",
        **dict(extra),
        **reply.headers,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {reply.status.value} {reply.status.phrase}\r\n{lines}\r\n".encode("latin-1", "replace")


LANDING_PAGE = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>gpusteward agent</title>
<style>body{{font:16px/1.6 system-ui,sans-serif;max-width:40em;margin:3em auto;padding:0 1em}}</style></head>
<body><h1>gpusteward agent</h1><p>version {__version__}</p><ul>
<li><a href="/metrics">/metrics</a>: GPU metrics of this node for Prometheus</li>
<li><a href="/livez">/livez</a>: whether this process works without a restart</li>
<li><a href="/healthz">/healthz</a>: whether this process is healthy</li>
<li><a href="/readyz">/readyz</a>: whether the served data is fresh</li>
<li><a href="/snapshot">/snapshot</a>: the last snapshot as JSON (local clients, or with a password)</li>
</ul></body></html>
""".encode()
LANDING = Reply(
    HTTPStatus.OK,
    LANDING_PAGE,
    HTML,
    {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"},
)
TOO_MANY_CLIENTS = error_response(
    HTTPStatus.SERVICE_UNAVAILABLE,
    "too many concurrent requests",
    hint="try again, or raise --max-concurrent-scrapes",
    headers={"Retry-After": "1"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContext:
    """Content, limits and options shared by all connections."""

    content: "AgentEndpoints"
    web: Callable[[], WebConfig]
    scrapes: ScrapeSlots
    read_seconds: float
    write_seconds: float
    idle_seconds: float
    expose_snapshot: bool


class RequestTooLargeError(OSError):
    """The client sent more bytes than allowed for a request."""


class RequestStream(io.RawIOBase):
    """The raw stream below a buffered reader; `allow` sets the time and size limits of the next reads."""

    def __init__(self, client_socket: socket.socket) -> None:
        self._socket = client_socket
        self._deadline = 0.0
        self._bytes_left = 0

    def allow(self, *, seconds: float, size: int) -> None:
        self._deadline = time.monotonic() + seconds
        self._bytes_left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Read what has arrived into the buffer; 0 at the end of the stream.

        Raises TimeoutError past the deadline, RequestTooLargeError past the size.
        """
        seconds_left = self._deadline - time.monotonic()
        if seconds_left <= 0:
            raise TimeoutError("the request took too long")
        if self._bytes_left <= 0:
            raise RequestTooLargeError("the request is too large")
        self._socket.settimeout(seconds_left)
        count = self._socket.recv_into(buffer)
        self._bytes_left -= count
        return count


class PlainHeaders(http.client.HTTPMessage):
    """Headers that name no parts. The parser of the standard library is that of e-mails: while it reads the headers it
    looks for the parts that a Content-Type promises, takes seconds for the parameters of a long one, and raises errors
    of any kind for a wrong one."""

    def get_content_type(self) -> str:
        return "text/plain"

    def get_content_maintype(self) -> str:
        return "text"


class ConnectionHandler:
    """Reads requests from a connection and responds until one side closes it."""

    def __init__(self, connection: ClientConnection, context: ServerContext) -> None:
        self._connection, self._context = connection, context
        self._timeout_seconds = context.read_seconds
        self.close_connection = False  # after the current response

    def run(self) -> None:
        """Serve the connection; a misbehaving client loses only its own connection."""
        try:
            self._open()
            while not self.close_connection:
                self._handle_request()
        except OSError as error:  # timeouts and TLS failures are OSErrors too
            log.debug("connection_ended", client=self._connection.client, reason=error)
        finally:
            self._connection.socket.close()

    def _open(self) -> None:
        web = self._context.web()
        if web.context is not None:
            wrapped = web.context.wrap_socket(self._connection.socket, server_side=True, do_handshake_on_connect=False)
            self._connection.socket = wrapped
            wrapped.settimeout(self._context.read_seconds)
            wrapped.do_handshake()
            if web.tls and not web.tls.allows(wrapped):
                raise ConnectionAbortedError("the client certificate has none of the allowed names")
        self._connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = RequestStream(self._connection.socket)
        self._reader = io.BufferedReader(self._stream)

    def _handle_request(self) -> None:
        self._stream.allow(seconds=self._timeout_seconds, size=MAX_REQUEST_BYTES)
        if not self._reader.peek(1):
            self.close_connection = True  # the client has disconnected
            return
        if self._read_request():
            self._connection.served_since = time.monotonic()
            self._connection.waiting_since = None
            self._respond()
        self._connection.waiting_since = time.monotonic()
        self._timeout_seconds = self._context.idle_seconds

    def _read_request(self) -> bool:
        """Read and parse a request; False: it was refused."""
        try:
            if not (self._read_head() and self._parse_request_line()):
                return False
        except RequestTooLargeError:
            return self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too large")
        try:
            self.headers = http.client.parse_headers(io.BytesIO(self._head), _class=PlainHeaders)
        except http.client.HTTPException:
            return self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the headers are too large")
        if self.headers.defects:
            return self._refuse(HTTPStatus.BAD_REQUEST, "a line of the request is not a header")
        if name := find_long_header((name.lower(), value) for name, value in self.headers.items()):
            return self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the header {name} is too long")
        options = self.headers.get("Connection", "").lower()
        self.close_connection = self._is_first_version or options == "close"
        self._skip_body()
        return True

    def _parse_request_line(self) -> bool:
        """Method, target and version; False: it was refused."""
        words = self._request_line.decode("latin-1").split()
        version = _VERSION.fullmatch(words[-1]) if len(words) == 3 else None
        if version is None:  # also HTTP/0.9, which has no version
            return self._refuse(HTTPStatus.BAD_REQUEST, "the request line is invalid")
        if int(version[1]) >= 2:
            return self._refuse(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1 is supported")
        self.command, self.path = words[:2]
        self._is_first_version = (int(version[1]), int(version[2])) < (1, 1)
        return True

    def _read_head(self) -> bool:
        """The bytes up to the empty line, not parsed yet; False: refused. Raises RequestTooLargeError."""
        self._stream.allow(seconds=self._context.read_seconds, size=MAX_REQUEST_BYTES)
        self._request_line = self._reader.readline(MAX_LINE_BYTES + 1)
        if len(self._request_line) > MAX_LINE_BYTES:
            return self._refuse(HTTPStatus.REQUEST_URI_TOO_LONG, "the request line is too long")
        most_bytes, headers = MAX_REQUEST_BYTES - len(self._request_line), bytearray()
        while (line := self._reader.readline(most_bytes - len(headers) + 1)).strip(b"\r\n"):
            headers += line
        headers += line
        if len(headers) > most_bytes:
            raise RequestTooLargeError
        if not line:  # the client stopped sending: what is missing may be a header
            return self._refuse(HTTPStatus.BAD_REQUEST, "the request is incomplete")
        if _LONE_CARRIAGE_RETURN.search(self._request_line + headers):  # a line end for some, but not for others
            return self._refuse(HTTPStatus.BAD_REQUEST, "a carriage return inside a line")
        self._head = bytes(headers)
        return True

    def _skip_body(self) -> None:
        """Discard the body; if that is not possible, close the connection after the reply."""
        (text, *others) = self.headers.get_all("Content-Length") or ["0"]
        length = int(text) if text.isdecimal() and len(text) <= 9 and not others else MAX_BODY_BYTES + 1
        # A proxy could see the end of the request elsewhere: what follows must not be parsed as a request.
        is_unclear = "Transfer-Encoding" in self.headers or length > MAX_BODY_BYTES
        if length and not is_unclear:
            self._stream.allow(seconds=self._context.read_seconds, size=MAX_BODY_BYTES)
            self._reader.read(length)
        if is_unclear:
            self.close_connection = True

    def _respond(self) -> None:
        web, path = self._context.web(), self.path.partition("?")[0]
        if not path.startswith("/"):  # the target may be a whole URL
            path = "/" + path.partition("://")[2].partition("/")[2]
        refusal = self._check_access(path, web)
        if refusal or path != "/metrics":
            self._write(refusal or self._route_request(path), web)
        elif self._context.scrapes.acquire(self._connection):
            try:
                self._write(self._route_request(path), web)
            finally:
                self._context.scrapes.release(self._connection)
        else:
            self._write(TOO_MANY_CLIENTS, web)

    def _route_request(self, path: str) -> Reply:
        """The reply to a request that passed the access checks."""
        route = ROUTES.get(path)
        if route is None:
            message = f"no such path: {path}"
            return error_response(HTTPStatus.NOT_FOUND, message, hint="/ lists the available paths")
        if self.command not in ("GET", "HEAD"):
            return error_response(
                HTTPStatus.METHOD_NOT_ALLOWED,
                f"method {self.command} is not allowed",
                hint="use GET or HEAD",
                headers={"Allow": "GET, HEAD"},
            )
        try:
            return route(self)
        except Exception as error:  # noqa: BLE001 - a failing endpoint must not affect the others
            log.warning("response_failed", path=path, error=repr(error))
            return error_response(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error", hint="see the log of the agent")

    def _check_access(self, path: str, web: WebConfig) -> Reply | None:
        if path in OPEN_PATHS:
            return None
        if web.bucket is not None and not web.bucket.take():
            return error_response(
                HTTPStatus.TOO_MANY_REQUESTS, "over the rate limit", hint="rate_limit in the web config file"
            )
        if web.authentication is None or web.authentication.allow(self.headers.get("Authorization", "")):
            return None
        return error_response(
            HTTPStatus.UNAUTHORIZED,
            "user and password required",
            hint="the users are in basic_auth_users of the web config file",
            headers={"WWW-Authenticate": 'Basic realm="gpusteward", charset="UTF-8"'},
        )

    def show_landing(self) -> Reply:
        return LANDING

    def show_metrics(self) -> Reply:
        content_type = choose_format(self.headers.get("Accept", ""))
        gzip = accepts_gzip(self.headers.get("Accept-Encoding", ""))
        page = self._context.content.metrics(openmetrics=content_type != TEXT_TYPE, gzip=gzip)
        headers = {"Vary": "Accept, Accept-Encoding"} | ({"Content-Encoding": "gzip"} if gzip else {})
        return Reply(HTTPStatus.OK, page, content_type, headers)

    def show_liveness(self) -> Reply:
        return _status_response(*self._context.content.live())

    def show_health(self) -> Reply:
        return _status_response(*self._context.content.health())

    def show_readiness(self) -> Reply:
        return _status_response(*self._context.content.ready())

    def show_snapshot(self) -> Reply:
        may_read = self._context.expose_snapshot or self._context.web().knows_its_clients
        if may_read or is_local_request(self._connection.client, self.headers):
            return Reply(HTTPStatus.OK, self._context.content.snapshot(), JSON)
        return error_response(
            HTTPStatus.FORBIDDEN,
            "beyond /metrics the snapshot has ids of containers and whole error texts: local clients only",
            hint="set basic_auth_users in a --web-config-file, or serve it to all clients with --expose-snapshot",
        )

    def _refuse(self, status: HTTPStatus, message: str) -> bool:
        """Reply to what is not a request; where the next one begins is unknown, so the connection is closed."""
        self.close_connection, self.command = True, ""
        self._write(error_response(status, message), self._context.web())
        return False

    def _write(self, reply: Reply, web: WebConfig) -> None:
        extra = [("Date", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())), *web.headers.items()]
        if self.close_connection:
            extra.append(("Connection", "close"))
        head = render_head(reply, extra)
        body = b"" if self.command == "HEAD" else reply.body
        connection = self._connection.socket
        connection.settimeout(self._context.write_seconds)
        if len(body) <= JOINED_BYTES:
            connection.sendall(head + body)
        else:
            connection.sendall(head)
            connection.sendall(body)


Route = Callable[[ConnectionHandler], Reply]
ROUTES: Mapping[str, Route] = {
    "/": ConnectionHandler.show_landing,
    "/metrics": ConnectionHandler.show_metrics,
    "/livez": ConnectionHandler.show_liveness,
    "/healthz": ConnectionHandler.show_health,
    "/health": ConnectionHandler.show_health,
    "/readyz": ConnectionHandler.show_readiness,
    "/snapshot": ConnectionHandler.show_snapshot,
}


def _status_response(good: bool, reason: str) -> Reply:
    status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
    return Reply(status, reason.encode() + b"\n")
