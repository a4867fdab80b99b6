"""Programs that a bench starts beside itself, and a client that asks them."""

import asyncio
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.agent.test_agent_process import free_port

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"


class Client:
    """Sends requests on one connection, as a scraper does."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def get(self, path: str, encoding: str = "identity") -> bytes:
        self._connection.request("GET", path, headers={"Accept-Encoding": encoding})
        response = self._connection.getresponse()
        body = response.read()
        if response.status != http.client.OK:
            raise RuntimeError(f"{path} returned {response.status}: {body[:200]!r}")
        return body

    def get_json(self, path: str) -> dict[str, Any]:
        return dict(json.loads(self.get(path)))

    def measure(self, path: str, encoding: str) -> tuple[float, int]:
        """Milliseconds from the request to the last byte, and the number of bytes."""
        began = time.perf_counter()
        body = self.get(path, encoding)
        return (time.perf_counter() - began) * 1000, len(body)

    def read_health(self) -> dict[str, Any]:
        return self.get_json("/api/v1/health")


@contextmanager
def run_serve(
    folder: Path, settings: Mapping[str, object], *, port: int = 0, environ: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """`gpusteward serve` as installed here, with its defaults but for these settings; the process and its port."""
    port = port or free_port()
    chosen = {"logging.level": "warning", **settings}
    flags = [f"--address=127.0.0.1:{port}", *(f"--set={path}={value}" for path, value in chosen.items())]
    program = Path(sys.executable).with_name("gpusteward")
    process = subprocess.Popen([program, "serve", *flags], cwd=folder, env={**os.environ, **(environ or {})})
    try:
        yield process, port
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def run_module(name: str, *arguments: object) -> Iterator[tuple[int, int]]:
    """The pid and the port of a module that calls `serve_pages`."""
    command = [sys.executable, "-m", name, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.terminate()


class _Connection(asyncio.Protocol):
    """One connection of a scraper."""

    def __init__(self, render: Callable[[str], bytes]) -> None:
        self._render = render

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """A request fits into one packet; only its path matters."""
        page = self._render(data.split(b"/", 2)[1].decode())
        self._transport.write(_HEAD % len(page) + page)


async def serve_pages(render: Callable[[str], bytes]) -> None:
    """Serves the packed pages of all nodes of a cluster and prints its port. A node is a path: /17/metrics."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(render), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
