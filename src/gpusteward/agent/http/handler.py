"""One connection: its TLS handshake, its requests one after the other, and what each of them gets."""

import io
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Protocol

from gpusteward.agent.http.connection import RequestStream, RequestTooLargeError
from gpusteward.agent.http.responses import JSON, LANDING, TOO_MANY_CLIENTS, Response, error_response, render_head
from gpusteward.agent.http.tls import is_allowed_client
from gpusteward.agent.http.web_config import WebConfig
from gpusteward.core.exposition import TEXT_TYPE
from gpusteward.core.negotiation import accepts_gzip, choose_format
from gpusteward.logs import Log


class ContentProvider(Protocol):
    """Pages that are ready: every method must return at once, from any thread."""

    def metrics(self, *, openmetrics: bool, gzip: bool) -> bytes:
        """The page of /metrics in this format and encoding."""
        ...

    def health(self) -> tuple[bool, str]:
        """Whether this process works at all, and why (not)."""
        ...

    def ready(self) -> tuple[bool, str]:
        """Whether what it serves is fresh, and why (not)."""
        ...

    def snapshot(self) -> bytes:
        """The last snapshot as JSON."""
        ...


log = Log(__name__)

MAX_REQUEST_BYTES = 16 * 1024  # line and headers; a scraper sends about 300
MAX_LINE_BYTES = 4 * 1024
MAX_BODY_BYTES = 64 * 1024  # read and thrown away: closing on unread bytes would cut off our answer
JOINED_BYTES = 8 * 1024  # smaller answers leave in one piece with their head
# Not all of 127.0.0.0/8: the proxy of a service mesh brings the world in from 127.0.0.6.
OWN_ADDRESSES = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1"})
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/health"})  # a kubelet's probe has no password


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContext:
    """What every connection shares."""

    answers: ContentProvider
    web: Callable[[], WebConfig]
    scrapes: threading.Semaphore
    read_seconds: float
    write_seconds: float
    idle_seconds: float
    expose_snapshot: bool


class Connection:
    """An open connection, as its own thread and the accepting thread both see it."""

    def __init__(self, connection: socket.socket, client: str) -> None:
        self.connection = connection
        self.client = client
        self.waiting_since: float | None = time.monotonic()  # None while a whole request is being answered

    def hang_up(self) -> None:
        """Wake whoever reads from it or writes to it: they see the end."""
        with suppress(OSError):
            # Past SSLSocket.shutdown, which would first turn the socket into one that writes in the clear.
            socket.socket.shutdown(self.connection, socket.SHUT_RDWR)


