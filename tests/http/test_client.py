"""The HTTP client core on real sockets: limits, reuse of connections, cancellation, proxies, errors."""

import contextlib
import gzip
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trustme

from gpusteward.http.client import HttpClient, Request
from gpusteward.http.connections import load_tls_context
from gpusteward.http.errors import (
    ConfigurationFileError,
    ConnectError,
    ConnectionLostError,
    HttpError,
    InvalidRequestError,
    NoResponseError,
    NotSentError,
    ProtocolError,
    RequestCancelledError,
    ResponseTimeoutError,
    ResponseTooLargeError,
    TlsError,
)
from gpusteward.http.urls import parse_url
from tests.garbage import collecting_garbage
from tests.http.servers import Server, response, serving

GET = Request("GET", "/x")


def fetch(
    server: Server, request: Request = GET, *, timeout_seconds: float = 5, limit_bytes: int | None = None
) -> bytes:
    client = HttpClient(parse_url(server.url))
    with client.send(request, timeout_seconds=timeout_seconds, limit_bytes=limit_bytes) as received:
        return received.read()


def keeping_client(server: Server) -> closing[HttpClient]:
    return closing(HttpClient(parse_url(server.url), keeps_connections=True))


def test_a_request_carries_path_prefix_headers_and_body() -> None:
    with serving(response(b"ok", "X-Reply: 1", "Retry-After: 7", "Date: Thu, 01 Jan 1970 00:00:10 GMT")) as server:
        client = HttpClient(parse_url(server.url + "/prefix/"))
        request = Request("POST", "/path?a=b", b"body", {"X-Name": "value"})
        with client.send(request, timeout_seconds=5) as received:
            assert received.read() == b"ok"
    assert (received.status, received.headers["x-reply"]) == (200, "1")
    assert (received.date, received.retry_after_seconds) == (10.0, 7.0)
    head = server.requests[0]
    assert head.startswith(b"POST /prefix/path?a=b HTTP/1.1\r\n")
    assert b"X-Name: value\r\n" in head
    assert f"Host: 127.0.0.1:{server.port}\r\n".encode() in head


