"""Clients that go away at any moment are nothing that an operator has to read about."""

import logging
import random
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tests.analyzer.api import server
from tests.analyzer.api.server import Api, make_result, running_api
from tests.analyzer.api.test_web_config import TLS, Site
from tests.analyzer.usage_tables import large_table
from tests.waiting import wait_until

PATHS = ["/results", "/metrics", "/api/v1/workloads/table", "/api/v1/reports?format=focus", "/api/v1/events", "/docs"]
REQUESTS = [
    b"",
    b"GET /resu",
    *(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode() for path in PATHS),
    b"POST /api/v1/replay HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{",
    b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n{",
    b"POST /body HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe",
]
ROUNDS = 4


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch, **components: object) -> Iterator[Api]:
    """The analyzer's API, with one more route, which reads the body of its request itself."""
    build = server.build_api

    async def read(request: Request) -> Response:
        return PlainTextResponse(await request.body())

    def build_with_route(*args: object) -> FastAPI:
        app = build(*args)  # type: ignore[arg-type]
        app.router.routes.insert(0, Route("/body", read, methods=["POST"]))
        return app

    monkeypatch.setattr(server, "build_api", build_with_route)
    with running_api(make_result(large_table(2000)), **components) as api:  # type: ignore[arg-type]
        yield api


def leave(api: Api, sent: bytes, *, after_seconds: float, resets: bool, context: ssl.SSLContext | None) -> None:
    """Send a request, or a part of it, and go: in order, or with a reset."""
    host, port = api.url.rpartition("/")[2].split(":")
    client: socket.socket = socket.create_connection((host, int(port)), timeout=10)
    with suppress(OSError):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client = context.wrap_socket(client, server_hostname=host) if context and sent else client
        client.sendall(sent)
        time.sleep(after_seconds)
        if resets:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def count_sockets() -> int:
    """Of this process, where clients and server run."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found += str(each.readlink()).startswith("socket:")
    return found


@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
def test_a_client_that_goes_away_is_no_error_in_the_log(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_tls: bool
):
    caplog.set_level(logging.WARNING)
    chance, context = random.Random(7), site.trust() if is_tls else None
    components = {"web": site.configure(TLS).current} if is_tls else {}
    with serving(monkeypatch, **components) as api:
        before = count_sockets()
        for _ in range(ROUNDS):
            leaving = [
                threading.Thread(
                    target=leave,
                    args=(api, sent),
                    kwargs={"after_seconds": wait, "resets": chance.random() < 0.5, "context": context},
                )
                for sent in REQUESTS
                for wait in (0, 0.1)
            ]
            for each in leaving:
                each.start()
            for each in leaving:
                each.join()
        wait_until(lambda: count_sockets() <= before + 2)  # all have gone; the event loop has opened two of its own
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
