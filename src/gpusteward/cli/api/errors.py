"""What can go wrong between a command and a server, and what to do about it."""

import json
from collections.abc import Mapping
from enum import Enum

from gpusteward.cli.output.terminal_text import clean
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.messages import Language, Message
from gpusteward.http.errors import (
    ConnectError,
    ConnectTimeoutError,
    HttpError,
    ResponseTimeoutError,
    ResponseTooLargeError,
    TlsError,
)

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
    problem, place = _read_problem(body), f"{peer.value} at {url}"
    if problem.get("kind") == "Status":
        return _explain_kubernetes(status, clean(str(problem.get("message") or "")) or "no reason given")
    detail = _read_detail(problem)
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


def _read_problem(body: bytes) -> Mapping[str, object]:
    try:
        problem = json.loads(body[:MAX_DETAIL_BYTES])
    except (ValueError, RecursionError):
        return {}
    return problem if isinstance(problem, dict) else {}


def _read_detail(problem: Mapping[str, object]) -> str:
    """The error text of an analyzer (`detail`) or an agent (`error.message`, `error.hint`); empty for other servers."""
    error = problem.get("error")
    if isinstance(error, dict):
        return clean("; ".join(str(error[key]) for key in ("message", "hint") if error.get(key)))
    return clean(str(problem.get("detail") or ""))