def test_a_chunked_body_and_one_that_ends_with_the_connection_are_read() -> None:
    with serving(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n") as server:
        assert fetch(server) == b"abcde"

    def end(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nabc")
        connection.shutdown(socket.SHUT_RDWR)

    with serving(end) as server:
        assert fetch(server) == b"abc"


WRITE = Request("PATCH", "/x", b"change")
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def send_before(client: HttpClient, *, seconds: float, timeout_seconds: float = 5) -> int:
    before = time.monotonic() + seconds
    with client.send(WRITE, timeout_seconds=timeout_seconds, send_before=before) as received:
        return received.status


def test_the_body_of_a_request_that_must_not_be_late_is_sent_when_the_server_asks_for_it() -> None:
    bodies: list[bytes] = []

    def ask(connection: socket.socket, _: bytes) -> None:
        connection.sendall(CONTINUE)
        bodies.append(connection.recv(100))
        connection.sendall(response())

    with serving(ask) as server, keeping_client(server) as client:
        assert send_before(client, seconds=5) == 200
    assert server.requests[0].endswith(b"Expect: 100-continue\r\n\r\n")
    assert bodies == [b"change"]


def test_the_body_is_sent_once_although_a_proxy_and_the_server_behind_it_both_ask() -> None:
    bodies: list[bytes] = []

    def ask(connection: socket.socket, _: bytes) -> None:
        connection.sendall(CONTINUE)
        bodies.append(connection.recv(100))
        connection.sendall(CONTINUE)
        time.sleep(0.1)  # a second body would be here by now
        connection.sendall(response())
        connection.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            bodies.append(connection.recv(100))

    with serving(ask) as server, keeping_client(server) as client:
        assert send_before(client, seconds=5) == 200
    assert b"".join(bodies) == b"change"


def test_never_sends_a_body_to_a_server_that_hangs() -> None:
    """It would be carried out when the server goes on."""
    rests: list[bytes] = []

    def hang(connection: socket.socket, _: bytes) -> None:
        time.sleep(0.4)
        with contextlib.suppress(OSError):
            connection.sendall(CONTINUE)
            rests.append(connection.recv(100))

    with serving(hang) as server, keeping_client(server) as client:
        with pytest.raises(NotSentError):
            send_before(client, seconds=0.2)
        assert server.closed_one.wait(5)
    assert len(server.requests) == 1
    assert not any(rests)


def test_a_server_that_has_the_body_and_hangs_leaves_open_what_happened() -> None:
    def hang(connection: socket.socket, _: bytes) -> None:
        connection.sendall(CONTINUE)
        connection.recv(100)
        server.stopping.wait(5)

    with serving(hang) as server, keeping_client(server) as client, pytest.raises(ResponseTimeoutError):
        send_before(client, seconds=0.3, timeout_seconds=0.4)


def test_a_refusal_without_asking_for_the_body_is_the_response_and_its_connection_is_not_reused() -> None:
    with serving(response(status="403 Forbidden")) as server, keeping_client(server) as client:
        assert [send_before(client, seconds=5) for _ in range(2)] == [403, 403]
        assert client.connection_count == 0
    assert server.connections == 2


def test_kept_connections_are_reused() -> None:
    with (
        serving(response(b"ok")) as server,
        keeping_client(server) as client,
    ):
        for _ in range(3):
            with client.send(GET, timeout_seconds=5) as received:
                received.read()
        assert (server.connections, client.connection_count) == (1, 1)


def test_a_connection_whose_response_was_not_read_to_its_end_is_not_reused() -> None:
    with (
        serving(response(b"ok")) as server,
        keeping_client(server) as client,
    ):
        with client.send(GET, timeout_seconds=5):
            pass
        assert client.connection_count == 0


def test_a_connection_that_the_server_announced_to_close_is_not_reused() -> None:
    with (
        serving(response(b"ok", "Connection: close")) as server,
        keeping_client(server) as client,
    ):
        with client.send(GET, timeout_seconds=5) as received:
            assert received.read() == b"ok"
        assert client.connection_count == 0


def test_an_idle_connection_that_the_server_closed_is_replaced() -> None:
    def respond_and_close(connection: socket.socket, _: bytes) -> None:
        connection.sendall(response(b"ok"))
        connection.shutdown(socket.SHUT_RDWR)

    with (
        serving(respond_and_close) as server,
        keeping_client(server) as client,
    ):
        for _ in range(2):
            with client.send(GET, timeout_seconds=5) as received:
                assert received.read() == b"ok"
            assert server.closed_one.wait(5)
        assert server.connections == 2


@pytest.mark.parametrize("dripped", [response(b"x" * 1000), b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500])
def test_the_timeout_is_that_of_the_whole_response_however_slowly_it_arrives(dripped: bytes) -> None:
    def drip(connection: socket.socket, _: bytes) -> None:
        for byte in dripped:
            if server.stopping.wait(0.01):
                return
            connection.sendall(bytes([byte]))

    with serving(drip) as server:
        began = time.monotonic()
        with pytest.raises(ResponseTimeoutError, match=r"no complete response within 0\.2 s"):
            fetch(server, timeout_seconds=0.2)
        assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    ("sent", "kind", "text"),
    [
        (response(b"x" * 10, length=100), ConnectionLostError, "before the end of the response"),
        (b"", NoResponseError, "without a response"),
        (b"SSH-2.0-OpenSSH\r\n", ProtocolError, "invalid HTTP response"),
        (b"\x1b[2J\r\n", ProtocolError, r"\?\[2J"),
        (response(b"x", "Content-Encoding: br"), ProtocolError, "unsupported content encoding 'br'"),
        (response(b"no gzip", "Content-Encoding: gzip"), ProtocolError, "damaged"),
        (response(gzip.compress(b"x" * 99, mtime=0)[:-9], "Content-Encoding: gzip"), ProtocolError, "truncated"),
        (
            response(gzip.compress(b"", mtime=0) * 1000, "Content-Encoding: gzip"),
            ProtocolError,
            "too many gzip members",
        ),
    ],
)
def test_a_broken_response_is_an_error_with_its_reason(sent: bytes, kind: type[HttpError], text: str) -> None:
    def send_and_close(connection: socket.socket, _: bytes) -> None:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_RDWR)

    with serving(send_and_close) as server, pytest.raises(kind, match=text):
        fetch(server)


