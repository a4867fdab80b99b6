"""HTTP client of the commands: JSON from a running analyzer or agent, and what can go wrong with it.

One connection per request, each limited in time and size. Redirects are not followed and proxies of the environment
are not used, so that a token is sent only to the address the user gave.
"""

import ssl
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from urllib.parse import urlencode

from gpusteward import __version__
from gpusteward.cli.json_access import Row, decode_object
from gpusteward.cli.output.terminal_text import clean
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.messages import Language, Message
from gpusteward.http.client import HttpClient, Request
from gpusteward.http.connections import load_tls_context
from gpusteward.http.credentials import basic_authorization
from gpusteward.http.errors import (
    ConnectError,
    ConnectTimeoutError,
    HttpError,
    ResponseTimeoutError,
    ResponseTooLargeError,
    TlsError,
)
from gpusteward.http.urls import HttpUrl, parse_url

MAX_DETAIL_BYTES = 65536
RESPONDED = Message("{peer} at {url} responded {status}: {reason}", "{url}（{peer}）返回 {status}：{reason}")
"""In the language of the reason, which a server gives in that of the request."""
ANALYZER_LABELS = "app.kubernetes.io/name=gpusteward,app.kubernetes.io/component=analyzer"


class Peer(Enum):
    """The kind of server; the value is its name in texts."""

    ANALYZER = "the analyzer"
    AGENT = "the agent"
    PROMETHEUS = "Prometheus"
    API_SERVER = "the API server"
    CONTEXT_SERVER = "the API server of the kubeconfig"


HINTS: Mapping[Peer, str] = {
    Peer.ANALYZER: (
        "start one with `gpusteward serve`, forward a port of the cluster with `kubectl "
        "port-forward`, or set its address with --server URL or GPUSTEWARD_SERVER"
    ),
    Peer.AGENT: (
        "start one with `gpusteward agent` (without a GPU: `--source simulated`), or set its "
        "address with --agent URL or GPUSTEWARD_AGENT"
    ),
    Peer.PROMETHEUS: "set its address with --prometheus-url URL",
    Peer.API_SERVER: "check the network policies of this pod",
    Peer.CONTEXT_SERVER: "check the context: kubectl cluster-info, or choose another one with --context",
}


class UnreachableError(SourceError):
    """No usable response. Its text ends with a hint where there is one."""

    def __init__(self, problem: str, *, hint: str = "") -> None:
        super().__init__(f"{problem}; {hint}" if hint else problem)
        self.problem = problem


class StatusError(SourceError):
    """A response with a status other than 200."""

    def __init__(self, text: str, *, status: int) -> None:
        super().__init__(text)
        self.status = status


class RefusedRequestError(StatusError, ConfigurationError):
    """The server does not accept a value of the request, which comes from a flag."""


def explain_http_error(peer: Peer, url: str, error: HttpError) -> UnreachableError:
    """No response at all, or one that cannot be read."""
    if isinstance(error, ConnectTimeoutError | ResponseTimeoutError | ResponseTooLargeError | TlsError):
        return UnreachableError(f"no response from {peer.value} at {url}: {error}")
    reason = error.fields.get("reason", error) if isinstance(error, ConnectError) else error
    return UnreachableError(f"cannot connect to {peer.value} at {url} ({reason})", hint=HINTS[peer])


def explain_proxy_error(body: bytes) -> UnreachableError:
    """`kubectl proxy` responded itself: the API server cannot be reached, or a credential plugin failed."""
    reason = clean(body[:MAX_DETAIL_BYTES].decode("utf-8", "replace").strip())
    peer = Peer.CONTEXT_SERVER
    return UnreachableError(f"cannot connect to {peer.value} ({reason})", hint=HINTS[peer])


def explain_status(
    peer: Peer,
    url: str,
    status: int,
    body: bytes,
    *,
    token_origin: str = "",
    on_unauthorized: str = "",
    language: Language = "en",
) -> StatusError:
    """An error response. Its body may contain anything. `on_unauthorized`: what to say after a 401; `language`: of the
    request, and so of the reason in the response."""
    place = f"{peer.value} at {url}"
    try:
        problem = decode_object(body[:MAX_DETAIL_BYTES])
    except (ValueError, RecursionError):
        problem = Row()
    if problem.get("kind") == "Status":
        return _explain_kubernetes(status, clean(str(problem.get("message") or "")) or "no reason given")
    detail = clean(str(problem.get("detail") or ""))  # of an analyzer; empty for other servers
    if error := problem.object("error"):  # of an agent
        detail = clean("; ".join(str(error[key]) for key in ("message", "hint") if error.get(key)))
    if status == 401 or (status == 403 and peer is Peer.PROMETHEUS):
        return StatusError(on_unauthorized or _explain_credentials(peer, place, status, token_origin), status=status)
    if status == 404 and not detail:
        return StatusError(
            f"{url} responded 404; check that it is the address of {peer.value} and that its version is not older "
            "than this command",
            status=status,
        )
    kind = RefusedRequestError if status in (400, 422) else StatusError
    if not detail:
        return kind(f"{place} responded {status}: no reason given", status=status)
    return kind(RESPONDED.text(language, peer=peer.value, url=url, status=status, reason=detail), status=status)


