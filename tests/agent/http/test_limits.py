"""Slow clients, idle clients and too many clients."""

import contextlib
import json
import socket
import threading
import time

import pytest

from gpusteward.agent.http import connections
from gpusteward.agent.http.server import Server
from tests.agent.http.clients import FakeContent, Starter, fetch
from tests.waiting import wait_until


def test_a_client_that_sends_nothing_is_dropped(start: Starter) -> None:
    with socket.create_connection(start(read_seconds=0.1).address) as client:
        client.settimeout(10)
        assert client.recv(1) == b""


def test_a_client_that_sends_byte_by_byte_is_dropped_at_the_same_deadline(start: Starter) -> None:
    with socket.create_connection(start(read_seconds=0.3).address) as client:
        client.settimeout(0.02)
        begun = time.monotonic()
        while time.monotonic() - begun < 10:
            try:
                client.sendall(b"G")
                if client.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        assert time.monotonic() - begun < 5


def test_a_client_that_does_not_read_is_dropped(start: Starter) -> None:
    server = start(FakeContent(size=4_000_000), write_seconds=0.1)
    with socket.create_connection(server.address) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        wait_until(lambda: len(server.connections) == 1)
        wait_until(lambda: not server.connections)


def test_scrapes_over_the_limit_get_503_and_health_is_still_served(start: Starter) -> None:
    server = start(FakeContent(size=4_000_000), max_concurrent_scrapes=1)
    with socket.create_connection(server.address) as slow:
        slow.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert slow.recv(1) == b"H"  # its page is on the way and far larger than any buffer
        response, body = fetch(server, "/metrics")
        assert (response.status, response.headers["Retry-After"]) == (503, "1")
        assert "--max-concurrent-scrapes" in json.loads(body)["error"]["hint"]
        assert fetch(server, "/healthz")[0].status == 200


def open_connections(server: Server, count: int) -> list[socket.socket]:
    """From two addresses: one has at most half of the connections."""
    sources = [("127.0.0.1", 0), ("127.0.0.2", 0)]
    clients = [socket.create_connection(server.address, source_address=sources[n % 2]) for n in range(count)]
    wait_until(lambda: len(server.connections) == count)
    return clients


def test_connections_over_the_limit_get_503_at_once_and_no_thread(start: Starter) -> None:
    server = start(FakeContent(size=4_000_000), expose_snapshot=True)
    busy = open_connections(server, server.max_connections)
    for client in busy:
        client.sendall(b"GET /snapshot HTTP/1.1\r\n\r\n")
    wait_until(lambda: count_waiting(server) == 0)
    threads = threading.active_count()
    response, _ = fetch(server, "/healthz")
    assert response.status == 503
    assert threading.active_count() == threads
    for client in busy:
        client.close()
    wait_until(lambda: not server.connections)
    assert fetch(server, "/healthz")[0].status == 200


@pytest.mark.parametrize("path", ["/metrics", "/snapshot"])
def test_an_address_whose_clients_do_not_read_keeps_no_other_out(path: str, start: Starter) -> None:
    server = start(FakeContent(size=4_000_000), expose_snapshot=True)
    slow = [socket.create_connection(server.address, source_address=("127.0.0.2", 0)) for _ in range(80)]
    for client in slow:
        with contextlib.suppress(OSError):  # those over the share are refused
            client.sendall(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    wait_until(lambda: len(server.connections) == server.max_connections // 2)
    for wanted in ("/metrics", "/livez", "/readyz"):
        assert fetch(server, wanted)[0].status == 200
    for client in slow:
        client.close()


def test_addresses_whose_clients_do_not_read_keep_no_other_out_even_at_first(start: Starter) -> None:
    """They have all connections and all scrapes, and none of them is slow yet."""
    server = start(FakeContent(size=4_000_000), expose_snapshot=True)
    sources = [("127.0.0.2", 0), ("127.0.0.3", 0)]
    busy = [
        socket.create_connection(server.address, source_address=sources[number % 2])
        for number in range(server.max_connections)
    ]
    for number, client in enumerate(busy):
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n" if number < 16 else b"GET /snapshot HTTP/1.1\r\n\r\n")
    wait_until(lambda: len(server.connections) == server.max_connections and count_waiting(server) == 0)
    for wanted in ("/metrics", "/livez", "/metrics"):
        assert fetch(server, wanted)[0].status == 200
    for client in busy:
        client.close()


def test_clients_that_read_too_slowly_yield_to_new_ones(start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SLOW_SECONDS", 0.2)
    server = start(FakeContent(size=4_000_000), expose_snapshot=True)
    slow = open_connections(server, server.max_connections)
    for number, client in enumerate(slow):
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n" if number < 16 else b"GET /snapshot HTTP/1.1\r\n\r\n")
    wait_until(lambda: count_waiting(server) == 0)
    time.sleep(0.3)  # so long that they are slow
    for wanted in ("/metrics", "/livez"):
        assert fetch(server, wanted)[0].status == 200
    for client in slow:
        client.close()


@pytest.mark.parametrize("begun", [b"", b"GET /metrics HTTP/1.1\r\nX: "])
def test_clients_that_never_finish_a_request_block_no_other(begun: bytes, start: Starter) -> None:
    server = start()
    slow = open_connections(server, server.max_connections)
    for client in slow:
        client.sendall(begun)
    for _ in range(3):
        assert fetch(server, "/metrics")[0].status == 200
    for client in slow:
        client.close()


def count_waiting(server: Server) -> int:
    return sum(each.waiting_since is not None for each in server.connections)


def test_the_longest_waiting_connection_is_closed_for_a_new_client(start: Starter) -> None:
    server = start()
    clients = open_connections(server, server.max_connections)
    oldest, idle = clients[0], clients[2]  # of the address that sends the new request
    for client in (oldest, idle):
        client.settimeout(10)
    oldest.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
    assert oldest.recv(4096)
    wait_until(lambda: count_waiting(server) == len(clients))
    assert fetch(server, "/metrics")[0].status == 200
    assert idle.recv(1) == b""
    oldest.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
    assert oldest.recv(4096).startswith(b"HTTP/1.1 200")
    for client in clients:
        client.close()
