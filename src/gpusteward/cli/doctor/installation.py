"""An installation in a cluster, as `helm test` checks it: agents, sources, holders, proof, notices, verdicts."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import quote

from gpusteward.cli.api.client import Client
from gpusteward.cli.api.pagination import read_all
from gpusteward.cli.doctor.check_results import CheckResult, Status
from gpusteward.cli.doctor.servers import check_data, describe_health
from gpusteward.cli.json_access import (
    Row,
    as_object,
    get_count,
    get_number,
    get_object,
    get_objects,
    get_text,
    get_texts,
    list_numbers,
)
from gpusteward.cli.output.quantities import gpus as show_gpus
from gpusteward.cli.output.terminal_text import clean
from gpusteward.core.containers import OwnerEvidence
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.verdicts import Proof
from gpusteward.messages.cli import doctor as messages

POLL_SECONDS = 2.0


def parse_agents(text: str) -> tuple[str, str]:
    """Namespace and name of a DaemonSet. Raises ConfigurationError."""
    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        raise ConfigurationError(messages.INVALID_AGENTS, value=text)
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
        if clock() >= deadline or all(result.status is not Status.FAIL for result in results):
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
        state = get_object(as_object(api_server.read(path)), "status")
    except SourceError as error:
        yield CheckResult("agents", Status.FAIL, messages.REASON, messages.READ_DAEMONSET, {"reason": error})
        return
    wanted, ready = get_count(state, "desiredNumberScheduled"), get_count(state, "numberReady")
    fields = {"ready": ready, "wanted": wanted, "namespace": namespace, "name": name}
    if not wanted:
        yield CheckResult("agents", Status.FAIL, messages.NO_AGENT_NODES, messages.LABEL_NODES, fields)
    elif ready < wanted:
        yield CheckResult("agents", Status.FAIL, messages.AGENTS_READY, messages.SEE_AGENT_PODS, fields)
    else:
        yield CheckResult("agents", Status.OK, messages.AGENTS_READY, fields=fields)


def check_verdicts(analyzer: Client) -> Iterator[CheckResult]:
    """The analyzer responds, has something to read, and has judged it."""
    try:
        health = as_object(analyzer.read("/api/v1/health"))
        sources = as_object(analyzer.read("/api/v1/sources"))
    except SourceError as error:
        yield CheckResult("analyzer", Status.FAIL, messages.REASON, messages.CHECK_LOG, {"reason": error})
        return
    yield describe_health(health)
    yield from check_data(health)
    yield _describe_source(health, sources)
    if health.get("ready") is True:
        try:
            workloads = read_all(analyzer, "/api/v1/workloads", (), advance=_advance).rows
            gpus = read_all(analyzer, "/api/v1/gpus", (), advance=_advance).rows
        except SourceError as error:
            yield CheckResult("holders", Status.FAIL, messages.REASON, messages.CHECK_LOG, {"reason": error})
        else:
            yield _describe_holders(health, workloads)
            yield from _describe_proof(gpus)
    yield _describe_notices(get_object(health, "deliveries"))
    yield _describe_verdicts(health)


def _advance(_done: int, _total: int) -> None:
    """Nobody watches: it runs in a pod, or repeats until nothing fails."""


def _describe_holders(health: Row, workloads: Sequence[Row]) -> CheckResult:
    """Whether owners were read from the API server: nothing is done to others, and their notices may go astray."""
    known = sum(get_text(each, "owner_evidence") == OwnerEvidence.READ for each in workloads)
    found, free = (get_number(health, name) or 0.0 for name in ("gpus", "unallocated_gpus"))
    gpus = {"gpus": show_gpus(found), "held": show_gpus(found - free)}
    fields = {**gpus, "known": known, "workloads": len(workloads)}
    if known < len(workloads):
        return CheckResult("holders", Status.WARN, messages.HOLDERS, messages.READ_OWNERS, fields)
    return CheckResult("holders", Status.OK, messages.HOLDERS, fields=fields)


def _describe_proof(gpus: Sequence[Row]) -> Iterator[CheckResult]:
    """Of each model, how many of the GPUs that are held are measured without gaps."""
    held, measured = Counter[str](), Counter[str]()
    for gpu in gpus:
        model = clean(get_text(gpu, "model")) or "-"
        for holder in get_objects(gpu, "holders"):
            held[model] += 1
            measured[model] += get_text(holder, "proof") == Proof.INTEGRATED
    for model, count in sorted(held.items()):
        fields = {"model": model, "measured": measured[model], "held": count}
        if measured[model] < count:
            yield CheckResult("proof", Status.WARN, messages.PROOF_OF_MODEL, messages.MEASURE_WITHOUT_GAPS, fields)
        else:
            yield CheckResult("proof", Status.OK, messages.PROOF_OF_MODEL, fields=fields)


def _describe_notices(deliveries: Row) -> CheckResult:
    counts, failures = get_object(deliveries, "counts"), get_object(deliveries, "failures")
    sent, dead = (sum(number for _, number in list_numbers(get_object(counts, each))) for each in ("sent", "dead"))
    reason = get_text(deliveries, "fault") or next((get_text(failures, name) for name in failures), "")
    targets = get_texts(deliveries, "targets")
    fields = {"sent": int(sent), "dead": int(dead), "targets": len(targets), "reason": clean(reason)}
    if not targets:
        return CheckResult("notices", Status.SKIP, messages.NO_CHANNELS, messages.SET_CHANNELS)
    if reason:
        return CheckResult("notices", Status.WARN, messages.NOTICES_FAIL, messages.CHECK_CHANNELS, fields)
    return CheckResult("notices", Status.OK, messages.NOTICES, fields=fields)


def _describe_source(health: Row, sources: Row) -> CheckResult:
    dialects = ", ".join(get_text(each, "name") for each in get_objects(sources, "dialects"))
    targets, up = get_number(health, "targets"), get_count(health, "targets_up")
    failures = get_object(sources, "failures")
    reason = next((get_text(failures, name) for name in failures), "-")
    name = " ".join(filter(None, (get_text(sources, "engine"), get_text(sources, "service"), get_text(sources, "url"))))
    fields = {"engine": name, "dialects": dialects, "targets": int(targets or 0), "up": up, "reason": reason}
    if targets is not None and not up:
        return CheckResult("targets", Status.FAIL, messages.NO_TARGETS, messages.FIND_TARGETS, fields)
    if not dialects:
        return CheckResult("targets", Status.FAIL, messages.NO_METRICS_YET, messages.SCRAPE_AGENTS, fields)
    if targets is None:
        return CheckResult("targets", Status.OK, messages.ENGINE_READ, fields=fields)
    status = Status.OK if up == targets else Status.WARN
    return CheckResult("targets", status, messages.TARGETS_READ, fields=fields)


def _describe_verdicts(health: Row) -> CheckResult:
    allocations, unknown = get_count(health, "allocations"), get_object(health, "unknown")
    fields = {
        "allocations": allocations,
        "active": show_gpus(get_number(health, "active_gpus")),
        "idle": show_gpus(get_number(health, "idle_gpus")),
        "unknown": show_gpus(get_number(health, "unknown_gpus")),
        "gpus": show_gpus(get_number(health, "gpus")),
        "reasons": ", ".join(f"{clean(name)}: {get_count(unknown, name)}" for name in unknown),
    }
    if health.get("ready") is not True:
        return CheckResult("verdicts", Status.FAIL, messages.NO_VERDICT, messages.WAIT_FOR_VERDICT, fields)
    if not allocations:
        return CheckResult("verdicts", Status.WARN, messages.NOTHING_HELD, messages.RUN_A_LOAD, fields)
    if sum(get_count(unknown, name) for name in unknown) == allocations:
        return CheckResult("verdicts", Status.WARN, messages.ALL_UNKNOWN, messages.WAIT_FOR_WINDOW, fields)
    return CheckResult("verdicts", Status.OK, messages.VERDICTS, fields=fields)
