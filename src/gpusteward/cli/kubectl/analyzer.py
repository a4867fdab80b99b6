"""The way to the analyzer in a cluster: the flags that replace --server, its Service behind the proxy of the API
server, and the role: a token of a service account whose name is the role there."""

import argparse
import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple
from urllib.parse import quote

from gpusteward.cli.api.client import ANALYZER_LABELS, Client, Peer, StatusError, explain_status
from gpusteward.cli.json_access import Row, decode_object
from gpusteward.cli.kubectl.proxy import read_context, run_proxy
from gpusteward.cli.program import enter_until_exit
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.messages import Language, Message
from gpusteward.http.urls import HttpUrl

ANALYZER_VARIABLE = "GPUSTEWARD_ANALYZER"
DEFAULT_NAMESPACE = "gpusteward"
ACCOUNT = "gpusteward-viewer"
AUDIENCE = "gpusteward"
HEADER = "X-Gpusteward-Authorization"
LIFE_SECONDS = 600  # the shortest that an API server grants
RENEW_SECONDS = 60.0
SIGN_IN_SECONDS = 300.0
"""A credential plugin may wait for somebody to sign in with a browser: the first request takes that long."""
ONE_NAMESPACE = Message(
    "showing the namespace {namespace} only, as your role allows", "根据您的角色，只显示命名空间 {namespace}"
)


def add_cluster_access_flags(parser: argparse.ArgumentParser) -> None:
    """Those of kubectl by the same names, and the choice of the analyzer."""
    parser.add_argument("--kubeconfig", metavar="PATH", help="kubeconfig file (default ~/.kube/config) [KUBECONFIG]")
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: the current one)")
    parser.add_argument("--as", dest="as_user", default="", metavar="USER", help="user to impersonate")
    parser.add_argument(
        "--as-group", action="append", default=[], metavar="GROUP", help="group to impersonate; needs --as"
    )
    parser.add_argument(
        "--analyzer",
        metavar="NAMESPACE/NAME",
        help=f"Service of the analyzer, or its namespace (default: found by its labels) [{ANALYZER_VARIABLE}]",
    )
    parser.add_argument("--all-namespaces", "-A", action="store_true", help="all namespaces that you may see (default)")


def make_cluster_client(
    options: argparse.Namespace, *, token: str, token_origin: str, language: Language, environ: Mapping[str, str]
) -> Client:
    """A client of the analyzer in the cluster of the kubeconfig. `token`: instead of one of a service account.

    Raises ConfigurationError, SourceError.
    """
    if options.as_group and not options.as_user:
        raise ConfigurationError("--as-group needs --as USER")
    named = {"--kubeconfig": options.kubeconfig, "--context": options.context, "--as": options.as_user}
    flags = [f"{flag}={value}" for flag, value in named.items() if value]
    flags += [f"--as-group={each}" for each in options.as_group]
    socket_path = str(enter_until_exit(run_proxy(flags)))
    context = read_context(flags)
    server = HttpUrl("http", "localhost", 80)
    api = Client(Peer.CONTEXT_SERVER, server, timeout_seconds=options.timeout, socket_path=socket_path)
    first = replace(api, timeout_seconds=max(options.timeout, SIGN_IN_SECONDS)) if context.has_plugin else api
    chosen = options.analyzer or environ.get(ANALYZER_VARIABLE, "")
    service = find_analyzer(first, chosen=chosen, context=context.name, namespace=context.namespace)
    client = replace(
        api,
        peer=Peer.ANALYZER,
        server=replace(server, path=service.proxy_path),
        headers={"Accept-Language": language, **({HEADER: f"Bearer {token}"} if token else {})},
        token_origin=token_origin,
    )
    if token:
        return client
    given = getattr(options, "namespace", None) or ()
    asked = [given] if isinstance(given, str) else list(given)
    namespaces = list(dict.fromkeys(filter(None, [service.namespace, *asked, context.namespace])))
    return _add_role(client, RoleToken(api, namespaces), language)


def _add_role(client: Client, token: "RoleToken", language: Language) -> Client:
    """Where no token is granted, the analyzer may still allow reads; if not, the reason is said."""
    try:
        token.read()
    except RefusedTokenError as error:
        return replace(client, on_unauthorized=str(error))
    if token.namespace != token.namespaces[0]:
        print(f"gpusteward: {ONE_NAMESPACE.text(language, namespace=token.namespace)}", file=sys.stderr)
    return replace(
        client,
        make_headers=lambda: {HEADER: f"Bearer {token.read()}"},
        on_unauthorized="the analyzer does not accept tokens of service accounts: set auth.kubernetes.enabled, or send "
        "another token with --token-file",
    )


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
        raise ConfigurationError(f"--analyzer {chosen!r} is not a Service: write NAMESPACE/NAME or NAMESPACE")
    if name:
        return _describe(client.read(f"{_services_of(where)}/{quote(name, safe='')}"))
    rows = _list_services(client, where) if where else _search(client, [namespace, DEFAULT_NAMESPACE])
    found = [_describe(row) for row in rows if row.object("spec").text("clusterIP") != "None"]
    if not found:
        raise SourceError(
            f"no analyzer is installed in the cluster of context {context!r}: no Service with the labels "
            f"{ANALYZER_LABELS}; name one with --analyzer NAMESPACE/NAME"
        )
    if len(found) > 1:
        names = ", ".join(sorted(map(str, found)))
        raise ConfigurationError(
            f"{len(found)} analyzers are installed in this cluster: choose one with --analyzer {names}"
        )
    return found[0]


def _search(client: Client, namespaces: Sequence[str]) -> Sequence[Row]:
    """In all namespaces; where that is forbidden, in those that come to mind."""
    try:
        return _list_services(client)
    except StatusError as error:
        if error.status != 403:
            raise
        wanted = list(dict.fromkeys(filter(None, namespaces)))
        found: list[Row] = []
        for each in wanted:
            try:
                found += _list_services(client, each)
            except StatusError as refused:
                if refused.status != 403:
                    raise
        if not found:
            raise SourceError(
                f"no analyzer in the namespace {', '.join(wanted)}, and other namespaces cannot be searched: {error}; "
                "name its namespace with --analyzer NAMESPACE"
            ) from error
        return found


def _list_services(client: Client, namespace: str = "") -> Sequence[Row]:
    path = _services_of(namespace) if namespace else "/api/v1/services"
    return client.read(path, [("labelSelector", ANALYZER_LABELS)]).objects("items")


def _services_of(namespace: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/services"


def _describe(row: Row) -> AnalyzerService:
    about, ports = row.object("metadata"), row.object("spec").objects("ports")
    namespace, name = about.text("namespace"), about.text("name")
    if not ports:
        raise SourceError(f"the Service {namespace}/{name} has no port")
    port = next((each for each in ports if each.text("name") in ("http", "https")), ports[0])
    is_tls = "https" in (port.text("name"), port.text("appProtocol"))
    return AnalyzerService(namespace, name, "https" if is_tls else "http", port.text("name") or str(port.get("port")))


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
        raise RefusedTokenError(
            f"the analyzer requires a role, and you cannot create a token of its service account {ACCOUNT}: "
            f"{refusals[0]}; to give it to you: kubectl create rolebinding NAME --namespace {self.namespaces[0]} "
            f"--role {ACCOUNT} --user YOU"
        )


def _create_token(client: Client, namespace: str) -> _Token:
    spec = {"audiences": [AUDIENCE], "expirationSeconds": LIFE_SECONDS}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/serviceaccounts/{ACCOUNT}/token"
    headers = {"Content-Type": "application/json"}
    response = client.request(path, method="POST", body=json.dumps(body).encode(), headers=headers)
    if response.status != 201:
        raise explain_status(client.peer, client.url, response.status, response.body)
    try:
        status = decode_object(response.body).object("status")
        return _Token(status["token"], datetime.fromisoformat(status["expirationTimestamp"]).timestamp())
    except (ValueError, KeyError, TypeError) as error:
        raise SourceError("the response of the API server has no token") from error
