"""Fixtures of the agent's tests."""

from collections.abc import Iterator
from typing import Any

import pytest

from gpusteward.agent.http.server import Server, serve
from tests.agent.http.clients import LOOPBACK, FakeContent, Starter


@pytest.fixture
def start() -> Iterator[Starter]:
    """Starts HTTP servers and closes them afterwards."""
    servers: list[Server] = []

    def start_one(content: FakeContent | None = None, **options: Any) -> Server:
        servers.append(serve(content or FakeContent(), LOOPBACK, **options))
        return servers[-1]

    yield start_one
    for server in servers:
        server.close()
