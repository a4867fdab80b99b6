"""Exporters among the pods of the cluster, by label."""

from collections.abc import Iterator
from urllib.parse import quote

import msgspec

from gpusteward.analyzer.sources.scrape.settings import DEFAULT_PATH, ScrapeSettings
from gpusteward.analyzer.sources.scrape.targets import Target
from gpusteward.core.errors import SourceError
from gpusteward.http.urls import HttpUrl
from gpusteward.kubernetes.api import ApiServer

LOOK_SECONDS = 30.0
_PAGE = 500
_MOST_PAGES = 100
_PORT_NAME = "metrics"
_HIGHEST_PORT = 65535


class _Port(msgspec.Struct, rename="camel"):
    name: str = ""
    container_port: int = 0


class _Container(msgspec.Struct):
    ports: list[_Port] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str | None = None
    containers: list[_Container] | None = None


class _Status(msgspec.Struct):
    phase: str | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")


class _Pod(msgspec.Struct):
    spec: _Spec
    status: _Status


class _Metadata(msgspec.Struct):
    next_page: str | None = msgspec.field(default=None, name="continue")


class _Pods(msgspec.Struct):
    items: list[_Pod]
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class PodList:
    """The pods that the selector finds, as long as they run."""

    origin = "pods of the cluster"
    seconds = LOOK_SECONDS
    complaint = ""

    def __init__(self, api: ApiServer, settings: ScrapeSettings) -> None:
        self._api = api
        self._settings = settings

    def read(self) -> tuple[Target, ...]:
        """Raises SourceError."""
        return tuple(target for pod in self._list() for target in self._find_target(pod))

    def _list(self) -> Iterator[_Pod]:
        space = f"/namespaces/{quote(self._settings.namespace, safe='')}" if self._settings.namespace else ""
        path = f"/api/v1{space}/pods?labelSelector={quote(self._settings.selector)}&limit={_PAGE}"
        more = ""
        for _ in range(_MOST_PAGES):
            answer = self._api.read_json(path + more, _Pods)
            yield from answer.items
            if not answer.metadata.next_page:
                return
            more = f"&continue={quote(answer.metadata.next_page)}"
        raise SourceError(f"more than {_MOST_PAGES * _PAGE} pods match scrape.selector")

    def _find_target(self, pod: _Pod) -> Iterator[Target]:
        if pod.status.phase != "Running" or not pod.status.pod_ip:
            return
        ports = (port for container in pod.spec.containers or () for port in container.ports or ())
        named = (port.container_port for port in ports if port.name == _PORT_NAME)
        port = next((number for number in named if 0 < number <= _HIGHEST_PORT), self._settings.port)
        labels = {"node": pod.spec.node_name} if pod.spec.node_name else {}
        yield Target(HttpUrl(self._settings.scheme, pod.status.pod_ip, port, DEFAULT_PATH), labels)
