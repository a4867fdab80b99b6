"""Settings of the embedded scraper (`scrape.*`), and how a target is written."""

import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from gpusteward.analyzer.setting_values import NO_SECRET, Secret
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.settings import InvalidSettingError
from gpusteward.http.urls import DEFAULT_PORTS, HttpUrl
from gpusteward.messages.errors import source_errors as messages

DEFAULT_SELECTOR = "app.kubernetes.io/name=gpusteward,app.kubernetes.io/component=agent"
DEFAULT_PORT = 9400
DEFAULT_PATH = "/metrics"
_TARGET = re.compile(
    r"(?:(?P<scheme>https?)://)?(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?(?P<path>/\S*)?"
)


def parse_target(text: str, *, scheme: str = "http", port: int = DEFAULT_PORT, path: str = DEFAULT_PATH) -> HttpUrl:
    """`node-7`, `node-7:9400` or `https://node-7/metrics`. Raises ConfigurationError.

    The arguments are defaults for a host; a URL without a port means that of its scheme. Credentials are not allowed:
    addresses of targets are shown to every reader of the API.
    """
    match = _TARGET.fullmatch(text.strip())
    if match is None or not 0 < int(match["port"] or 1) <= 65535:
        shown = text.rpartition("@")[2][:100]  # before an @ there may be a password
        raise ConfigurationError(messages.TARGET_INVALID, target=shown)
    chosen = match["scheme"] or scheme
    default_port = DEFAULT_PORTS[chosen] if match["scheme"] else port
    return HttpUrl(chosen, match["host"].strip("[]"), int(match["port"] or default_port), match["path"] or path)


def _check_targets(targets: list[str]) -> list[str]:
    for text in targets:
        try:
            parse_target(text)
        except ConfigurationError as error:
            raise InvalidSettingError(error.as_message()) from None
    return targets


class ScrapeSettings(BaseModel):
    """Exporters that are scraped if `prometheus.url` is not set."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    targets: Annotated[list[str], AfterValidator(_check_targets)] = Field(
        default_factory=list,
        description="Targets to scrape: HOST, HOST:PORT or a URL; the default port of a host is scrape.port.",
    )
    targets_file: Path | None = Field(
        default=None,
        description="File with targets in Prometheus' file_sd format (JSON or YAML); read again when it changes.",
    )
    selector: str = Field(
        default=DEFAULT_SELECTOR,
        description="Label selector of the pods of this cluster that are exporters, where there are no targets and no "
        "file. Empty: no pods.",
    )
    namespace: str = Field(
        default="", description="Namespace of those pods; empty: the one that the analyzer itself runs in."
    )
    namespaces: list[str] = Field(
        default_factory=list,
        description="Further namespaces of those pods; `*`: all. Whoever may create pods in a listed namespace can "
        "report GPUs. Credentials are sent only to namespaces that are named here or above.",
    )
    any_node_targets: Annotated[list[str], AfterValidator(_check_targets)] = Field(
        default_factory=list,
        description="Those of the targets that report several nodes, such as HAMi's scheduler; all others may report "
        "one node only.",
    )
    port: int = Field(
        default=9400,
        ge=1,
        le=65535,
        description="Port of pods without a port named `metrics`, and of hosts without a port.",
    )
    scheme: Literal["http", "https"] = Field(
        default="http", description="Scheme of targets that are not written as a URL."
    )
    interval: float = Field(default=15, ge=1, le=300, description="Seconds between two scrapes of a target.")
    timeout: float = Field(
        default=10, gt=0, le=120, description="Longest duration of a scrape in seconds, connecting included."
    )
    keep_windows: ClassVar[int] = 6
    """Samples are kept for charts for so many judged windows: an hour by default, as their memory is limited."""
    max_concurrent: ClassVar[int] = 100
    """Largest number of concurrent scrapes."""
    target_limit: ClassVar[int] = 5_000
    """Largest number of targets; further ones are left out."""
    username: str = Field(default="", description="User name for basic authentication.")
    password: Secret = Field(
        default=NO_SECRET, description="Password for basic authentication. A file is read at every start."
    )
    bearer_token: Secret = Field(default=NO_SECRET, description="Bearer token. A file is read again when it changes.")
    headers: dict[str, SecretStr] = Field(default_factory=dict, description="Additional headers of every scrape.")
    ca_file: Path | None = Field(default=None, description="CA certificates for those of the targets.")
    server_name: str = Field(
        default="", description="Name in the certificates of targets that are scraped by IP address."
    )
