"""The HTTP server's pages, on real sockets."""

import gzip
import http.client
import json
import socket
from contextlib import suppress

import pytest

from gpusteward.agent.http.server import listen, serve
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.exposition import OPENMETRICS_TYPE, TEXT_TYPE
from gpusteward.core.settings import ListenAddress
from tests.agent.http.clients import LOOPBACK, FakeContent, Starter, connect, fetch
from tests.http_server.test_negotiation import PROMETHEUS_2
from tests.waiting import wait_until


def test_metrics_are_served_as_text_or_openmetrics_by_accept_header(start: Starter) -> None:
    server = start()
    response, body = fetch(server, "/metrics")
    assert (response.status, response.headers["Content-Type"], body) == (200, TEXT_TYPE, b"text\n")
    response, body = fetch(server, "/metrics", Accept=PROMETHEUS_2)
    assert (response.headers["Content-Type"], body) == (OPENMETRICS_TYPE, b"openmetrics\n")
    assert response.headers["Vary"] == "Accept, Accept-Encoding"


def test_metrics_are_compressed_on_request(start: Starter) -> None:
    response, body = fetch(start(), "/metrics", Accept_Encoding="gzip")
    assert response.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(body) == b"text\n"


def test_health_and_readiness_have_their_status_codes(start: Starter) -> None:
    server = start(FakeContent(healthy=False))
    for path in ("/healthz", "/health"):
        assert fetch(server, path)[0].status == 200
    response, body = fetch(server, "/readyz")
    assert (response.status, body) == (503, b"the snapshot is 40 s old\n")


def test_the_landing_page_links_to_everything(start: Starter) -> None:
    response, body = fetch(start(), "/")
    assert response.headers["Content-Type"].startswith("text/html")
    for path in (b'"/metrics"', b'"/healthz"', b'"/readyz"', b'"/snapshot"'):
        assert path in body


def test_no_response_names_the_server_or_allows_content_sniffing(start: Starter) -> None:
    for path in ("/", "/metrics", "/nothing"):
        response, _ = fetch(start(), path)
        assert "Server" not in response.headers
        assert response.headers["X-Content-Type-Options"] == "nosniff"


def test_a_local_client_gets_the_snapshot(start: Starter) -> None:
    response, body = fetch(start(), "/snapshot")
    assert (response.headers["Content-Type"], json.loads(body)) == ("application/json", {"node": "n1"})


@pytest.mark.parametrize("header", ["X_Forwarded_For", "Forwarded"])
def test_a_local_proxy_does_not_get_the_snapshot(header: str, start: Starter) -> None:
    assert fetch(start(), "/snapshot", **{header: "127.0.0.1"})[0].status == 403


def test_errors_have_one_shape(start: Starter) -> None:
    server = start(FakeContent(broken=True))
    cases = {("GET", "/x"): 404, ("POST", "/metrics"): 405, ("GET", "/metrics"): 500}
    for (method, path), status in cases.items():
        response, body = fetch(server, path, method=method)
        assert response.status == status
        assert set(json.loads(body)["error"]) == {"code", "message", "hint"}
        assert b"secret detail" not in body


def test_only_get_and_head_are_allowed_and_a_body_is_skipped(start: Starter) -> None:
    connection = connect(start())
    connection.request("POST", "/metrics", b"GET /healthz HTTP/1.1\r\n\r\n")
    response = connection.getresponse()
    response.read()
    assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
    connection.request("GET", "/metrics")
    assert connection.getresponse().read() == b"text\n"
    connection.close()


def test_head_has_the_length_and_no_body(start: Starter) -> None:
    connection = connect(start())
    for _ in range(2):
        connection.request("HEAD", "/metrics")
        response = connection.getresponse()
        assert (response.headers["Content-Length"], response.read()) == ("5", b"")
    connection.close()