class ConnectionHandler(BaseHTTPRequestHandler):
    """Reads requests off a line and answers them, until one side has had enough."""

    protocol_version = "HTTP/1.1"

    def __init__(self, line: Connection, site: ServerContext) -> None:
        # Not the base's: that one opens, handles and closes all at once.
        self._line, self._site = line, site
        self._patience_seconds = site.read_seconds
        self.close_connection = False

    def run(self) -> None:
        """Talk until the end; a client that misbehaves costs only its own line."""
        try:
            self._open()
            while not self.close_connection:
                self.handle_one_request()
        except OSError as error:  # timeouts and TLS failures are OSErrors too
            log.debug("connection_ended", client=self._line.client, reason=error)
        finally:
            self._line.connection.close()

    def _open(self) -> None:
        web = self._site.web()
        if web.context is not None:
            self._shake_hands(web.context)
            if web.tls and web.tls.allowed_sans is not None and not self._is_allowed(web.tls.allowed_sans):
                raise ssl.SSLError("the client's certificate has none of the allowed names")
        self._line.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = RequestStream(self._line.connection)
        self.rfile = self._reader = io.BufferedReader(self._stream)

    def _shake_hands(self, context: ssl.SSLContext) -> None:
        wrapped = context.wrap_socket(self._line.connection, server_side=True, do_handshake_on_connect=False)
        self._line.connection = wrapped
        wrapped.settimeout(self._site.read_seconds)
        wrapped.do_handshake()

    def _is_allowed(self, sans: frozenset[str]) -> bool:
        connection = self._line.connection
        return isinstance(connection, ssl.SSLSocket) and is_allowed_client(connection, sans)

    def handle_one_request(self) -> None:
        self._stream.allow(seconds=self._patience_seconds, size=MAX_REQUEST_BYTES)
        if not self._reader.peek(1):
            self.close_connection = True  # the client is gone
            return
        try:
            accepted = self._read_request()
        except RequestTooLargeError:
            accepted = False
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too large")
        if accepted:
            self._line.waiting_since = None
            self._answer()
        self._line.waiting_since = time.monotonic()
        self._patience_seconds = self._site.idle_seconds

    def _read_request(self) -> bool:
        """Read line and headers; False when they were refused (and answered)."""
        self._stream.allow(seconds=self._site.read_seconds, size=MAX_REQUEST_BYTES)
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
        """No request here has a use for a body; what cannot be skipped ends the conversation after the answer."""
        length = self._body_length()
        if length:
            self._stream.allow(seconds=self._site.read_seconds, size=MAX_BODY_BYTES)
            self.rfile.read(length)
        if length is None or self.request_version != "HTTP/1.1":
            self.close_connection = True

    def _body_length(self) -> int | None:
        """None where a proxy might see the end of the request elsewhere: what follows must not become a request."""
        if self.headers.defects or "Transfer-Encoding" in self.headers:
            return None
        (text, *others) = self.headers.get_all("Content-Length", ["0"])
        length = int(text) if text.isdecimal() and len(text) <= 9 and not others else None
        return None if length is None or length > MAX_BODY_BYTES else length

    def handle_expect_100(self) -> bool:
        return True  # nobody here waits for a body

    def _answer(self) -> None:
        web = self._site.web()
        refusal = self._check_rights(web)
        if refusal or self._path() != "/metrics":
            self._write(refusal or self._decide(), web)
        elif self._site.scrapes.acquire(blocking=False):
            try:
                self._write(self._decide(), web)
            finally:
                self._site.scrapes.release()
        else:
            self._write(TOO_MANY_CLIENTS, web)

    def _path(self) -> str:
        target = self.path.partition("?")[0]
        return target if target.startswith("/") else "/" + target.partition("://")[2].partition("/")[2]

    def _decide(self) -> Response:
        """What a request gets that may be made; nothing has been written yet."""
        path = self._path()
        route = ROUTES.get(path)
        if route is None:
            return error_response(HTTPStatus.NOT_FOUND, f"there is nothing at {path}", hint="see / for what there is")
        if self.command not in ("GET", "HEAD"):
            return error_response(
                HTTPStatus.METHOD_NOT_ALLOWED,
                f"{self.command} is not possible here",
                hint="GET and HEAD are",
                headers={"Allow": "GET, HEAD"},
            )
        return self._ask(route)

    def _check_rights(self, web: WebConfig) -> Response | None:
        if self._path() in OPEN_PATHS:
            return None
        if web.bucket is not None and not web.bucket.take():
            return error_response(
                HTTPStatus.TOO_MANY_REQUESTS, "over the rate limit", hint="rate_limit in the web config file"
            )
        if web.passwords is None or web.passwords.allow(self.headers.get("Authorization", "")):
            return None
        return error_response(
            HTTPStatus.UNAUTHORIZED,
            "a user and a password are needed",
            hint="basic_auth_users in the web config file has the users",
            headers={"WWW-Authenticate": 'Basic realm="gpusteward", charset="UTF-8"'},
        )

    def _ask(self, route: "Route") -> Response:
        try:
            return route(self)
        except Exception as error:  # noqa: BLE001 - one page that cannot be made must not take the others along
            log.warning("answer_failed", path=self._path(), error=repr(error))
            return error_response(
                HTTPStatus.INTERNAL_SERVER_ERROR, "this page could not be made", hint="see the agent's log"
            )

    def show_landing(self) -> Response:
        return LANDING

    def show_metrics(self) -> Response:
        content_type = choose_format(self.headers.get("Accept", ""))
        gzip = accepts_gzip(self.headers.get("Accept-Encoding", ""))
        page = self._site.answers.metrics(openmetrics=content_type != TEXT_TYPE, gzip=gzip)
        headers = {"Vary": "Accept, Accept-Encoding"} | ({"Content-Encoding": "gzip"} if gzip else {})
        return Response(HTTPStatus.OK, page, content_type, headers)

    def show_health(self) -> Response:
        return _tell(*self._site.answers.health())

    def show_readiness(self) -> Response:
        return _tell(*self._site.answers.ready())

    def show_snapshot(self) -> Response:
        if self._site.expose_snapshot or self._site.web().knows_its_clients or self._is_from_here():
            return Response(HTTPStatus.OK, self._site.answers.snapshot(), JSON)
        return error_response(
            HTTPStatus.FORBIDDEN,
            "the snapshot names processes and pods: it is shown on this machine only",
            hint="set up basic_auth_users in a --web-config-file, or allow everybody with --expose-snapshot",
        )

    def _is_from_here(self) -> bool:
        """Whether the client is on this machine itself, and no proxy that brings others in."""
        passed_on = "X-Forwarded-For" in self.headers or "Forwarded" in self.headers
        return self._line.client in OWN_ADDRESSES and not passed_on

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """How the base class refuses what it cannot parse."""
        status = HTTPStatus(code)
        self.close_connection = True
        self._write(error_response(status, message or status.phrase, hint=explain or ""), self._site.web())

    def _write(self, response: Response, web: WebConfig) -> None:
        extra = [("Date", self.date_time_string()), *web.headers.items()]
        if self.close_connection:
            extra.append(("Connection", "close"))
        head = render_head(response, extra)
        body = b"" if self.command == "HEAD" else response.body
        connection = self._line.connection
        connection.settimeout(self._site.write_seconds)
        if len(body) <= JOINED_BYTES:
            connection.sendall(head + body)
        else:
            connection.sendall(head)
            connection.sendall(body)


Route = Callable[[ConnectionHandler], Response]
ROUTES: Mapping[str, Route] = {
    "/": ConnectionHandler.show_landing,
    "/metrics": ConnectionHandler.show_metrics,
    "/healthz": ConnectionHandler.show_health,
    "/health": ConnectionHandler.show_health,
    "/readyz": ConnectionHandler.show_readiness,
    "/snapshot": ConnectionHandler.show_snapshot,
}


def _tell(good: bool, reason: str) -> Response:
    status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
    return Response(status, reason.encode() + b"\n")
