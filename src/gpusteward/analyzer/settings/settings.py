"""`Settings`: every section under its key; and the sections of the program itself: scheduler, logging, server."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, SecretStr, model_validator

from gpusteward.analyzer.explain.settings import AiSettings
from gpusteward.analyzer.judge.gpu_models import GpuDefaults
from gpusteward.analyzer.judge.rules import JudgeSettings, Rules
from gpusteward.analyzer.judge.score import Scoring, Thresholds
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.setting_values import SECTION, check_address, check_level, check_url
from gpusteward.analyzer.settings.auth import AuthSettings
from gpusteward.analyzer.settings.ledger import LedgerSettings, ReportSettings
from gpusteward.analyzer.settings.notify import AlertmanagerSettings, ControlSettings, NotifySettings, OutboxSettings
from gpusteward.analyzer.settings.reclaim import ReclaimSettings
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.memory_limits import DEFAULT_BUDGET_BYTES, SMALLEST_BUDGET_BYTES, MemoryLimits
from gpusteward.analyzer.sources.owners.settings import KubernetesSettings
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.core.settings import InvalidSettingError, ListenAddress, parse_address
from gpusteward.process_memory import read_memory_limit

NEEDS_RESTART = (
    *("server.address", "server.web_config_file", "server.mcp", "logging.format", "kubernetes", "ledger"),
    *("reclaim.mode", "reclaim.namespace", "reclaim.policy_file", "reclaim.signing_key"),
)
"""Used only at the start; a section means all its settings. All others take effect with the next cycle."""


ADVISED: Mapping[str, tuple[float, float, str]] = {
    "scheduler.interval": (10, 86_400, "the engine is queried every interval; results are as old as it"),
    "prometheus.time_window_min": (1, 10_080, "a window needs samples, and the engine reads all of them"),
    "ai.max_tokens": (64, 100_000, "a shorter response is cut off and costs its opinion"),
    "ai.retry_times": (1, 10, "every attempt counts towards ai.budget"),
    "ai.retry_delay": (0, 60, "the wait for a second attempt is at most a minute"),
}
"""Values that gpu-oour accepts and that are unwise are used, and logged once: from, to, reason."""


LATE_INTERVALS = 3
"""A result that is older than so many intervals is late, as in gpu-oour."""
LATE_SECONDS = 26 * 3600.0
"""... and, whatever the interval, one that is older than this: the longest advised interval and two hours."""


class SchedulerSettings(BaseModel):
    """`scheduler.*`: when cycles run."""

    model_config = SECTION

    interval: int = Field(
        default=300,
        ge=1,
        description="Seconds between the starts of two cycles. Shorter than `prometheus.time_window_min` by a scrape "
        "interval or more: else the busy time of gpusteward's agent has gaps between two windows, and proves nothing.",
    )
    max_workers: int = Field(
        default=8,
        ge=1,
        description=f"Concurrent queries. More than {PrometheusSettings.max_concurrent_queries} are never sent: the "
        "engine has other users.",
    )


class LoggingSettings(BaseModel):
    """`logging.*`: the log on standard error."""

    model_config = SECTION

    level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(check_level)] = Field(
        default="info", description="Lowest level that is logged."
    )
    format: str = Field(
        default="text",
        description="json: one object per line. Anything else, also a format string of Python, means plain text.",
    )

    @property
    def as_json(self) -> bool:
        return self.format.strip().lower() == "json"


class ServerSettings(BaseModel):
    """`server.*`: listen address and access."""

    model_config = SECTION

    address: Annotated[str, AfterValidator(check_address)] = Field(
        default="127.0.0.1:8080", description="Listen address: PORT, :PORT, HOST:PORT or [IPV6]:PORT."
    )
    anonymous_reads: Literal["loopback", "always", "never"] = Field(
        default="loopback", description="Where reading needs no token: on this machine only, everywhere, nowhere."
    )
    tokens_file: Path | None = Field(
        default=None,
        description="File with bearer tokens: `viewer|operator|admin: TOKEN`, or a list of tokens per role. If it is "
        "set, every write needs a token, also on loopback.",
    )
    tokens: SecretStr = Field(
        default=SecretStr(""), description="Bearer tokens in the same form, in addition to or instead of the file."
    )
    public_url: Annotated[str, AfterValidator(check_url)] = Field(
        default="",
        description="Address at which people reach this server, such as https://gpusteward.example.com/gpu; links in "
        "notices begin with it. Empty: notices have no links.",
    )
    web_config_file: Path | None = Field(
        default=None,
        description="Web config file of the Prometheus exporter-toolkit: TLS, client certificates, basic "
        "authentication, headers, rate limit. Reloaded when it or a certificate changes.",
    )

    mcp: bool = Field(
        default=False,
        description="Answer questions of assistants at /mcp (Model Context Protocol): they only read, with the tokens, "
        "roles and limits of the API. Needs the extra `mcp`.",
    )
    session_hours: ClassVar[float] = 12
    """How long a browser stays signed in: a working day, and at most as long as its token."""

    @property
    def listen(self) -> ListenAddress:
        """Host and port; an empty host is every address of this machine."""
        return parse_address(self.address)


class MemorySettings(BaseModel):
    """`memory.*`: how much memory the analyzer may take."""

    model_config = SECTION

    budget_bytes: int | None = Field(
        default=None,
        ge=SMALLEST_BUDGET_BYTES,
        description="Memory that the analyzer may take. The limits of responses, pages, series and labels follow from "
        "it. Default: the memory limit of the container; 512 MiB without one.",
    )

    @property
    def limits(self) -> MemoryLimits:
        return MemoryLimits.of_budget(self.budget_bytes or read_memory_limit() or DEFAULT_BUDGET_BYTES)


class Settings(BaseModel):
    """All settings of the analyzer."""

    model_config = SECTION

    prometheus: PrometheusSettings = Field(default_factory=PrometheusSettings)
    scoring: Scoring = Field(default_factory=Scoring)
    thresholds: Thresholds = Field(default_factory=Thresholds)
    gpu_defaults: GpuDefaults = Field(default_factory=GpuDefaults)
    judge: JudgeSettings = Field(default_factory=JudgeSettings)
    scheduler: SchedulerSettings = Field(default_factory=SchedulerSettings)
    control: ControlSettings = Field(default_factory=ControlSettings)
    notify: NotifySettings = Field(default_factory=NotifySettings)
    alertmanager: AlertmanagerSettings = Field(default_factory=AlertmanagerSettings)
    outbox: OutboxSettings = Field(default_factory=OutboxSettings)
    ai: AiSettings = Field(default_factory=AiSettings)
    logging: LoggingSettings = Field(default_factory=LoggingSettings)
    server: ServerSettings = Field(default_factory=ServerSettings)
    auth: AuthSettings = Field(default_factory=AuthSettings)
    memory: MemorySettings = Field(default_factory=MemorySettings)
    kubernetes: KubernetesSettings = Field(default_factory=KubernetesSettings)
    scrape: ScrapeSettings = Field(default_factory=ScrapeSettings)
    ledger: LedgerSettings = Field(default_factory=LedgerSettings)
    prices: PriceSettings = Field(default_factory=PriceSettings)
    reports: ReportSettings = Field(default_factory=ReportSettings)
    reclaim: ReclaimSettings = Field(default_factory=ReclaimSettings)

    @property
    def rules(self) -> Rules:
        """The settings of the rules."""
        return Rules(
            scoring=self.scoring,
            thresholds=self.thresholds,
            gpu_defaults=self.gpu_defaults,
            activity=self.judge.activity,
            proof=self.judge.proof,
            signatures=self.judge.signatures,
            time_zone=self.notify.time_zone,
            cycle_seconds=self.scheduler.interval,
        )

    @property
    def max_result_age_seconds(self) -> float:
        """Older results say nothing about the present, and /metrics no longer exports them."""
        return LATE_INTERVALS * self.scheduler.interval + self.prometheus.window_seconds

    @model_validator(mode="before")
    @classmethod
    def _share_language(cls, values: dict[str, Any]) -> dict[str, Any]:
        """What a model writes is read by those who read notices."""
        ai, notify = values.get("ai", {}), values.get("notify", {})
        if isinstance(ai, dict) and isinstance(notify, dict) and notify.get("language") in ("zh", "en"):
            return {**values, "ai": {**ai, "language": notify["language"]}}
        return values

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.thresholds.contradict:
            raise InvalidSettingError("thresholds must be ordered: idle <= low_utilization <= high")
        if sum(self.scoring.model_dump().values()) <= 0:
            raise InvalidSettingError("at least one weight of scoring must be above 0")
        if self.control.enabled and not self.control.api_url:
            raise InvalidSettingError("control.enabled needs control.api_url")
        if self.server.anonymous_reads == "always" and any(rule.is_limited for rule in self.auth.rules):
            raise InvalidSettingError(
                "auth.rules limits viewers to namespaces, but server.anonymous_reads is always: "
                "everybody could read everything"
            )
        if self.reclaim.mode == "enforce" and self.kubernetes.owners == "never":
            raise InvalidSettingError(
                "reclaim.mode enforce acts only on owners read from Kubernetes, but kubernetes.owners is "
                "never; set it to auto or always, or reclaim.mode to observe"
            )
        if self.reclaim.mode == "enforce" and not self.ledger.enabled:
            raise InvalidSettingError(
                "reclaim.mode enforce keeps the original of what it changes in the ledger, but "
                "ledger.enabled is false; enable the ledger, or set reclaim.mode to observe"
            )
        return self
