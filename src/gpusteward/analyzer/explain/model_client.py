"""The client of language models, and where `ai.api_url` is: the only module that imports a model SDK, and only when a
request is made."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from gpusteward.analyzer.explain.failures import ModelError, ModelFailure, by_status
from gpusteward.analyzer.explain.opinions import ModelOutput
from gpusteward.analyzer.explain.prompts import write_instructions
from gpusteward.analyzer.explain.settings import AiSettings
from gpusteward.analyzer.setting_values import SecretFile, read_secret
from gpusteward.core.errors import ConfigurationError

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.models import Model

RESPONSE_LIMIT_BYTES = 1024 * 1024
"""A valid response is a few hundred bytes of JSON."""

TEMPERATURE = 0.3  # as in gpu-oour
_OPENAI = "https://api.openai.com/v1"
_ANTHROPIC = "https://api.anthropic.com"
_MODULES = {
    "openai": ("pydantic_ai", "pydantic_ai.models.openai", "pydantic_ai.providers.openai_compatible"),
    "azure": ("pydantic_ai", "pydantic_ai.models.openai", "pydantic_ai.providers.azure"),
    "anthropic": ("pydantic_ai", "pydantic_ai.models.anthropic", "pydantic_ai.providers.anthropic"),
}
_NO_KEY = "none"  # local servers need no key, but the SDKs require one

Protocol = Literal["openai", "anthropic", "azure"]
Query = tuple[tuple[str, str], ...]

_CHAT = "/chat/completions"
_MESSAGES = "/messages"
_AZURE_HOSTS = (".openai.azure.com", ".cognitiveservices.azure.com")
_DEPLOYMENTS = "/openai/deployments/"
_API_VERSION = "api-version"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a model; an empty base is the provider's own address. `query` is sent with every request."""

    protocol: Protocol
    base: str
    model: str
    api_version: str = ""  # Azure only; not in `query`
    query: Query = ()


def locate(settings: AiSettings) -> Endpoint:
    """The address as the SDK expects it: without the last path segments, which it adds itself."""
    protocol = settings.provider if settings.provider != "auto" else _guess(settings.api_url, settings.model)
    if protocol == "azure":
        return _locate_azure(settings)
    tail = _CHAT if protocol == "openai" else _MESSAGES
    parts = urlsplit(settings.api_url)
    base = urlunsplit((parts.scheme, parts.netloc, parts.path, "", "")).removesuffix("/").removesuffix(tail)
    if protocol == "anthropic":
        base = base.removesuffix("/v1")
    return Endpoint(protocol, base, settings.model, query=_read_query(parts.query))


def _guess(url: str, model: str) -> Protocol:
    parts = urlsplit(url)
    host, path = parts.hostname or "", parts.path.rstrip("/")
    if _DEPLOYMENTS in path or (host.endswith(_AZURE_HOSTS) and not path.endswith("/v1" + _CHAT)):
        return "azure"
    if path.endswith(_CHAT):  # also a proxy that serves Claude in OpenAI's protocol
        return "openai"
    if path.endswith(_MESSAGES) or host.endswith(".anthropic.com"):
        return "anthropic"
    return "anthropic" if not host and model.lower().startswith("claude") else "openai"


def _locate_azure(settings: AiSettings) -> Endpoint:
    parts = urlsplit(settings.api_url)
    root, _, rest = parts.path.partition(_DEPLOYMENTS)
    deployment = rest.partition("/")[0] or settings.model
    query = _read_query(parts.query)
    version = dict(query).get(_API_VERSION) or settings.api_version
    base = urlunsplit((parts.scheme, parts.netloc, root.rstrip("/").removesuffix("/openai"), "", ""))
    return Endpoint("azure", base, deployment, version, tuple(pair for pair in query if pair[0] != _API_VERSION))


def _read_query(text: str) -> Query:
    return tuple(parse_qsl(text, keep_blank_values=True))


@dataclass(frozen=True, slots=True)
class ModelResponse:
    """A usable output and the tokens it used."""

    output: ModelOutput
    input_tokens: int
    output_tokens: int


class ModelClient:
    """One model, ready for requests."""

    def __init__(self, model: "Model", settings: AiSettings) -> None:
        self._model = model
        self._settings = settings

    async def request(self, prompt: str, *, as_tool: bool) -> ModelResponse:
        """One request, no retries. Raises ModelError."""
        from pydantic_ai import exceptions

        try:
            async with asyncio.timeout(self._settings.timeout):
                return await self._run(prompt, as_tool=as_tool)
        except (TimeoutError, exceptions.ModelTimeoutError):
            raise ModelError(ModelFailure.TIMEOUT) from None
        except exceptions.ModelHTTPError as error:
            failure = by_status(error.status_code)
            raise ModelError(failure, detail=f"HTTP {error.status_code}", wait_seconds=error.retry_after) from None
        except (exceptions.UnexpectedModelBehavior, ResponseTooLongError, ValueError):
            raise ModelError(ModelFailure.INVALID_RESPONSE) from None
        except exceptions.ModelAPIError as error:
            raise ModelError(_classify_api_error(error)) from None
        except Exception as error:
            # Any error of an SDK costs one opinion only.
            raise ModelError(ModelFailure.UNEXPECTED, detail=type(error).__name__) from error

    async def _run(self, prompt: str, *, as_tool: bool) -> ModelResponse:
        from pydantic_ai import Agent, PromptedOutput, ToolOutput

        settings = self._settings
        agent: Agent[object, ModelOutput] = Agent(
            self._model,
            output_type=ToolOutput(ModelOutput) if as_tool else PromptedOutput(ModelOutput),
            instructions=write_instructions(settings.language),
            retries=0,
            model_settings={
                "max_tokens": settings.max_tokens,
                "timeout": settings.timeout,
                "temperature": TEMPERATURE,
            },
        )
        result = await agent.run(prompt)
        return ModelResponse(result.output, result.usage.input_tokens, result.usage.output_tokens)


