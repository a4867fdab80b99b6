"""Where Prometheus is and who we are to it: as a flag says, or as `gpusteward serve` would read it from here.

The analyzer's libraries are loaded only where there is something of its to read; without them flag and environment do.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gpusteward.cli.api.client import Client, make_client
from gpusteward.cli.api.errors import Peer
from gpusteward.cli.doctor.findings import Finding, Status
from gpusteward.cli.extras import needing
from gpusteward.cli.output.terminal_text import clean
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.messages import Message
from gpusteward.logs import configure_logs

if TYPE_CHECKING:
    from gpusteward.analyzer.settings.reading import Effective
    from gpusteward.analyzer.sources.engine.settings import PrometheusSettings

FLAG = "--prometheus-url"
VARIABLES = ("GPUSTEWARD_PROMETHEUS__URL", "PROM_URL")
CONFIG_VARIABLE, DEFAULT_FILE = "GPUSTEWARD_CONFIG", "config.yaml"  # as `analyzer.settings.file` has them
Found = tuple[Client | Finding, str]  # how to ask it, or why that is not possible; where the address is from

NOT_NAMED = Message("no Prometheus was named", "未指定 Prometheus")
NAME_IT = Message(
    "nothing if agents are scraped directly; otherwise --prometheus-url URL, PROM_URL, or prometheus.url in the"
    " settings file of the analyzer (--config FILE)",
    "若直接抓取 agent 则无需处理；否则请指定 --prometheus-url URL、PROM_URL，或在 analyzer 的设置文件"
    "（--config FILE）中设置 prometheus.url",
)
UNUSABLE = Message("the settings of the analyzer cannot be used: {reason}", "analyzer 的设置无法使用：{reason}")
MEND_SETTINGS = Message(
    "mend it there: gpusteward settings shows what is in force; --prometheus-url URL asks without them",
    "请在该处修正：gpusteward settings 显示生效的设置；--prometheus-url URL 可绕过这些设置",
)


def find_engine(
    url: str | None, config: Path | None, environ: Mapping[str, str], *, directory: Path, timeout_seconds: float
) -> Found:
    """A flag stands alone unless a file is named beside it: credentials go only where they were written for.

    Raises ConfigurationError for a flag that is no address.
    """
    if url and config is None:
        return make_client(Peer.PROMETHEUS, url, timeout_seconds=timeout_seconds), FLAG
    named = config or environ.get(CONFIG_VARIABLE, "").strip()
    variable = next((name for name in VARIABLES if environ.get(name, "").strip()), "")
    if not named and not variable and not (directory / DEFAULT_FILE).exists():
        return Finding("prometheus", Status.SKIP, NOT_NAMED, NAME_IT), ""
    try:
        return _ask_settings(url, config, environ, directory=directory, timeout_seconds=timeout_seconds)
    except _MissingError as error:
        if named or not variable:
            return _refuse(str(error), is_meant=bool(named)), ""
        return make_client(Peer.PROMETHEUS, environ[variable].strip(), timeout_seconds=timeout_seconds), variable
    except (ConfigurationError, SourceError) as error:
        return _refuse(str(error), is_meant=bool(named or variable)), ""


class _MissingError(ConfigurationError):
    """A library of the analyzer is not installed."""


def _refuse(reason: str, *, is_meant: bool) -> Finding:
    """A `config.yaml` that merely lies here may be another program's."""
    status = Status.FAIL if is_meant else Status.WARN
    return Finding("prometheus", status, UNUSABLE, MEND_SETTINGS, {"reason": clean(reason)})


def _ask_settings(
    url: str | None, config: Path | None, environ: Mapping[str, str], *, directory: Path, timeout_seconds: float
) -> Found:
    """Raises _MissingError, ConfigurationError, SourceError."""
    effective = _read_settings(url, config, environ, directory=directory)
    settings = effective.settings.prometheus
    if not settings.url:
        return Finding("prometheus", Status.SKIP, NOT_NAMED, NAME_IT), ""
    return _make_client(settings, timeout_seconds), clean(effective.origin("prometheus.url").place)


def _read_settings(url: str | None, config: Path | None, environ: Mapping[str, str], *, directory: Path) -> "Effective":
    try:
        with needing("cli"):
            from gpusteward.analyzer.settings.file import SettingsFile
            from gpusteward.analyzer.settings.flags import Flags
    except ConfigurationError as error:
        raise _MissingError(str(error)) from error
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
