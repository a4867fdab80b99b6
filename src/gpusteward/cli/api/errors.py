"""What can go wrong between a command and a server, and what to do about it."""

import json
from collections.abc import Mapping
from enum import Enum

from gpusteward.cli.output.terminal_text import clean
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.messages import Message
from gpusteward.http.errors import (
    ConnectError,
    ConnectTimeoutError,
    HttpError,
    ResponseTimeoutError,
    ResponseTooLargeError,
    TlsError,
)
from gpusteward.messages import cli as messages

MAX_DETAIL_BYTES = 65536


class Peer(Enum):
    """The kind of server; the value is its name in texts."""

    ANALYZER = messages.ANALYZER
    AGENT = messages.AGENT
    PROMETHEUS = messages.PROMETHEUS
    API_SERVER = messages.API_SERVER


HINTS: Mapping[Peer, Message] = {
    Peer.ANALYZER: messages.START_ANALYZER,
    Peer.AGENT: messages.START_AGENT,
    Peer.PROMETHEUS: messages.SET_PROMETHEUS_URL,
    Peer.API_SERVER: messages.CHECK_NETWORK_POLICY,
}


class UnreachableError(SourceError):
    """No usable response. Its text ends with a hint where there is one."""

    def __init__(self, message: Message, *, hint: Message | None = None, **fields: object) -> None:
        problem = message.fill(**fields)
        if hint:
            super().__init__(messages.WITH_HINT, problem=problem, hint=hint)
        else:
            super().__init__(message, **fields)
        self.problem = problem  # without the hint


class StatusError(SourceError):
    """A response with a status other than 200."""

    def __init__(self, message: Message, *, status: int, **fields: object) -> None:
        super().__init__(message, status=status, **fields)
        self.status = status


class RefusedRequestError(StatusError, ConfigurationError):
    """The server does not accept a value of the request, which comes from a flag."""


def explain_http_error(peer: Peer, url: str, error: HttpError) -> UnreachableError:
    """No response at all, or one that cannot be read."""
    if isinstance(error, ConnectTimeoutError | ResponseTimeoutError | ResponseTooLargeError | TlsError):
        return UnreachableError(messages.NO_RESPONSE, peer=peer.value, url=url, reason=error)
    reason = error.fields.get("reason", error) if isinstance(error, ConnectError) else error
    return UnreachableError(messages.CANNOT_CONNECT, hint=HINTS[peer], peer=peer.value, url=url, reason=reason)


def explain_status(peer: Peer, url: str, status: int, body: bytes, *, token_origin: str = "") -> StatusError:
    """An error response. Its body may contain anything."""
    fields = {"peer": peer.value, "url": url, "origin": token_origin}
    detail = _read_detail(body)
    if status == 401 or (status == 403 and peer is Peer.PROMETHEUS):
        return StatusError(_choose_credentials_text(peer, token_origin), status=status, **fields)
    if status == 404 and not detail:
        return StatusError(messages.NOT_FOUND, status=status, **fields)
    kind = RefusedRequestError if status in (400, 422) else StatusError
    return kind(messages.ERROR_STATUS, status=status, reason=detail or messages.NO_REASON, **fields)


def _choose_credentials_text(peer: Peer, token_origin: str) -> Message:
    if peer is Peer.AGENT:
        return messages.NEEDS_PASSWORD
    if peer is Peer.PROMETHEUS:
        return messages.CREDENTIALS_REJECTED
    return messages.TOKEN_REJECTED if token_origin else messages.NEEDS_TOKEN


def _read_detail(body: bytes) -> str:
    """The error text of an analyzer (`detail`) or an agent (`error.message`, `error.hint`); empty for other servers."""
    try:
        problem = json.loads(body[:MAX_DETAIL_BYTES])
    except (ValueError, RecursionError):
        return ""
    if not isinstance(problem, dict):
        return ""
    error = problem.get("error")
    if isinstance(error, dict):
        return clean("; ".join(str(error[key]) for key in ("message", "hint") if error.get(key)))
    return clean(str(problem.get("detail") or ""))
