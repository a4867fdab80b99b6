"""Targets that are slow, huge or broken fail with the reason; redirects to other servers are not followed."""

import asyncio
import gzip
import socket
import ssl
from collections.abc import Awaitable, Callable

import pytest
import trustme

from gpusteward.analyzer.sources.scrape.scrape_loop import Fetcher
from gpusteward.core.errors import SourceError
from gpusteward.http.async_connection import HEADERS_LIMIT_BYTES, AsyncConnection
from gpusteward.http.urls import HttpUrl
from tests.garbage import collecting_garbage

PAGE = b'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 5\n' * 50
LIMIT = 100_000
Respond = Callable[[asyncio.StreamWriter, bytes], Awaitable[None]]


def send(*parts: bytes, pause: float = 0.0, then_close: bool = True) -> Respond:
    """Responds with these bytes, one part after the other."""

    async def respond(writer: asyncio.StreamWriter, _: bytes) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)
        if then_close:
            writer.close()

    return respond


def ok(body: bytes, *headers: bytes, length: int | None = None) -> bytes:
    size = b"Content-Length: %d" % (len(body) if length is None else length)
    return b"\r\n".join([b"HTTP/1.1 200 OK", size, *headers, b"", body])


async def _run_exchange(
    responses: list[Respond],
    times: int,
    tls: tuple[ssl.SSLContext, ssl.SSLContext] | None,
    *,
    host: str = "127.0.0.1",
    **options: object,
) -> tuple[list[bytes | SourceError], list[bytes]]:
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                requests.append(head)
                await responses[min(len(requests), len(responses)) - 1](writer, head)
                if writer.is_closing():
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client has disconnected, or the test is over
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls[0] if tls else None)
    port = server.sockets[0].getsockname()[1]
    address = HttpUrl("https" if tls else "http", host, port, "/metrics")
    arguments = {"limit_bytes": LIMIT, "timeout_seconds": 5.0, "tls": tls[1] if tls else None, **options}
    fetcher = Fetcher(address, **arguments)
    got: list[bytes | SourceError] = []
    for _ in range(times):
        try:
            got.append(await fetcher.fetch({"X-Secret": "1"}))
        except SourceError as error:
            got.append(SourceError(error.as_message()))  # without its traceback, which refers to this frame
    fetcher.close()
    server.close()
    return got, requests


def exchange(*responses: Respond, times: int = 1, tls=None, **options: object):
    return asyncio.run(_run_exchange(list(responses), times, tls, **options))


def fetch(respond: Respond, **options: object) -> bytes:
    (got,), _ = exchange(respond, **options)
    if isinstance(got, SourceError):
        raise got
    return got


def test_plain_and_compressed_pages_are_read():
    assert fetch(send(ok(PAGE))) == PAGE
    assert fetch(send(ok(gzip.compress(PAGE), b"Content-Encoding: gzip"))) == PAGE


def test_a_chunked_page_and_one_that_ends_with_the_connection_are_read():
    chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n" + PAGE[:5] + b"\r\n2\r\n" + PAGE[5:7]
    assert fetch(send(chunks + b"\r\n0\r\n\r\n")) == PAGE[:7]
    assert fetch(send(b"HTTP/1.1 200 OK\r\n\r\n", PAGE)) == PAGE


