"""Fixtures of the command line tests: a clean environment, an analyzer, an agent."""

import time
from collections.abc import Iterator

import pytest

from gpusteward.agent.http.server import serve
from tests.agent.http.clients import LOOPBACK
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import Api, running_api
from tests.cli.nodes import SnapshotPages

VARIABLES = (
    "GPUSTEWARD_SERVER",
    "GPUSTEWARD_AGENT",
    "GPUSTEWARD_TOKEN",
    "PROM_URL",
    "LC_ALL",
    "LC_MESSAGES",
    "NO_COLOR",
)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """English, UTC, no addresses and tokens."""
    for name in (*VARIABLES, "KUBERNETES_SERVICE_HOST", "GPUSTEWARD_PROMETHEUS__URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def analyzer() -> Iterator[Api]:
    """The real application with a small cluster behind it."""
    with running_api(small_result()) as api:
        yield api


@pytest.fixture
def node_url() -> Iterator[str]:
    """The agent's real HTTP server, with the snapshot of a simulated node at a fixed time."""
    server = serve(SnapshotPages(), LOOPBACK)
    yield server.url
    server.close()
