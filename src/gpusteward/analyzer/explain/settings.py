"""`ai.*`: gpu-oour's settings under their names, and the limits of the model."""

from typing import Annotated, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, Field, model_validator

from gpusteward.analyzer.setting_values import NO_SECRET, SECTION, Secret, is_given
from gpusteward.core.settings import InvalidSettingError


def _check_url(text: str) -> str:
    parts = urlsplit(text.strip())
    if text.strip() and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise InvalidSettingError("write a URL, such as https://api.openai.com/v1/chat/completions")
    return text.strip()


class AiSettings(BaseModel):
    """The second opinion of a language model."""

    model_config = SECTION

    enabled: bool = Field(default=False, description="Whether a model is asked for a second opinion in every cycle.")
    api_url: Annotated[str, AfterValidator(_check_url)] = Field(
        default="",
        description="Address of the model; may end in /chat/completions or /messages. Empty: the provider, if a "
        "key is set.",
    )
    api_key: Secret = Field(
        default=NO_SECRET,
        description="The API key; preferably set as AI_API_KEY or in a file, which is read again in every cycle.",
    )
    model: str = Field(
        default="gpt-4", min_length=1, description="Name of the model; on Azure the name of the deployment."
    )
    threshold: float = Field(
        default=0.7, ge=0, le=1, description="An opinion with less confidence than this is shown, but is no objection."
    )
    max_tokens: int = Field(default=2000, ge=1, description="Longest response, in tokens.")
    retry_times: int = Field(
        default=3,
        ge=0,
        le=1000,
        description="Attempts of a request, the first one included, as gpu-oour counts; 0: the model is never asked.",
    )
    retry_delay: float = Field(
        default=2.0,
        ge=0,
        le=3600,
        description="Seconds before the second attempt; doubles with each further one, up to a minute.",
    )
    provider: Literal["auto", "openai", "anthropic", "azure"] = Field(
        default="auto", description="Protocol of the address; auto: derived from the address and the model."
    )
    api_version: ClassVar[str] = "2024-10-21"
    """api-version of Azure where the address has none; another one is written there: `?api-version=...`."""
    language: Literal["zh", "en"] = Field(default="zh", exclude=True)
    """Language of reasons and recommendations: no setting, but that of `notify.language` (`Settings`)."""
    output: ClassVar[Literal["auto", "tool", "prompted"]] = "auto"
    """Output mode: a tool call, JSON text, or auto: JSON text where tools are refused."""
    budget: int = Field(default=20, ge=0, le=10_000, description="Requests per cycle, retries included.")
    concurrency: ClassVar[int] = 4
    """Concurrent requests."""
    timeout: ClassVar[float] = 30
    """Timeout of one request in seconds: half of the time for all requests of a cycle, so that a second one fits."""
    cycle_timeout: ClassVar[float] = 60
    """Timeout of all requests of a cycle together, in seconds."""
    cache_size: ClassVar[int] = 5000
    """Opinions kept in the cache."""
    price_per_1k_tokens: dict[Literal["input", "output"], Annotated[float, Field(ge=0)]] = Field(
        default_factory=dict, description="Prices of `input` and `output`, for the cost metric. Empty: not counted."
    )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.enabled and not self.api_url and self.provider == "azure":
            raise InvalidSettingError(
                "enabled with the provider azure needs an api_url, such as https://NAME.openai.azure.com"
            )
        return self

    @property
    def is_configured(self) -> bool:
        """Whether a model may be asked at all. Without an address and a key, names of pods would be sent to the public
        address of a provider that the operator has not chosen."""
        return bool(self.api_url) or is_given(self.api_key)

    @property
    def allows_requests(self) -> bool:
        """Whether the model can be asked about anything."""
        return self.is_configured and self.budget > 0 and self.retry_times > 0
