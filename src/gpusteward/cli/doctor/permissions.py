"""What the API server allows this pod: asked with SelfSubjectAccessReview, which everybody may."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpusteward.cli.api.client import Client, make_client
from gpusteward.cli.api.errors import Peer
from gpusteward.cli.doctor.findings import Finding, Status
from gpusteward.cli.json_access import inner
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.messages import Message

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
VERBS = ("get", "list", "watch")

OUTSIDE = Message("this is not a pod of a cluster", "当前不在集群的 Pod 中")
PROXY = Message(
    "nothing; to check a cluster from here run kubectl proxy and give --kubernetes-api http://127.0.0.1:8001",
    "无需处理；如需从此处检查集群，请运行 kubectl proxy 并指定 --kubernetes-api http://127.0.0.1:8001",
)
NO_TOKEN = Message("{path} is missing", "缺少 {path}")
MOUNT = Message("set automountServiceAccountToken: true", "请设置 automountServiceAccountToken: true")
NO_ANSWER = Message("{reason}", "{reason}")
REACH = Message("let this pod reach the API server", "请允许此 Pod 访问 API server")
MAY = Message("may {verbs} pods", "允许对 pods 执行 {verbs}")
MAY_NOT = Message("may not {verbs} pods", "不允许对 pods 执行 {verbs}")
GRANT = Message(
    'bind the service account to a ClusterRole with resources ["pods"], verbs ["get", "list", "watch"]',
    '请为服务账号绑定 ClusterRole：resources ["pods"]，verbs ["get", "list", "watch"]',
)


def find_api_server(environ: Mapping[str, str], given: str | None, *, account: Path = ACCOUNT) -> Client | Finding:
    """How to ask the API server, or why that is not possible. Raises ConfigurationError for a wrong URL."""
    if given:
        return make_client(Peer.API_SERVER, given, timeout_seconds=5.0)
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        return Finding("rights", Status.SKIP, OUTSIDE, PROXY)
    try:
        token = (account / "token").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return Finding("rights", Status.FAIL, NO_TOKEN, MOUNT, {"path": account / "token"})
    url = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    return make_client(Peer.API_SERVER, url, token=token, timeout_seconds=5.0, ca_file=str(account / "ca.crt"))


def check_rights(client: Client) -> Iterator[Finding]:
    """One question a verb."""
    try:
        allowed = {verb: _ask(client, verb) for verb in VERBS}
    except (SourceError, ConfigurationError) as error:
        yield Finding("rights", Status.FAIL, NO_ANSWER, REACH, {"reason": str(error)})
        return
    refused = [verb for verb, is_allowed in allowed.items() if not is_allowed]
    if refused:
        yield Finding("rights", Status.FAIL, MAY_NOT, GRANT, {"verbs": ", ".join(refused)})
    else:
        yield Finding("rights", Status.OK, MAY, facts={"verbs": ", ".join(allowed)})


def _ask(client: Client, verb: str) -> bool:
    """Raises SourceError."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": verb, "resource": "pods"}},
    }
    body = json.dumps(review).encode()
    answer = client.request(REVIEWS, method="POST", body=body, headers={"Content-Type": "application/json"})
    if answer.status not in (200, 201):
        raise SourceError(f"{client.url} answers an access review with {answer.status}")
    try:
        told = json.loads(answer.body)
    except ValueError as error:
        raise SourceError(f"{client.url} does not answer as an API server does") from error
    return inner(told if isinstance(told, dict) else {}, "status").get("allowed") is True
