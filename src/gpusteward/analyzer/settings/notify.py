"""`notify.*`, `alertmanager.*`, `outbox.*`, `control.*`: receivers of notifications, times, limits and retries."""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, SecretStr, model_validator

from gpusteward.analyzer.setting_values import (
    NO_SECRET,
    SECTION,
    Secret,
    check_url,
    read_weekly,
    read_zone,
    split_hours,
    split_list,
)
from gpusteward.core.messages import Language
from gpusteward.core.settings import InvalidSettingError

_CHANNEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_FEISHU_PATH = "/open-apis/bot/v2/hook/"
_SLACK_PATH = re.compile(r"/services/T[A-Z0-9]+/B[A-Z0-9]+/[A-Za-z0-9]+/?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")


def _parsed_by(parse: Callable[[str], object]) -> AfterValidator:
    """The text as it is written, once `parse` has accepted it."""

    def check(text: str) -> str:
        parse(text)
        return text.strip()

    return AfterValidator(check)


def _check_channels(channels: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for name, urls in channels.items():
        if not _CHANNEL.fullmatch(name):
            raise InvalidSettingError("a channel name consists of at most 63 letters, digits, `-`, `_` and `.`")
        if not urls_of(urls) or not all(_SCHEME.fullmatch(url) and _has_host(url) for url in urls_of(urls)):
            raise InvalidSettingError(f"channel {name}: expected Feishu webhooks or Apprise URLs, separated by spaces")
    return channels


def _has_host(url: str) -> bool:
    """Checked for webhooks only: in other Apprise URLs the part after the colon may be a token."""
    try:
        parts = urlsplit(url)
        return parts.scheme not in ("http", "https") or bool(parts.hostname and parts.port != 0)
    except ValueError:
        return False


def urls_of(channel: SecretStr) -> tuple[str, ...]:
    """The addresses of a channel."""
    return tuple(channel.get_secret_value().split())


def is_feishu(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in ("http", "https") and parts.path.startswith(_FEISHU_PATH)


def is_slack(url: str) -> bool:
    """An incoming webhook of Slack, or of what takes the same messages under the same path."""
    parts = urlsplit(url)
    return parts.scheme in ("http", "https") and bool(_SLACK_PATH.fullmatch(parts.path))


def is_mail(url: str) -> bool:
    """Of Apprise: to persons, where most others are groups."""
    return urlsplit(url).scheme in ("mailto", "mailtos")


EVERY_OTHER = "*"
"""In `notify.namespaces`: every namespace that is not there."""

Channels = Annotated[dict[str, SecretStr], AfterValidator(_check_channels)]
Names = Annotated[list[str], BeforeValidator(split_list)]
Urls = Annotated[list[Annotated[str, AfterValidator(check_url)]], BeforeValidator(split_list)]


class NotifySettings(BaseModel):
    """Notices to people."""

    model_config = SECTION

    channels: Channels = Field(
        default_factory=dict,
        description="By name: webhooks of Feishu or Slack, or Apprise URLs, separated by spaces. Secret.",
    )
    secrets: dict[str, SecretStr] = Field(
        default_factory=dict,
        description="By channel: the secret of a Feishu bot with signature check. For several bots one secret each, in "
        "the order of their webhooks, separated by spaces. Secret.",
    )
    namespaces: dict[str, str] = Field(
        default_factory=dict,
        description="By namespace: the names of its channels, separated by commas; `*`: those of every other "
        "namespace. Without `*`: all channels that are not named here.",
    )
    languages: dict[str, Language] = Field(
        default_factory=dict, description="By channel: its language, if different from notify.language."
    )
    language: Language = Field(default="zh", description="Language of notices, and of what a language model writes.")
    annotation: bool = Field(
        default=True,
        description="Whether the annotation gpusteward.io/notify of a pod or its owner may choose the channel.",
    )
    idle_minutes: float = Field(default=60, ge=0, le=100_000, description="Idle time before a notice is sent.")
    repeat_hours: float = Field(
        default=24, ge=0.1, le=8760, description="Time until a notice about the same workload is repeated."
    )
    owner_minutes: float = Field(
        default=60,
        ge=0,
        le=100_000,
        description="Minimum time between two notices about a namespace; the next one covers everything found since.",
    )
    merge_above: ClassVar[int] = 5
    """A channel that would get notices about more namespaces at once gets one message for all of them."""
    lost_minutes: ClassVar[float] = 15
    """Time without usage data before an outage is announced: three cycles of the default interval."""
    quiet_hours: Annotated[str, _parsed_by(split_hours)] = Field(
        default="", description="Hours without notices, such as 22:00-08:00. Outages are announced anyway."
    )
    time_zone: Annotated[str, _parsed_by(read_zone)] = Field(
        default="UTC", description="Time zone of quiet hours, digest and times in notices, such as Asia/Shanghai."
    )
    give_back: Names | None = Field(
        default=None,
        description="Channels whose warnings have a link that can also suspend the workload now, where reclaim "
        "enforces and its policy suspends. Default: those that are mail only, since others are groups. Empty: none.",
    )
    digest: Annotated[str, _parsed_by(read_weekly)] = Field(
        default="monday 09:00", description="When the weekly digest is sent. Empty: never."
    )

    def may_give_back(self, channel: str) -> bool:
        """Whether links that were sent to this channel can suspend their workload."""
        if self.give_back is not None:
            return channel in self.give_back
        return channel in self.channels and all(is_mail(url) for url in urls_of(self.channels[channel]))

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        tables: Mapping[str, list[str]] = {f"namespaces.{key}": split_names(v) for key, v in self.namespaces.items()}
        own = {
            "give_back": self.give_back or [],
            "languages": list(self.languages),
            "secrets": list(self.secrets),
        }
        for setting, names in {**own, **tables}.items():
            for name in names:
                if name not in self.channels:
                    raise InvalidSettingError(f"{setting}: there is no channel {name!r} in channels")
        return self

    @model_validator(mode="after")
    def _check_secrets(self) -> Self:
        for name in self.secrets:
            bots, secrets = sum(map(is_feishu, urls_of(self.channels[name]))), len(secrets_of(self, name))
            if bots != secrets:
                raise InvalidSettingError(
                    f"secrets: channel {name} has {secrets} but needs {bots}, one for each of its Feishu "
                    "webhooks; put bots without a secret into a separate channel"
                )
        return self


def secrets_of(notify: NotifySettings, channel: str) -> tuple[str, ...]:
    """One for each Feishu webhook of the channel, in order; empty without signature check."""
    secret = notify.secrets.get(channel)
    return tuple(secret.get_secret_value().split()) if secret else ()


def split_names(text: str) -> list[str]:
    return [name for name in re.split(r"[\s,]+", text) if name]


class AlertmanagerSettings(BaseModel):
    """Alerts pushed to one or several Alertmanagers."""

    model_config = SECTION

    url: Urls = Field(
        default_factory=list,
        description="Addresses of all Alertmanagers, such as http://alertmanager:9093. Empty: no alerts are pushed.",
    )
    username: str = Field(default="", description="For basic authentication.")
    password: SecretStr = Field(default=SecretStr(""), description="For basic authentication.")
    bearer_token: SecretStr = Field(default=SecretStr(""), description="Instead of username and password.")
    timeout: ClassVar[float] = 10
    """Timeout of a call in seconds."""
    idle_minutes: float = Field(default=30, ge=0, le=100_000, description="Idle time before an alert fires.")
    labels: dict[str, str] = Field(
        default_factory=dict,
        description="Additional labels of every alert, such as cluster; and severity, which is info for idle alerts if "
        "it is not here.",
    )
    max_alerts: ClassVar[int] = 5000
    """Maximum number of alerts; the largest workloads take precedence."""

    @model_validator(mode="after")
    def _check_labels(self) -> Self:
        for name in self.labels:
            if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name):
                raise InvalidSettingError(f"labels: {name!r} is not a valid label name")
        return self


class OutboxSettings(BaseModel):
    """Storage and retries of deliveries."""

    model_config = SECTION

    max_pending: ClassVar[int] = 100_000
    """Maximum pending deliveries per kind; more are refused, counted and logged."""
    max_attempts: ClassVar[int] = 100
    """Attempts before a delivery is given up: about eight hours at the longest backoff."""
    max_age_hours: ClassVar[float] = 24
    """Age at which a delivery is given up: what is still true by then is said anew."""
    first_wait_seconds: ClassVar[float] = 1
    """Backoff after the first failure; doubles with each failure."""
    longest_wait_seconds: ClassVar[float] = 300
    """Longest backoff."""
    breaker_failures: ClassVar[int] = 5
    """Failures in a row after which the circuit breaker of a host opens."""
    breaker_seconds: ClassVar[float] = 30
    """How long an open circuit breaker blocks calls."""
    workers: ClassVar[int] = 4
    """Concurrent deliveries."""
    keep_done_hours: ClassVar[float] = 1
    """Retention of completed deliveries."""
    keep_dead_hours: ClassVar[float] = 168
    """Retention of deliveries that were given up."""


class ControlSettings(BaseModel):
    """gpu-oour's webhook for GPUs with low utilization."""

    model_config = SECTION

    enabled: bool = Field(default=False, description="Whether the webhook is called.")
    api_url: Annotated[str, AfterValidator(check_url)] = Field(default="", description="Address of the webhook.")
    timeout: float = Field(default=5, gt=0, le=300, description="Timeout of a call in seconds.")
    secret: Secret = Field(
        default=NO_SECRET,
        description="Signs every call (HMAC-SHA256 in X-Gpusteward-Signature); empty: unsigned. A file is read for "
        "every call.",
    )
    opinion_wait_minutes: ClassVar[float] = 60
    """Where a model is asked (ai.enabled): how long a GPU of low utilization is not called for because the model has no
    opinion on it yet. Then it is called for without one: a model that is down must not silence gpu-oour's webhook."""
