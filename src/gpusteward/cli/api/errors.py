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
from gpusteward.messages.cli import kubectl as kubectl_messages
from gpusteward.messages.cli import servers as messages

MAX_DETAIL_BYTES = 65536


class Peer(Enum):
    """The kind of server; the value is its name in texts."""

    ANALYZER = messages.ANALYZER
    AGENT = messages.AGENT
    PROMETHEUS = messages.PROMETHEUS
    API_SERVER = messages.API_SERVER
    CONTEXT_SERVER = kubectl_messages.CONTEXT_SERVER


HINTS: Mapping[Peer, Message] = {
    Peer.ANALYZER: messages.START_ANALYZER,
    Peer.AGENT: messages.START_AGENT,
    Peer.PROMETHEUS: messages.SET_PROMETHEUS_URL,
    Peer.API_SERVER: messages.CHECK_NETWORK_POLICY,
    Peer.CONTEXT_SERVER: kubectl_messages.CHECK_CONTEXT,
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


def explain_status(
    peer: Peer,
    url: str,
    status: int,
    body: bytes,
    *,
    token_origin: str = "",
    on_unauthorized: Message | None = None,
) -> StatusError:
    """An error response. Its body may contain anything. `on_unauthorized`: what to say after a 401."""
    fields = {"peer": peer.value, "url": url, "origin": token_origin}
    problem = _read_problem(body)
    if problem.get("kind") == "Status":
        return _explain_kubernetes(status, clean(str(problem.get("message") or "")) or messages.NO_REASON)
    detail = _read_detail(problem)
    if status == 401 and on_unauthorized is not None:
        return StatusError(messages.VERBATIM, status=status, text=on_unauthorized)
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


def _explain_kubernetes(status: int, reason: str | Message) -> StatusError:
    """A Status object: the API server itself responded, also in place of a server behind its proxy."""
    texts = {
        401: kubectl_messages.CREDENTIALS_REJECTED,
        403: kubectl_messages.FORBIDDEN,
        503: kubectl_messages.NO_READY_POD,
    }
    labels = kubectl_messages.ANALYZER_LABELS
    return StatusError(texts.get(status, kubectl_messages.REFUSED), status=status, reason=reason, labels=labels)


def _read_problem(body: bytes) -> Mapping[str, object]:
    try:
        problem = json.loads(body[:MAX_DETAIL_BYTES])
    except (ValueError, RecursionError):
        return {}
    return problem if isinstance(problem, dict) else {}


def _read_detail(problem: Mapping[str, object]) -> str:
    """The error text of an analyzer (`detail`) or an agent (`error.message`, `error.hint`); empty for other servers."""
    error = problem.get("error")
    if isinstance(error, dict):
        return clean("; ".join(str(error[key]) for key in ("message", "hint") if error.get(key)))
    return clean(str(problem.get("detail") or ""))
