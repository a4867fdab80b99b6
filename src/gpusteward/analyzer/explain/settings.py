"""`ai.*`: the seed's settings under their names, and what bounds the model."""

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator


def _check_url(text: str) -> str:
    parts = urlsplit(text.strip())
    if text.strip() and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError("write a URL, such as https://api.openai.com/v1/chat/completions")
    return text.strip()


class AiSettings(BaseModel):
    """The second opinion of a language model."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    enabled: bool = Field(default=False, description="Whether a model is asked in every cycle.")
    api_url: Annotated[str, AfterValidator(_check_url)] = Field(
        default="",
        description="Where the model is; may end in /chat/completions or /messages. Empty: the provider's own address.",
    )
    api_key: SecretStr = Field(default=SecretStr(""), description="The key; better given as AI_API_KEY or in a file.")
    api_key_file: Path | None = Field(default=None, description="A file with the key, read anew for every cycle.")
    model: str = Field(default="gpt-4", min_length=1, description="The model's name; on Azure the deployment's.")
    threshold: float = Field(
        default=0.7, ge=0, le=1, description="An opinion of less confidence than this is shown, but raises no doubt."
    )
    max_tokens: int = Field(default=2000, ge=64, le=100_000, description="The longest answer, in tokens.")
    retry_times: int = Field(default=3, ge=0, le=10, description="How often a failed question is asked again.")
    retry_delay: float = Field(
        default=2.0,
        ge=0,
        le=60,
        description="Seconds before the first repetition; each further one waits twice as long.",
    )
    provider: Literal["auto", "openai", "anthropic", "azure"] = Field(
        default="auto", description="Which protocol the address speaks; auto: told from the address and the model."
    )
    api_version: str = Field(default="2024-10-21", description="Azure's api-version, where the address has none.")
    language: Literal["zh", "en"] = Field(default="zh", description="The language of reasons and recommendations.")
    output: Literal["auto", "tool", "prompted"] = Field(
        default="auto",
        description="How the answer is asked for: as a tool call, as JSON text, or auto: text where tools are refused.",
    )
    budget: int = Field(
        default=20, ge=0, le=10_000, description="How many calls one cycle may make, repetitions included."
    )
    concurrency: int = Field(default=4, ge=1, le=64, description="How many calls may be under way at once.")
    timeout: float = Field(default=30, gt=0, le=600, description="Seconds one call may take.")
    cycle_timeout: float = Field(
        default=60, gt=0, le=3600, description="Seconds all calls of one cycle may take together."
    )
    cache_size: int = Field(default=5000, ge=0, le=1_000_000, description="How many opinions are remembered.")
    price_per_1k_input_tokens: float = Field(default=0, ge=0, description="For the cost metric; 0: not counted.")
    price_per_1k_output_tokens: float = Field(default=0, ge=0, description="For the cost metric; 0: not counted.")

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.api_key_file is not None and self.api_key.get_secret_value():
            raise ValueError("api_key and api_key_file are both set: keep one of them")
        if self.enabled and not self.api_url and self.provider == "azure":
            raise ValueError("enabled with the provider azure needs an api_url, such as https://NAME.openai.azure.com")
        return self

    def read_key(self) -> str:
        """The key itself, empty when there is none. Raises OSError when its file cannot be read."""
        if self.api_key_file is None:
            return self.api_key.get_secret_value()
        return self.api_key_file.read_text(encoding="utf-8").strip()
