"""Messages of HTTP/1.1: the same as `http.client` sees in them, or an error."""

import io
import socket
from http.client import HTTPResponse
from typing import cast

import pytest

from gpusteward.http.http1 import (
    MAX_HEADERS,
    MAX_LINE_BYTES,
    LongMessageError,
    MessageError,
    NothingReceivedError,
    RawResponse,
    TruncatedError,
    encode_request,
)

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


class _Pieces(io.RawIOBase):
    """Arrives in pieces of this size."""

    def __init__(self, data: bytes, size: int) -> None:
        self._source = io.BytesIO(data)
        self._size = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        return self._source.readinto(buffer[: self._size])


def read(data: bytes, *, method: str = "GET", size: int = 1 << 20) -> tuple[int, str, dict[str, str], bytes, bool]:
    """Status, reason, headers, body, and whether the connection can be used again."""
    response = RawResponse(io.BufferedReader(_Pieces(data, size)), method)
    body = b""
    while piece := response.read_some():
        body += piece
    assert response.is_complete
    return response.status, response.reason, response.headers.last_values(), body, not response.will_close


class _Socket:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def read_with_http_client(data: bytes, method: str) -> tuple[int, str, dict[str, str], bytes, bool]:
    response = HTTPResponse(cast("socket.socket", _Socket(data)), method=method)
    response.begin()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return response.status, response.reason, headers, response.read(), not response.will_close


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize(
    ("data", "method"),
    [
        (OK + b"Content-Length: 5\r\n\r\nabcde", "GET"),
        (OK + b"content-length:5\r\nX-A: 1\r\nx-a:  2\r\n\r\nabcde", "GET"),
        (OK + b"Content-Length: 5\r\nConnection: close\r\n\r\nabcde", "GET"),
        (OK + b"Content-Length: 0\r\n\r\n", "GET"),
        (OK + b"Content-Length: 5\r\n\r\n", "HEAD"),
        (OK + b"Content-Length: five\r\n\r\nabcde", "GET"),
        (OK + b"X: \xe4\xf6\r\n\r\nuntil the end", "GET"),
        (OK.replace(b"\r\n", b"\n") + b"Content-Length: 2\n\nab", "GET"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "GET"),
        (b"HTTP/1.1 304\r\nContent-Length: 9\r\n\r\n", "GET"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab", "GET"),
        (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\nab", "GET"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nab", "POST"),
        (b"HTTP/1.1 503 Service  Unavailable \r\nContent-Length: 2\r\n\r\nab", "GET"),
        (CHUNKED + b"3\r\nabc\r\n0a;name=value\r\n0123456789\r\n0\r\n\r\n", "GET"),
        (CHUNKED + b"1\r\n\n\r\n0\r\nX-Trailer: 1\r\n\r\n", "GET"),
    ],
)
def test_a_response_is_read_as_http_client_reads_it(data: bytes, method: str, size: int) -> None:
    assert read(data, method=method, size=size) == read_with_http_client(data, method)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", NothingReceivedError),
        (OK, TruncatedError),
        (OK + b"X: y", TruncatedError),
        (OK + b"Content-Length: 5\r\n\r\nabc", TruncatedError),
        (CHUNKED + b"3\r\nab", TruncatedError),
        (CHUNKED + b"3\r\nabc\r\n", TruncatedError),
        (CHUNKED + b"0\r\n", TruncatedError),
        (b"ICY 200 OK\r\n\r\n", MessageError),
        (b"HTTP/2 200 OK\r\n\r\n", MessageError),
        (b"HTTP/1.1 20 OK\r\n\r\n", MessageError),
        (OK + b"no colon\r\n\r\n", MessageError),
        (OK + b": no name\r\n\r\n", MessageError),
        (OK + b"blank : x\r\n\r\n", MessageError),
        (OK + b" folded into nothing\r\n\r\n", MessageError),
        (OK + b"X: a\rY: b\r\n\r\n", MessageError),
        (CHUNKED + b"-1\r\nabc\r\n", MessageError),
        (CHUNKED + b"0x3\r\nabc\r\n", MessageError),
        (CHUNKED + b"\r\n", MessageError),
        (CHUNKED + b"2\r\nabc\r\n0\r\n\r\n", MessageError),
        (CHUNKED + b"f" * 17 + b"\r\n", MessageError),
        (OK + b"X: " + b"y" * MAX_LINE_BYTES + b"\r\n\r\n", LongMessageError),
        (OK + b"X: y\r\n" * (MAX_HEADERS + 1) + b"\r\n", LongMessageError),
        (CHUNKED + b"0\r\n" + b"X: y\r\n" * (MAX_HEADERS + 1) + b"\r\n", LongMessageError),
    ],
)
def test_what_is_not_a_complete_response_is_an_error(data: bytes, kind: type[MessageError]) -> None:
    with pytest.raises(MessageError) as caught:
        read(data)
    assert type(caught.value) is kind


def test_a_folded_header_is_one_value() -> None:
    assert read(OK + b"X: a\r\n\t b\r\nContent-Length: 0\r\n\r\n")[2]["x"].split() == ["a", "b"]


def test_a_request_has_the_headers_that_http_requires_unless_they_are_given() -> None:
    sent = encode_request("GET", "/x", host="h:81", body=None, headers={"X": "1"})
    assert sent == b"GET /x HTTP/1.1\r\nHost: h:81\r\nAccept-Encoding: identity\r\nX: 1\r\n\r\n"
    sent = encode_request("POST", "/", host="h", body=None, headers={"host": "other", "accept-encoding": "gzip"})
    assert sent == b"POST / HTTP/1.1\r\nContent-Length: 0\r\nhost: other\r\naccept-encoding: gzip\r\n\r\n"
    assert b"Content-Length: 3\r\n" in encode_request("DELETE", "/", host="h", body=b"abc", headers={})
