"""Addresses and credentials of the engines: from a flag, or from the settings that `gpusteward serve` would read here.

The analyzer's libraries are loaded only if there are settings to read; flag and environment work without them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpusteward.cli.api.client import Client, make_client
from gpusteward.cli.api.errors import Peer
from gpusteward.cli.doctor.check_results import CheckResult, Status
from gpusteward.cli.libraries import MissingLibraryError, require_libraries
from gpusteward.cli.output.terminal_text import clean
from gpusteward.core.errors import ConfigurationError, GpustewardError, SourceError
from gpusteward.core.messages import Message
from gpusteward.core.settings import Origin
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
NO_ENGINE = CheckResult(
    "prometheus",
    Status.SKIP,
    "no Prometheus is configured",
    "no action needed if the analyzer scrapes agents itself; otherwise set --prometheus-url URL, PROM_URL, or "
    "prometheus.url in the settings file of the analyzer (--config FILE)",
)


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
    status = Status.FAIL if is_chosen else Status.WARN
    return CheckResult(
        "prometheus",
        status,
        "the settings of the analyzer are invalid: {reason}",
        "correct them; gpusteward settings shows the effective settings, and --prometheus-url URL bypasses them",
        {"reason": error},
    )


def _find_in_settings(
    url: str | None, config: Path | None, environ: Mapping[str, str], *, directory: Path, timeout_seconds: float
) -> EnginesOrReason:
    """Raises MissingLibraryError, ConfigurationError, SourceError."""
    effective = _read_settings(url, config, environ, directory=directory)
    settings = effective.settings.prometheus
    if settings.finds_service:
        return _find_service(effective, environ, timeout_seconds=timeout_seconds)
    if not settings.addresses:
        return NO_ENGINE, ""
    clients = [_make_client(settings.with_url(url), timeout_seconds) for url in settings.addresses]
    origin = effective.origin("prometheus.url" if settings.url else "prometheus.urls")
    return clients, clean(_name_origin(origin))


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
        fields = {"reason": error.as_message()}
        return CheckResult(
            "prometheus",
            Status.FAIL,
            "{reason}",
            (
                "no action needed if the analyzer scrapes agents itself; otherwise set --prometheus-url URL, "
                "PROM_URL, or prometheus.url in the settings file of the analyzer (--config FILE)"
            ),
            fields,
        ), ""
    client = _make_client(settings.prometheus.with_url(service.url), timeout_seconds)
    return [client], service_discovery.FOUND_BY_LABEL.fill(service=service)


def _name_origin(origin: Origin) -> str:
    return f"{origin.place} line {origin.line}" if origin.line else origin.place


def _read_settings(
    url: str | None, config: Path | None, environ: Mapping[str, str], *, directory: Path
) -> "EffectiveSettings":
    with require_libraries():
        from gpusteward.analyzer.settings.file import SettingsFile
        from gpusteward.analyzer.settings.flags import Flags
    configure_logs(level="warning", as_json=False)
    values = (("prometheus.url", url if "://" in url else f"http://{url}", FLAG),) if url else ()
    return SettingsFile(Flags(config, values), environ, directory=directory).effective


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
