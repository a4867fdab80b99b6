"""Fake content and a client for the HTTP server."""

import gzip
import http.client
from collections.abc import Callable

from gpusteward.agent.endpoints import AgentEndpoints
from gpusteward.agent.http.server import Server
from gpusteward.core.settings import ListenAddress

LOOPBACK = ListenAddress("127.0.0.1", 0)
Starter = Callable[..., Server]


class FakeContent(AgentEndpoints):
    """Content that shows the requested format; `healthy` and `broken` select faults."""

    def __init__(self, *, healthy: bool = True, broken: bool = False, size: int = 1) -> None:
        self.healthy, self.broken, self.size = healthy, broken, size

    def metrics(self, *, openmetrics: bool, gzip: bool) -> bytes:
        if self.broken:
            raise RuntimeError("secret detail")
        page = (b"openmetrics\n" if openmetrics else b"text\n") * self.size
        return compress(page) if gzip else page

    def live(self) -> tuple[bool, str]:
        return True, "ok"

    def health(self) -> tuple[bool, str]:
        return True, "ok"

    def ready(self) -> tuple[bool, str]:
        return (True, "ok") if self.healthy else (False, "the snapshot is 40 s old")

    def snapshot(self) -> bytes:
        return b'{"node": "n1"}' + b" " * self.size


def compress(page: bytes) -> bytes:
    return gzip.compress(page)


def connect(server: Server) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(*server.address, timeout=10)


def fetch(
    server: Server, path: str, *, method: str = "GET", body: bytes | None = None, **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = connect(server)
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response, content
