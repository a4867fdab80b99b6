"""Clients that ask and do not read, from several addresses of loopback: nobody else waits for them."""

import socket
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.attacks.victims import FREEZE_CPU_SECONDS, FREEZE_SECONDS, Victim, status_of

pytestmark = pytest.mark.slow

UNSENT_BYTES = 160 * 1024
"""Of a connection, in the kernel. It was up to 4 MB: 1.6 GB of the container's memory for a thousand."""
ADDRESSES = [f"127.0.0.{number}" for number in range(2, 7)]


@contextmanager
def slow_readers(victim: Victim, path: str, count: int, *, requests: int = 1) -> Iterator[None]:
    where = urllib.parse.urlsplit(victim.url)
    with ExitStack() as stack:
        for number in range(count):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            client.settimeout(10)
            client.bind((ADDRESSES[number % len(ADDRESSES)], 0))
            try:
                client.connect((where.hostname, where.port))
                client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * requests)
            except OSError:
                continue  # refused: more than the share of its address
        time.sleep(2)  # until what can be buffered is
        yield


@pytest.mark.parametrize("path", ["/openapi.json", "/docs"])
def test_a_thousand_slow_readers_of_the_analyzer(analyzer: Victim, path: str):
    with analyzer.attacked(cpu_seconds=5, peak_bytes=256 << 20), slow_readers(analyzer, path, 1000, requests=4):
        for wanted in ("/livez", "/readyz", "/metrics"):
            answer = analyzer.time(wanted)
            assert status_of(answer.response) in (200, 503 if wanted == "/readyz" else 200)
            assert answer.cpu_seconds < FREEZE_CPU_SECONDS
            assert answer.seconds < FREEZE_SECONDS
        assert analyzer.read_unsent() < 1000 * UNSENT_BYTES


@pytest.mark.parametrize("path", ["/metrics", "/"])
def test_slow_readers_of_the_agent(agent: Victim, path: str):
    with agent.attacked(cpu_seconds=10, peak_bytes=96 << 20), slow_readers(agent, path, 64, requests=400):
        for wanted in ("/livez", "/metrics", "/livez", "/metrics"):
            assert status_of(agent.get(wanted)) == 200, "an address without connections has a reserve"
        assert agent.read_unsent() < 64 * UNSENT_BYTES
