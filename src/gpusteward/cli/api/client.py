"""A running analyzer or agent over HTTP, for the commands a person types.

The standard library only, one connection a question, every question bounded in time and size. Redirects are not
followed and proxies of the environment not used, so that a token goes only where a person sent it.
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
from enum import StrEnum
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

from gpusteward import __version__
from gpusteward.cli.output.terminal_text import clean
from gpusteward.core.errors import ConfigurationError, SourceError

LONGEST_ANSWER_BYTES = 64 << 20
REMEMBERED_ANSWERS = 16
Query = Sequence[tuple[str, str]]


class Peer(StrEnum):
    """Who is asked."""

    ANALYZER = "analyzer"
    AGENT = "agent"
    PROMETHEUS = "Prometheus"
    API_SERVER = "API server"


_WAYS: Mapping[Peer, str] = {
    Peer.ANALYZER: (
        "start one with `gpusteward serve`, reach one in a cluster with `kubectl port-forward`, or say where it is:"
        " --server URL or GPUSTEWARD_SERVER"
    ),
    Peer.AGENT: (
        "start one with `gpusteward agent` (without a GPU: `--source simulated`), or say where it is: --agent URL or"
        " GPUSTEWARD_AGENT"
    ),
    Peer.PROMETHEUS: "say where it is: --prometheus-url URL",
    Peer.API_SERVER: "check the network policy of this pod",
}


class LostError(SourceError):
    """Nobody answered."""

    def __init__(self, what: str, way: str = "") -> None:
        super().__init__(f"{what}: {way}" if way else what)
        self.what = what  # without the way to mend it


class RefusedError(SourceError):
    """An answer, but not the one asked for."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Answer:
    """A body that was read to its end."""

    status: int
    headers: Message
    body: bytes

    @property
    def date(self) -> float | None:
        """The server's clock, unix seconds."""
        try:
            return parsedate_to_datetime(self.headers.get("Date", "")).timestamp()
        except (TypeError, ValueError):
            return None


@dataclass
class Client:
    """Asks one server. Safe to use from several threads: nothing is shared but remembered answers."""

    peer: Peer
    url: str  # as it may be shown: no password
    host: str
    port: int | None
    prefix: str
    is_tls: bool
    authorization: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # sent with every question
    token_origin: str = ""
    timeout_seconds: float = 10.0
    ca_file: str | None = None
    _known: OrderedDict[str, tuple[str, bytes]] = field(default_factory=OrderedDict, repr=False)

    def read(self, path: str, query: Query = ()) -> Any:
        """The JSON at a path; one that did not change since is not sent again. Raises LostError, RefusedError."""
        target = f"{path}?{urlencode(query)}" if query else path
        known = self._known.get(target)
        answer = self.ask(target, headers={"If-None-Match": known[0]} if known else {})
        if answer.status == 304 and known:
            return self._decode(known[1])
        if answer.status != 200:
            raise RefusedError(answer.status, self._explain_refusal(answer))
        self._remember(target, answer)
        return self._decode(answer.body)

    def ask(
        self, target: str, *, method: str = "GET", body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Any answer at all, whatever its status. Raises LostError."""
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
            with http.getresponse() as response:  # closed here: one that was to close by itself is no longer `http`'s
                return Answer(response.status, response.headers, self._read_body(response))

    @contextmanager
    def _connected(self) -> Iterator[HTTPConnection]:
        try:
            with closing(self._open()) as http:
                yield http
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", "") or error.reason or "TLS failed"
            raise LostError(f"TLS with the {self.peer} at {self.url} failed: {reason}") from error
        except (OSError, HTTPException) as error:
            raise self._explain_loss(error) from error

    def _open(self) -> HTTPConnection:
        if not self.is_tls:
            return HTTPConnection(self.host, self.port, timeout=self.timeout_seconds)
        context = ssl.create_default_context(cafile=self.ca_file)
        return HTTPSConnection(self.host, self.port, timeout=self.timeout_seconds, context=context)

    def _read_body(self, response: HTTPResponse) -> bytes:
        body = response.read(LONGEST_ANSWER_BYTES + 1)
        if len(body) > LONGEST_ANSWER_BYTES:
            raise LostError(f"the answer of {self.url} is longer than {LONGEST_ANSWER_BYTES >> 20} MiB")
        return body

    def _remember(self, target: str, answer: Answer) -> None:
        etag = answer.headers.get("ETag")
        if etag:
            self._known[target] = etag, answer.body
            while len(self._known) > REMEMBERED_ANSWERS:
                self._known.popitem(last=False)

    def _decode(self, body: bytes) -> Any:
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise LostError(f"{self.url} does not answer as an {self.peer} of gpusteward does") from error

    def _explain_loss(self, error: Exception) -> LostError:
        if isinstance(error, TimeoutError):
            return LostError(f"no answer from the {self.peer} at {self.url} within {self.timeout_seconds:g} s")
        reason = clean(str(getattr(error, "strerror", None) or error or type(error).__name__))
        return LostError(f"no {self.peer} answers at {self.url} ({reason})", _WAYS[self.peer])

    def _explain_refusal(self, answer: Answer) -> str:
        said = _read_detail(answer.body)
        if answer.status == 401:
            return f"the {self.peer} at {self.url} {self._explain_credentials()}"
        if answer.status == 404 and not said:
            return f"{self.url} has no such page: is it an {self.peer} of gpusteward, and as new as this command?"
        return f"the {self.peer} at {self.url} says {answer.status}: {said or 'no reason'}"

    def _explain_credentials(self) -> str:
        if self.peer is Peer.AGENT:
            return "wants a name and a password: --agent http://NAME:PASSWORD@HOST:PORT, better in GPUSTEWARD_AGENT"
        if self.peer is Peer.PROMETHEUS:
            return "refuses who we are: see prometheus.username, prometheus.password and prometheus.bearer_token"
        if self.token_origin:
            return f"does not know the token from {self.token_origin}: its server.tokens_file lists those it takes"
        return "wants a bearer token: put it into GPUSTEWARD_TOKEN, or its file behind --token-file"


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
    """Raises ConfigurationError if the address is not a plain http or https URL."""
    wanted = "write http://HOST:PORT or https://HOST:PORT"
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError as error:
        raise ConfigurationError(f"the address of the {peer} is not a URL ({error}); {wanted}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigurationError(f"the address of the {peer} is not a plain URL; {wanted}")
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


def _read_detail(body: bytes) -> str:
    """What an analyzer (`detail`) or an agent (`error.message`, `error.hint`) says; empty from anybody else."""
    try:
        told = json.loads(body[:65536])
    except (ValueError, RecursionError):
        return ""
    if not isinstance(told, dict):
        return ""
    error = told.get("error")
    if isinstance(error, dict):
        return clean("; ".join(str(error[key]) for key in ("message", "hint") if error.get(key)))
    return clean(str(told.get("detail") or ""))
