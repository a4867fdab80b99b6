"""Fetches the metrics page of one target: limited in size and time, redirects only within the target and without its
credentials: behind one address may be pages of others, as behind a proxy.

One connection per target stays open between scrapes, unless it is encrypted: an idle TLS connection of asyncio has
380 KB of buffers, a closed one 1 MB until it is released, and a handshake costs 1.5 ms. For a thousand targets memory
is the scarcer resource.
"""

import asyncio
import ssl
import time
from collections.abc import Mapping
from urllib.parse import urljoin

from gpusteward.analyzer.sources.scrape.settings import parse_target
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.http.async_connection import AsyncConnection, AsyncResponse, ReceivedBytes, open_async_connection
from gpusteward.http.client import parse_date
from gpusteward.http.errors import NoResponseError, ResponseTimeoutError, ResponseTooLargeError
from gpusteward.http.urls import HttpUrl
from gpusteward.messages.errors import http_errors
from gpusteward.messages.errors import source_errors as messages

REDIRECT_LIMIT = 3
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class Fetcher:
    """Fetches the page of one target. Belongs to one event loop."""

    def __init__(
        self,
        url: HttpUrl,
        *,
        limit_bytes: int,
        timeout_seconds: float,
        tls: ssl.SSLContext | None,
        server_name: str = "",
        received: ReceivedBytes | None = None,
    ) -> None:
        """`received`: what all targets are sending at the moment."""
        self._received = received
        self._url = url
        self._limit_bytes = limit_bytes
        self._timeout_seconds = timeout_seconds
        self._tls = tls if url.is_tls else None
        self._server_name = server_name
        self._connection: AsyncConnection | None = None
        self.clock_skew: float | None = None  # seconds: the clock of the target minus ours, as of its last response

    async def fetch(self, credentials: Mapping[str, str]) -> bytes:
        """The page as it is now. `credentials`: headers. Raises SourceError."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await self._follow_redirects(credentials)
        except TimeoutError as error:
            self.close()
            reason = ResponseTimeoutError(http_errors.RESPONSE_TIMEOUT, seconds=self._timeout_seconds)
            raise SourceError(messages.TARGET_TIMEOUT, reason=reason) from error
        except ResponseTooLargeError as error:
            raise SourceError(messages.TARGET_PAGE_TOO_LARGE, reason=error) from error
        finally:
            if self._tls is not None:
                self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _follow_redirects(self, credentials: Mapping[str, str]) -> bytes:
        path, sent = self._url.path, credentials
        for _ in range(REDIRECT_LIMIT + 1):
            response = await self._get(path, sent)
            if response.status in (401, 403) and sent != credentials:
                raise SourceError(messages.TARGET_REDIRECTED_WITHOUT, status=response.status, path=path[:100])
            if response.status not in _REDIRECTS:
                date = parse_date(response.headers.get(b"date", b"").decode("latin-1"))
                self.clock_skew = None if date is None else date - time.time()
                return _read_page(response, self._limit_bytes)
            path, sent = self._resolve_redirect(response.headers.get(b"location", b""), path), {}
        raise SourceError(messages.TARGET_REDIRECTS, limit=REDIRECT_LIMIT)

    async def _get(self, path: str, headers: Mapping[str, str]) -> AsyncResponse:
        """The server may have closed an idle connection: then the request is repeated on a new one."""
        headers = self._make_headers(headers)
        if self._connection is not None and self._connection.is_open:
            try:
                return await self._connection.get(path, headers)
            except NoResponseError:
                self._connection = None
        self._connection = await open_async_connection(
            self._url,
            tls=self._tls,
            server_name=self._server_name,
            limit_bytes=self._limit_bytes,
            received=self._received,
        )
        return await self._connection.get(path, headers)

    def _make_headers(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        return {
            "Host": self._url.address,
            "Accept": "text/plain;version=0.0.4;q=1,*/*;q=0.1",
            "Accept-Encoding": "gzip",
            "User-Agent": "gpusteward",
            "X-Prometheus-Scrape-Timeout-Seconds": f"{self._timeout_seconds:g}",
            **headers,
        }

    def _resolve_redirect(self, location: bytes, path: str) -> str:
        """The new path. Redirects to other servers, which would receive the credentials, raise SourceError."""
        address = urljoin(f"{self._url.scheme}://{self._url.address}{path}", location.decode("latin-1"))
        try:
            url = parse_target(address)  # keeps the case of the host, as in the settings
        except ConfigurationError:
            url = None
        if url is None or (url.scheme, url.address) != (self._url.scheme, self._url.address):
            raise SourceError(messages.TARGET_REDIRECTED_AWAY, address=address[:100])
        return url.path


def _read_page(response: AsyncResponse, limit_bytes: int) -> bytes:
    if response.status != 200:
        hint = messages.TARGET_HINTS.get(response.status, messages.NO_HINT)
        raise SourceError(messages.TARGET_STATUS, status=response.status, hint=hint)
    return response.decode_body(limit_bytes=limit_bytes)
