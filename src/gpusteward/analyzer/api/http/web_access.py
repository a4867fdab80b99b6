"""Rate limit, passwords and client certificates of the web config file, before any endpoint is called.

Whoever has one of its passwords, or a verified client certificate, may read. A bearer token is accepted instead of a
password; endpoints check it. The probes of a kubelet need neither.
"""

from collections.abc import Callable, Mapping
from functools import partial

from starlette.datastructures import Headers
from starlette.types import Scope

from gpusteward.analyzer.api.http.concurrency_limits import ConcurrencyLimit, run_in_thread
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.api.http.roles import parse_bearer, read_authorization
from gpusteward.http_server.web_config import WebConfig
from gpusteward.messages.errors import api_errors

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