def _explain_credentials(peer: Peer, place: str, status: int, token_origin: str) -> str:
    if peer is Peer.AGENT:
        return (
            f"{place} requires a user name and password: --agent http://NAME:PASSWORD@HOST:PORT, or better in "
            "GPUSTEWARD_AGENT"
        )
    if peer is Peer.PROMETHEUS:
        return (
            f"{place} rejected the credentials (HTTP {status}); check prometheus.username, password, bearer_token and "
            "headers (Mimir needs a tenant: X-Scope-OrgID)"
        )
    if token_origin:
        return f"{place} rejected the token from {token_origin}; its server.tokens_file lists the accepted tokens"
    return f"{place} requires a bearer token: set GPUSTEWARD_TOKEN or --token-file"


def _explain_kubernetes(status: int, reason: str) -> StatusError:
    """A Status object: the API server itself responded, also in place of a server behind its proxy."""
    texts = {
        401: "the API server does not accept the credentials of the kubeconfig (HTTP 401); check them with kubectl "
        "auth whoami",
        403: f"the API server denies this: {reason}; the Role gpusteward-kubectl in the namespace of the analyzer has "
        "what is needed: an administrator can bind it to you",
        503: f"the analyzer has no ready pod: {reason}; look at kubectl get pods --all-namespaces -l {ANALYZER_LABELS}",
    }
    return StatusError(texts.get(status, f"the API server responded {status}: {reason}"), status=status)


MAX_RESPONSE_BYTES = 64 << 20
CACHED_RESPONSES = 16
Query = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class WholeResponse:
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

    def read(self, path: str, query: Query = ()) -> Row:
        """The JSON object at a path, empty for any other value; an unchanged document is not transferred again.

        Raises UnreachableError, StatusError.
        """
        target = _make_target(path, query)
        cached = self._cached.get(target)
        response = self.request(target, headers={"If-None-Match": cached[0]} if cached else {})
        if response.status == 304 and cached:
            return self._decode(cached[1])
        if response.status != 200:
            raise self._explain(response)
        if etag := response.headers.get("etag"):
            self._cached[target] = etag, response.body
            while len(self._cached) > CACHED_RESPONSES:
                self._cached.popitem(last=False)
        return self._decode(response.body)

    def read_text(self, path: str, query: Query = ()) -> str:
        """The text at a path. Raises UnreachableError, StatusError."""
        response = self.request(_make_target(path, query), headers={"Accept": "*/*"})
        if response.status != 200:
            raise self._explain(response)
        return response.body.decode("utf-8", "replace")

    def write(self, path: str, query: Query = (), *, method: str = "POST", body: bytes | None = None) -> Row:
        """Send a change; the JSON object of the response. Raises UnreachableError, StatusError."""
        headers = {"Content-Type": "application/json"} if body is not None else {}
        response = self.request(_make_target(path, query), method=method, body=body or b"", headers=headers)
        if response.status not in (200, 201):
            raise self._explain(response)
        return self._decode(response.body)

    def request(
        self, target: str, *, method: str = "GET", body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> WholeResponse:
        """The response, whatever its status. Raises UnreachableError."""
        sent = {"Accept": "application/json", "User-Agent": f"gpusteward/{__version__}", **self.headers}
        sent |= self.make_headers() if self.make_headers else {}
        sent |= {"Authorization": self.authorization} if self.authorization else {}
        try:
            with HttpClient(self.server, tls=self._tls, socket_path=self.socket_path).send(
                Request(method, target, body, {**sent, **(headers or {})}),
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
                return WholeResponse(response.status, response.headers, body, response.date)
        except HttpError as error:
            peer = Peer.CONTEXT_SERVER if self.socket_path else self.peer
            raise explain_http_error(peer, self.url, error) from error

    def _explain(self, response: WholeResponse) -> StatusError:
        return explain_status(
            self.peer,
            self.url,
            response.status,
            response.body,
            token_origin=self.token_origin,
            on_unauthorized=self.on_unauthorized,
            language="zh" if self.headers.get("Accept-Language") == "zh" else "en",
        )

    def _decode(self, body: bytes) -> Row:
        try:
            return decode_object(body)
        except (ValueError, RecursionError) as error:
            raise UnreachableError(
                f"the response of {self.url} is not valid JSON; check that this is the address of {self.peer.value}"
            ) from error


def _make_target(path: str, query: Query) -> str:
    return f"{path}?{urlencode(query)}" if query else path


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
