"""The analyzer and the agent: whether they run and are healthy, and its sample coverage. The clocks of all servers."""

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress

from gpusteward.cli.api.client import Client, UnreachableError
from gpusteward.cli.doctor.check_results import (
    CHECK_LOG,
    NO_VIDEO,
    WINDOW_FILLS,
    CheckResult,
    CheckStatus,
    count,
    fail,
    ok,
    skip,
    warn,
)
from gpusteward.cli.json_access import Row
from gpusteward.cli.output.quantities import percent
from gpusteward.cli.output.terminal_text import clean
from gpusteward.cli.output.verdict_texts import HEALTH
from gpusteward.core.errors import SourceError

MAX_SKEW_SECONDS = 5.0
BROKEN_SECONDS = 60.0
"""Prometheus rejects samples from the future, and windows of minutes shift by as much."""
_LEVELS = {"degraded": CheckStatus.FAIL, "warning": CheckStatus.WARN, "info": CheckStatus.OK}
_IN_ANALYZER = ("source-failed", "no-result")  # `describe_health` says it

FIXES: Mapping[str, str] = {
    "source-incomplete": "restore what it names; /api/v1/sources lists all failures",
    "result-old": (
        "check in its log how long a cycle takes; if it takes longer than scheduler.interval, raise that setting"
    ),
    "policies-refused": (
        "correct the file of reclaim.policy_file, which is read again when it changes; nothing new is "
        "warned of or done meanwhile"
    ),
    "targets-lost": "check that these exporters run and can be reached; /api/v1/sources names them",
    "unknown-gpus": "gpusteward explain WORKLOAD shows the reason of each; /api/v1/health counts them by reason",
    "gpus-vanished": (
        "check that the exporters run and that the engine scrapes them; after scaling to zero on "
        "purpose, let the analyzer list nodes"
    ),
    "gpus-never-found": (
        "have the engine scrape the agents or dcgm-exporter; on a cluster without GPU nodes, let the "
        "analyzer list nodes"
    ),
    "nodes-missing": (
        "check that an exporter runs on these nodes and is scraped; where none shall run, label the node "
        "nvidia.com/gpu.deploy.dcgm-exporter=false"
    ),
    "nodes-unreadable": "let the analyzer list nodes",
    "gpus-lost": "look for XID errors and run nvidia-smi on the node; a GPU that was removed is forgotten after a day",
    "used-by-nobody-known": (
        "mount the kubelet's pod-resources socket into the exporter and keep its labels pod, namespace "
        "and container when relabeling; processes outside of Kubernetes are expected here"
    ),
    "exporter-is-holder": (
        "copy exported_pod to pod also where it is empty (regex .* instead of .+), or drop the pod label of the target"
    ),
    "no-video-fields": NO_VIDEO,
    "exporters-down": "check that these exporters run and that the engine may reach them",
    "gpus-unreported": "keep series without a pod when relabeling, and let the exporter report all GPUs of its node",
    "exporters-silent": "read the log of these exporters: the driver, NVML or DCGM's hostengine of their nodes fails",
    "no-holder-named": (
        "where pods hold GPUs: mount the kubelet's pod-resources socket into the exporter, set "
        "DCGM_EXPORTER_KUBERNETES=true, and keep its labels pod and namespace when relabeling"
    ),
    "two-gpus-one-index": (
        "name clusters by a label (external_labels of each Prometheus, prometheus.cluster_label), and "
        "give dcgm-exporter the name of its node (NODE_NAME)"
    ),
    "gpu-on-two-nodes": (
        "scrape each exporter once and label clusters (prometheus.cluster_label) where machines are cloned"
    ),
}
"""How to mend what the health of the data names, by its code."""


def check_analyzer(client: Client, *, is_required: bool) -> Iterator[CheckResult]:
    """`is_required`: its address was given, so it has to run."""
    try:
        health = client.read("/api/v1/health")
    except UnreachableError as error:
        yield _explain_unreachable(
            "analyzer",
            client,
            error,
            is_required=is_required,
            fix="no action needed unless you expect one: start gpusteward serve, or set --server URL",
        )
        return
    except SourceError as error:
        yield fail("analyzer", str(error), CHECK_LOG)
        return
    yield describe_health(health)
    yield from check_data(health)
    yield from check_samples(client, health)


def describe_health(health: Row) -> CheckResult:
    cycles, status = health.object("cycles"), health.text("status")
    shown = HEALTH.get(status, status)
    running = f"version {health.text('version')}, {count(health.count('allocations'), 'allocation')}"
    if error := cycles.text("last_error"):
        return fail(
            "analyzer",
            f"status {shown}: {error}",
            "make its source reachable: /api/v1/sources shows the addresses and the results",
        )
    if health.get("ready") is not True:
        interval = cycles.number("interval_seconds") or 0.0
        return warn(
            "analyzer",
            "no cycle has finished yet",
            f"wait for one interval ({interval:.0f} s); if there is still no result, check its log",
        )
    if status != "healthy":
        report = fail if status == "degraded" else warn
        return report("analyzer", f"{running}, status {shown}")
    return ok("analyzer", running)


