"""The analyzer and the agent: whether they run and are healthy. The clocks of all servers."""

import time
from collections.abc import Iterator, Mapping

from gpusteward.cli.api.client import Client
from gpusteward.cli.api.errors import UnreachableError
from gpusteward.cli.doctor.check_results import NO_FIX, CheckResult, Status
from gpusteward.cli.doctor.samples import check_samples
from gpusteward.cli.json_access import Row, as_object, get_count, get_number, get_object, get_objects, get_text
from gpusteward.cli.output.terminal_text import clean
from gpusteward.cli.output.verdict_labels import HEALTH
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.messages.cli import doctor as messages

MAX_SKEW_SECONDS = 5.0
BROKEN_SECONDS = 60.0
"""Prometheus rejects samples from the future, and windows of minutes shift by as much."""
_LEVELS = {"degraded": Status.FAIL, "warning": Status.WARN, "info": Status.OK}
_IN_ANALYZER = ("source-failed", "no-result")  # `describe_health` says it


def check_analyzer(client: Client, *, is_required: bool) -> Iterator[CheckResult]:
    """`is_required`: its address was given, so it has to run."""
    try:
        health = as_object(client.read("/api/v1/health"))
    except UnreachableError as error:
        yield _explain_unreachable("analyzer", client, error, is_required=is_required, fix=messages.START_ANALYZER)
        return
    except SourceError as error:
        yield CheckResult("analyzer", Status.FAIL, messages.REASON, messages.CHECK_LOG, {"reason": error})
        return
    yield describe_health(health)
    yield from check_data(health)
    yield from check_samples(client, health)


def describe_health(health: Row) -> CheckResult:
    cycles, status = get_object(health, "cycles"), get_text(health, "status")
    fields = {
        "version": get_text(health, "version"),
        "allocations": get_count(health, "allocations"),
        "interval": get_number(cycles, "interval_seconds") or 0.0,
        "status": HEALTH.get(status, status),
        "error": get_text(cycles, "last_error") or "-",
    }
    if get_text(cycles, "last_error"):
        return CheckResult("analyzer", Status.FAIL, messages.UNHEALTHY, messages.REACH_SOURCE, fields)
    if health.get("ready") is not True:
        return CheckResult("analyzer", Status.WARN, messages.NO_CYCLE, messages.WAIT_FOR_CYCLE, fields)
    if status != "healthy":
        level = Status.FAIL if status == "degraded" else Status.WARN
        return CheckResult("analyzer", level, messages.NOT_HEALTHY, fields=fields)
    return CheckResult("analyzer", Status.OK, messages.HEALTHY, fields=fields)


def check_data(health: Row) -> Iterator[CheckResult]:
    """What the analyzer says about its data, as in /health: degraded fails."""
    for finding in get_objects(health, "findings"):
        code = get_text(finding, "code")
        if code not in _IN_ANALYZER:
            level = _LEVELS.get(get_text(finding, "level"), Status.WARN)
            fields = {"reason": clean(get_text(finding, "text"))}
            yield CheckResult("data", level, messages.REASON, messages.FIX_FINDINGS.get(code, NO_FIX), fields)


def check_agent(client: Client, *, is_required: bool) -> Iterator[CheckResult]:
    try:
        response = client.request("/readyz")
    except UnreachableError as error:
        yield _explain_unreachable("agent", client, error, is_required=is_required, fix=messages.START_AGENT)
        return
    if response.status == 200:
        yield CheckResult("agent", Status.OK, messages.AGENT_READY)
    else:
        reason = clean(response.body[:300].decode("utf-8", "replace").strip()) or str(response.status)
        yield CheckResult("agent", Status.FAIL, messages.AGENT_NOT_READY, messages.RUN_DOCTOR_THERE, {"reason": reason})


def _explain_unreachable(
    check: str, client: Client, error: UnreachableError, *, is_required: bool, fix: Message
) -> CheckResult:
    if is_required:
        return CheckResult(check, Status.FAIL, messages.REASON, messages.CHECK_LOG, {"reason": error.problem})
    return CheckResult(check, Status.SKIP, messages.NOT_RUNNING, fix, {"url": client.url})


def check_clocks(servers: Mapping[str, Client]) -> Iterator[CheckResult]:
    """Compare the Date headers of the servers with the clock of this machine."""
    skews = {name: skew for name, client in servers.items() if (skew := measure_skew(client)) is not None}
    agreeing = {name: skew for name, skew in skews.items() if abs(skew) <= MAX_SKEW_SECONDS}
    if not skews:
        yield CheckResult("clock", Status.SKIP, messages.NO_CLOCK)
    if agreeing:
        worst = max(map(abs, agreeing.values()))
        fields = {"servers": ", ".join(agreeing), "skew": max(1.0, worst)}
        yield CheckResult("clock", Status.OK, messages.CLOCKS_AGREE, fields=fields)
    for name in skews.keys() - agreeing.keys():
        status = Status.FAIL if abs(skews[name]) > BROKEN_SECONDS else Status.WARN
        fields = {"server": name, "skew": skews[name]}
        yield CheckResult("clock", status, messages.CLOCK_DIFFERS, messages.SYNCHRONISE, fields)


def measure_skew(client: Client) -> float | None:
    """Seconds that the server is ahead; None if unknown. The header has whole seconds: half a second is added."""
    before = time.time()
    try:
        date = client.request("/").date
    except UnreachableError:
        return None
    after = time.time()
    return None if date is None else date + 0.5 - (before + after) / 2
