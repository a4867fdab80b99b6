"""The way to the analyzer in a cluster: its Service, and a token of a service account whose name is a role there."""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from urllib.parse import quote

from gpusteward.cli.api.client import Client
from gpusteward.cli.api.errors import StatusError, explain_status
from gpusteward.cli.json_access import Row, as_object, get_object, get_objects, get_text
from gpusteward.cli.kubectl.credentials import ApiServerAccess
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.http.client import HttpClient
from gpusteward.http.urls import HttpUrl
from gpusteward.messages.cli import kubectl as messages

DEFAULT_NAMESPACE = "gpusteward"
ACCOUNT = "gpusteward-viewer"
AUDIENCE = "gpusteward"
HEADER = "X-Gpusteward-Authorization"
LIFE_SECONDS = 600  # the shortest that an API server grants
RENEW_SECONDS = 60.0


class AnalyzerService(NamedTuple):
    """A Service, and the port of it that serves HTTP."""

    namespace: str
    name: str
    scheme: str
    port: str  # its name, or its number

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def proxy_path(self) -> str:
        """Where the API server forwards requests to it."""
        name = quote(f"{self.scheme}:{self.name}:{self.port}", safe=":")
        return f"/api/v1/namespaces/{quote(self.namespace, safe='')}/services/{name}/proxy"


def find_analyzer(client: Client, *, chosen: str, context: str, namespace: str) -> AnalyzerService:
    """The analyzer's Service: the chosen NAMESPACE/NAME or NAMESPACE, else the only one of the cluster.

    `client`: of the API server; `namespace`: that of the context. Raises SourceError, ConfigurationError.
    """
    where, _, name = chosen.partition("/")
    if chosen and (not where or "/" in name or (name == "" and "/" in chosen)):
        raise ConfigurationError(messages.INVALID_ANALYZER, value=chosen)
    if name:
        return _describe(as_object(client.read(f"{_services_of(where)}/{quote(name, safe='')}")))
    rows = _list_services(client, where) if where else _search(client, [namespace, DEFAULT_NAMESPACE])
    found = [_describe(row) for row in rows if get_text(get_object(row, "spec"), "clusterIP") != "None"]
    if not found:
        raise SourceError(messages.NO_ANALYZER, context=context, labels=messages.ANALYZER_LABELS)
    if len(found) > 1:
        names = ", ".join(sorted(map(str, found)))
        raise ConfigurationError(messages.SEVERAL_ANALYZERS, count=len(found), names=names)
    return found[0]


def _search(client: Client, namespaces: Sequence[str]) -> Sequence[Row]:
    """In all namespaces; where that is forbidden, in those that come to mind."""
    try:
        return _list_services(client)
    except StatusError as error:
        if error.status != 403:
            raise
        wanted = list(dict.fromkeys(filter(None, namespaces)))
        found = [row for each in wanted for row in _list_allowed(client, each)]
        if not found:
            raise SourceError(messages.NO_ANALYZER_IN, namespaces=", ".join(wanted), reason=error) from error
        return found


def _list_allowed(client: Client, namespace: str) -> Sequence[Row]:
    try:
        return _list_services(client, namespace)
    except StatusError as error:
        if error.status != 403:
            raise
        return ()


def _list_services(client: Client, namespace: str = "") -> Sequence[Row]:
    path = _services_of(namespace) if namespace else "/api/v1/services"
    return get_objects(as_object(client.read(path, [("labelSelector", messages.ANALYZER_LABELS)])), "items")


def _services_of(namespace: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/services"


def _describe(row: Row) -> AnalyzerService:
    about, ports = get_object(row, "metadata"), get_objects(get_object(row, "spec"), "ports")
    namespace, name = get_text(about, "namespace"), get_text(about, "name")
    if not ports:
        raise SourceError(messages.NO_PORT, name=f"{namespace}/{name}")
    port = next((each for each in ports if get_text(each, "name") in ("http", "https")), ports[0])
    is_tls = "https" in (get_text(port, "name"), get_text(port, "appProtocol"))
    return AnalyzerService(
        namespace, name, "https" if is_tls else "http", get_text(port, "name") or str(port.get("port"))
    )


class RefusedTokenError(SourceError):
    """No namespace has a viewer's service account of which a token may be created."""


class _Token(NamedTuple):
    text: str = ""
    expires_at: float = 0.0  # unix seconds


@dataclass
class RoleToken:
    """A token of the service account that is the role of a viewer, renewed before it expires. Thread-safe."""

    client: Client  # of the API server
    namespaces: Sequence[str]  # where the account may be: first that of the analyzer
    namespace: str = ""  # where it is
    _last: _Token = field(default_factory=_Token, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def read(self) -> str:
        """Raises RefusedTokenError, SourceError."""
        with self._lock:
            if time.time() > self._last.expires_at - RENEW_SECONDS:
                self._last = self._request()
            return self._last.text

    def _request(self) -> _Token:
        """In the first namespace that grants it. That the account does not exist is said only to those who may."""
        refusals = []
        for namespace in [self.namespace] if self.namespace else self.namespaces:
            try:
                token = _create_token(self.client, namespace)
            except StatusError as error:
                if error.status not in (403, 404):
                    raise
                refusals.append(error)
            else:
                self.namespace = namespace
                return token
        raise RefusedTokenError(messages.NO_ROLE, reason=refusals[0], namespace=self.namespaces[0])


def _create_token(client: Client, namespace: str) -> _Token:
    spec = {"audiences": [AUDIENCE], "expirationSeconds": LIFE_SECONDS}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/serviceaccounts/{ACCOUNT}/token"
    headers = {"Content-Type": "application/json"}
    response = client.request(path, method="POST", body=json.dumps(body).encode(), headers=headers)
    if response.status != 201:
        raise explain_status(client.peer, client.url, response.status, response.body)
    try:
        status = get_object(as_object(json.loads(response.body)), "status")
        return _Token(status["token"], datetime.fromisoformat(status["expirationTimestamp"]).timestamp())
    except (ValueError, KeyError, TypeError) as error:
        raise SourceError(messages.NOT_A_TOKEN_REQUEST) from error


class AnalyzerAccess:
    """A `ServerAccess` through the proxy of the API server, with a token for the analyzer in a header of its own."""

    def __init__(self, api: ApiServerAccess, token: str | RoleToken) -> None:
        """An empty text: no token."""
        self.peer = api.peer
        self._api = api
        self._token = token

    def with_token(self, token: RoleToken) -> "AnalyzerAccess":
        return AnalyzerAccess(self._api, token)

    def open(self, server: HttpUrl) -> HttpClient:
        return self._api.open(server)

    def make_headers(self) -> Mapping[str, str]:
        token = self._token if isinstance(self._token, str) else self._token.read()
        return {**self._api.make_headers(), **({HEADER: f"Bearer {token}"} if token else {})}
