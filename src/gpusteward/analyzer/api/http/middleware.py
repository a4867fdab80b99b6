"""Around every request: size limits, the web config file, security headers, large bodies in pieces, the log, and the
response to internal errors.

Whoever has a password of the web config file, or a verified client certificate, may read. A bearer token is accepted
instead of a password; endpoints check it. The probes of a kubelet need neither.
"""

import re
import time
from collections.abc import Callable, Mapping
from functools import partial

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpusteward.analyzer.api.http.concurrency_limits import ClientShares, ConcurrencyLimit, run_in_thread
from gpusteward.analyzer.api.http.identities import COOKIE, read_cookie
from gpusteward.analyzer.api.http.problems import ProblemError, send_problem
from gpusteward.analyzer.api.http.roles import parse_bearer, read_authorization
from gpusteward.http_server.limits import find_long_header
from gpusteward.http_server.web_config import WebConfig
from gpusteward.logs import Log
from gpusteward.messages.errors import api_errors

LARGEST_REQUEST_BYTES = 64 * 1024
"""No endpoint needs more."""
MOST_HEADERS = 100
_LENGTH = re.compile(r"[0-9]{1,9}")
_SESSION = re.compile(r"[A-Za-z0-9_-]{1,100}")


def limit_request(scope: Scope) -> None:
    """Of all cookies the session's own stays: FastAPI parses them for every route, and before 3.12.6 Python takes
    seconds to parse some. Raises a 413 or 431 problem."""
    headers = Headers(scope=scope)
    if len(scope["headers"]) > MOST_HEADERS:
        raise ProblemError(431, "too-large", api_errors.TOO_MANY_HEADERS, most=MOST_HEADERS)
    if name := find_long_header(headers.items()):
        raise ProblemError(431, "too-large", api_errors.HEADER_TOO_LONG, name=name)
    length = headers.get("content-length", "0")
    if not _LENGTH.fullmatch(length) or int(length) > LARGEST_REQUEST_BYTES:
        raise ProblemError(413, "too-large", api_errors.TOO_LARGE, bytes=LARGEST_REQUEST_BYTES)
    if "cookie" in headers:
        others = [(name, value) for name, value in scope["headers"] if name != b"cookie"]
        value = read_cookie(headers)
        own = [(b"cookie", f"{COOKIE}={value}".encode())] if _SESSION.fullmatch(value) else []
        scope["headers"] = others + own


OPEN_PATHS = frozenset({"/health", "/livez", "/healthz", "/readyz"})
CERTIFICATE_STATE = "has_client_certificate"
PASSWORD_STATE = "has_password"  # noqa: S105 - a key of the scope's state
"""In the `state` of an ASGI scope: what the client has proved. The HTTP server sets the first one."""
_CHALLENGE = {"WWW-Authenticate": 'Basic realm="gpusteward", charset="UTF-8"'}


def is_known_client(scope: Scope) -> bool:
    """Whether the client has a password of the web config file or a verified certificate."""
    state = scope.get("state", {})
    return bool(state.get(CERTIFICATE_STATE) or state.get(PASSWORD_STATE))


class WebAccess:
    """Applies the current web config to requests."""

    def __init__(self, web: Callable[[], WebConfig], password_checks: ConcurrencyLimit) -> None:
        self._web = web
        self._password_checks = password_checks

    @property
    def headers(self) -> Mapping[str, str]:
        """For every response."""
        return self._web().headers

    async def check(self, scope: Scope) -> None:
        """Raises a 401, 429 or 503 problem."""
        web = self._web()
        if scope["path"] in OPEN_PATHS:
            return
        if web.bucket is not None and not web.bucket.take():
            raise ProblemError(429, "rate-limit", api_errors.OVER_RATE_LIMIT)
        authorization = next(iter(read_authorization(Headers(scope=scope))), "")
        if web.authentication is None or parse_bearer(authorization) is not None:
            return
        if not await self._has_password(web, authorization):
            raise ProblemError(401, "unauthorized", api_errors.PASSWORD_NEEDED, headers=_CHALLENGE)
        scope.setdefault("state", {})[PASSWORD_STATE] = True

    async def _has_password(self, web: WebConfig, authorization: str) -> bool:
        """A hash takes tens of milliseconds: known credentials are recalled, others computed in a few threads."""
        assert web.authentication is not None
        if not authorization or web.authentication.recall(authorization):
            return bool(authorization)
        await self._password_checks.acquire()
        try:
            return await run_in_thread(partial(web.authentication.allow, authorization))
        finally:
            self._password_checks.release()


log = Log(__name__)

PIECE_BYTES = 64 * 1024
"""Of a body, given to the server at once: it waits until a slow client has taken most of the one before."""
SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class RequestMiddleware:
    """ASGI middleware; the outermost."""

    def __init__(self, app: ASGIApp, web: WebAccess, shares: ClientShares) -> None:
        self._app = app
        self._web = web
        self._shares = shares

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send, headers={**SECURITY_HEADERS, **self._web.headers})
        try:
            limit_request(scope)
            await self._web.check(scope)
            await self._app(scope, exchange.receive, exchange.send)
        except ProblemError as error:  # of this middleware; those of endpoints have a handler
            await exchange.refuse(error)
        except ClientDisconnect:
            log.debug("client_gone", path=scope["path"])
        except Exception as error:  # noqa: BLE001 - an internal error costs this request only
            await self._fail(exchange, error)
        finally:
            self._shares.release(scope)
            exchange.log()

    async def _fail(self, exchange: "_Exchange", error: Exception) -> None:
        log.error("request_failed", path=exchange.scope["path"], error=f"{type(error).__name__}: {error}")
        if not exchange.status:
            await exchange.refuse(ProblemError(500, "internal", api_errors.INTERNAL))


class _Exchange:
    """One request and its response."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, headers: Mapping[str, str]) -> None:
        self.scope = scope
        self._headers = headers
        self.status = 0  # of the response; 0: none yet
        self._receive = receive
        self._send = send
        self._started = time.monotonic()
        self._received = 0

    async def receive(self) -> Message:
        """Raises HTTPException when a body without a length becomes too large."""
        message = await self._receive()
        self._received += len(message.get("body", b""))
        if self._received > LARGEST_REQUEST_BYTES:
            raise HTTPException(413)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in self._headers.items():
                headers.setdefault(name, value)
        body = message.get("body", b"")
        if len(body) <= PIECE_BYTES:
            await self._send(message)
        else:
            await self._send_pieces(memoryview(body), is_last=not message.get("more_body", False))

    async def _send_pieces(self, body: memoryview, *, is_last: bool) -> None:
        """Views of one body: a page that is rendered once is in memory once, however many clients read it slowly."""
        for start in range(0, len(body), PIECE_BYTES):
            more = not is_last or start + PIECE_BYTES < len(body)
            piece = body[start : start + PIECE_BYTES]
            await self._send({"type": "http.response.body", "body": piece, "more_body": more})

    async def refuse(self, error: ProblemError) -> None:
        await send_problem(error, Headers(scope=self.scope))(self.scope, self._receive, self.send)

    def log(self) -> None:
        """Without the query: it may contain a token by mistake."""
        peer = Request(self.scope).client
        log.debug(
            "request_finished",
            method=self.scope["method"],
            path=self.scope["path"],
            status=self.status,
            seconds=f"{time.monotonic() - self._started:.4f}",
            peer=peer.host if peer else "",
        )
