"""Prometheus or a compatible engine: whether it responds, has GPU metrics, and how often it scrapes them."""

from collections.abc import Iterator, Mapping

from gpusteward.cli.api.client import Client, Query
from gpusteward.cli.doctor.check_results import CheckResult, Status
from gpusteward.cli.json_access import Row, as_object, get_object, get_objects
from gpusteward.core import metrics
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message

MAX_INTERVAL_SECONDS = 60.0
"""A window of ten minutes then has ten samples; with fewer, short bursts of work are easily missed."""
LOOKBACK_SECONDS = 600
DIALECTS: Mapping[str, tuple[str, ...]] = {
    "gpusteward": (metrics.USE_UTILIZATION.name,),
    "DCGM": ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"),
    "HAMi": ("hami_container_device_utilization_ratio", "Device_utilization_desc_of_container"),
}
PROFILING = ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_ACTIVE_RATIO")
VIDEO = (
    ("DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_ENC_UTIL_RATIO"),
    ("DCGM_FI_DEV_DEC_UTIL", "DCGM_FI_DEV_DEC_UTIL_RATIO"),
)
DCGM_INTERVAL_SECONDS = 30.0
"""The default of `judge.proof.dcgm_interval_seconds`."""
PROFILING_SECONDS = 0.9 * DCGM_INTERVAL_SECONDS
"""Scraped less often, engine activity does not prove idleness: `analyzer.judge.proof`."""


def check_engine(client: Client, *, origin: str | Message) -> Iterator[CheckResult]:
    """A few cheap queries, independent of the length of the history. `origin`: where the address comes from."""
    try:
        names = _read_names(client)
    except SourceError as error:
        fields = {"reason": getattr(error, "problem", error), "origin": origin}
        yield CheckResult(
            "prometheus",
            Status.FAIL,
            "{reason}",
            "check the address, which comes from {origin}, and the network policies",
            fields,
        )
        return
    yield CheckResult(
        "prometheus",
        Status.OK,
        "{url} responds; the address comes from {origin}",
        fields={"url": client.url, "origin": origin},
    )
    found = {dialect: name for dialect, wanted in DIALECTS.items() for name in wanted if name in names}
    if not found:
        yield _explain_no_metrics(client)
        return
    yield CheckResult("metrics", Status.OK, "found GPU metrics of {dialects}", fields={"dialects": ", ".join(found)})
    if "DCGM" in found and "gpusteward" not in found:
        yield from _check_video(names)
    for name in found.values():
        yield from _check_interval(client, name, origin)


def _check_video(names: set[str]) -> Iterator[CheckResult]:
    """Where no video signal is exported, no verdict goes beyond a notice."""
    missing = [wanted[0] for wanted in VIDEO if names.isdisjoint(wanted)]
    if missing:
        fields = {"fields": ", ".join(missing)}
        yield CheckResult(
            "video engines",
            Status.WARN,
            "{fields} are not exported",
            (
                "add them to the CSV of dcgm-exporter: without them work of video engines is not seen, and "
                "idleness leads to a notice at most"
            ),
            fields,
        )


def _explain_no_metrics(client: Client) -> CheckResult:
    """An engine without any series, such as an empty tenant, is not a site without GPUs."""
    try:
        is_empty = not _read(client, "/api/v1/labels", []).get("data")
    except SourceError:
        is_empty = False
    if is_empty:
        return CheckResult(
            "metrics",
            Status.FAIL,
            "it has no series at all",
            (
                "check the address and, where the engine has tenants, prometheus.headers (X-Scope-OrgID): "
                "this tenant is empty"
            ),
        )
    return CheckResult(
        "metrics",
        Status.FAIL,
        "no GPU metrics in the last hour",
        ("have it scrape the agents (or dcgm-exporter) with a ServiceMonitor or the annotation prometheus.io/scrape"),
    )


def _read_names(client: Client) -> set[str]:
    """The GPU metrics that it has. Raises SourceError."""
    wanted = [name for names in (*DIALECTS.values(), *VIDEO) for name in names]
    matches = [("match[]", f'{{__name__=~"{"|".join(wanted)}"}}')]
    data = _read(client, "/api/v1/label/__name__/values", matches).get("data")
    return {str(name) for name in data} if isinstance(data, list) else set()


def _check_interval(client: Client, name: str, origin: str | Message) -> Iterator[CheckResult]:
    """From the number of samples that `up` has for the target of one series."""
    try:
        sample = _query(client, f"topk(1, {name})")
        labels = {key: str(value) for key, value in get_object(sample, "metric").items() if key in ("job", "instance")}
        if not sample:
            yield CheckResult(
                "metrics",
                Status.WARN,
                "it has GPU metric names, but no samples from the last minutes",
                "restore the exporters that are down; see its /targets page",
            )
            return
        selector = ", ".join(f"{key}={_literal(value)}" for key, value in labels.items())
        seen = _value(_query(client, f"count_over_time(up{{{selector}}}[{LOOKBACK_SECONDS}s])"))
    except SourceError as error:
        fields = {"reason": error, "origin": origin}
        yield CheckResult(
            "scrape interval",
            Status.WARN,
            "{reason}",
            "check the address, which comes from {origin}, and the network policies",
            fields,
        )
        return
    if seen is not None and seen > 1:
        yield _describe_interval(labels.get("job", "?"), LOOKBACK_SECONDS / seen, is_profiling=name in PROFILING)


def _describe_interval(job: str, seconds: float, *, is_profiling: bool) -> CheckResult:
    fields = {"job": job, "seconds": seconds, "collected": DCGM_INTERVAL_SECONDS}
    if is_profiling and seconds > PROFILING_SECONDS:
        return CheckResult(
            "scrape interval",
            Status.WARN,
            "job {job} is scraped every {seconds:.0f} s",
            (
                "DCGM averages profiling fields over {collected:.0f} s, and a scrape that is not clearly "
                "sooner can skip one: set scrape_interval of that job to 15s, as dcgm-exporter's own "
                "ServiceMonitor does, or dcgm-exporter's -c and judge.proof.dcgm_interval_seconds to twice "
                "the scrape interval; until then idleness leads to a notice at most"
            ),
            fields,
        )
    if is_profiling:
        return CheckResult(
            "scrape interval",
            Status.OK,
            (
                "job {job} is scraped every {seconds:.0f} s; engine activity proves idleness if DCGM is read "
                "every {collected:.0f} s or less often (judge.proof.dcgm_interval_seconds, dcgm-exporter's "
                "-c)"
            ),
            fields=fields,
        )
    if seconds > MAX_INTERVAL_SECONDS:
        return CheckResult(
            "scrape interval",
            Status.WARN,
            "job {job} is scraped every {seconds:.0f} s",
            "set scrape_interval of that job to 30s or less",
            fields,
        )
    return CheckResult("scrape interval", Status.OK, "job {job} is scraped every {seconds:.0f} s", fields=fields)


def _literal(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _query(client: Client, expression: str) -> Row:
    """The first sample of the result. Raises SourceError."""
    samples = get_objects(get_object(_read(client, "/api/v1/query", [("query", expression)]), "data"), "result")
    return samples[0] if samples else {}


def _value(sample: Row) -> float | None:
    value = sample.get("value")
    try:
        return float(value[1]) if isinstance(value, list) else None
    except (IndexError, TypeError, ValueError):
        return None


def _read(client: Client, path: str, query: Query) -> Row:
    document = as_object(client.read(path, query))
    if document.get("status") != "success":
        raise SourceError(f"{client.url} does not respond like Prometheus")
    return document
