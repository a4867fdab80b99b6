"""Every section under its key: the seed's keys, and beside them the new ones."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gpusteward.analyzer.explain.settings import AiSettings
from gpusteward.analyzer.judge.activity import ActivityRule
from gpusteward.analyzer.judge.capacities import GpuDefaults
from gpusteward.analyzer.judge.history import MemoryRule
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.judge.score import Scoring
from gpusteward.analyzer.judge.signatures.table import SignatureRules
from gpusteward.analyzer.judge.states import Thresholds
from gpusteward.analyzer.ledger.settings import LedgerSettings
from gpusteward.analyzer.notify.settings import AlertmanagerSettings, NotifySettings, OutboxSettings
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.settings.sections import (
    ControlSettings,
    KubernetesSettings,
    LoggingSettings,
    SchedulerSettings,
    ServerSettings,
)
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings

NEEDS_RESTART = ("server.address", "logging.format", "kubernetes", "ledger", "outbox.workers")
"""What is built once at the start; a section means all of it. Everything else changes from the next cycle on."""


class JudgeSettings(BaseModel):
    """The rules beside the seed's own."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    activity: ActivityRule = Field(default_factory=ActivityRule)
    signatures: SignatureRules = Field(default_factory=SignatureRules)
    memory: MemoryRule = Field(default_factory=MemoryRule)


class Settings(BaseModel):
    """What a person chose, or the default."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

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
    kubernetes: KubernetesSettings = Field(default_factory=KubernetesSettings)
    scrape: ScrapeSettings = Field(default_factory=ScrapeSettings)
    ledger: LedgerSettings = Field(default_factory=LedgerSettings)
    prices: PriceSettings = Field(default_factory=PriceSettings)

    @property
    def rules(self) -> Rules:
        """What `judge` judges by."""
        return Rules(
            scoring=self.scoring,
            thresholds=self.thresholds,
            gpu_defaults=self.gpu_defaults,
            activity=self.judge.activity,
            signatures=self.judge.signatures,
            memory=self.judge.memory,
        )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.thresholds.contradict:
            raise ValueError("thresholds must rise: idle <= low_utilization <= high")
        if sum(self.scoring.model_dump().values()) <= 0:
            raise ValueError("the weights of scoring add up to nothing: at least one must be above 0")
        if self.control.enabled and not self.control.api_url:
            raise ValueError("control.enabled needs control.api_url")
        return self
