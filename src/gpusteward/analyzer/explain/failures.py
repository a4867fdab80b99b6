"""Failures of requests to a model, by kind, and whether a retry may help.

Logs show only the kind and the status code, never the provider's text: it may repeat a key or contain an injection.
"""

from enum import StrEnum


class ModelFailure(StrEnum):
    """Why there is no opinion. The values are labels of a metric."""

    CONNECTION = "connection"
    TIMEOUT = "timeout"
    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    UNAUTHORIZED = "unauthorized"
    REFUSED = "refused"  # any other status: a wrong address, model or request
    INVALID_RESPONSE = "wrong_answer"  # not JSON, not the requested fields, too long
    KEY_UNREADABLE = "key_unreadable"
    NOT_INSTALLED = "not_installed"
    UNEXPECTED = "unexpected"


RETRYABLE = frozenset(
    {
        ModelFailure.CONNECTION,
        ModelFailure.TIMEOUT,
        ModelFailure.RATE_LIMITED,
        ModelFailure.SERVER_ERROR,
        ModelFailure.INVALID_RESPONSE,
    }
)
FATAL = frozenset(
    {
        ModelFailure.CONNECTION,
        ModelFailure.TIMEOUT,
        ModelFailure.UNAUTHORIZED,
        ModelFailure.NOT_INSTALLED,
        ModelFailure.KEY_UNREADABLE,
    }
)
"""After one of these (and all its retries) the other cases of the cycle would fail in the same way."""


class ModelError(Exception):
    """A request without a usable response."""

    def __init__(self, failure: ModelFailure, *, detail: str = "", wait_seconds: float | None = None) -> None:
        super().__init__(f"{failure.value} ({detail})" if detail else failure.value)
        self.failure = failure
        self.wait_seconds = wait_seconds  # from the provider's Retry-After


def by_status(status: int) -> ModelFailure:
    if status in (401, 403):
        return ModelFailure.UNAUTHORIZED
    if status == 429:
        return ModelFailure.RATE_LIMITED
    if status == 408:
        return ModelFailure.TIMEOUT
    return ModelFailure.SERVER_ERROR if status >= 500 else ModelFailure.REFUSED
