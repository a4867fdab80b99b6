"""What went wrong with a question, by kind, and whether asking again may help.

Only kinds and status codes are told, never the provider's words: they may repeat a key, or be written to be read.
"""

from enum import StrEnum


class Failure(StrEnum):
    """Why there is no opinion."""

    CONNECTION = "connection"
    TIMEOUT = "timeout"
    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    UNAUTHORIZED = "unauthorized"
    REFUSED = "refused"  # any other status: a wrong address, model, or request
    WRONG_ANSWER = "wrong_answer"  # not JSON, not the fields asked for, too long
    KEY_UNREADABLE = "key_unreadable"
    NOT_INSTALLED = "not_installed"
    UNEXPECTED = "unexpected"


WORTH_REPEATING = frozenset(
    {Failure.CONNECTION, Failure.TIMEOUT, Failure.RATE_LIMITED, Failure.SERVER_ERROR, Failure.WRONG_ANSWER}
)
HOPELESS = frozenset(
    {Failure.CONNECTION, Failure.TIMEOUT, Failure.UNAUTHORIZED, Failure.NOT_INSTALLED, Failure.KEY_UNREADABLE}
)
"""After one of these, asked as often as allowed, the other cases of the cycle would only fail alike."""


class AskError(Exception):
    """A question without an answer."""

    def __init__(self, failure: Failure, *, detail: str = "", wait_seconds: float | None = None) -> None:
        super().__init__(f"{failure.value} ({detail})" if detail else failure.value)
        self.failure = failure
        self.wait_seconds = wait_seconds  # how long the provider asked to wait


def by_status(status: int) -> Failure:
    if status in (401, 403):
        return Failure.UNAUTHORIZED
    if status == 429:
        return Failure.RATE_LIMITED
    if status == 408:
        return Failure.TIMEOUT
    return Failure.SERVER_ERROR if status >= 500 else Failure.REFUSED
