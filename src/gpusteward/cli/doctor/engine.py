"""Prometheus or a compatible engine: its address and credentials, from a flag or from the settings that
`gpusteward serve` would read here; whether it responds, has GPU metrics, and how often it scrapes them.

The analyzer's libraries are loaded only if there are settings to read; flag and environment work without them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpusteward.cli.api.client import Client, Peer, Query, make_client
from gpusteward.cli.doctor.check_results import (
    NO_SCRAPES,
    NO_VIDEO,
    CheckResult,
    CheckStatus,
    fail,
    ok,
    skip,
    warn,
)
from gpusteward.cli.json_access import Row
from gpusteward.cli.output.terminal_text import clean
from gpusteward.cli.program import MissingLibraryError, require_libraries
from gpusteward.core import metrics
from gpusteward.core.errors import ConfigurationError, GpustewardError, SourceError
from gpusteward.core.messages import Message
from gpusteward.logs import configure_logs
from gpusteward.messages.errors import service_discovery

if TYPE_CHECKING:
    from gpusteward.analyzer.settings.effective import EffectiveSettings
    from gpusteward.analyzer.sources.engine.settings import PrometheusSettings

FLAG = "--prometheus-url"
VARIABLES = ("GPUSTEWARD_PROMETHEUS__URL", "PROM_URL")
CONFIG_VARIABLE, DEFAULT_FILE = "GPUSTEWARD_CONFIG", "config.yaml"  # as in `analyzer.settings.file`
EnginesOrReason = tuple[Sequence[Client] | CheckResult, str | Message]
"""A client per engine, or why there is none; where the addresses come from."""
SET_ADDRESS = (
    "no action needed if the analyzer scrapes agents itself; otherwise set --prometheus-url URL, PROM_URL, or "
    "prometheus.url in the settings file of the analyzer (--config FILE)"
)
NO_ENGINE = skip("prometheus", "no Prometheus is configured", SET_ADDRESS)


def find_engines(
    url: str | None, config: Path | None, environ: Mapping[str, str], *, directory: Path, timeout_seconds: float
) -> EnginesOrReason:
    """With the flag alone no settings are read: their credentials are for another address.

    Raises ConfigurationError for an invalid address in the flag.
    """
    if url and config is None:
        return [make_client(Peer.PROMETHEUS, url, timeout_seconds=timeout_seconds)], FLAG
    named = config or environ.get(CONFIG_VARIABLE, "").strip()
    variable = next((name for name in VARIABLES if environ.get(name, "").strip()), "")
    if not named and not variable and not (directory / DEFAULT_FILE).exists():
        return NO_ENGINE, ""
    try:
        return _find_in_settings(url, config, environ, directory=directory, timeout_seconds=timeout_seconds)
    except MissingLibraryError as error:
        if named or not variable:
            return _explain_invalid(error, is_chosen=bool(named)), ""
        return [make_client(Peer.PROMETHEUS, environ[variable].strip(), timeout_seconds=timeout_seconds)], variable
    except (ConfigurationError, SourceError) as error:
        return _explain_invalid(error, is_chosen=bool(named or variable)), ""


def _explain_invalid(error: GpustewardError, *, is_chosen: bool) -> CheckResult:
    """A `config.yaml` that is not chosen by flag or variable may belong to another program."""
    return CheckResult(
        "prometheus",
        CheckStatus.FAIL if is_chosen else CheckStatus.WARN,
        f"the settings of the analyzer are invalid: {error}",
        "correct them; gpusteward settings shows the effective settings, and --prometheus-url URL bypasses them",
    )


def _find_in_settings(
    url: str | None, config: Path | None, environ: Mapping[str, str], *, directory: Path, timeout_seconds: float
) -> EnginesOrReason:
    """Raises MissingLibraryError, ConfigurationError, SourceError."""
    with require_libraries():
        from gpusteward.analyzer.settings.file import SettingsFile
        from gpusteward.analyzer.settings.flags import Flags
    configure_logs(level="warning", as_json=False)
    values = (("prometheus.url", url if "://" in url else f"http://{url}", FLAG),) if url else ()
    effective = SettingsFile(Flags(config, values), environ, directory=directory).effective
    settings = effective.settings.prometheus
    if settings.finds_service:
        return _find_service(effective, environ, timeout_seconds=timeout_seconds)
    if not settings.addresses:
        return NO_ENGINE, ""
    clients = [_make_client(settings.with_url(url), timeout_seconds) for url in settings.addresses]
    origin = effective.origin("prometheus.url")
    return clients, clean(f"{origin.place} line {origin.line}" if origin.line else origin.place)


def _find_service(
    effective: "EffectiveSettings", environ: Mapping[str, str], *, timeout_seconds: float
) -> EnginesOrReason:
    """The engine that the analyzer would find by the labels of its Service. Raises ConfigurationError."""
    from gpusteward.analyzer.sources.engine.found_engine import find_engine_service
    from gpusteward.analyzer.sources.owners.cluster_owners import open_api

    settings = effective.settings
    try:
        service = find_engine_service(open_api(settings.kubernetes, environ), settings.prometheus)
    except SourceError as error:
        return fail("prometheus", str(error), SET_ADDRESS), ""
    client = _make_client(settings.prometheus.with_url(service.url), timeout_seconds)
    return [client], service_discovery.FOUND_BY_LABEL.fill(service=service)


def _make_client(settings: "PrometheusSettings", timeout_seconds: float) -> Client:
    from gpusteward.analyzer.sources.http_settings import make_credentials, make_tls_context, parse_setting_url

    url = parse_setting_url(settings.url, setting="prometheus.url")
    if url.is_tls:
        make_tls_context(settings, section="prometheus")  # for its error text, which names the setting
    return make_client(
        Peer.PROMETHEUS,
        str(url),
        headers=make_credentials(settings, section="prometheus", url=url).headers(),
        timeout_seconds=timeout_seconds,
        ca_file=str(settings.ca_file) if settings.ca_file else None,
    )


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
    check_address = f"check the address, which comes from {origin}, and the network policies"
    try:
        names = _read_names(client)
    except SourceError as error:
        yield fail("prometheus", str(getattr(error, "problem", error)), check_address)
        return
    yield ok("prometheus", f"{client.url} responds; the address comes from {origin}")
    found = {dialect: name for dialect, wanted in DIALECTS.items() for name in wanted if name in names}
    if not found:
        yield _explain_no_metrics(client)
        return
    yield ok("metrics", f"found GPU metrics of {', '.join(found)}")
    missing = [wanted[0] for wanted in VIDEO if names.isdisjoint(wanted)]
    if missing and "DCGM" in found and "gpusteward" not in found:
        yield warn("video engines", f"{', '.join(missing)} are not exported", NO_VIDEO)
    for name in found.values():
        yield from _check_interval(client, name, check_address)


def _explain_no_metrics(client: Client) -> CheckResult:
    """An engine without any series, such as an empty tenant, is not a site without GPUs."""
    try:
        is_empty = not _read(client, "/api/v1/labels", []).get("data")
    except SourceError:
        is_empty = False
    if is_empty:
        return fail(
            "metrics",
            "it has no series at all",
            "check the address and, where the engine has tenants, prometheus.headers (X-Scope-OrgID): "
            "this tenant is empty",
        )
    return fail("metrics", "no GPU metrics in the last hour", NO_SCRAPES)


def _read_names(client: Client) -> set[str]:
    """The GPU metrics that it has. Raises SourceError."""
    wanted = [name for names in (*DIALECTS.values(), *VIDEO) for name in names]
    matches = [("match[]", f'{{__name__=~"{"|".join(wanted)}"}}')]
    data = _read(client, "/api/v1/label/__name__/values", matches).get("data")
    return {str(name) for name in data} if isinstance(data, list) else set()


def _check_interval(client: Client, name: str, check_address: str) -> Iterator[CheckResult]:
    """From the number of samples that `up` has for the target of one series."""
    try:
        sample = _query(client, f"topk(1, {name})")
        labels = {key: str(value) for key, value in sample.object("metric").items() if key in ("job", "instance")}
        if not sample:
            yield warn(
                "metrics",
                "it has GPU metric names, but no samples from the last minutes",
                "restore the exporters that are down; see its /targets page",
            )
            return
        selector = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in labels.items())
        seen = _value(_query(client, f"count_over_time(up{{{selector}}}[{LOOKBACK_SECONDS}s])"))
    except SourceError as error:
        yield warn("scrape interval", str(error), check_address)
        return
    if seen is not None and seen > 1:
        yield _describe_interval(labels.get("job", "?"), LOOKBACK_SECONDS / seen, is_profiling=name in PROFILING)


def _describe_interval(job: str, seconds: float, *, is_profiling: bool) -> CheckResult:
    scraped = f"job {job} is scraped every {seconds:.0f} s"
    if is_profiling and seconds > PROFILING_SECONDS:
        return warn(
            "scrape interval",
            scraped,
            f"DCGM averages profiling fields over {DCGM_INTERVAL_SECONDS:.0f} s, and a scrape that is not clearly "
            "sooner can skip one: set scrape_interval of that job to 15s, as dcgm-exporter's own "
            "ServiceMonitor does, or dcgm-exporter's -c and judge.proof.dcgm_interval_seconds to twice "
            "the scrape interval; until then idleness leads to a notice at most",
        )
    if is_profiling:
        return ok(
            "scrape interval",
            f"{scraped}; engine activity proves idleness if DCGM is read every {DCGM_INTERVAL_SECONDS:.0f} s or less "
            "often (judge.proof.dcgm_interval_seconds, dcgm-exporter's -c)",
        )
    if seconds > MAX_INTERVAL_SECONDS:
        return warn("scrape interval", scraped, "set scrape_interval of that job to 30s or less")
    return ok("scrape interval", scraped)


def _query(client: Client, expression: str) -> Row:
    """The first sample of the result. Raises SourceError."""
    samples = _read(client, "/api/v1/query", [("query", expression)]).object("data").objects("result")
    return samples[0] if samples else Row()


def _value(sample: Row) -> float | None:
    value = sample.get("value")
    try:
        return float(value[1]) if isinstance(value, list) else None
    except (IndexError, TypeError, ValueError):
        return None


def _read(client: Client, path: str, query: Query) -> Row:
    document = client.read(path, query)
    if document.get("status") != "success":
        raise SourceError(f"{client.url} does not respond like Prometheus")
    return document
