"""The one door to the engine: HTTP with identity, bounds in time, size and number, and retries."""

import email.utils
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPException
from typing import TypeVar
from urllib.parse import urlencode

from gpusteward.analyzer.sources.engine.access import Access, build_verification
from gpusteward.analyzer.sources.engine.decode import Body, read_error
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.core.errors import SourceError
from gpusteward.http.http_pool import Answer, AnswerTimeoutError, ConnectTimeoutError, Request, Wire
from gpusteward.logs import Log

log = Log(__name__)

Fields = Sequence[tuple[str, str]]
T = TypeVar("T")
Read = Callable[[Iterable[bytes]], T]  # of a body as it arrives; anew at each attempt

_RETRIED_STATUSES = frozenset({429, 500, 502, 503, 504})
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
_LONGEST_WAIT_SECONDS = 30.0
_WHOLE_ANSWERS = (("partial_response", "false"), ("deny_partial_response", "1"))
"""Thanos and VictoriaMetrics otherwise leave out what a storage node did not send; others ignore these."""


class LimitError(SourceError):
    """The engine refuses to touch so much in one query: smaller ones may pass."""


def collect(pieces: Iterable[bytes]) -> Body:
    """One buffer that grows: pieces put together at the end would be in memory twice."""
    body = bytearray()
    for piece in pieces:
        body += piece
    return body


