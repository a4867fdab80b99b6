"""Handles one connection: TLS handshake, then its requests one after the other: access checks, routes, responses."""

import io
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

from gpusteward.agent.http.connection import Connection, RequestStream, RequestTooLargeError
from gpusteward.agent.http.requests import BadRequestError, Request, parse_request
from gpusteward.agent.http.responses import JSON, LANDING, TOO_MANY_CLIENTS, Response, error_response, render_head
from gpusteward.core.exposition import TEXT_TYPE
from gpusteward.http_server.local_clients import is_local_request
from gpusteward.http_server.negotiation import accepts_gzip, choose_format
from gpusteward.http_server.web_config import WebConfig
from gpusteward.logs import Log

if TYPE_CHECKING:
    import ssl

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


SLOW_SECONDS = 5.0  # pages are ready-made: whoever takes longer to read one yields to those who wait


def find_yielding(connections: Iterable[Connection]) -> Connection | None:
    """The one that has waited longest for a request, else the one that reads its response for longest; None: all are
    served."""
    candidates = list(connections)
    if waiting := [(each.waiting_since, id(each), each) for each in candidates if each.waiting_since is not None]:
        return min(waiting)[2]
    slowest = min(candidates, key=lambda each: each.served_since, default=None)
    is_slow = slowest is not None and time.monotonic() - slowest.served_since >= SLOW_SECONDS
    return slowest if is_slow else None


RESERVED_SCRAPES = 4


