"""HTTP client of the commands: JSON from a running analyzer or agent.

One connection per request, each limited in time and size. Redirects are not followed and proxies of the environment
are not used, so that a token is sent only to the address the user gave.
"""

import json
import ssl
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from gpusteward import __version__
from gpusteward.cli.api.errors import (
    Peer,
    StatusError,
    UnreachableError,
    explain_http_error,
    explain_proxy_error,
    explain_status,
)
from gpusteward.cli.output.terminal_text import clean
from gpusteward.core.errors import ConfigurationError
from gpusteward.http.client import HttpClient, Request
from gpusteward.http.connections import load_tls_context
from gpusteward.http.credentials import basic_authorization
from gpusteward.http.errors import HttpError
from gpusteward.http.urls import HttpUrl, parse_url

MAX_RESPONSE_BYTES = 64 << 20
CACHED_RESPONSES = 16
Query = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Response:
    """A response with its whole body."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    date: float | None  # the clock of the server, in unix seconds


@dataclass
class Client:
    """Sends requests to one server. Safe to use from several threads: they share only cached responses."""

    peer: Peer
    server: HttpUrl
    authorization: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # sent with every request
    token_origin: str = ""
    timeout_seconds: float = 10.0
    ca_file: str | None = None
    socket_path: str = ""  # of `kubectl proxy`, to which the requests go instead
    make_headers: Callable[[], Mapping[str, str]] | None = field(default=None, repr=False)  # those that expire
    on_unauthorized: str = ""  # what to say after a 401, instead of how to set a token
    _cached: OrderedDict[str, tuple[str, bytes]] = field(default_factory=OrderedDict, repr=False)

    @property
    def url(self) -> str:
        """Without the password."""
        return clean(str(self.server).rstrip("/"))

    @cached_property
    def _tls(self) -> ssl.SSLContext | None:
        return load_tls_context(self.ca_file) if self.server.is_tls else None

    def read(self, path: str, query: Query = ()) -> Any:
        """The JSON at a path; an unchanged document is not transferred again. Raises UnreachableError, StatusError."""
        target = f"{path}?{urlencode(query)}" if query else path
        cached = self._cached.get(target)
        response = self.request(target, headers={"If-None-Match": cached[0]} if cached else {})
        if response.status == 304 and cached:
            return self._decode(cached[1])
        if response.status != 200:
            raise self._explain(response)
        self._cache(target, response)
        return self._decode(response.body)

    def read_text(self, path: str, query: Query = ()) -> str:
        """The text at a path. Raises UnreachableError, StatusError."""
        response = self.request(f"{path}?{urlencode(query)}" if query else path, headers={"Accept": "*/*"})
        if response.status != 200:
            raise self._explain(response)
        return response.body.decode("utf-8", "replace")

    def write(self, path: str, query: Query = (), *, method: str = "POST", body: bytes | None = None) -> Any:
        """Send a change; the JSON of the response. Raises UnreachableError, StatusError."""
        target = f"{path}?{urlencode(query)}" if query else path
        headers = {"Content-Type": "application/json"} if body is not None else {}
        response = self.request(target, method=method, body=body if body is not None else b"", headers=headers)
        if response.status not in (200, 201):
            raise self._explain(response)
        return self._decode(response.body)

    def request(
        self, target: str, *, method: str = "GET", body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Response:
        """The response, whatever its status. Raises UnreachableError."""
        sent = {**self._make_headers(), **(headers or {})}
        try:
            with self._open().send(
                Request(method, target, body, sent),
                timeout_seconds=self.timeout_seconds,
                limit_bytes=MAX_RESPONSE_BYTES,
            ) as response:
                body = response.read()
                if (
                    self.socket_path
                    and response.status == 500
                    and "text/plain" in response.headers.get("content-type", "")
                ):
                    raise explain_proxy_error(body)
                return Response(response.status, response.headers, body, response.date)
        except HttpError as error:
            peer = Peer.CONTEXT_SERVER if self.socket_path else self.peer
            raise explain_http_error(peer, self.url, error) from error

    def _explain(self, response: Response) -> StatusError:
        return explain_status(
            self.peer,
            self.url,
            response.status,
            response.body,
            token_origin=self.token_origin,
            on_unauthorized=self.on_unauthorized,
            language="zh" if self.headers.get("Accept-Language") == "zh" else "en",
        )

    def _open(self) -> HttpClient:
        return HttpClient(self.server, tls=self._tls, socket_path=self.socket_path)

    def _make_headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": f"gpusteward/{__version__}", **self.headers}
        headers |= self.make_headers() if self.make_headers else {}
        return headers | {"Authorization": self.authorization} if self.authorization else headers

    def _cache(self, target: str, response: Response) -> None:
        etag = response.headers.get("etag")
        if etag:
            self._cached[target] = etag, response.body
            while len(self._cached) > CACHED_RESPONSES:
                self._cached.popitem(last=False)

    def _decode(self, body: bytes) -> Any:
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise UnreachableError(
                f"the response of {self.url} is not valid JSON; check that this is the address of {self.peer.value}"
            ) from error


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
        server = parse_url(url if "://" in url else f"http://{url}")
    except ValueError:
        raise ConfigurationError(
            f"the address of {peer.value} is not a valid URL: write http://HOST:PORT or https://HOST:PORT"
        ) from None
    has_credentials = server.username or server.password
    basic = basic_authorization(server.username, server.password) if has_credentials else ""
    return Client(
        peer=peer,
        server=server,
        authorization=f"Bearer {token}" if token else basic,
        headers=headers or {},
        token_origin=token_origin,
        timeout_seconds=timeout_seconds,
        ca_file=ca_file,
    )
