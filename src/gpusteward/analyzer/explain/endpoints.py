"""`ai.api_url` -> the protocol and the base address for the SDK (pure)."""

from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qs, urlsplit, urlunsplit

from gpusteward.analyzer.explain.settings import AiSettings

Protocol = Literal["openai", "anthropic", "azure"]

_CHAT = "/chat/completions"
_MESSAGES = "/messages"
_AZURE_HOSTS = (".openai.azure.com", ".cognitiveservices.azure.com")
_DEPLOYMENTS = "/openai/deployments/"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a model; an empty base is the provider's own address."""

    protocol: Protocol
    base: str
    model: str
    api_version: str = ""  # Azure only


def locate(settings: AiSettings) -> Endpoint:
    """The address as the SDK expects it: without the last path segments, which it adds itself."""
    protocol = settings.provider if settings.provider != "auto" else _guess(settings.api_url, settings.model)
    if protocol == "azure":
        return _locate_azure(settings)
    tail = _CHAT if protocol == "openai" else _MESSAGES
    base = _without_query(settings.api_url).removesuffix("/").removesuffix(tail)
    if protocol == "anthropic":
        base = base.removesuffix("/v1")
    return Endpoint(protocol, base, settings.model)


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
    version = parse_qs(parts.query).get("api-version", [settings.api_version])[0]
    base = urlunsplit((parts.scheme, parts.netloc, root.rstrip("/").removesuffix("/openai"), "", ""))
    return Endpoint("azure", base, deployment, version)


def _without_query(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
