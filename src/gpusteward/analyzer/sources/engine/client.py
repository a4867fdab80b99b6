"""HTTP client of a Prometheus-compatible engine: credentials, limits of time, size and concurrency, retries."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import TypeVar
from urllib.parse import urlencode

from gpusteward.analyzer.sources.engine.decode import Body, Vector, decode_vector, read_error
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.http_settings import make_credentials, make_tls_context, parse_setting_url
from gpusteward.analyzer.sources.memory_limits import DEFAULT_LIMITS, MemoryLimits
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.http.client import HttpClient, Request, Response
from gpusteward.http.errors import (
    ConfigurationFileError,
    HttpError,
    InvalidRequestError,
    ProtocolError,
    RequestCancelledError,
    ResponseTimeoutError,
    ResponseTooLargeError,
)
from gpusteward.logs import Log
from gpusteward.messages.errors import source_errors as messages

log = Log(__name__)

Fields = Sequence[tuple[str, str]]
T = TypeVar("T")
Read = Callable[[Iterable[bytes]], T]  # reads a body as it arrives; called again for each retry

_RETRIED_STATUSES = frozenset({429, 500, 502, 503, 504})
_LIMITS = (
    "too many samples",
    "too many time",
    "maxuniquetimeseries",
    "maxseries",
    "maxsamples",
    "err-mimir-max",
    "the limit",
)
"""Error texts that mean: select fewer series."""
_ERROR_TEXT_BYTES = 65_536
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
_LONGEST_WAIT_SECONDS = 30.0
_PARTIAL_RESPONSES = (("partial_response", "true"), ("deny_partial_response", "1"))
"""Thanos names the stores that do not respond, so its partial responses can be checked (`Vector.missing_stores`).
VictoriaMetrics does not name them, and is asked for an error instead. Other engines ignore these parameters."""


_CHART_BYTES = 1 << 20
"""A chart has 500 points of 30 bytes; several are read at the same time."""


class LimitError(SourceError):
    """The query selects or returns more than allowed; smaller queries may succeed."""


def collect(chunks: Iterable[bytes]) -> Body:
    """One growing buffer: joining the chunks at the end would need twice the memory."""
    body = bytearray()
    for chunk in chunks:
        body += chunk
    return body


class Engine:
    """A Prometheus-compatible engine. Safe to use from several threads."""

    def __init__(
        self, settings: PrometheusSettings, *, max_workers: int | None = None, limits: MemoryLimits = DEFAULT_LIMITS
    ) -> None:
        """Raises ConfigurationError for a certificate or password file that cannot be read."""
        self._settings = settings
        self.limits = limits
        concurrency = min(settings.max_concurrent_queries, max_workers or settings.max_concurrent_queries)
        self.max_concurrent_queries = concurrency
        self.skew_seconds: float | None = None  # the engine's clock minus ours, as of its last response
        self.request_counts = Counter[str]()  # requests by result: ok or failed
        self._count_lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(concurrency)
        self._closed = threading.Event()
        url = parse_setting_url(settings.url, setting="prometheus.url")
        self.url = str(url)  # without credentials
        self._credentials = make_credentials(settings, section="prometheus", url=url)
        self._http = HttpClient(
            url,
            tls=make_tls_context(settings, section="prometheus") if url.is_tls else None,  # loading it costs memory
            connect_timeout_seconds=settings.connect_timeout_seconds,
            keeps_connections=True,
        )
        self._headers = {"Accept-Encoding": settings.accept_encoding, "User-Agent": "gpusteward"}

    def __repr__(self) -> str:
        return f"Engine({self.url!r})"

    def query(self, expression: str, at: float) -> Body:
        """The whole response to an instant query. Raises SourceError, LimitError."""
        return self.read_query(expression, at, collect)

    def query_vector(self, expression: str, at: float) -> Vector:
        """A small instant vector. Raises SourceError, LimitError."""
        return decode_vector(self.query(expression, at))

    def read_query(self, expression: str, at: float, read: Read[T]) -> T:
        """What `read` returns for the response to an instant query. Raises SourceError, LimitError."""
        fields = (
            ("query", expression),
            ("time", f"{at:.3f}"),
            ("timeout", f"{round(self._settings.timeout_seconds * 1000)}ms"),
        )
        # Decoded as a whole, a response takes many times the memory of its text.
        limit = self.limits.whole_response if read is collect else self.limits.response
        return self._attempt("/api/v1/query", (*fields, *_PARTIAL_RESPONSES), read, limit)

    def query_range(self, expression: str, *, start: float, end: float, step: float) -> Body:
        """The whole response to a range query. Raises SourceError, LimitError."""
        times = (("start", f"{start:.3f}"), ("end", f"{end:.3f}"), ("step", f"{step:g}"))
        limit = min(_CHART_BYTES, self.limits.whole_response)
        fields = (("query", expression), *times)
        return self._attempt("/api/v1/query_range", (*fields, *_PARTIAL_RESPONSES), collect, limit)

    def fetch(self, path: str, fields: Fields = (), *, use_get: bool = False) -> Body:
        """The whole body of a response. Raises SourceError, LimitError."""
        fields = (*fields, *_PARTIAL_RESPONSES)
        return self._attempt(path, fields, collect, self.limits.whole_response, use_get=use_get)

    def close(self) -> None:
        """Close connections and stop waiting; requests in progress fail."""
        self._closed.set()
        self._http.close()

    def _attempt(self, path: str, fields: Fields, read: Read[T], limit_bytes: int, *, use_get: bool = False) -> T:
        for attempt in range(self._settings.retries + 1):
            try:
                body = self._send(path, fields, limit_bytes, use_get=use_get)
                with self._translated(path), closing(body):
                    return read(body)
            except _TransientError as error:
                if attempt == self._settings.retries or self._closed.is_set():
                    raise
                log.debug("engine_retried", path=path, attempt=attempt + 1, reason=error)
                own = self._settings.retry_delay_seconds * 2.0**attempt
                if self._closed.wait(min(max(own, error.wait_seconds), _LONGEST_WAIT_SECONDS)):
                    raise SourceError(messages.STOPPING) from error
        raise AssertionError("unreachable")

    def _send(self, path: str, fields: Fields, limit_bytes: int, *, use_get: bool) -> Generator[bytes, None, None]:
        if self._closed.is_set():
            raise SourceError(messages.STOPPING)
        form, headers = urlencode(fields), self._headers | self._credentials.headers()
        if use_get:
            request = Request("GET", f"{path}?{form}" if form else path, None, headers)
        else:
            request = Request("POST", path, form.encode(), headers | _FORM)
        with ExitStack() as opened:
            with self._slots:  # until it responds: while a response is read, the engine can work on another query
                response = opened.enter_context(
                    self._http.send(request, timeout_seconds=self._settings.timeout_seconds, limit_bytes=limit_bytes)
                )
            if (date := response.date) is not None:  # to the second: the engine may run on another machine
                self.skew_seconds = date - time.time()
            _check_status(response)
            yield from response.chunks

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        """Add the setting that helps to errors of the HTTP client; count each request by its result."""
        result = "failed"
        try:
            yield
            result = "ok"
        except RequestCancelledError as error:
            raise SourceError(messages.STOPPING) from error
        except ResponseTooLargeError as error:
            raise LimitError(messages.ENGINE_RESPONSE_TOO_LARGE, reason=error, budget=2 * self.limits.budget) from error
        except ResponseTimeoutError as error:
            raise SourceError(messages.ENGINE_TIMEOUT, path=path, reason=error) from error
        except (InvalidRequestError, ConfigurationFileError):
            raise
        except ProtocolError as error:
            raise _TransientError(messages.ENGINE_NOT_UNDERSTOOD, path=path, reason=error) from error
        except HttpError as error:
            raise _TransientError(messages.ENGINE_UNREACHABLE, path=path, reason=error) from error
        finally:
            with self._count_lock:
                self.request_counts[result] += 1


class _TransientError(SourceError):
    """A retry may succeed."""

    def __init__(self, message: Message, *, wait_seconds: float = 0.0, **fields: object) -> None:
        super().__init__(message, **fields)
        self.wait_seconds = wait_seconds


def _check_status(response: Response) -> None:
    """Raises SourceError, LimitError for everything but 200."""
    if response.status == 200:
        return
    body = response.read_start(_ERROR_TEXT_BYTES)
    text = read_error(body)[:400]
    if not text:  # it may be the HTML page of a proxy instead, or endless
        plain = body[:200].decode("utf-8", "replace").strip()
        text = "" if plain.startswith("<") else " ".join(plain.split())
    reason = f"HTTP {response.status}" + (f": {text}" if text else "")
    if response.status != 429 and any(words in text.lower() for words in _LIMITS):
        raise LimitError(messages.ENGINE_LIMIT, reason=reason)
    if response.status in _RETRIED_STATUSES:
        raise _TransientError(messages.ENGINE_FAILED, reason=reason, wait_seconds=response.retry_after_seconds)
    hint = messages.ENGINE_HINTS.get(response.status, messages.NO_HINT)
    raise SourceError(messages.ENGINE_REFUSED, reason=reason, hint=hint)