def test_a_connection_serves_many_requests(start: Starter) -> None:
    connection = connect(start(FakeContent(size=50_000)))
    connection.connect()
    used = connection.sock
    for _ in range(5):
        connection.request("GET", "/metrics?collect=all")
        assert len(connection.getresponse().read()) == 250_000
        assert connection.sock is used
    connection.close()


def receive_all(client: socket.socket) -> bytes:
    """All bytes until the server closes the connection; closing it with unread bytes causes a reset."""
    received = b""
    with suppress(ConnectionResetError):
        while part := client.recv(65536):
            received += part
    return received


def test_a_page_larger_than_any_buffer_arrives_whole(start: Starter) -> None:
    page = FakeContent(size=4_000_000)
    with socket.create_connection(start(page).address) as client:
        client.settimeout(10)
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        received = receive_all(client)
    assert received.endswith(b"text\n")
    assert len(received) > 20_000_000


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"NONSENSE\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/9.9\r\n\r\n", b"505"),
        (b"GET /metrics HTTP/1.1\r\nX: a\r\rContent-Length: 60\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nX: a\rContent-Length: 60\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nX: a\r\r\n\r\n", b"400"),
        (b"GET /" + b"x" * 5000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 40_000 + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", b"431"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"405"),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"405"),
        (b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 900 + b"\r\n\r\n", b"405"),
        (b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\nX: 1\r\n" + b" 1\r\n" * 200 + b"\r\n", b"431"),
        (b"POST / HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 25\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n", b"405"),
        (b"POST / HTTP/1.1\r\nContent-Length : 25\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n", b"400"),
        (b"GET http://node:9400/healthz HTTP/1.1\r\nConnection: close\r\n\r\n", b"200"),
    ],
)
def test_invalid_requests_get_one_response_and_the_connection_is_closed(
    request_bytes: bytes, status: bytes, start: Starter
) -> None:
    with socket.create_connection(start().address) as client:
        client.settimeout(10)
        client.sendall(request_bytes)
        response_bytes = receive_all(client)
        assert response_bytes.startswith(b"HTTP/1.1 " + status)
        assert response_bytes.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("begun", [b"GET /metrics HTTP/1.1", b"GET /metrics HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nX: a"])
def test_a_request_that_ends_in_its_head_is_refused(begun: bytes, start: Starter) -> None:
    with socket.create_connection(start().address) as client:
        client.settimeout(10)
        client.sendall(begun)
        client.shutdown(socket.SHUT_WR)
        assert receive_all(client).startswith(b"HTTP/1.1 400")


def test_close_shuts_all_connections_down_and_frees_the_port() -> None:
    server = serve(FakeContent(), LOOPBACK)
    address = server.address
    with socket.create_connection(address) as client:
        wait_until(lambda: len(server.connections) == 1)
        server.close()
        client.settimeout(10)
        assert client.recv(1) == b""
    listen(address).close()


def test_a_port_in_use_is_reported_with_advice(start: Starter) -> None:
    address = start().address
    with pytest.raises(ConfigurationError, match=rf"127\.0\.0\.1:{address.port}: port \d+ is in use; .*--address"):
        listen(address)


def test_an_address_of_another_machine_is_reported() -> None:
    with pytest.raises(ConfigurationError, match=r"192\.0\.2\.1 is not an address of this machine"):
        listen(ListenAddress("192.0.2.1", 0))


def test_an_unknown_host_is_reported() -> None:
    with pytest.raises(ConfigurationError, match="unknown host 'no such host'"):
        listen(ListenAddress("no such host", 9400))


def test_without_a_host_ipv4_and_ipv6_are_served() -> None:
    server = serve(FakeContent(), ListenAddress("", 0))
    port = server.address.port
    assert server.url == f"http://localhost:{port}"
    for host in ["127.0.0.1"] + (["::1"] if socket.has_dualstack_ipv6() else []):
        connection = http.client.HTTPConnection(host, port, timeout=10)
        connection.request("GET", "/snapshot")
        assert connection.getresponse().status == 200
        connection.close()
    server.close()
