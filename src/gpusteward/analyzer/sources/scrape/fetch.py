"""The one door to a target: a page over HTTP, bounded in size, in time, and in where it may lead.

One connection a target is kept open between scrapes.
"""

import asyncio
import ssl
from collections.abc import Mapping
from urllib.parse import urljoin

from gpusteward.analyzer.sources.scrape.addresses import Address, parse_address
from gpusteward.analyzer.sources.scrape.connections import Connection, LostError
from gpusteward.analyzer.sources.scrape.gunzip import unpack_gzip
from gpusteward.core.errors import ConfigurationError, SourceError

MOST_REDIRECTS = 3
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HINTS = {
    401: "; check scrape.username, password or bearer_token",
    403: "; check scrape.username, password, bearer_token or headers",
    404: "; check the path of the target",
}


class Fetcher:
    """Reads the pages of one target. Belongs to one event loop."""

    def __init__(
        self, address: Address, *, limit: int, timeout: float, tls: ssl.SSLContext | None, server_name: str = ""
    ) -> None:
        self._address = address
        self._limit = limit
        self._timeout = timeout
        self._tls = tls if address.is_tls else None
        self._server_name = server_name
        self._connection: Connection | None = None

    async def fetch(self, headers: Mapping[str, str]) -> bytes:
        """The page as it is now. Raises SourceError."""
        try:
            async with asyncio.timeout(self._timeout):
                return await self._follow(headers)
        except TimeoutError as error:
            self.close()
            raise SourceError(f"no whole page within {self._timeout:g} s; raise scrape.timeout?") from error
        except ssl.SSLError as error:
            raise SourceError(f"TLS failed: {getattr(error, 'verify_message', '') or error.reason}") from error
        except OSError as error:
            raise SourceError(f"no connection: {error.strerror or error}") from error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _follow(self, headers: Mapping[str, str]) -> bytes:
        path = self._address.path
        for _ in range(MOST_REDIRECTS + 1):
            answer = await self._ask(path, headers)
            if answer.status not in _REDIRECTS:
                return self._read(answer)
            path = self._lead(answer.headers.get(b"location", b""), path)
        raise SourceError(f"more than {MOST_REDIRECTS} redirects")

    async def _ask(self, path: str, headers: Mapping[str, str]) -> Connection:
        """A connection that was kept may have been closed by the other side meanwhile: then once more on a new one."""
        request = self._write(path, headers)
        if self._connection is not None and self._connection.is_open:
            try:
                await self._connection.ask(request)
            except LostError:
                self._connection = None
            else:
                return self._connection
        self._connection = await self._connect()
        await self._connection.ask(request)
        return self._connection

    async def _connect(self) -> Connection:
        _, answer = await asyncio.get_running_loop().create_connection(
            lambda: Connection(limit=self._limit),
            self._address.host,
            self._address.port,
            ssl=self._tls,
            server_hostname=(self._server_name or None) if self._tls else None,
        )
        return answer

    def _write(self, path: str, headers: Mapping[str, str]) -> bytes:
        told = {
            "Host": self._address.instance,
            "Accept": "text/plain;version=0.0.4;q=1,*/*;q=0.1",
            "Accept-Encoding": "gzip",
            "User-Agent": "gpusteward",
            "X-Prometheus-Scrape-Timeout-Seconds": f"{self._timeout:g}",
            **headers,
        }
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in told.items())]
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")

    def _read(self, answer: Connection) -> bytes:
        if answer.status != 200:
            raise SourceError(f"the target answered HTTP {answer.status}{_HINTS.get(answer.status, '')}")
        encoding = answer.headers.get(b"content-encoding", b"").lower()
        if encoding == b"gzip":
            return unpack_gzip(answer.body, limit=self._limit)
        if encoding not in (b"", b"identity"):
            raise SourceError(f"the page is packed as {encoding[:40]!r}, which was not asked for")
        return answer.body

    def _lead(self, location: bytes, path: str) -> str:
        """The path a redirect leads to: credentials go to nobody but who was asked. Raises SourceError."""
        here = f"{self._address.scheme}://{self._address.instance}"
        there = urljoin(here + path, location.decode("latin-1"))
        try:
            address = parse_address(there)
        except ConfigurationError:
            address = None
        if address is None or (address.scheme, address.instance) != (self._address.scheme, self._address.instance):
            raise SourceError(f"the target redirects to another address, {there[:100]!r}, which is not followed")
        return address.path
