"""The sections that belong to no other room."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator

from gpusteward.analyzer.settings.values import check_address, check_level, check_url, split_address

SECTION = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)


class SchedulerSettings(BaseModel):
    """When a cycle runs."""

    model_config = SECTION

    interval: int = Field(default=300, ge=10, le=86400, description="Seconds between the starts of two cycles.")
    max_workers: int = Field(default=8, ge=1, le=64, description="How many queries may be under way at once.")


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


class LoggingSettings(BaseModel):
    """What the program says on standard error."""

    model_config = SECTION

    level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(check_level)] = Field(
        default="info", description="The least important event that is still written."
    )
    format: str = Field(
        default="text",
        description="json: one object a line. Anything else, also a format of Python's logging, is plain text.",
    )

    @property
    def as_json(self) -> bool:
        return self.format.strip().lower() == "json"


class ServerSettings(BaseModel):
    """Who may ask, and where."""

    model_config = SECTION

    address: Annotated[str, AfterValidator(check_address)] = Field(
        default="127.0.0.1:8080", description="Where to listen: PORT, :PORT, HOST:PORT or [IPV6]:PORT."
    )
    anonymous_reads: Literal["loopback", "always", "never"] = Field(
        default="loopback", description="From where reading needs no token: this machine only, everywhere, nowhere."
    )
    tokens_file: Path | None = Field(
        default=None,
        description="File with bearer tokens: `viewer|operator|admin: TOKEN` or a list of tokens each. Once it is "
        "named, every write needs a token, also on loopback.",
    )
    tokens: SecretStr = Field(
        default=SecretStr(""), description="Bearer tokens in the same form, beside or without the file."
    )

    @property
    def listen(self) -> tuple[str, int]:
        """Host and port; an empty host is every address of this machine."""
        return split_address(self.address)


class KubernetesSettings(BaseModel):
    """The API server, asked for the owners of pods; nothing is ever written there by reading."""

    model_config = SECTION

    owners: Literal["auto", "always", "never"] = Field(
        default="auto", description="Whether owners are asked for: where there is an API server, always, or never."
    )
    api_url: Annotated[str, AfterValidator(check_url)] = Field(
        default="", description="Address of the API server, such as a kubectl proxy; empty: that of this cluster."
    )
    timeout: float = Field(default=10, gt=0, le=300, description="Seconds one request may take.")