def _classify_api_error(error: BaseException) -> ModelFailure:
    """The SDK reports a response that was cut off for its length as a broken connection."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ResponseTooLongError):
            return ModelFailure.INVALID_RESPONSE
        cause = cause.__cause__ or cause.__context__
    return ModelFailure.CONNECTION


class ResponseTooLongError(Exception):
    """More bytes than any valid response has."""


def check_sdk() -> None:
    """Without loading it, which takes seconds. Raises ConfigurationError."""
    if find_spec("pydantic_ai") is None:
        raise ConfigurationError(
            "ai.enabled is true, but the SDKs of language models are not installed: install them "
            "with pip install 'gpusteward[ai]', or set ai.enabled to false"
        )


def load_sdk(settings: AiSettings) -> None:
    """Import what `open_model` needs, so that it does not count against the timeout of a request. Raises ModelError."""
    try:
        for name in _MODULES[locate(settings).protocol]:
            import_module(name)
    except ImportError as error:
        raise ModelError(ModelFailure.NOT_INSTALLED, detail=f"{error.name}: pip install 'gpusteward[ai]'") from error


@asynccontextmanager
async def open_model(settings: AiSettings) -> AsyncIterator[ModelClient]:
    """The model of the settings; connections are closed at the end. Raises ModelError when the key is unreadable."""
    import httpx2

    try:
        key = read_secret(settings.api_key) or _NO_KEY
    except (OSError, UnicodeDecodeError) as error:
        file = settings.api_key.path if isinstance(settings.api_key, SecretFile) else ""
        raise ModelError(ModelFailure.KEY_UNREADABLE, detail=str(file)) from error
    endpoint = locate(settings)
    client = httpx2.AsyncClient(
        params=list(endpoint.query),
        follow_redirects=False,  # a redirect could carry the key elsewhere
        headers={"accept-encoding": "identity"},
        event_hooks={"response": [_limit_response]},
        limits=httpx2.Limits(max_connections=settings.concurrency),
    )
    model = _build(endpoint, key, client=client)
    async with client:
        yield ModelClient(model, settings)


async def _limit_response(response: "httpx2.Response") -> None:
    """Limit the size, and refuse compression: a small body may unpack to a very large one."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise ResponseTooLongError
    response.stream = _limit_stream(response.stream)


def _limit_stream(stream: object) -> "httpx2.AsyncByteStream":
    import httpx2

    assert isinstance(stream, httpx2.AsyncByteStream)
    inner = stream

    class LimitedStream(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            total = 0
            async for chunk in inner:
                total += len(chunk)
                if total > RESPONSE_LIMIT_BYTES:
                    raise ResponseTooLongError
                yield chunk

        async def aclose(self) -> None:
            await inner.aclose()

    return LimitedStream()


def _build(endpoint: Endpoint, key: str, *, client: "httpx2.AsyncClient") -> "Model":
    """The model of the endpoint's protocol. Each imports its own SDK only."""
    if endpoint.protocol == "anthropic":
        from anthropic import AsyncAnthropic
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        claude = AsyncAnthropic(api_key=key, base_url=endpoint.base or _ANTHROPIC, max_retries=0, http_client=client)
        return AnthropicModel(endpoint.model, provider=AnthropicProvider(anthropic_client=claude))

    from openai import AsyncAzureOpenAI, AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel

    if endpoint.protocol == "azure":
        from pydantic_ai.providers.azure import AzureProvider

        azure = AsyncAzureOpenAI(
            api_key=key,
            azure_endpoint=endpoint.base,
            azure_deployment=endpoint.model,
            api_version=endpoint.api_version,
            max_retries=0,
            http_client=client,
        )
        return OpenAIChatModel(endpoint.model, provider=AzureProvider(openai_client=azure))

    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    base = endpoint.base or _OPENAI
    sdk = AsyncOpenAI(api_key=key, base_url=base, max_retries=0, http_client=client)
    if base.startswith(_OPENAI):
        return OpenAIChatModel(endpoint.model, provider=OpenAIProvider(openai_client=sdk))
    return OpenAIChatModel(endpoint.model, provider=OpenAICompatibleProvider("compatible", openai_client=sdk))
