"""The settings section `prometheus`: gpu-oour's keys under their names, and further ones for large sites."""

import re
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator

from gpusteward.analyzer.setting_values import NO_SECRET, Secret, is_given
from gpusteward.analyzer.sources.usage.label_mapping import ClusterChoice
from gpusteward.analyzer.sources.usage.selectors import parse_condition
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.settings import InvalidSettingError, parse_duration
from gpusteward.messages.errors import service_discovery

DEFAULT_CONDITION = '{pod!=""}'


def _check_step(text: str) -> str:
    """Prometheus also accepts a number of seconds."""
    text = f"{text.strip()}s" if text.strip().replace(".", "", 1).isdecimal() else text
    parse_duration(text)
    return text


def _join_list(value: object) -> object:
    """A list of addresses as one text with blanks between them."""
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value


def _check_urls(text: str) -> str:
    addresses = dict.fromkeys(each.rstrip("/") for each in text.split())
    if not all(re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", each) for each in addresses):
        raise InvalidSettingError("write a URL without query: http://HOST:PORT/PREFIX or https://HOST/PREFIX")
    return " ".join(addresses)


def _check_condition(text: str) -> str:
    try:
        parse_condition(text)
    except ConfigurationError as error:
        raise InvalidSettingError(error.as_message()) from None
    return text


def _check_namespace(text: str) -> str:
    if text and not re.fullmatch("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", text):
        raise ValueError("write the name of a namespace, such as monitoring")
    return text


def _check_label(text: str) -> str:
    if text and not re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", text):
        raise ValueError("write the name of a label, such as cluster")
    return text


class PrometheusSettings(BaseModel):
    """The engine that usage is read from."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    url: Annotated[str, BeforeValidator(_join_list), AfterValidator(_check_urls)] = Field(
        default="",
        description="Address of the engine, with the path prefix of Mimir, Thanos or a proxy. Several engines, each "
        "with a part of the site: their addresses in a list, or with blanks between them; read at the same time, with "
        "the same credentials, and joined. Replicas with the same data belong behind one address. "
        "Empty: the analyzer scrapes exporters itself, see scrape.",
    )
    service_selector: str = Field(
        default="",
        max_length=1000,
        description="Where url is empty: labels of the engine's Service in this cluster, such as "
        "app.kubernetes.io/name=prometheus. With no or several such Services nothing is read, and the reason names "
        "them. /api/v1/sources names the one that is used.",
    )
    service_namespace: Annotated[str, AfterValidator(_check_namespace)] = Field(
        default="",
        description="Namespace of that Service; empty: any. Whoever may create Services there chooses what is read.",
    )
    service_port: str = Field(
        default="", max_length=63, description="Name or number of its port; needed if it has several."
    )
    query_condition: Annotated[str, AfterValidator(_check_condition)] = Field(
        default=DEFAULT_CONDITION,
        description="Which series to read. The default means: held by a pod, whatever the label is called at the site.",
    )
    clusters: list[str] = Field(
        default_factory=list,
        description="Clusters to read, where the engine has several; empty: all. Series without a cluster label are "
        "then left out.",
    )
    cluster_label: Annotated[str, AfterValidator(_check_label)] = Field(
        default="",
        description="Label that names the cluster of a series; empty: cluster, k8s_cluster, cluster_id, "
        "k8s_cluster_name, cluster_name or ClusterName, where the "
        "series have one.",
    )
    time_window_min: float = Field(default=10, gt=0, le=44_640, description="Length of the judged window in minutes.")
    step: Annotated[str, AfterValidator(_check_step)] = Field(
        default="30s", description="Time between two points of a chart."
    )
    username: str = Field(default="", description="User name for basic authentication.")
    password: Secret = Field(
        default=NO_SECRET, description="Password for basic authentication. A file is read at every start."
    )
    bearer_token: Secret = Field(default=NO_SECRET, description="Bearer token. A file is read again when it changes.")
    ca_file: Path | None = Field(default=None, description="CA certificates to verify the engine's certificate with.")
    headers: dict[str, SecretStr] = Field(
        default_factory=dict, description="More headers for every request, such as X-Scope-OrgID for a Mimir tenant."
    )
    accept_encoding: ClassVar[str] = "identity"
    """Accepted compression; above about 0.2 Gbit/s it costs more time than it saves."""
    timeout_seconds: float = Field(default=60, gt=0, le=3600, description="Timeout of one query.")
    connect_timeout_seconds: ClassVar[float] = 5
    """Timeout for connecting."""
    retries: ClassVar[int] = 2
    """Retries after a failed connection, a 5xx or a 429: enough for a connection that was lost; an engine that is down
    is asked again by the next cycle."""
    retry_delay_seconds: ClassVar[float] = 0.5
    """Delay before the first retry; doubles each time."""
    max_concurrent_queries: ClassVar[int] = 2
    """Queries the engine computes at once, while one more response may be read. The engine has other users: Prometheus
    computes 20 at once by default, for all of them."""
    series_limit: ClassVar[int] = 100_000
    """Series one query may select; larger queries are split by node. Lowered by itself where an engine refuses it."""
    relearn_cycles: ClassVar[int] = 12
    """Number of cycles after which metric names and labels are discovered again."""
    scrape_interval_seconds: float | None = Field(
        default=None, gt=0, le=3600, description="Scrape interval; by default it is determined from the data."
    )
    use_recording_rules: ClassVar[bool] = True
    """Read windows from recording rules where the engine has them."""

    @model_validator(mode="after")
    def _check_service(self) -> Self:
        sends_credentials = any((self.username, is_given(self.bearer_token), self.headers))
        if self.finds_service and sends_credentials and not self.service_namespace:
            raise InvalidSettingError(service_discovery.CREDENTIALS)
        return self

    @property
    def finds_service(self) -> bool:
        """Whether the engine is found by the labels of its Service."""
        return bool(self.service_selector) and not self.addresses

    @property
    def addresses(self) -> tuple[str, ...]:
        """The address of every engine; empty if usage is scraped."""
        return tuple(self.url.split())

    def with_url(self, url: str) -> "PrometheusSettings":
        """The settings of one of the engines."""
        return self.model_copy(update={"url": url})

    @property
    def cluster_choice(self) -> ClusterChoice:
        return ClusterChoice(tuple(self.clusters), self.cluster_label)

    @property
    def window_seconds(self) -> float:
        return self.time_window_min * 60

    @property
    def step_seconds(self) -> float:
        return parse_duration(self.step)