@pytest.mark.parametrize(
    "respond",
    [
        send(ok(PAGE)),
        send(ok(b"x" * (LIMIT + 1))),
        send(ok(gzip.compress(b"0" * (LIMIT + 1)), b"Content-Encoding: gzip")),
        send(ok(b"x" * LIMIT, length=2 * LIMIT)),
        send(ok(b"not gzip" * 5000, b"Content-Encoding: gzip")),
        send(b"SSH-2.0-OpenSSH_9.2p1\r\n"),
        send(b"HTTP/1.1 200 OK\r\nX: ", b"y" * (2 * HEADERS_LIMIT_BYTES)),
        send(b"HTTP/1.1 503 No\r\nContent-Length: %d\r\n\r\n" % LIMIT, b"x" * LIMIT),
        send(b"HTTP/1.1 302 No\r\nLocation: http://a/\r\nContent-Length: %d\r\n\r\n" % LIMIT, b"x" * LIMIT),
        send(ok(b"x" * LIMIT, length=2 * LIMIT), pause=30, then_close=False),
    ],
    ids=["good", "large", "bomb", "cut off", "damaged", "not HTTP", "headers", "refused", "redirected", "slow"],
)
def test_a_page_is_freed_without_the_garbage_collector(respond: Respond):
    with collecting_garbage() as garbage:
        exchange(respond, timeout_seconds=0.3)
    assert garbage == []