@pytest.mark.parametrize(
    ("packed", "encoding"),
    [(gzip.compress(b"a", mtime=0) + gzip.compress(b"b", mtime=0), "gzip"), (zlib.compress(b"ab"), "deflate")],
)
def test_compressed_bodies_are_decoded(packed: bytes, encoding: str) -> None:
    with serving(response(packed, f"Content-Encoding: {encoding}")) as server:
        assert fetch(server) == b"ab"


@pytest.mark.parametrize(
    "sent", [response(b"x" * 1001), response(gzip.compress(b"x" * 1001, mtime=0), "Content-Encoding: gzip")]
)
def test_the_size_limit_is_that_of_the_decoded_body(sent: bytes) -> None:
    with serving(sent) as server:
        with pytest.raises(ResponseTooLargeError, match="larger than 1000 bytes"):
            fetch(server, limit_bytes=1000)
        assert len(fetch(server, limit_bytes=1001)) == 1001


@pytest.mark.parametrize(
    "sent",
    [
        response(b"x" * 50_000),
        response(b"x" * 200_000),
        response(gzip.compress(b"0" * 200_000), "Content-Encoding: gzip"),
        response(b"x" * 50_000, length=60_000),
        response(b"not gzip" * 5_000, "Content-Encoding: gzip"),
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2p1\r\n",
    ],
    ids=["good", "large", "bomb", "cut off", "damaged", "headers", "not HTTP"],
)
def test_a_response_is_freed_without_the_garbage_collector(sent: bytes) -> None:
    def respond(connection: socket.socket, _: bytes) -> None:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)

    with serving(respond) as server, collecting_garbage() as garbage, keeping_client(server) as client:
        for _ in range(2):
            with contextlib.suppress(HttpError), client.send(GET, timeout_seconds=5, limit_bytes=100_000) as received:
                received.read()
    assert garbage == []


def test_lines_are_split_and_limited() -> None:
    with serving(response(b"one\ntwo\nthr")) as server:
        client = HttpClient(parse_url(server.url))
        with client.send(GET, timeout_seconds=5) as received:
            assert list(received.lines(limit_bytes=10)) == [b"one", b"two"]
        with client.send(GET, timeout_seconds=5) as received, pytest.raises(ResponseTooLargeError, match="a line"):
            list(received.lines(limit_bytes=2))


