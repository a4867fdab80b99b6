"""What is not a complete response of HTTP/1.1 is an error; requests have the headers that HTTP requires."""

from http.client import HTTPException, IncompleteRead, RemoteDisconnected

import pytest

from gpusteward.http.client import HttpClient, Request
from gpusteward.http.connections import RawResponse
from gpusteward.http.urls import parse_url
from tests.http.servers import receiving, response, serving

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def read(data: bytes, *, method: str = "GET") -> tuple[int, bytes, bool]:
    """Status, body, and whether the connection can be used again."""
    with receiving(data) as timed, RawResponse(timed, method) as found:
        body = b"".join(iter(found.read_some, b""))
        assert found.is_complete
        return found.status, body, not found.will_close


@pytest.mark.parametrize(
    ("data", "status", "body", "is_kept"),
    [
        (OK + b"content-length:5\r\n\r\nabcde", 200, b"abcde", True),
        (OK + b"Content-Length: 5\r\nConnection: close\r\n\r\nabcde", 200, b"abcde", False),
        (OK + b"X: \xe4\xf6\r\n\r\nuntil the end", 200, b"until the end", False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab", 200, b"ab", False),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nab", 200, b"ab", True),
        (b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nab", 200, b"ab", True),
        (
            CHUNKED + b"3\r\nabc\r\n0a;name=value\r\n0123456789\r\n0\r\nX-Trailer: 1\r\n\r\n",
            200,
            b"abc0123456789",
            True,
        ),
    ],
)
def test_a_response_is_read_to_its_end(data: bytes, status: int, body: bytes, is_kept: bool) -> None:
    assert read(data) == (status, body, is_kept)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", RemoteDisconnected),
        (OK, IncompleteRead),
        (OK + b"X: y", IncompleteRead),
        (OK + b"Content-Length: 5\r\n\r\nabc", IncompleteRead),
        (CHUNKED + b"3\r\nab", IncompleteRead),
        (CHUNKED + b"3\r\nabc\r\n", IncompleteRead),
        (b"ICY 200 OK\r\n\r\n", HTTPException),
        (b"HTTP/2 200 OK\r\n\r\n", HTTPException),
        (b"HTTP/1.1 20 OK\r\n\r\n", HTTPException),
        (OK + b"no colon\r\n\r\n", HTTPException),
        (OK + b": no name\r\n\r\n", HTTPException),
        (OK + b"blank : x\r\n\r\n", HTTPException),
        (OK + b" folded into nothing\r\n\r\n", HTTPException),
        (CHUNKED + b"-1\r\nabc\r\n", HTTPException),
        (CHUNKED + b"\r\n", HTTPException),
        (CHUNKED + b"2\r\nabc\r\n0\r\n\r\n", HTTPException),
        (CHUNKED + b"f" * 17 + b"\r\n", HTTPException),
        (OK + b"X: " + b"y" * 65_536 + b"\r\n\r\n", HTTPException),
        (OK + b"X: y\r\n" * 101 + b"\r\n", HTTPException),
    ],
)
def test_what_is_not_a_complete_response_is_an_error(data: bytes, kind: type[HTTPException]) -> None:
    with pytest.raises(kind):
        read(data)


def test_a_request_has_the_headers_that_http_requires_unless_they_are_given() -> None:
    with serving(lambda connection, _: connection.sendall(response())) as server:
        client = HttpClient(parse_url(server.url))
        for request in (
            Request("GET", "/x", headers={"X": "1"}),
            Request("POST", "/", headers={"host": "other", "accept-encoding": "gzip"}),
            Request("DELETE", "/", b"abc"),
        ):
            with client.send(request, timeout_seconds=5) as received:
                received.read()
        host = server.url.removeprefix("http://").encode()
        assert server.requests == [
            b"GET /x HTTP/1.1\r\nHost: " + host + b"\r\nAccept-Encoding: identity\r\nX: 1\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: 0\r\nhost: other\r\naccept-encoding: gzip\r\n\r\n",
            b"DELETE / HTTP/1.1\r\nHost: " + host + b"\r\nAccept-Encoding: identity\r\nContent-Length: 3\r\n\r\nabc",
        ]