@pytest.mark.parametrize(
    ("respond", "reason"),
    [
        (send(ok(PAGE, length=10 * len(PAGE))), "before the end of the response"),
        (send(ok(b"x" * (LIMIT + 1))), f"larger than {LIMIT} bytes"),
        (send(ok(b"", length=10**12), b"x" * (LIMIT + 1)), f"larger than {LIMIT} bytes"),
        (send(ok(gzip.compress(b"0" * (LIMIT + 1)), b"Content-Encoding: gzip")), f"larger than {LIMIT} bytes"),
        (send(ok(gzip.compress(PAGE)[:-9], b"Content-Encoding: gzip")), "truncated"),
        (send(ok(b"not gzip", b"Content-Encoding: gzip")), "damaged"),
        (send(ok(PAGE, b"Content-Encoding: br")), "unsupported content encoding"),
        (send(b"SSH-2.0-OpenSSH_9.2p1\r\n"), "invalid HTTP response"),
        (send(b"HTTP/1.1 200 OK\r\nX: ", b"y" * (2 * HEADERS_LIMIT_BYTES)), "headers too large"),
        (
            send(b"HTTP/1.1 200 OK\r\n", *[b"X-%d: %s\r\n" % (n, b"y" * 900) for n in range(100)]),
            "headers too large",
        ),
        (send(b""), "without a response"),
        (send(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n"), "scrape.username"),
        (send(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"), "HTTP 503"),
    ],
)
def test_a_broken_response_is_reported_with_its_reason(respond: Respond, reason: str):
    with pytest.raises(SourceError, match=reason):
        fetch(respond)


@pytest.mark.parametrize(
    "respond",
    [
        send(b"", pause=30, then_close=False),
        send(*[bytes([byte]) for byte in ok(PAGE)], pause=0.01),
        send(b"HTTP/1.1 200 OK\r\n", *[b"X-%d: 1\r\n" % n for n in range(500)], pause=0.01),
    ],
    ids=["no response", "a slow page", "slow headers"],
)
def test_the_timeout_limits_the_whole_scrape(respond: Respond):
    with pytest.raises(SourceError, match=r"within 0\.2 s"):
        fetch(respond, timeout_seconds=0.2)


def test_data_beyond_the_content_length_is_ignored_and_closes_the_connection():
    pages, requests = exchange(send(ok(PAGE) + b"more than announced", then_close=False), times=3)
    assert pages == [PAGE] * 3
    assert len(requests) == 3


TRAILERS = b"".join(b"X-%d: y\r\n" % number for number in range(100_000))


def test_trailers_without_end_are_refused():
    begun = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    with pytest.raises(SourceError, match="more chunk headers or trailers than content"):
        fetch(send(begun, TRAILERS, then_close=False))


def test_a_connection_with_unrequested_data_is_closed():
    async def receive() -> None:
        ours, theirs = socket.socketpair()
        connection = AsyncConnection(limit_bytes=LIMIT)
        await asyncio.get_running_loop().create_connection(lambda: connection, sock=ours)
        assert connection.is_open
        with theirs:
            theirs.sendall(ok(PAGE))
            async with asyncio.timeout(5):
                while connection.is_open:
                    await asyncio.sleep(0)

    asyncio.run(receive())


def test_a_connection_is_kept_between_scrapes():
    connections: set[object] = set()

    async def respond(writer: asyncio.StreamWriter, _: bytes) -> None:
        connections.add(writer.get_extra_info("peername"))
        writer.write(ok(PAGE))

    assert exchange(respond, times=3)[0] == [PAGE] * 3
    assert len(connections) == 1


def test_a_connection_is_opened_again_when_the_target_closed_it():
    pages, requests = exchange(send(ok(PAGE), then_close=False), send(ok(PAGE)), send(ok(PAGE)), times=4)
    assert pages == [PAGE] * 4
    assert all(b"Accept-Encoding: gzip" in head and b"X-Secret: 1" in head for head in requests)


def redirect(where: str) -> Respond:
    return send(b"HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % where.encode(), then_close=False)


def test_a_redirect_within_the_target_is_followed():
    pages, requests = exchange(redirect("/other/metrics"), send(ok(PAGE)))
    assert pages == [PAGE]
    assert requests[1].startswith(b"GET /other/metrics HTTP/1.1\r\n")


def test_a_redirect_does_not_carry_the_credentials_of_the_target():
    pages, requests = exchange(redirect("/other/metrics"), send(ok(PAGE), then_close=False), send(ok(PAGE)), times=2)
    assert pages == [PAGE, PAGE]
    assert [b"X-Secret: 1" in head for head in requests] == [True, False, True]


@pytest.mark.parametrize("status", [b"401 Unauthorized", b"403 Forbidden"])
def test_where_the_new_path_needs_credentials_the_error_says_to_use_it(status: bytes):
    refusal = send(b"HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n" % status)
    (error,), requests = exchange(redirect("/other/metrics"), refusal)
    assert "redirects to '/other/metrics'" in str(error)
    assert "use that path" in str(error)
    assert len(requests) == 2


def test_a_redirect_is_followed_whatever_the_case_of_the_host():
    pages, requests = exchange(redirect("/other/metrics?x=1"), send(ok(PAGE)), host="LocalHost")
    assert pages == [PAGE]
    assert requests[1].startswith(b"GET /other/metrics?x=1 HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "where", ["http://169.254.169.254/latest", "//elsewhere/metrics", "https://127.0.0.1/", "ftp:x", "/two words"]
)
def test_a_redirect_to_another_server_is_not_followed(where: str):
    (error,), requests = exchange(redirect(where))
    assert "not followed" in str(error)
    assert len(requests) == 1


def test_a_redirect_loop_ends():
    (error,), requests = exchange(redirect("/metrics"))
    assert "redirects" in str(error)
    assert len(requests) == 4


def test_certificates_are_checked_against_the_right_authority():
    authority, other = trustme.CA(), trustme.CA()
    server, trusting, distrusting = (
        ssl.SSLContext(kind) for kind in (ssl.PROTOCOL_TLS_SERVER, *[ssl.PROTOCOL_TLS_CLIENT] * 2)
    )
    authority.issue_cert("gpu-node").configure_cert(server)
    authority.configure_trust(trusting)
    other.configure_trust(distrusting)
    assert exchange(send(ok(PAGE)), tls=(server, trusting), server_name="gpu-node")[0] == [PAGE]
    for client, name in ((distrusting, "gpu-node"), (trusting, "another-node")):
        ((error,), requests) = exchange(send(ok(PAGE)), tls=(server, client), server_name=name)
        assert "TLS failed" in str(error)
        assert not requests


def test_a_refused_connection_is_reported():
    async def fetch_from_closed_port() -> bytes:
        url = HttpUrl("http", "127.0.0.1", 9, "/metrics")
        return await Fetcher(url, limit_bytes=1, timeout_seconds=5, tls=None).fetch({})

    with pytest.raises(SourceError, match="connection failed"):
        asyncio.run(fetch_from_closed_port())
