"""Around every request: size limits, security headers, large bodies in pieces, the log, and the response to internal
errors."""

import time
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpusteward.analyzer.api.http.client_shares import ClientShares
from gpusteward.analyzer.api.http.problems import ProblemError, send_problem
from gpusteward.analyzer.api.http.request_limits import LARGEST_REQUEST_BYTES, limit_request
from gpusteward.analyzer.api.http.web_access import WebAccess
from gpusteward.logs import Log
from gpusteward.messages.errors import api_errors

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
