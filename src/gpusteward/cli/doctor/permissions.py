"""Permissions of this pod at the API server, by SelfSubjectAccessReview, which every account may create."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gpusteward.cli.api.client import Client, make_client
from gpusteward.cli.api.errors import Peer
from gpusteward.cli.doctor.check_results import CheckResult, Status
from gpusteward.cli.json_access import as_object, get_object, get_text, get_texts
from gpusteward.core.errors import ConfigurationError, SourceError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
OF_AGENT = tuple((verb, "pods") for verb in ("list", "watch"))
OF_ANALYZER = (("get", "pods"), ("list", "pods"), ("list", "nodes"))
"""Without them owners, start times of pods and nodes without an exporter are unknown."""
OF_RECLAIM = (("patch", "pods"), ("patch", "deployments.apps"), ("create", "pods/eviction"))
"""In mode enforce. One role has them and the other kinds."""


def find_api_server(environ: Mapping[str, str], url: str | None, *, account: Path = ACCOUNT) -> Client | CheckResult:
    """A client of the API server, or why there is none. Raises ConfigurationError for an invalid URL."""
    if url:
        return make_client(Peer.API_SERVER, url, timeout_seconds=5.0)
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        return CheckResult(
            "rights",
            Status.SKIP,
            "not running in a pod",
            (
                "no action needed; to check a cluster from here, run kubectl proxy and set --kubernetes-api "
                "http://127.0.0.1:8001"
            ),
        )
    try:
        token = (account / "token").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return CheckResult(
            "rights",
            Status.FAIL,
            "{path} is missing",
            "set automountServiceAccountToken: true",
            {"path": account / "token"},
        )
    server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    return make_client(Peer.API_SERVER, server, token=token, timeout_seconds=5.0, ca_file=str(account / "ca.crt"))


def check_permissions(client: Client, rights: Sequence[tuple[str, str]] = OF_AGENT) -> Iterator[CheckResult]:
    """Verbs and resources, in all namespaces; one review for each."""
    yield from _check(
        client,
        [(verb, resource, "") for verb, resource in rights],
        "bind the service account to a ClusterRole that may {rights}, as the chart's and the manifests' do",
    )


def check_reclaim(client: Client, analyzer: Client) -> Iterator[CheckResult]:
    """In mode enforce: whether it may act where its settings say so."""
    try:
        status = as_object(analyzer.read("/api/v1/reclaim"))
    except SourceError:  # of an analyzer that cannot be read another check says so
        return
    if get_text(status, "mode") == "enforce":
        namespaces = get_texts(get_object(status, "details"), "namespaces") or [""]
        rights = [(verb, resource, namespace) for namespace in namespaces for verb, resource in OF_RECLAIM]
        yield from _check(
            client,
            rights,
            (
                "set reclaim.rights of the chart, and reclaim.namespaces there if only these may be changed; "
                "without the chart bind the service account to roles that may {rights}"
            ),
        )


def _check(client: Client, rights: Sequence[tuple[str, str, str]], mend: str) -> Iterator[CheckResult]:
    """Verb, resource and namespace; empty: all."""
    try:
        allowed = {
            f"{verb} {resource}{f' in {namespace}' if namespace else ''}": _is_allowed(
                client, verb, resource, namespace=namespace
            )
            for verb, resource, namespace in rights
        }
    except (SourceError, ConfigurationError) as error:
        yield CheckResult(
            "rights", Status.FAIL, "{reason}", "allow this pod to reach the API server", {"reason": error}
        )
        return
    denied = [right for right, is_allowed in allowed.items() if not is_allowed]
    if denied:
        yield CheckResult("rights", Status.FAIL, "may not {rights}", mend, {"rights": ", ".join(denied)})
    else:
        yield CheckResult("rights", Status.OK, "may {rights}", fields={"rights": ", ".join(allowed)})


def _is_allowed(client: Client, verb: str, resource: str, *, namespace: str) -> bool:
    """`resource`: as kubectl writes it, `deployments.apps` or `pods/eviction`. Raises SourceError."""
    name, _, subresource = resource.partition("/")
    name, _, group = name.partition(".")
    attributes = {"verb": verb, "group": group, "resource": name, "subresource": subresource, "namespace": namespace}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    body = json.dumps(review).encode()
    response = client.request(REVIEWS, method="POST", body=body, headers={"Content-Type": "application/json"})
    if response.status not in (200, 201):
        raise SourceError(f"{client.url} responded {response.status} to an access review")
    try:
        document = as_object(json.loads(response.body))
    except ValueError as error:
        raise SourceError(f"{client.url} does not respond like an API server") from error
    return get_object(document, "status").get("allowed") is True