class Engine:
    """A Prometheus-compatible engine. Safe to use from several threads."""

    def __init__(self, settings: PrometheusSettings, *, max_workers: int | None = None) -> None:
        """Raises ConfigurationError for a certificate or password file that cannot be read."""
        self._settings = settings
        at_once = min(settings.max_concurrent_queries, max_workers or settings.max_concurrent_queries)
        self.max_concurrent_queries = at_once
        self.skew_seconds: float | None = None  # the engine's clock minus ours, as of its last answer
        self.asked = Counter[str]()  # requests by result: ok or failed
        self._counting = threading.Lock()
        self._places = threading.BoundedSemaphore(at_once)
        self._closed = threading.Event()
        self._access = Access(settings)
        self._wire = Wire(
            self._access.url,
            context=build_verification(settings),
            connect_timeout_seconds=settings.connect_timeout_seconds,
        )
        self._headers = {"Accept-Encoding": settings.accept_encoding, "User-Agent": "gpusteward"}

    def __repr__(self) -> str:
        return f"Engine({self._access.url!r})"

    def query(self, expression: str, at: float) -> Body:
        """The answer to an instant query, whole. Raises SourceError, LimitError."""
        return self.read_query(expression, at, collect)

    def read_query(self, expression: str, at: float, read: Read[T]) -> T:
        """What `read` makes of the answer to an instant query. Raises SourceError, LimitError."""
        fields = (
            ("query", expression),
            ("time", f"{at:.3f}"),
            ("timeout", f"{round(self._settings.timeout_seconds * 1000)}ms"),
        )
        return self._attempt("/api/v1/query", (*fields, *_WHOLE_ANSWERS), read)

    def query_range(self, expression: str, *, start: float, end: float, step: float) -> Body:
        """The answer to a range query. Raises SourceError, LimitError."""
        times = (("start", f"{start:.3f}"), ("end", f"{end:.3f}"), ("step", f"{step:g}"))
        return self.fetch("/api/v1/query_range", (("query", expression), *times, *_WHOLE_ANSWERS))

    def fetch(self, path: str, fields: Fields = (), *, is_read_by_get: bool = False) -> Body:
        """The body of an answer, whole. Raises SourceError, LimitError."""
        return self._attempt(path, fields, collect, is_read_by_get=is_read_by_get)

    def stream(self, path: str, fields: Fields) -> Iterator[bytes]:
        """The body piece by piece; an interruption is not retried. Raises SourceError while it is read."""
        with self._translated(path):
            yield from self._send(path, fields, is_read_by_get=False)

    def close(self) -> None:
        """Drop connections and stop waiting; what is under way fails."""
        self._closed.set()
        self._wire.hang_up()

    def _attempt(self, path: str, fields: Fields, read: Read[T], *, is_read_by_get: bool = False) -> T:
        for attempt in range(self._settings.retries + 1):
            try:
                body = self._send(path, fields, is_read_by_get=is_read_by_get)
                with self._translated(path), closing(body):
                    return read(body)
            except _PassingError as error:
                if attempt == self._settings.retries or self._closed.is_set():
                    raise
                log.debug("engine_retried", path=path, attempt=attempt + 1, reason=error)
                self._wait(attempt, error.wait_seconds)
        raise AssertionError("unreachable")

    def _wait(self, attempt: int, asked_seconds: float) -> None:
        own = self._settings.retry_delay_seconds * 2.0**attempt
        if self._closed.wait(min(max(own, asked_seconds), _LONGEST_WAIT_SECONDS)):
            raise SourceError("the program is ending")

    def _send(self, path: str, fields: Fields, *, is_read_by_get: bool) -> Generator[bytes, None, None]:
        if self._closed.is_set():
            raise SourceError("the program is ending")
        request = self._write(path, urlencode(fields), is_read_by_get=is_read_by_get)
        with ExitStack() as opened:
            with self._places:  # until it answers: while one answer is read, the engine has as much to do as before
                sent = self._wire.send(request, timeout_seconds=self._settings.timeout_seconds)
                answer = opened.enter_context(sent)
            self._note_clock(answer)
            self._refuse(answer)
            yield from self._bound(answer.pieces)

    def _write(self, path: str, form: str, *, is_read_by_get: bool) -> Request:
        headers = self._headers | self._access.headers()
        if is_read_by_get:
            return Request("GET", f"{path}?{form}" if form else path, None, headers)
        return Request("POST", path, form.encode(), headers | _FORM)

    def _bound(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The body, bounded in size."""
        size = 0
        for piece in pieces:
            size += len(piece)
            if size > self._settings.response_limit_bytes:
                raise LimitError(
                    f"the answer is larger than {self._settings.response_limit_bytes} bytes; "
                    "lower prometheus.series_limit or raise prometheus.response_limit_bytes"
                )
            yield piece

    def _refuse(self, answer: Answer) -> None:
        if answer.status == 200:
            return
        said = _first_words(answer)
        reason = f"HTTP {answer.status}" + (f": {said}" if said else "")
        if answer.status != 429 and _is_limit(said):
            raise LimitError(f"the engine's own limit was hit: {reason}")
        if answer.status in _RETRIED_STATUSES:
            raise _PassingError(f"the engine failed: {reason}", _asked_wait(answer))
        raise SourceError(f"the engine refused: {reason}{_HINTS.get(answer.status, '')}")

    def _note_clock(self, answer: Answer) -> None:
        """How far the clocks are apart, to the second; the engine's may stand on another machine."""
        try:
            theirs = email.utils.parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
        except (ValueError, TypeError):
            return
        self.skew_seconds = theirs - time.time()

    def _count(self, result: str) -> None:
        with self._counting:
            self.asked[result] += 1

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        """Errors of the HTTP library become ours, in words without secrets; each request is counted by its result."""
        result = "failed"
        try:
            yield
            result = "ok"
        except ConnectTimeoutError as error:
            raise _PassingError(f"{path}: no connection within the time allowed") from error
        except AnswerTimeoutError as error:
            raise SourceError(f"{path}: {_too_slow(self._settings.timeout_seconds)}") from error
        except (OSError, HTTPException) as error:
            raise _PassingError(f"{path}: {error or type(error).__name__}; check prometheus.url") from error
        except (ValueError, AttributeError) as error:  # a header that cannot be sent; a connection closed meanwhile
            raise SourceError(f"{path}: {type(error).__name__}: {error}") from error
        finally:
            self._count(result)


class _PassingError(SourceError):
    """May be gone in a moment."""

    def __init__(self, text: str, wait_seconds: float = 0.0) -> None:
        super().__init__(text)
        self.wait_seconds = wait_seconds


_HINTS = {
    401: "; check prometheus.username, password or bearer_token",
    403: "; check prometheus.username, password, bearer_token or headers",
    404: "; check the path in prometheus.url",
}
_LIMITS = (
    "too many samples",
    "too many time",
    "maxuniquetimeseries",
    "maxseries",
    "maxsamples",
    "err-mimir-max",
    "the limit",
)
_LONGEST_COMPLAINT = 65_536


def _first_words(answer: Answer) -> str:
    """What a refusal says; it may be a proxy's page instead, or endless."""
    body = b""
    for piece in answer.pieces:
        body += piece
        if len(body) > _LONGEST_COMPLAINT:
            break
    return (read_error(body) or _plain(body))[:400]


def _plain(body: bytes) -> str:
    text = body[:200].decode("utf-8", "replace").strip()
    return "" if text.startswith("<") else " ".join(text.split())


def _is_limit(said: str) -> bool:
    return any(word in said.lower() for word in _LIMITS)


def _asked_wait(answer: Answer) -> float:
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isdigit() else 0.0


def _too_slow(seconds: float) -> str:
    return f"no whole answer within {seconds:g} s; the engine is busy, or prometheus.timeout_seconds is too short"
