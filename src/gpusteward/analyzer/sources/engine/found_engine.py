"""An engine whose address is not set: its Service is found by labels. Only one match is used: with several, all are
named. `analyzer.active_source` looks it up again after a failed cycle.

Whoever may create Services with these labels chooses what the analyzer reads, so the namespace should be set;
`PrometheusSettings` requires it where credentials would be sent.
"""

from typing import NamedTuple
from urllib.parse import quote

import msgspec

from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.core.errors import SourceError
from gpusteward.kubernetes.api import ApiServer, make_path
from gpusteward.messages.errors import service_discovery as messages

MAX_SERVICES = 100
"""Candidates that are read; with more than one there is an error anyway."""
_NAMES_SHOWN = 8


class EngineService(NamedTuple):
    """The Service that was found, and the address of the engine behind it."""

    namespace: str
    name: str
    url: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class _ServicePort(msgspec.Struct, rename="camel"):
    port: int
    name: str = ""
    app_protocol: str = ""


class _ServiceSpec(msgspec.Struct, rename="camel"):
    ports: list[_ServicePort] = []
    type: str = ""
    external_name: str = ""


class _ServiceMetadata(msgspec.Struct):
    name: str
    namespace: str


class _Service(msgspec.Struct):
    metadata: _ServiceMetadata
    spec: _ServiceSpec


class _Services(msgspec.Struct):
    items: list[_Service]


def find_engine_service(api: ApiServer, settings: PrometheusSettings) -> EngineService:
    """The only Service with the labels of `prometheus.service_selector`. Raises SourceError."""
    namespace, selector = settings.service_namespace, settings.service_selector
    services = make_path("v1", "Service", namespace)
    path = f"{services}?labelSelector={quote(selector, safe='')}&limit={MAX_SERVICES}"
    found = api.read_json(path, _Services).items
    if not found:
        raise SourceError(messages.NONE, selector=selector, where=namespace or messages.ALL_NAMESPACES)
    if len(found) > 1:
        names = sorted(f"{each.metadata.namespace}/{each.metadata.name}" for each in found)
        shown = ", ".join(names[:_NAMES_SHOWN]) + (", ..." if len(names) > _NAMES_SHOWN else "")
        raise SourceError(messages.SEVERAL, selector=selector, count=len(names), names=shown)
    about, spec, wanted = found[0].metadata, found[0].spec, settings.service_port
    ports = [each for each in spec.ports if wanted in ("", each.name, str(each.port))]
    if len(ports) != 1:
        listed = ", ".join(f"{each.name or '-'} ({each.port})" for each in spec.ports) or "-"
        raise SourceError(messages.PORT, service=f"{about.namespace}/{about.name}", ports=listed)
    port = ports[0]
    is_tls = "https" in (port.app_protocol, port.name) or port.name.startswith("https-")
    host = spec.external_name if spec.type == "ExternalName" else f"{about.name}.{about.namespace}.svc"
    return EngineService(about.namespace, about.name, f"{'https' if is_tls else 'http'}://{host}:{port.port}")
