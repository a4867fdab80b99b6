"""What the agent's tests share."""

from collections.abc import Iterator
from typing import Any

import pytest

from gpusteward.agent.http.server import Server, serve
from tests.agent.http.clients import LOOPBACK, FakeAnswers, Starter


@pytest.fixture
def start() -> Iterator[Starter]:
    """Starts HTTP servers and closes them afterwards."""
    servers: list[Server] = []

    def start_one(answers: FakeAnswers | None = None, **options: Any) -> Server:
        servers.append(serve(answers or FakeAnswers(), LOOPBACK, **options))
        return servers[-1]

    yield start_one
    for server in servers:
        server.close()
