"""Handles one connection: TLS handshake, then its requests one after the other: access checks, routes, responses."""

import io
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Protocol

from gpusteward.agent.http.connection import Connection, RequestStream, RequestTooLargeError
from gpusteward.agent.http.responses import JSON, LANDING, TOO_MANY_CLIENTS, Response, error_response, render_head
from gpusteward.core.exposition import TEXT_TYPE
from gpusteward.core.negotiation import accepts_gzip, choose_format
from gpusteward.http_server.local_clients import is_local_request
from gpusteward.http_server.tls import is_allowed_client
from gpusteward.http_server.web_config import WebConfig
from gpusteward.logs import Log

log = Log(__name__)

MAX_REQUEST_BYTES = 16 * 1024  # line and headers; a scraper sends about 300
MAX_LINE_BYTES = 4 * 1024
MAX_BODY_BYTES = 64 * 1024  # read and discarded: closing with unread bytes would cut off our response
JOINED_BYTES = 8 * 1024  # smaller bodies are sent together with their headers
OPEN_PATHS = frozenset({"/livez", "/healthz", "/readyz", "/health"})  # the kubelet's probes send no password


class ContentProvider(Protocol):
    """What the server serves. Every method is called from any thread and must not block."""

    def metrics(self, *, openmetrics: bool, gzip: bool) -> bytes:
        """The /metrics page in this format and encoding."""
        ...

    def live(self) -> tuple[bool, str]:
        """Whether the process works without a restart, and a reason."""
        ...

    def health(self) -> tuple[bool, str]:
        """Whether the process is healthy, and a reason."""
        ...

    def ready(self) -> tuple[bool, str]:
        """Whether the served data is fresh, and a reason."""
        ...

    def snapshot(self) -> bytes:
        """The last snapshot as JSON."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContext:
    """Content, limits and options shared by all connections."""

    content: ContentProvider
    web: Callable[[], WebConfig]
    scrapes: threading.Semaphore
    read_seconds: float
    write_seconds: float
    idle_seconds: float
    expose_snapshot: bool


class ConnectionHandler(BaseHTTPRequestHandler):
    """Reads requests from a connection and responds until one side closes it."""

    protocol_version = "HTTP/1.1"

    def __init__(self, connection: Connection, context: ServerContext) -> None:
        # Without the base class's __init__, which opens, handles and closes the connection at once.
        self._connection, self._context = connection, context
        self._timeout_seconds = context.read_seconds
        self.close_connection = False

    def run(self) -> None:
        """Serve the connection; a misbehaving client loses only its own connection."""
        try:
            self._open()
            while not self.close_connection:
                self.handle_one_request()
        except OSError as error:  # timeouts and TLS failures are OSErrors too
            log.debug("connection_ended", client=self._connection.client, reason=error)
        finally:
            self._connection.socket.close()

    def _open(self) -> None:
        web = self._context.web()
        if web.context is not None:
            self._do_tls_handshake(web.context)
            if web.tls and web.tls.allowed_sans is not None and not self._is_allowed(web.tls.allowed_sans):
                raise ssl.SSLError("the client certificate has none of the allowed names")
        self._connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = RequestStream(self._connection.socket)
        self.rfile = self._reader = io.BufferedReader(self._stream)

    def _do_tls_handshake(self, context: ssl.SSLContext) -> None:
        wrapped = context.wrap_socket(self._connection.socket, server_side=True, do_handshake_on_connect=False)
        self._connection.socket = wrapped
        wrapped.settimeout(self._context.read_seconds)
        wrapped.do_handshake()

    def _is_allowed(self, sans: frozenset[str]) -> bool:
        connection = self._connection.socket
        return isinstance(connection, ssl.SSLSocket) and is_allowed_client(connection, sans)

    def handle_one_request(self) -> None:
        self._stream.allow(seconds=self._timeout_seconds, size=MAX_REQUEST_BYTES)
        if not self._reader.peek(1):
            self.close_connection = True  # the client has disconnected
            return
        try:
            accepted = self._read_request()
        except RequestTooLargeError:
            accepted = False
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too large")
        if accepted:
            self._connection.waiting_since = None
            self._respond()
        self._connection.waiting_since = time.monotonic()
        self._timeout_seconds = self._context.idle_seconds

    def _read_request(self) -> bool:
        """Read request line and headers; False when they were refused (the error response has been sent)."""
        self._stream.allow(seconds=self._context.read_seconds, size=MAX_REQUEST_BYTES)
        self.raw_requestline = self.rfile.readline(MAX_LINE_BYTES + 1)
        self.command = ""
        if len(self.raw_requestline) > MAX_LINE_BYTES:
            self.send_error(HTTPStatus.REQUEST_URI_TOO_LONG, "the request line is too long")
            return False
        if not self.parse_request():
            self.close_connection = True
            return False
        self._skip_body()
        return True

    def _skip_body(self) -> None:
        """Discard the body; if that is not possible, close the connection after the response."""
        length = self._body_length()
        if length:
            self._stream.allow(seconds=self._context.read_seconds, size=MAX_BODY_BYTES)
            self.rfile.read(length)
        if length is None or self.request_version != "HTTP/1.1":
            self.close_connection = True

    def _body_length(self) -> int | None:
        """None if a proxy could see the end of the request elsewhere: the rest must not be parsed as a request."""
        if self.headers.defects or "Transfer-Encoding" in self.headers:
            return None
        (text, *others) = self.headers.get_all("Content-Length", ["0"])
        length = int(text) if text.isdecimal() and len(text) <= 9 and not others else None
        return None if length is None or length > MAX_BODY_BYTES else length

    def handle_expect_100(self) -> bool:
        return True  # no request needs its body

    def _respond(self) -> None:
        web = self._context.web()
        refusal = self._check_access(web)
        if refusal or self._path() != "/metrics":
            self._write(refusal or self._route_request(), web)
        elif self._context.scrapes.acquire(blocking=False):
            try:
                self._write(self._route_request(), web)
            finally:
                self._context.scrapes.release()
        else:
            self._write(TOO_MANY_CLIENTS, web)

    def _path(self) -> str:
        target = self.path.partition("?")[0]
        return target if target.startswith("/") else "/" + target.partition("://")[2].partition("/")[2]

    def _route_request(self) -> Response:
        """The response to a request that passed the access checks."""
        path = self._path()
        route = ROUTES.get(path)
        if route is None:
            return error_response(HTTPStatus.NOT_FOUND, f"no such path: {path}", hint="/ lists the available paths")
        if self.command not in ("GET", "HEAD"):
            return error_response(
                HTTPStatus.METHOD_NOT_ALLOWED,
                f"method {self.command} is not allowed",
                hint="use GET or HEAD",
                headers={"Allow": "GET, HEAD"},
            )
        return self._call_route(route)

    def _check_access(self, web: WebConfig) -> Response | None:
        if self._path() in OPEN_PATHS:
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

    def _call_route(self, route: "Route") -> Response:
        try:
            return route(self)
        except Exception as error:  # noqa: BLE001 - a failing endpoint must not affect the others
            log.warning("response_failed", path=self._path(), error=repr(error))
            return error_response(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error", hint="see the log of the agent")

    def show_landing(self) -> Response:
        return LANDING

    def show_metrics(self) -> Response:
        content_type = choose_format(self.headers.get("Accept", ""))
        gzip = accepts_gzip(self.headers.get("Accept-Encoding", ""))
        page = self._context.content.metrics(openmetrics=content_type != TEXT_TYPE, gzip=gzip)
        headers = {"Vary": "Accept, Accept-Encoding"} | ({"Content-Encoding": "gzip"} if gzip else {})
        return Response(HTTPStatus.OK, page, content_type, headers)

    def show_liveness(self) -> Response:
        return _status_response(*self._context.content.live())

    def show_health(self) -> Response:
        return _status_response(*self._context.content.health())

    def show_readiness(self) -> Response:
        return _status_response(*self._context.content.ready())

    def show_snapshot(self) -> Response:
        may_read = self._context.expose_snapshot or self._context.web().knows_its_clients
        if may_read or is_local_request(self._connection.client, self.headers):
            return Response(HTTPStatus.OK, self._context.content.snapshot(), JSON)
        return error_response(
            HTTPStatus.FORBIDDEN,
            "the snapshot contains names of processes and pods and is served to local clients only",
            hint="set basic_auth_users in a --web-config-file, or serve it to all clients with --expose-snapshot",
        )

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Called by the base class for requests that it cannot parse."""
        status = HTTPStatus(code)
        self.close_connection = True
        self._write(error_response(status, message or status.phrase, hint=explain or ""), self._context.web())

    def _write(self, response: Response, web: WebConfig) -> None:
        extra = [("Date", self.date_time_string()), *web.headers.items()]
        if self.close_connection:
            extra.append(("Connection", "close"))
        head = render_head(response, extra)
        body = b"" if self.command == "HEAD" else response.body
        connection = self._connection.socket
        connection.settimeout(self._context.write_seconds)
        if len(body) <= JOINED_BYTES:
            connection.sendall(head + body)
        else:
            connection.sendall(head)
            connection.sendall(body)


Route = Callable[[ConnectionHandler], Response]
ROUTES: Mapping[str, Route] = {
    "/": ConnectionHandler.show_landing,
    "/metrics": ConnectionHandler.show_metrics,
    "/livez": ConnectionHandler.show_liveness,
    "/healthz": ConnectionHandler.show_health,
    "/health": ConnectionHandler.show_health,
    "/readyz": ConnectionHandler.show_readiness,
    "/snapshot": ConnectionHandler.show_snapshot,
}


def _status_response(good: bool, reason: str) -> Response:
    status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
    return Response(status, reason.encode() + b"\n")
