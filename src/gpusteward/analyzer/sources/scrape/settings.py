"""Settings of the embedded scraper (`scrape.*`), and how a target is written."""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from gpusteward.core.errors import ConfigurationError
from gpusteward.http.urls import DEFAULT_PORTS, HttpUrl
from gpusteward.messages import source_errors as messages

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
            raise ValueError(str(error)) from None
    return targets


class ScrapeSettings(BaseModel):
    """Exporters that are scraped where no `prometheus.url` is set."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    targets: Annotated[list[str], AfterValidator(_check_targets)] = Field(
        default_factory=list, description="Whom to scrape: HOST, HOST:PORT or a URL; without a port it is 9400."
    )
    targets_file: Path | None = Field(
        default=None, description="Targets in a file of Prometheus' file_sd form (JSON or YAML); read when it changes."
    )
    kubernetes: Literal["auto", "never"] = Field(
        default="auto", description="auto: without targets and file, the exporters among the pods of this cluster."
    )
    selector: str = Field(default=DEFAULT_SELECTOR, description="Labels of the pods that are exporters.")
    namespace: str = Field(default="", description="Namespace of those pods; empty: all.")
    port: int = Field(
        default=9400, ge=1, le=65535, description="Port of pods that name no port `metrics`, and of bare hosts."
    )
    scheme: Literal["http", "https"] = Field(
        default="http", description="How to speak to targets that are not written as a URL."
    )
    interval: float = Field(default=15, ge=1, le=300, description="Seconds between two scrapes of a target.")
    timeout: float = Field(default=10, gt=0, le=120, description="Seconds a scrape may take, connecting included.")
    keep_minutes: float = Field(
        default=60, gt=0, le=1440, description="Minutes kept for charts; at least the judged window is kept."
    )
    max_concurrent: int = Field(default=100, ge=1, le=1000, description="Scrapes under way at once.")
    target_limit: int = Field(default=5_000, ge=1, description="Targets at most; further ones are left out.")
    series_limit: int = Field(default=1_000_000, ge=100, description="Series kept of all targets together.")
    target_series_limit: int = Field(default=20_000, ge=10, description="Series kept of one target.")
    target_label_limit_bytes: int = Field(
        default=16 * 1024 * 1024, ge=1024, description="Names and labels kept of one target, as its page writes them."
    )
    page_limit_bytes: int = Field(
        default=32 * 1024 * 1024, ge=1024, description="Largest page that is read, unpacked and as it is sent."
    )
    username: str = Field(default="", description="User name for basic authentication.")
    password: SecretStr = Field(default=SecretStr(""), description="Password for basic authentication.")
    password_file: Path | None = Field(default=None, description="File with that password, read at every start.")
    bearer_token: SecretStr = Field(default=SecretStr(""), description="Bearer token.")
    bearer_token_file: Path | None = Field(
        default=None, description="File with the bearer token; read again when it changes."
    )
    headers: dict[str, SecretStr] = Field(default_factory=dict, description="More headers for every scrape.")
    ca_file: Path | None = Field(
        default=None, description="Certificates that those of the targets are checked against."
    )
    server_name: str = Field(
        default="", description="Name in the certificates of the targets, where they are scraped by address."
    )
