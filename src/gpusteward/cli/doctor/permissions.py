"""Permissions of this pod at the API server, by SelfSubjectAccessReview, which every account may create."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gpusteward.cli.api.client import Client, make_client
from gpusteward.cli.api.errors import Peer
from gpusteward.cli.doctor.check_results import CheckResult, Status
from gpusteward.cli.json_access import as_object, get_object
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.messages.cli import doctor as messages

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
OF_AGENT = tuple((verb, "pods") for verb in ("get", "list", "watch"))
OF_ANALYZER = (("get", "pods"), ("list", "pods"), ("list", "nodes"))
"""Without them owners, start times of pods and nodes without an exporter are unknown."""


def find_api_server(environ: Mapping[str, str], url: str | None, *, account: Path = ACCOUNT) -> Client | CheckResult:
    """A client of the API server, or why there is none. Raises ConfigurationError for an invalid URL."""
    if url:
        return make_client(Peer.API_SERVER, url, timeout_seconds=5.0)
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        return CheckResult("rights", Status.SKIP, messages.NOT_IN_POD, messages.USE_KUBECTL_PROXY)
    try:
        token = (account / "token").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return CheckResult(
            "rights", Status.FAIL, messages.NO_SERVICE_ACCOUNT, messages.MOUNT_TOKEN, {"path": account / "token"}
        )
    server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    return make_client(Peer.API_SERVER, server, token=token, timeout_seconds=5.0, ca_file=str(account / "ca.crt"))


def check_permissions(client: Client, rights: Sequence[tuple[str, str]] = OF_AGENT) -> Iterator[CheckResult]:
    """Verbs and resources; one review for each."""
    try:
        allowed = {f"{verb} {resource}": _is_allowed(client, verb, resource) for verb, resource in rights}
    except (SourceError, ConfigurationError) as error:
        yield CheckResult("rights", Status.FAIL, messages.REASON, messages.REACH_API_SERVER, {"reason": error})
        return
    denied = [right for right, is_allowed in allowed.items() if not is_allowed]
    if denied:
        yield CheckResult("rights", Status.FAIL, messages.NOT_ALLOWED, messages.GRANT, {"rights": ", ".join(denied)})
    else:
        yield CheckResult("rights", Status.OK, messages.ALLOWED, fields={"rights": ", ".join(allowed)})


def _is_allowed(client: Client, verb: str, resource: str) -> bool:
    """Raises SourceError."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": verb, "resource": resource}},
    }
    body = json.dumps(review).encode()
    response = client.request(REVIEWS, method="POST", body=body, headers={"Content-Type": "application/json"})
    if response.status not in (200, 201):
        raise SourceError(messages.REVIEW_REFUSED, url=client.url, status=response.status)
    try:
        document = as_object(json.loads(response.body))
    except ValueError as error:
        raise SourceError(messages.NOT_AN_API_SERVER, url=client.url) from error
    return get_object(document, "status").get("allowed") is True