class ScrapeSlots:
    """How many clients may read /metrics at the same moment; one address at most half of them. An address that has
    none, or one that is about to end, gets one of a few more: a Prometheus beside clients that read slowly."""

    def __init__(self, most: int) -> None:
        self._most, self._most_of_client = most, max(1, most // 2)
        self._taken: set[Connection] = set()
        self._lock = threading.Lock()

    def acquire(self, connection: Connection) -> bool:
        with self._lock:
            own = [each for each in self._taken if each.client == connection.client]
            if len(own) < self._most_of_client and len(self._taken) < self._most + (
                RESERVED_SCRAPES if len(own) < 2 else 0
            ):
                self._taken.add(connection)
                return True
            slow = find_yielding(own if len(own) >= self._most_of_client else self._taken)
            if slow is None:
                return False
            self._taken.remove(slow)
            self._taken.add(connection)
        slow.shut_down()
        return True

    def release(self, connection: Connection) -> None:
        with self._lock:
            self._taken.discard(connection)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContext:
    """Content, limits and options shared by all connections."""

    content: ContentProvider
    web: Callable[[], WebConfig]
    scrapes: "ScrapeSlots"
    read_seconds: float
    write_seconds: float
    idle_seconds: float
    expose_snapshot: bool


class ConnectionHandler:
    """Reads requests from a connection and responds until one side closes it."""

    def __init__(self, connection: Connection, context: ServerContext) -> None:
        self._connection, self._context = connection, context
        self._timeout_seconds = context.read_seconds
        self._closes = False  # after the current response

    def run(self) -> None:
        """Serve the connection; a misbehaving client loses only its own connection."""
        try:
            self._open()
            while not self._closes:
                self._handle_request()
        except OSError as error:  # timeouts and TLS failures are OSErrors too
            log.debug("connection_ended", client=self._connection.client, reason=error)
        finally:
            self._connection.socket.close()

    def _open(self) -> None:
        web = self._context.web()
        if web.context is not None:
            connection = self._do_tls_handshake(web.context)
            if web.tls and not web.tls.allows(connection):
                raise ConnectionAbortedError("the client certificate has none of the allowed names")
        self._connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = RequestStream(self._connection.socket)
        self._reader = io.BufferedReader(self._stream)

    def _do_tls_handshake(self, context: "ssl.SSLContext") -> "ssl.SSLSocket":
        wrapped = context.wrap_socket(self._connection.socket, server_side=True, do_handshake_on_connect=False)
        self._connection.socket = wrapped
        wrapped.settimeout(self._context.read_seconds)
        wrapped.do_handshake()
        return wrapped

    def _handle_request(self) -> None:
        self._stream.allow(seconds=self._timeout_seconds, size=MAX_REQUEST_BYTES)
        if not self._reader.peek(1):
            self._closes = True  # the client has disconnected
            return
        try:
            request = self._read_request()
        except RequestTooLargeError:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too large")
        except BadRequestError as error:
            self._refuse(error.status, str(error))
        else:
            self._connection.served_since = time.monotonic()
            self._connection.waiting_since = None
            self._respond(request)
        self._connection.waiting_since = time.monotonic()
        self._timeout_seconds = self._context.idle_seconds

    def _read_request(self) -> Request:
        """Raises BadRequestError, RequestTooLargeError."""
        self._stream.allow(seconds=self._context.read_seconds, size=MAX_REQUEST_BYTES)
        line = self._reader.readline(MAX_LINE_BYTES + 1)
        if len(line) > MAX_LINE_BYTES:
            raise BadRequestError(HTTPStatus.REQUEST_URI_TOO_LONG, "the request line is too long")
        request = parse_request(line, io.BytesIO(self._read_headers(MAX_REQUEST_BYTES - len(line))))
        self._closes = not request.keeps_connection
        self._skip_body(request)
        return request

    def _read_headers(self, most_bytes: int) -> bytes:
        """The bytes up to the empty line, not parsed yet. Raises RequestTooLargeError."""
        headers = bytearray()
        while (line := self._reader.readline(most_bytes - len(headers) + 1)).strip(b"\r\n"):
            headers += line
        headers += line
        if len(headers) > most_bytes:
            raise RequestTooLargeError
        return bytes(headers)

    def _skip_body(self, request: Request) -> None:
        """Discard the body; if that is not possible, close the connection after the response."""
        length = _body_length(request)
        if length:
            self._stream.allow(seconds=self._context.read_seconds, size=MAX_BODY_BYTES)
            self._reader.read(length)
        if length is None or not request.is_http11:
            self._closes = True

    def _respond(self, request: Request) -> None:
        web, has_body = self._context.web(), request.method != "HEAD"
        refusal = self._check_access(request, web)
        if refusal or request.path != "/metrics":
            self._write(refusal or self._route_request(request), web, has_body=has_body)
        elif self._context.scrapes.acquire(self._connection):
            try:
                self._write(self._route_request(request), web, has_body=has_body)
            finally:
                self._context.scrapes.release(self._connection)
        else:
            self._write(TOO_MANY_CLIENTS, web, has_body=has_body)

    def _route_request(self, request: Request) -> Response:
        """The response to a request that passed the access checks."""
        route = ROUTES.get(request.path)
        if route is None:
            message = f"no such path: {request.path}"
            return error_response(HTTPStatus.NOT_FOUND, message, hint="/ lists the available paths")
        if request.method not in ("GET", "HEAD"):
            return error_response(
                HTTPStatus.METHOD_NOT_ALLOWED,
                f"method {request.method} is not allowed",
                hint="use GET or HEAD",
                headers={"Allow": "GET, HEAD"},
            )
        return self._call_route(route, request)

    def _check_access(self, request: Request, web: WebConfig) -> Response | None:
        if request.path in OPEN_PATHS:
            return None
        if web.bucket is not None and not web.bucket.take():
            return error_response(
                HTTPStatus.TOO_MANY_REQUESTS, "over the rate limit", hint="rate_limit in the web config file"
            )
        if web.authentication is None or web.authentication.allow(request.headers.get("Authorization", "")):
            return None
        return error_response(
            HTTPStatus.UNAUTHORIZED,
            "user and password required",
            hint="the users are in basic_auth_users of the web config file",
            headers={"WWW-Authenticate": 'Basic realm="gpusteward", charset="UTF-8"'},
        )

    def _call_route(self, route: "Route", request: Request) -> Response:
        try:
            return route(self, request)
        except Exception as error:  # noqa: BLE001 - a failing endpoint must not affect the others
            log.warning("response_failed", path=request.path, error=repr(error))
            return error_response(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error", hint="see the log of the agent")

    def show_landing(self, _request: Request) -> Response:
        return LANDING

    def show_metrics(self, request: Request) -> Response:
        content_type = choose_format(request.headers.get("Accept", ""))
        gzip = accepts_gzip(request.headers.get("Accept-Encoding", ""))
        page = self._context.content.metrics(openmetrics=content_type != TEXT_TYPE, gzip=gzip)
        headers = {"Vary": "Accept, Accept-Encoding"} | ({"Content-Encoding": "gzip"} if gzip else {})
        return Response(HTTPStatus.OK, page, content_type, headers)

    def show_liveness(self, _request: Request) -> Response:
        return _status_response(*self._context.content.live())

    def show_health(self, _request: Request) -> Response:
        return _status_response(*self._context.content.health())

    def show_readiness(self, _request: Request) -> Response:
        return _status_response(*self._context.content.ready())

    def show_snapshot(self, request: Request) -> Response:
        may_read = self._context.expose_snapshot or self._context.web().knows_its_clients
        if may_read or is_local_request(self._connection.client, request.headers):
            return Response(HTTPStatus.OK, self._context.content.snapshot(), JSON)
        return error_response(
            HTTPStatus.FORBIDDEN,
            "beyond /metrics the snapshot has ids of containers and whole error texts: local clients only",
            hint="set basic_auth_users in a --web-config-file, or serve it to all clients with --expose-snapshot",
        )

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Respond to what is not a request; where the next one begins is unknown, so the connection is closed."""
        self._closes = True
        self._write(error_response(status, message), self._context.web())

    def _write(self, response: Response, web: WebConfig, *, has_body: bool = True) -> None:
        extra = [("Date", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())), *web.headers.items()]
        if self._closes:
            extra.append(("Connection", "close"))
        head = render_head(response, extra)
        body = response.body if has_body else b""
        connection = self._connection.socket
        connection.settimeout(self._context.write_seconds)
        if len(body) <= JOINED_BYTES:
            connection.sendall(head + body)
        else:
            connection.sendall(head)
            connection.sendall(body)


Route = Callable[[ConnectionHandler, Request], Response]
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


def _body_length(request: Request) -> int | None:
    """None if a proxy could see the end of the request elsewhere: the rest must not be parsed as a request."""
    headers = request.headers
    if "Transfer-Encoding" in headers:
        return None
    (text, *others) = headers.get_all("Content-Length") or ["0"]
    length = int(text) if text.isdecimal() and len(text) <= 9 and not others else None
    return None if length is None or length > MAX_BODY_BYTES else length
