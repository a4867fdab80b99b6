"""`ai.api_url` -> the protocol and the base address for the SDK (pure)."""

from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from gpusteward.analyzer.explain.settings import AiSettings

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
