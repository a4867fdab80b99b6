"""Around every request: a limit to what is sent, security headers, the log, an answer to errors nobody foresaw."""

import time
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpusteward.analyzer.api.http.problems import ProblemError, answer_problem
from gpusteward.logs import Log

log = Log(__name__)

LARGEST_REQUEST_BYTES = 64 * 1024
"""No endpoint takes a body; whoever sends a small one does no harm."""

SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Guard:
    """ASGI middleware; the outermost."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, send)
        try:
            if _is_too_large(scope):
                error = ProblemError(413, "too-large", f"at most {LARGEST_REQUEST_BYTES} bytes are taken")
                await answer_problem(error)(scope, receive, exchange.send)
            else:
                await self._app(scope, receive, exchange.send)
        # What nobody foresaw costs this one request.
        except Exception as error:  # noqa: BLE001
            await self._fail(exchange, receive, error)
        finally:
            exchange.tell()

    async def _fail(self, exchange: "_Exchange", receive: Receive, error: Exception) -> None:
        log.error("request_failed", path=exchange.scope["path"], error=f"{type(error).__name__}: {error}")
        if not exchange.status:
            problem = ProblemError(500, "internal", "an error nobody foresaw; the log of the analyzer tells more")
            await answer_problem(problem)(exchange.scope, receive, exchange.send)


class _Exchange:
    """One request and what became of it."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.scope = scope
        self.status = 0
        self._send = send
        self._started = time.monotonic()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        await self._send(message)

    def tell(self) -> None:
        """The query is left out: somebody may put a token there by mistake."""
        peer = Request(self.scope).client
        log.debug(
            "request_answered",
            method=self.scope["method"],
            path=self.scope["path"],
            status=self.status,
            seconds=f"{time.monotonic() - self._started:.4f}",
            peer=peer.host if peer else "",
        )


def _is_too_large(scope: Scope) -> bool:
    length = Headers(scope=scope).get("content-length", "0")
    return not length.isdigit() or int(length) > LARGEST_REQUEST_BYTES