def check_data(health: Row) -> Iterator[CheckResult]:
    """What the analyzer says about its data, as in /health: degraded fails."""
    for finding in health.objects("findings"):
        code = finding.text("code")
        if code not in _IN_ANALYZER:
            level = _LEVELS.get(finding.text("level"), CheckStatus.WARN)
            yield CheckResult("data", level, finding.text("text"), FIXES.get(code, ""))


def check_agent(client: Client, *, is_required: bool) -> Iterator[CheckResult]:
    try:
        response = client.request("/readyz")
    except UnreachableError as error:
        yield _explain_unreachable(
            "agent",
            client,
            error,
            is_required=is_required,
            fix="no action needed unless you expect one: start gpusteward agent, or set --agent URL",
        )
        return
    if response.status == 200:
        yield ok("agent", "it is ready")
    else:
        reason = clean(response.body[:300].decode("utf-8", "replace").strip()) or str(response.status)
        yield fail("agent", f"it is not ready: {reason}", "run gpusteward doctor on that node and fix what it finds")


def _explain_unreachable(
    check: str, client: Client, error: UnreachableError, *, is_required: bool, fix: str
) -> CheckResult:
    if is_required:
        return fail(check, error.problem, CHECK_LOG)
    return skip(check, f"not running at {client.url}", fix)


def check_clocks(servers: Mapping[str, Client]) -> Iterator[CheckResult]:
    """Compare the Date headers of the servers with the clock of this machine."""
    skews = {name: skew for name, client in servers.items() if (skew := measure_skew(client)) is not None}
    agreeing = {name: skew for name, skew in skews.items() if abs(skew) <= MAX_SKEW_SECONDS}
    if not skews:
        yield skip("clock", "no server responded, so there is no clock to compare with")
    if agreeing:
        worst = max(1.0, *map(abs, agreeing.values()))
        yield ok("clock", f"within {worst:.0f} s of this machine: {', '.join(agreeing)}")
    for name in skews.keys() - agreeing.keys():
        report = fail if abs(skews[name]) > BROKEN_SECONDS else warn
        yield report(
            "clock",
            f"the clock of {name} differs from this machine by {skews[name]:+.0f} s",
            "run chrony or systemd-timesyncd on both machines",
        )


def measure_skew(client: Client) -> float | None:
    """Seconds that the server is ahead; None if unknown. The header has whole seconds: half a second is added."""
    before = time.time()
    try:
        date = client.request("/").date
    except UnreachableError:
        return None
    after = time.time()
    return None if date is None else date + 0.5 - (before + after) / 2


MIN_COVERAGE = 0.9


def check_samples(client: Client, health: Row) -> Iterator[CheckResult]:
    """No result without allocations."""
    coverage, measured = health.number("measured_coverage"), health.count("measured")
    allocations = health.count("allocations")
    finding = f"{percent(coverage)} of {count(measured, 'allocation')}"
    if coverage is not None and coverage < MIN_COVERAGE:
        window = health.object("result").number("window_seconds") or 0.0
        sources = Row()
        with suppress(SourceError):
            sources = client.read("/api/v1/sources")
        yield _explain_gaps(sources, coverage, finding, window_seconds=window)
    elif coverage is not None and measured < allocations:
        yield ok(
            "samples",
            f"sample coverage {finding}; the utilization of {count(allocations - measured, 'other')} cannot be "
            "measured, such as MIG instances before Hopper without a DCGM hostengine",
            "no action needed; /api/v1/allocations?activity=unknown gives the reason for each",
        )
    elif coverage is not None:
        yield ok("samples", f"sample coverage {finding}")
    elif allocations and "measured" in health:
        yield warn(
            "samples",
            f"{count(allocations, 'allocation')}, but no utilization samples",
            "have the exporter export utilization: gpusteward agent, or DCGM_FI_DEV_GPU_UTIL, and "
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE for MIG",
        )


def _explain_gaps(sources: Row, coverage: float, finding: str, *, window_seconds: float) -> CheckResult:
    """Failed scrapes are named as the cause only if the analyzer reports failures."""
    finding = f"sample coverage only {finding}; an allocation below 90% is not judged idle"
    failures, scrapes = sources.object("failures"), sources.object("scrapes")
    if failing := next(iter(failures), ""):
        reason = failures.text(failing)
        return warn("samples", finding, f"restore {clean(failing)}: {reason}; /api/v1/sources lists all failures")
    if failed := scrapes.count("failed"):
        all_scrapes = count(failed + scrapes.count("ok"), "scrape")
        return warn(
            "samples",
            finding,
            f"find the targets that sometimes fail ({failed} of {all_scrapes} of "
            f"{count(sources.count('targets'), 'target')} failed): the log of the analyzer names them; "
            "raise scrape.timeout for slow ones",
        )
    interval = sources.object("scrape_intervals_seconds").number("scrape")  # of an analyzer that scrapes itself
    longest = max((state.count("scrapes") for state in sources.objects("states")), default=0)
    if interval is not None and longest > 0 and longest * interval < window_seconds:
        length = count(window_seconds / 60, "minute")
        return ok(
            "samples", f"the window is not full yet: sample coverage {percent(coverage)} of {length}", WINDOW_FILLS
        )
    return warn(
        "samples",
        finding,
        "look for gaps in the metric `up` of the exporters; if there are none, set "
        "prometheus.scrape_interval_seconds to their actual interval",
    )
