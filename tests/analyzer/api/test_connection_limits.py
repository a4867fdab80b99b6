"""Slow, silent and numerous clients lose their own connections; everybody else is served."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from gpusteward.analyzer.server.http_server import ConnectionLimits
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import Api, running_api

HALF = b"GET /results HTTP/1.1\r\nHost: localhost\r\nX-A: "
SHORT = ConnectionLimits(read_seconds=0.3, write_seconds=0.3, write_bytes=1024, sweep_seconds=0.05)


@contextmanager
def connected(api: Api, sent: bytes = b"") -> Iterator[socket.socket]:
    host, port = api.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(sent)
        yield client


def send_forever(client: socket.socket, data: bytes) -> None:
    while True:
        client.sendall(data)


def read_to_end(client: socket.socket) -> bytes:
    try:
        return b"".join(iter(lambda: client.recv(65536), b""))
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        HALF,
        b"POST /analyze HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n12",
        b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n",  # a stream without end
        b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ],
)
def test_a_request_that_is_not_complete_in_time_ends_the_connection(sent: bytes):
    with running_api(small_result(), limits=SHORT) as api, connected(api, sent) as client:
        started = time.monotonic()
        read_to_end(client)
        assert 0.2 < time.monotonic() - started < 5


def test_the_time_of_a_later_request_begins_with_its_first_byte():
    with running_api(small_result(), limits=SHORT) as api, connected(api) as client:
        for _ in range(2):
            client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            received = b""
            while not received.endswith(b"ok\n"):
                received += client.recv(65536)
            time.sleep(0.4)  # longer than a request may take
        client.sendall(HALF)
        started = time.monotonic()
        assert read_to_end(client) == b""
        assert time.monotonic() - started < 5


def test_a_request_that_begins_during_the_one_before_has_a_time_limit_too():
    whole = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for begun in (b"G", b"POST /analyze HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n1"):
        with running_api(small_result(), limits=SHORT) as api, connected(api, whole + begun) as client:
            started = time.monotonic()
            assert read_to_end(client).startswith(b"HTTP/1.1 200")
            assert time.monotonic() - started < 5


def test_half_requests_beyond_the_limit_do_not_keep_others_out():
    limits = ConnectionLimits(connections=40, connections_per_client=20)
    with running_api(small_result(), limits=limits) as api, ExitStack() as stack:
        clients = [stack.enter_context(connected(api, HALF)) for _ in range(60)]
        for _ in range(5):
            assert api.get("/results").status == 200
        assert read_to_end(clients[0]) == b""  # the first one was closed


def test_a_client_with_many_connections_loses_its_own_and_not_those_of_others():
    limits = ConnectionLimits(connections=12, connections_per_client=10)
    with running_api(small_result(), host="127.0.0.1", limits=limits) as api, ExitStack() as stack:
        port = int(api.url.rpartition(":")[2])
        other = socket.create_connection(("127.0.0.1", port), timeout=10, source_address=("127.0.0.2", 0))
        stack.enter_context(other)
        other.sendall(HALF)
        for _ in range(30):
            stack.enter_context(connected(api, HALF))
        other.sendall(b"1\r\nAuthorization: none\r\n\r\n")
        assert other.recv(65536).startswith(b"HTTP/1.1 401")  # it was served


def test_when_every_connection_is_served_a_new_client_gets_503():
    limits = ConnectionLimits(connections=3)
    events = b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with running_api(small_result(), limits=limits) as api, ExitStack() as stack:
        for _ in range(3):
            client = stack.enter_context(connected(api, events))
            assert client.recv(65536).startswith(b"HTTP/1.1 200")
        with connected(api) as client:
            assert read_to_end(client).startswith(b"HTTP/1.1 503 ")


def test_a_client_that_does_not_read_its_responses_is_disconnected():
    requests = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000
    with running_api(small_result(), limits=SHORT) as api:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        client.settimeout(30)
        client.connect(("127.0.0.1", int(api.url.rpartition(":")[2])))
        with client, pytest.raises(OSError, match=r"reset|Broken pipe"):
            send_forever(client, requests)
        assert api.get("/livez").status == 200


@pytest.mark.parametrize("head", [b"X-A: " + b"a" * 200_000, b"X-A: b\r\n" * 20_000])
def test_headers_without_end_are_refused(head: bytes):
    with running_api(small_result()) as api, connected(api) as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        try:
            client.sendall(head)
        except ConnectionError:
            return
        assert read_to_end(client)[:13] in (b"HTTP/1.1 431 ", b"")


def test_headers_after_the_body_are_ignored():
    request = (
        b"POST /analyze HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nTrailer: X-Forwarded-For\r\n"
        b"Connection: close\r\n\r\n0\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n"
    )
    with running_api(small_result()) as api, connected(api, request) as client:
        assert read_to_end(client).startswith(b"HTTP/1.1 200 ")  # with that header it would not be local


def test_an_address_without_connections_has_a_reserve_of_its_own():
    limits = ConnectionLimits(connections=3, reserved_connections=1)
    events = b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with running_api(small_result(), limits=limits) as api, ExitStack() as stack:
        for _ in range(3):
            client = stack.enter_context(connected(api, events))
            assert client.recv(65536).startswith(b"HTTP/1.1 200")
        with connected(api) as client:
            assert read_to_end(client).startswith(b"HTTP/1.1 503 ")
        where = ("127.0.0.1", int(api.url.rpartition(":")[2]))
        probe = stack.enter_context(socket.create_connection(where, timeout=10, source_address=("127.0.0.2", 0)))
        probe.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert probe.recv(65536).startswith(b"HTTP/1.1 200")
