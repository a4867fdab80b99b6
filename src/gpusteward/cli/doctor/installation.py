"""An installation in a cluster, as `helm test` checks it: agents, rights, sources, holders, proof, notices, verdicts.
Rights of this pod are checked by SelfSubjectAccessReview, which every account may create.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from gpusteward.cli.api.client import Client, Peer, make_client
from gpusteward.cli.api.pagination import read_all
from gpusteward.cli.doctor.check_results import (
    CHECK_LOG,
    NO_SCRAPES,
    WINDOW_FILLS,
    CheckResult,
    CheckStatus,
    count,
    fail,
    ok,
    skip,
    warn,
)
from gpusteward.cli.doctor.servers import check_data, describe_health
from gpusteward.cli.json_access import Row, decode_object
from gpusteward.cli.output.quantities import gpus as show_gpus
from gpusteward.cli.output.terminal_text import clean
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.node.containers import OwnerEvidence
from gpusteward.core.verdicts import Proof

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
        return skip(
            "rights",
            "not running in a pod",
            "no action needed; to check a cluster from here, run kubectl proxy and set --kubernetes-api "
            "http://127.0.0.1:8001",
        )
    try:
        token = (account / "token").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return fail("rights", f"{account / 'token'} is missing", "set automountServiceAccountToken: true")
    server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    return make_client(Peer.API_SERVER, server, token=token, timeout_seconds=5.0, ca_file=str(account / "ca.crt"))


def check_permissions(client: Client, rights: Sequence[tuple[str, str]] = OF_AGENT) -> Iterator[CheckResult]:
    """Verbs and resources, in all namespaces; one review for each."""
    yield from _check(
        client,
        [(verb, resource, "") for verb, resource in rights],
        "bind the service account to a ClusterRole that may {denied}, as the chart's and the manifests' do",
    )


def check_reclaim(client: Client, analyzer: Client) -> Iterator[CheckResult]:
    """In mode enforce: whether it may act where its settings say so."""
    try:
        status = analyzer.read("/api/v1/reclaim")
    except SourceError:  # of an analyzer that cannot be read another check says so
        return
    if status.text("mode") == "enforce":
        namespaces = status.object("details").texts("namespaces") or [""]
        rights = [(verb, resource, namespace) for namespace in namespaces for verb, resource in OF_RECLAIM]
        yield from _check(
            client,
            rights,
            (
                "set reclaim.rights of the chart, and reclaim.namespaces there if only these may be changed; "
                "without the chart bind the service account to roles that may {denied}"
            ),
        )


def _check(client: Client, rights: Sequence[tuple[str, str, str]], mend: str) -> Iterator[CheckResult]:
    """Verb, resource and namespace; empty: all. `mend` names those that are `{denied}`."""
    try:
        allowed = {
            f"{verb} {resource}{f' in {namespace}' if namespace else ''}": _is_allowed(
                client, verb, resource, namespace=namespace
            )
            for verb, resource, namespace in rights
        }
    except (SourceError, ConfigurationError) as error:
        yield fail("rights", str(error), "allow this pod to reach the API server")
        return
    denied = ", ".join(right for right, is_allowed in allowed.items() if not is_allowed)
    if denied:
        yield fail("rights", f"may not {denied}", mend.format(denied=denied))
    else:
        yield ok("rights", f"may {', '.join(allowed)}")


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
        document = decode_object(response.body)
    except ValueError as error:
        raise SourceError(f"{client.url} does not respond like an API server") from error
    return document.object("status").get("allowed") is True


POLL_SECONDS = 2.0


def parse_agents(text: str) -> tuple[str, str]:
    """Namespace and name of a DaemonSet. Raises ConfigurationError."""
    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        raise ConfigurationError(f"--agents: {text} is not NAMESPACE/NAME of the agents' DaemonSet")
    return namespace, name


def wait_until_installed(
    check: Callable[[], Sequence[CheckResult]],
    seconds: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Sequence[CheckResult]:
    """The results as soon as no check fails, or when the time is over."""
    deadline = clock() + seconds
    while True:
        results = check()
        if clock() >= deadline or all(result.status is not CheckStatus.FAIL for result in results):
            return results
        sleep(POLL_SECONDS)


def check_agents(api_server: Client | CheckResult, agents: tuple[str, str]) -> Iterator[CheckResult]:
    """The DaemonSet of the agents: as many are ready as nodes are selected."""
    if isinstance(api_server, CheckResult):
        yield api_server
        return
    namespace, name = agents
    path = f"/apis/apps/v1/namespaces/{quote(namespace, safe='')}/daemonsets/{quote(name, safe='')}"
    try:
        state = api_server.read(path).object("status")
    except SourceError as error:
        yield fail(
            "agents",
            str(error),
            'check the name, and that the service account has a role with apiGroups ["apps"], resources '
            '["daemonsets"], verbs ["get"]',
        )
        return
    wanted, ready = state.count("desiredNumberScheduled"), state.count("numberReady")
    if not wanted:
        yield fail(
            "agents",
            f"no node is selected by DaemonSet {namespace}/{name}, so no agent runs",
            "label the GPU nodes (gpu-feature-discovery sets nvidia.com/gpu.present=true), or change "
            "agent.nodeSelector and agent.tolerations of the chart",
        )
    elif ready < wanted:
        yield fail(
            "agents",
            f"{ready} of {count(wanted, 'agent')} ready",
            f"kubectl -n {namespace} get pods -o wide names the others; kubectl -n {namespace} logs POD says why an "
            "agent is not ready",
        )
    else:
        yield ok("agents", f"{ready} of {count(wanted, 'agent')} ready")


def check_verdicts(analyzer: Client) -> Iterator[CheckResult]:
    """The analyzer responds, has something to read, and has judged it."""
    try:
        health = analyzer.read("/api/v1/health")
        sources = analyzer.read("/api/v1/sources")
    except SourceError as error:
        yield fail("analyzer", str(error), CHECK_LOG)
        return
    yield describe_health(health)
    yield from check_data(health)
    yield _describe_source(health, sources)
    if health.get("ready") is True:
        try:
            workloads = read_all(analyzer, "/api/v1/workloads", ()).rows
            gpus = read_all(analyzer, "/api/v1/gpus", ()).rows
        except SourceError as error:
            yield fail("holders", str(error), CHECK_LOG)
        else:
            yield _describe_holders(health, workloads)
            yield from _describe_proof(gpus)
    yield _describe_notices(health.object("deliveries"))
    yield _describe_verdicts(health)


def _describe_holders(health: Row, workloads: Sequence[Row]) -> CheckResult:
    """Whether owners were read from the API server: nothing is done to others, and their notices may go astray."""
    known = sum(each.text("owner_evidence") == OwnerEvidence.READ for each in workloads)
    found, free = (health.number(name) or 0.0 for name in ("gpus", "unallocated_gpus"))
    finding = (
        f"GPUs: {show_gpus(found)} found, {show_gpus(found - free)} held; owners of {known} of "
        f"{count(len(workloads), 'workload')} read from the API server"
    )
    if known == len(workloads):
        return ok("holders", finding)
    return warn(
        "holders",
        finding,
        "nothing is ever done to the others; see `rights`, and set kubernetes.cluster where several clusters are read",
    )


def _describe_proof(gpus: Sequence[Row]) -> Iterator[CheckResult]:
    """Of each model, how many of the GPUs that are held are measured without gaps."""
    held, measured = Counter[str](), Counter[str]()
    for gpu in gpus:
        model = clean(gpu.text("model")) or "-"
        for holder in gpu.objects("holders"):
            held[model] += 1
            measured[model] += holder.text("proof") == Proof.INTEGRATED
    for model, number in sorted(held.items()):
        finding = f"{model}: {measured[model]} of {count(number, 'holder')} measured without gaps"
        if measured[model] == number:
            yield ok("proof", finding)
        else:
            yield warn(
                "proof",
                finding,
                "the others get notices at most: run the agent on their nodes, or have dcgm-exporter export "
                "DCGM_FI_PROF_GR_ENGINE_ACTIVE and scrape it every 15 s; `gpusteward explain WORKLOAD` has the reason "
                "of each",
            )


def _describe_notices(deliveries: Row) -> CheckResult:
    counts, failures = deliveries.object("counts"), deliveries.object("failures")
    sent, dead = (sum(number for _, number in counts.object(each).numbers()) for each in ("sent", "dead"))
    reason = deliveries.text("fault") or next((failures.text(name) for name in failures), "")
    targets, delivered = deliveries.texts("targets"), f"{count(sent, 'delivery', 'deliveries')} since the start"
    if not targets:
        return skip(
            "notices",
            "no channel is set, so owners are not told",
            "set notify.channels if owners are to be told (docs/how-to/notifications.md)",
        )
    if reason:
        return warn(
            "notices",
            f"{delivered}, {int(dead)} given up: {clean(reason)}",
            "`/api/v1/deliveries` has each with its reason; check the address and credentials of the channel",
        )
    return ok("notices", f"{count(len(targets), 'channel')}, {delivered}")


def _describe_source(health: Row, sources: Row) -> CheckResult:
    dialects = ", ".join(each.text("name") for each in sources.objects("dialects"))
    targets, up = health.number("targets"), health.count("targets_up")
    failures = sources.object("failures")
    reason = next((failures.text(name) for name in failures), "-")
    engine = " ".join(sources.text(key) for key in ("engine", "service", "url") if sources.text(key))
    if targets is not None and not up:
        return fail(
            "targets",
            f"none of {count(targets, 'target')} can be scraped: {reason}",
            "check that agents run and that a NetworkPolicy allows the analyzer to reach their port; "
            "/api/v1/sources shows every target",
        )
    if not dialects:
        return fail("targets", f"{engine} has no GPU metrics: {reason}", NO_SCRAPES)
    if targets is None:
        return ok("targets", f"{engine} has GPU metrics of {dialects}")
    finding = f"{up} of {count(targets, 'target')} scraped; GPU metrics of {dialects}"
    return ok("targets", finding) if up == targets else warn("targets", finding)


def _describe_verdicts(health: Row) -> CheckResult:
    judged, unknown = count(health.count("allocations"), "allocation"), health.object("unknown")
    gpus = {key: show_gpus(health.number(key)) for key in ("gpus", "active_gpus", "idle_gpus", "unknown_gpus")}
    if health.get("ready") is not True:
        return fail(
            "verdicts",
            "there is no verdict yet",
            "the lines above say what is missing; the log of the analyzer has every failed cycle",
        )
    if not health.count("allocations"):
        return warn(
            "verdicts",
            f"no container holds a GPU ({gpus['gpus']} in all)",
            "no action needed if that is so; otherwise start a pod with a GPU and run this again",
        )
    if sum(unknown.count(name) for name in unknown) == health.count("allocations"):
        reasons = ", ".join(f"{clean(name)}: {unknown.count(name)}" for name in unknown)
        return warn("verdicts", f"{judged}, not judged yet ({reasons})", WINDOW_FILLS)
    return ok(
        "verdicts",
        f"{judged} judged; GPUs: {gpus['active_gpus']} active, {gpus['idle_gpus']} idle, "
        f"{gpus['unknown_gpus']} unknown",
    )
