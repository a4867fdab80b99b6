"""Sample coverage of the analyzer, and why it is low."""

from collections.abc import Iterator, Mapping
from contextlib import suppress

from gpusteward.cli.api.client import Client
from gpusteward.cli.doctor.check_results import CheckResult, Status
from gpusteward.cli.json_access import Row, as_object, get_count, get_number, get_object, get_objects, get_text
from gpusteward.cli.output.quantities import percent
from gpusteward.core.errors import SourceError

MIN_COVERAGE = 0.9


def check_samples(client: Client, health: Row) -> Iterator[CheckResult]:
    """No result without allocations."""
    coverage, window = (
        get_number(health, "measured_coverage"),
        get_number(get_object(health, "result"), "window_seconds") or 0.0,
    )
    measured, allocations = get_count(health, "measured"), get_count(health, "allocations")
    fields = {
        "coverage": percent(coverage),
        "measured": measured,
        "allocations": allocations,
        "unmeasured": allocations - measured,
        "minutes": window / 60,
    }
    if coverage is not None and coverage < MIN_COVERAGE:
        yield _explain(_read_sources(client), fields, window_seconds=window)
    elif coverage is not None and measured < allocations:
        yield CheckResult(
            "samples",
            Status.OK,
            (
                "sample coverage {coverage} of {measured} {measured:|allocation|allocations}; the "
                "utilization of {unmeasured} {unmeasured:|other|others} cannot be measured, such as MIG "
                "instances before Hopper without a DCGM hostengine"
            ),
            "no action needed; /api/v1/allocations?activity=unknown gives the reason for each",
            fields,
        )
    elif coverage is not None:
        yield CheckResult(
            "samples",
            Status.OK,
            "sample coverage {coverage} of {measured} {measured:|allocation|allocations}",
            fields=fields,
        )
    elif allocations and "measured" in health:
        yield CheckResult(
            "samples",
            Status.WARN,
            "{allocations} {allocations:|allocation|allocations}, but no utilization samples",
            (
                "have the exporter export utilization: gpusteward agent, or DCGM_FI_DEV_GPU_UTIL, and "
                "DCGM_FI_PROF_GR_ENGINE_ACTIVE for MIG"
            ),
            fields,
        )


def _explain(sources: Row, fields: Mapping[str, object], *, window_seconds: float) -> CheckResult:
    """Failed scrapes are named as the cause only if the analyzer reports failures."""
    failures, scrapes = get_object(sources, "failures"), get_object(sources, "scrapes")
    if failing := next(iter(failures), ""):
        failure = {**fields, "failing": get_text({"name": failing}, "name"), "reason": get_text(failures, failing)}
        return CheckResult(
            "samples",
            Status.WARN,
            (
                "sample coverage only {coverage} of {measured} {measured:|allocation|allocations}; an "
                "allocation below 90% is not judged idle"
            ),
            "restore {failing}: {reason}; /api/v1/sources lists all failures",
            failure,
        )
    if failed := get_count(scrapes, "failed"):
        scraped = {
            "failed": failed,
            "scrapes": failed + get_count(scrapes, "ok"),
            "targets": get_count(sources, "targets"),
        }
        return CheckResult(
            "samples",
            Status.WARN,
            (
                "sample coverage only {coverage} of {measured} {measured:|allocation|allocations}; an "
                "allocation below 90% is not judged idle"
            ),
            (
                "find the targets that sometimes fail ({failed} of {scrapes} {scrapes:|scrape|scrapes} "
                "of {targets} {targets:|target|targets} failed): the log of the analyzer names them; "
                "raise scrape.timeout for slow ones"
            ),
            {**fields, **scraped},
        )
    if _is_filling(sources, window_seconds):
        return CheckResult(
            "samples",
            Status.OK,
            "the window is not full yet: sample coverage {coverage} of {minutes:.0f} {minutes:|minute|minutes}",
            (
                "no action needed: the window fills by itself; an allocation is not judged idle until its "
                "sample coverage is 90%"
            ),
            fields,
        )
    return CheckResult(
        "samples",
        Status.WARN,
        (
            "sample coverage only {coverage} of {measured} {measured:|allocation|allocations}; an allocation "
            "below 90% is not judged idle"
        ),
        (
            "look for gaps in the metric `up` of the exporters; if there are none, set "
            "prometheus.scrape_interval_seconds to their actual interval"
        ),
        fields,
    )


def _is_filling(sources: Row, window_seconds: float) -> bool:
    """Whether the analyzer scrapes itself, and for less than a window so far."""
    interval = get_number(get_object(sources, "scrape_intervals_seconds"), "scrape")
    longest = max((get_count(state, "scrapes") for state in get_objects(sources, "states")), default=0)
    return interval is not None and longest > 0 and longest * interval < window_seconds


def _read_sources(client: Client) -> Row:
    with suppress(SourceError):
        return as_object(client.read("/api/v1/sources"))
    return {}
