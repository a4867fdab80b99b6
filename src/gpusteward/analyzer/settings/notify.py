"""`notify.*`, `alertmanager.*`, `outbox.*`: whom to tell, when, and how long to try."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, SecretStr, model_validator

from gpusteward.analyzer.setting_values import SECTION, check_url, read_weekly, read_zone, split_hours

Language = Literal["zh", "en"]

_CHANNEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_FEISHU_PATH = "/open-apis/bot/v2/hook/"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")


def _check_hours(text: str) -> str:
    split_hours(text)
    return text.strip()


def _check_zone(text: str) -> str:
    read_zone(text)
    return text.strip()


def _check_weekly(text: str) -> str:
    read_weekly(text)
    return text.strip()


def _split_list(value: object) -> object:
    return [part for part in re.split(r"[\s,]+", value) if part] if isinstance(value, str) else value


def _check_channels(channels: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for name, urls in channels.items():
        if not _CHANNEL.fullmatch(name):
            raise ValueError("a channel's name has letters, digits, `-`, `_` and `.`, at most 63")
        if not urls_of(urls) or not all(_SCHEME.fullmatch(url) and _has_host(url) for url in urls_of(urls)):
            raise ValueError(f"channel {name}: write an Apprise URL or a Feishu webhook, several with spaces between")
    return channels


def _has_host(url: str) -> bool:
    """Of a webhook; in other addresses of Apprise what looks like a port may be a token."""
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


Channels = Annotated[dict[str, SecretStr], AfterValidator(_check_channels)]
Names = Annotated[list[str], BeforeValidator(_split_list)]
Urls = Annotated[list[Annotated[str, AfterValidator(check_url)]], BeforeValidator(_split_list)]


class NotifySettings(BaseModel):
    """Notices to people."""

    model_config = SECTION

    channels: Channels = Field(
        default_factory=dict,
        description="By name: a Feishu webhook or any Apprise URL; several with spaces between. Kept secret.",
    )
    secrets: dict[str, SecretStr] = Field(
        default_factory=dict,
        description="By channel: the secret of a Feishu bot that checks signatures; of several bots, one each in the "
        "order of their webhooks, with spaces between. Kept secret.",
    )
    default: Names = Field(
        default_factory=list,
        description="Channels told about every namespace without one of its own; empty: every channel that "
        "notify.namespaces does not name.",
    )
    namespaces: dict[str, str] = Field(
        default_factory=dict, description="By namespace: the names of its channels, with commas between."
    )
    languages: dict[str, Language] = Field(default_factory=dict, description="By channel: another language.")
    language: Language = Field(default="zh", description="The language of notices.")
    annotation: bool = Field(
        default=True,
        description="Whether gpusteward.io/notify on a pod or its owner may name the channel that is told.",
    )
    idle_minutes: float = Field(default=60, ge=0, le=100_000, description="How long idle before anybody is told.")
    repeat_hours: float = Field(
        default=24, ge=0.1, le=8760, description="How soon the same workload is told about again."
    )
    owner_minutes: float = Field(
        default=60,
        ge=0,
        le=100_000,
        description="Time between two messages of a kind to one owner; what is found meanwhile goes into the next.",
    )
    merge_above: int = Field(
        default=5,
        ge=1,
        le=1000,
        description="When one channel would get messages about more namespaces than this at once, it gets one.",
    )
    lost_minutes: float = Field(
        default=15, ge=0, le=100_000, description="How long nothing could be read before anybody is told."
    )
    quiet_hours: Annotated[str, AfterValidator(_check_hours)] = Field(
        default="", description="Times without notices, such as 22:00-08:00; a lost source is told all the same."
    )
    time_zone: Annotated[str, AfterValidator(_check_zone)] = Field(
        default="UTC", description="The zone of quiet hours, digest and times in texts, such as Asia/Shanghai."
    )
    digest: Annotated[str, AfterValidator(_check_weekly)] = Field(
        default="monday 09:00", description="When the digest of the week is sent; empty: never."
    )

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        tables: Mapping[str, list[str]] = {f"namespaces.{key}": split_names(v) for key, v in self.namespaces.items()}
        own = {"default": self.default, "languages": list(self.languages), "secrets": list(self.secrets)}
        for place, names in {**own, **tables}.items():
            for name in names:
                if name not in self.channels:
                    raise ValueError(f"{place}: there is no channel {name!r} in channels")
        return self

    @model_validator(mode="after")
    def _check_secrets(self) -> Self:
        for name in self.secrets:
            bots, secrets = sum(map(is_feishu, urls_of(self.channels[name]))), len(secrets_of(self, name))
            if bots != secrets:
                raise ValueError(
                    f"secrets: channel {name} has {secrets}, and needs {bots}: one for each of its Feishu webhooks; "
                    "write bots without a secret into a channel of their own"
                )
        return self


def secrets_of(notify: NotifySettings, channel: str) -> tuple[str, ...]:
    """One for each Feishu webhook of a channel, in their order; none where nothing is signed."""
    secret = notify.secrets.get(channel)
    return tuple(secret.get_secret_value().split()) if secret else ()


def split_names(text: str) -> list[str]:
    return [name for name in re.split(r"[\s,]+", text) if name]


class AlertmanagerSettings(BaseModel):
    """Alerts pushed to one or several Alertmanagers."""

    model_config = SECTION

    url: Urls = Field(
        default_factory=list,
        description="Where they are, such as http://alertmanager:9093; of a cluster, all members. Empty: none is told.",
    )
    username: str = Field(default="", description="For basic authentication.")
    password: SecretStr = Field(default=SecretStr(""), description="For basic authentication.")
    bearer_token: SecretStr = Field(default=SecretStr(""), description="In place of a user's name and password.")
    timeout: float = Field(default=10, gt=0, le=300, description="Seconds a call may take.")
    idle_minutes: float = Field(default=30, ge=0, le=100_000, description="How long idle before it is an alert.")
    severity: str = Field(default="info", min_length=1, max_length=64, description="The label severity of idleness.")
    labels: dict[str, str] = Field(default_factory=dict, description="Further labels of every alert, such as cluster.")
    max_alerts: int = Field(
        default=5000, ge=1, le=100_000, description="At most so many workloads; the largest come first."
    )

    @model_validator(mode="after")
    def _check_labels(self) -> Self:
        for name in self.labels:
            if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name):
                raise ValueError(f"labels: {name!r} is no name of a label")
        return self


class OutboxSettings(BaseModel):
    """How deliveries are tried."""

    model_config = SECTION

    max_pending: int = Field(
        default=100_000, ge=10, le=10_000_000, description="More than this of a kind is refused, counted and said."
    )
    max_attempts: int = Field(default=100, ge=1, le=100_000, description="Attempts before a delivery is given up.")
    max_age_hours: float = Field(default=24, gt=0, le=8760, description="Age at which a delivery is given up.")
    first_wait_seconds: float = Field(default=1, gt=0, le=3600, description="Wait after the first failure; it doubles.")
    longest_wait_seconds: float = Field(default=300, gt=0, le=86_400, description="The longest wait between attempts.")
    breaker_failures: int = Field(
        default=5, ge=1, le=1000, description="Failures of a host in a row after which it is left alone for a while."
    )
    breaker_seconds: float = Field(default=30, gt=0, le=86_400, description="How long it is left alone.")
    workers: int = Field(default=4, ge=1, le=32, description="Deliveries under way at once.")
    keep_done_hours: float = Field(default=1, gt=0, le=8760, description="How long delivered ones are remembered.")
    keep_dead_hours: float = Field(default=168, gt=0, le=8760, description="How long given-up ones are kept.")


class ControlSettings(BaseModel):
    """The webhook that is told about GPUs of low utilization."""

    model_config = SECTION

    enabled: bool = Field(default=False, description="Whether the webhook is called.")
    api_url: Annotated[str, AfterValidator(check_url)] = Field(
        default="", description="Where GPUs of low utilization are posted to."
    )
    timeout: float = Field(default=5, gt=0, le=300, description="Seconds a call may take.")
    secret: SecretStr = Field(
        default=SecretStr(""), description="Signs every call (HMAC-SHA256 in X-Gpusteward-Signature); empty: unsigned."
    )
    secret_file: Path | None = Field(default=None, description="A file with the secret, read anew for every call.")

    @model_validator(mode="after")
    def _check_secret(self) -> Self:
        if self.secret_file is not None and self.secret.get_secret_value():
            raise ValueError("secret and secret_file are both set: keep one of them")
        return self

    def read_secret(self) -> str:
        """The secret itself, empty when there is none. Raises OSError when its file cannot be read."""
        if self.secret_file is None:
            return self.secret.get_secret_value()
        return self.secret_file.read_text(encoding="utf-8").strip()