def test_an_idle_timeout_replaces_that_of_the_whole_response() -> None:
    def respond(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(4):
            server.stopping.wait(0.1)
            connection.sendall(b"x")
        server.stopping.wait(10)

    with serving(respond) as server:
        client = HttpClient(parse_url(server.url))
        with client.send(GET, timeout_seconds=0.2, idle_timeout_seconds=0.3) as received:
            assert b"".join(next(received.chunks) for _ in range(4)) == b"xxxx"
            with pytest.raises(ResponseTimeoutError, match=r"no data for 0\.3 s"):
                next(received.chunks)


def test_an_idle_timeout_is_not_used_for_the_body_of_an_error() -> None:
    def respond(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 500 Internal Server Error\r\n\r\n")
        server.stopping.wait(10)

    with serving(respond) as server:
        client = HttpClient(parse_url(server.url))
        with client.send(GET, timeout_seconds=0.2, idle_timeout_seconds=30) as received:
            assert received.status == 500
            with pytest.raises(ResponseTimeoutError, match=r"no complete response within 0\.2 s"):
                received.read()


def test_the_status_can_be_read_where_the_body_cannot() -> None:
    with serving(response(b"x", "Content-Encoding: br")) as server:
        client = HttpClient(parse_url(server.url))
        with client.send(GET, timeout_seconds=5) as received:
            assert received.status == 200


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["before the headers", "in the body"])
def test_closing_the_client_from_another_thread_cancels_a_request(start: bytes) -> None:
    client: HttpClient

    def respond(connection: socket.socket, _: bytes) -> None:
        connection.sendall(start)
        threading.Timer(0.05, client.close).start()
        server.stopping.wait(10)

    with serving(respond) as server:
        client = HttpClient(parse_url(server.url))
        with pytest.raises(RequestCancelledError), client.send(GET, timeout_seconds=10) as received:
            received.read()
        with pytest.raises(RequestCancelledError), client.send(GET, timeout_seconds=10):
            pass


@pytest.mark.parametrize(
    "request_",
    [
        Request("GET", "/a b"),
        Request("GET", "/hush\r\nX: 1"),
        Request("GET", "/文"),
        Request("GET", "/x", headers={"X-Key": "hush\r\nX-Role: admin"}),
        Request("GET", "/x", headers={"X-Key": "hush文"}),
    ],
)
def test_a_request_that_http_does_not_allow_is_refused_without_repeating_it(request_: Request) -> None:
    with serving(response(b"ok")) as server:
        with pytest.raises(InvalidRequestError) as caught:
            fetch(server, request_)
        assert "hush" not in f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"
        assert not server.requests


def test_a_refused_connection_and_an_unknown_host_are_connect_errors() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    for url, text in ((f"http://127.0.0.1:{port}", "connection refused"), (f"http://{'a' * 70}.test", "UnicodeError")):
        with pytest.raises(ConnectError, match=text) as caught, HttpClient(parse_url(url)).send(GET, timeout_seconds=5):
            pass
        assert caught.value.text("zh").startswith("连接失败：")


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls_server(authority: trustme.CA) -> Iterator[Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with serving(response(b"ok"), context) as server:
        yield server


def test_a_certificate_is_trusted_only_with_its_authority(
    tls_server: Server, authority: trustme.CA, tmp_path: Path
) -> None:
    for issuer, name in ((authority, "ca"), (trustme.CA(), "other")):
        issuer.cert_pem.write_to_path(str(tmp_path / name))
    url = parse_url(tls_server.url)
    with HttpClient(url, tls=load_tls_context(tmp_path / "ca")).send(GET, timeout_seconds=5) as received:
        assert received.read() == b"ok"
    other = HttpClient(url, tls=load_tls_context(tmp_path / "other"))
    with (
        pytest.raises(TlsError, match="TLS failed: unable to get local issuer certificate"),
        other.send(GET, timeout_seconds=5),
    ):
        pass


@pytest.mark.parametrize("content", [None, "not a certificate"])
def test_a_ca_file_that_cannot_be_used_is_named(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "ca.pem").write_text(content)
    with pytest.raises(ConfigurationFileError, match=r"cannot use the CA file .*ca\.pem"):
        load_tls_context(tmp_path / "ca.pem")


def test_a_proxy_gets_absolute_urls_and_its_credentials() -> None:
    with serving(response(b"ok")) as server:
        proxy = parse_url(server.url.replace("//", "//user:pw@"))
        client = HttpClient(parse_url("http://example.test:81"), proxy=proxy)
        with client.send(GET, timeout_seconds=5) as received:
            assert received.read() == b"ok"
    assert server.requests[0].startswith(b"GET http://example.test:81/x HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic dXNlcjpwdw==\r\n" in server.requests[0]


def test_a_proxy_that_refuses_a_tunnel_is_reported() -> None:
    with serving(response(b"", status="407 Proxy Authentication Required")) as server:
        url, proxy = parse_url("https://example.test"), parse_url(server.url)
        client = HttpClient(url, tls=ssl.create_default_context(), proxy=proxy)
        with (
            pytest.raises(ConnectError, match="the proxy refused the connection: HTTP 407"),
            client.send(GET, timeout_seconds=5),
        ):
            pass
    assert server.requests[0].startswith(b"CONNECT example.test:443 HTTP/1.1\r\n")


def test_a_tunnel_of_a_proxy_carries_tls(tls_server: Server, authority: trustme.CA, tmp_path: Path) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca"))

    def join(connection: socket.socket, _: bytes) -> None:
        with socket.create_connection(("127.0.0.1", tls_server.port)) as upstream:
            connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=copy, args=(upstream, connection))
            back.start()
            copy(connection, upstream)
            back.join(5)

    with serving(join) as server:
        client = HttpClient(
            parse_url(tls_server.url), tls=load_tls_context(tmp_path / "ca"), proxy=parse_url(server.url)
        )
        with client.send(GET, timeout_seconds=5) as received:
            assert received.read() == b"ok"


def copy(source: socket.socket, sink: socket.socket) -> None:
    try:
        while chunk := source.recv(65536):
            sink.sendall(chunk)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass
