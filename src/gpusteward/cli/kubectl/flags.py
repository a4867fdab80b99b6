"""Flags of `kubectl gpusteward` in place of those that name a server, and the client that they describe."""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace

from gpusteward.cli.api.client import Client
from gpusteward.cli.api.errors import Peer
from gpusteward.cli.kubectl.analyzer_access import (
    AnalyzerAccess,
    AnalyzerService,
    RefusedTokenError,
    RoleToken,
    find_analyzer,
)
from gpusteward.cli.kubectl.credentials import ApiServerAccess
from gpusteward.cli.kubectl.kubeconfig import KubeContext, read_context
from gpusteward.core.messages import Language
from gpusteward.messages.cli import kubectl as messages

ANALYZER_VARIABLE = "GPUSTEWARD_ANALYZER"


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
    context = read_context(options.kubeconfig, options.context, environ=environ)
    access = ApiServerAccess(context, user=options.as_user, groups=options.as_group, environ=environ)
    api = Client(Peer.CONTEXT_SERVER, access.server, timeout_seconds=options.timeout, access=access)
    chosen = options.analyzer or environ.get(ANALYZER_VARIABLE, "")
    service = find_analyzer(api, chosen=chosen, context=context.name, namespace=context.namespace)
    client = Client(
        Peer.ANALYZER,
        replace(access.server, path=access.server.path.rstrip("/") + service.proxy_path),
        headers={"Accept-Language": language},
        token_origin=token_origin,
        timeout_seconds=options.timeout,
        access=AnalyzerAccess(access, token),
    )
    return client if token else _add_role(client, RoleToken(api, _list_namespaces(options, context, service)), language)


def _add_role(client: Client, token: RoleToken, language: Language) -> Client:
    """Where no token is granted, the analyzer may still allow reads; if not, the reason is said."""
    assert isinstance(client.access, AnalyzerAccess)
    try:
        token.read()
    except RefusedTokenError as error:
        return replace(client, on_unauthorized=str(error))
    if token.namespace != token.namespaces[0]:
        note = messages.ONE_NAMESPACE.text(language, namespace=token.namespace)
        print(f"gpusteward: {note}", file=sys.stderr)
    return replace(client, access=client.access.with_token(token), on_unauthorized=str(messages.ACCOUNT_REJECTED))


def _list_namespaces(options: argparse.Namespace, context: KubeContext, service: AnalyzerService) -> list[str]:
    """Where the viewer's service account may be: with the analyzer, or in the namespace that one asks about."""
    given = getattr(options, "namespace", None) or ()
    asked = [given] if isinstance(given, str) else list(given)
    return list(dict.fromkeys(filter(None, [service.namespace, *asked, context.namespace])))
