"""HTTP client of the commands: JSON from a running analyzer or agent.

One connection per request, each limited in time and size. Redirects are not followed and proxies of the environment
are not used, so that a token is sent only to the address the user gave.
"""

import json
import ssl
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from email.message import Message
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

from gpusteward import __version__
from gpusteward.cli.api.errors import (
    Peer,
    UnreachableError,
    explain_connection,
    explain_status,
    explain_timeout,
)
from gpusteward.cli.output.terminal_text import clean
from gpusteward.core.errors import ConfigurationError
from gpusteward.messages import cli as messages

MAX_RESPONSE_BYTES = 64 << 20
CACHED_RESPONSES = 16
Query = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Response:
    """A response with its whole body."""

    status: int
    headers: Message
    body: bytes

    @property
    def date(self) -> float | None:
        """The clock of the server, in unix seconds."""
        try:
            return parsedate_to_datetime(self.headers.get("Date", "")).timestamp()
        except (TypeError, ValueError):
            return None


@dataclass
class Client:
    """Sends requests to one server. Safe to use from several threads: they share only cached responses."""

    peer: Peer
    url: str  # without the password
    host: str
    port: int | None
    prefix: str
    is_tls: bool
    authorization: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # sent with every request
    token_origin: str = ""
    timeout_seconds: float = 10.0
    ca_file: str | None = None
    _cached: OrderedDict[str, tuple[str, bytes]] = field(default_factory=OrderedDict, repr=False)

    def read(self, path: str, query: Query = ()) -> Any:
        """The JSON at a path; an unchanged document is not transferred again. Raises UnreachableError, StatusError."""
        target = f"{path}?{urlencode(query)}" if query else path
        cached = self._cached.get(target)
        response = self.request(target, headers={"If-None-Match": cached[0]} if cached else {})
        if response.status == 304 and cached:
            return self._decode(cached[1])
        if response.status != 200:
            raise explain_status(self.peer, self.url, response.status, response.body, token_origin=self.token_origin)
        self._cache(target, response)
        return self._decode(response.body)

    def request(
        self, target: str, *, method: str = "GET", body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Response:
        """The response, whatever its status. Raises UnreachableError."""
        sent = {
            "Accept": "application/json",
            "User-Agent": f"gpusteward/{__version__}",
            **self.headers,
            **(headers or {}),
        }
        if self.authorization:
            sent["Authorization"] = self.authorization
        with self._connected() as http:
            http.request(method, self.prefix + target, body, sent)
            with http.getresponse() as response:  # `http` does not close a response after `Connection: close`
                return Response(response.status, response.headers, self._read_body(response))

    @contextmanager
    def _connected(self) -> Iterator[HTTPConnection]:
        try:
            with closing(self._open()) as http:
                yield http
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", "") or error.reason or "TLS failed"
            raise UnreachableError(messages.TLS_FAILED, peer=self.peer.value, url=self.url, reason=reason) from error
        except TimeoutError as error:
            raise explain_timeout(self.peer, self.url, self.timeout_seconds) from error
        except (OSError, HTTPException) as error:
            raise explain_connection(self.peer, self.url, error) from error

    def _open(self) -> HTTPConnection:
        if not self.is_tls:
            return HTTPConnection(self.host, self.port, timeout=self.timeout_seconds)
        context = ssl.create_default_context(cafile=self.ca_file)
        return HTTPSConnection(self.host, self.port, timeout=self.timeout_seconds, context=context)

    def _read_body(self, response: HTTPResponse) -> bytes:
        body = response.read(MAX_RESPONSE_BYTES + 1)
        if len(body) > MAX_RESPONSE_BYTES:
            raise UnreachableError(messages.RESPONSE_TOO_LARGE, url=self.url, mib=MAX_RESPONSE_BYTES >> 20)
        return body

    def _cache(self, target: str, response: Response) -> None:
        etag = response.headers.get("ETag")
        if etag:
            self._cached[target] = etag, response.body
            while len(self._cached) > CACHED_RESPONSES:
                self._cached.popitem(last=False)

    def _decode(self, body: bytes) -> Any:
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise UnreachableError(messages.NOT_JSON, peer=self.peer.value, url=self.url) from error


def make_client(
    peer: Peer,
    url: str,
    *,
    token: str = "",
    token_origin: str = "",
    headers: Mapping[str, str] | None = None,
    timeout_seconds: float = 10.0,
    ca_file: str | None = None,
) -> Client:
    """Raises ConfigurationError if the address is not an http or https URL without query and fragment."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError:
        raise ConfigurationError(messages.INVALID_URL, peer=peer.value) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigurationError(messages.INVALID_URL, peer=peer.value)
    netloc = parts.netloc.rpartition("@")[2]
    authorization = f"Bearer {token}" if token else _basic(parts.username, parts.password)
    return Client(
        peer=peer,
        url=clean(f"{parts.scheme}://{netloc}{parts.path.rstrip('/')}"),
        host=parts.hostname,
        port=port,
        prefix=parts.path.rstrip("/"),
        is_tls=parts.scheme == "https",
        authorization=authorization,
        headers=headers or {},
        token_origin=token_origin,
        timeout_seconds=timeout_seconds,
        ca_file=ca_file,
    )


def _basic(name: str | None, password: str | None) -> str:
    if name is None:
        return ""
    pair = f"{unquote(name)}:{unquote(password or '')}"
    return "Basic " + b64encode(pair.encode()).decode()
