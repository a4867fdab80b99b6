"""Request line and headers of an HTTP/1 request.

Not `http.server`: it loads the HTML entities, MIME types and socket servers, 0.7 MB that the agent does not need.
"""

import re
from http import HTTPStatus
from http.client import HTTPException, HTTPMessage, parse_headers
from typing import BinaryIO, NamedTuple, cast

_REQUEST_LINE = re.compile(r"(\S+) +(\S+) +HTTP/(\d{1,3})\.(\d{1,3})\s*")


class BadRequestError(Exception):
    """A request that cannot be parsed."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class Request(NamedTuple):
    method: str
    target: str
    is_http11: bool  # False: HTTP/1.0
    headers: HTTPMessage

    @property
    def path(self) -> str:
        """Without the query, and without the host if the target is a whole URL."""
        target = self.target.partition("?")[0]
        return target if target.startswith("/") else "/" + target.partition("://")[2].partition("/")[2]

    @property
    def keeps_connection(self) -> bool:
        connection = self.headers.get("Connection", "").lower()
        return connection != "close" and (self.is_http11 or connection == "keep-alive")


class _HeaderLines:
    """The lines of the headers. The parser behind `parse_headers` would end a line at a carriage return alone, where a
    proxy in front of the agent may not."""

    def __init__(self, reader: BinaryIO) -> None:
        self._reader = reader

    def readline(self, limit: int = -1) -> bytes:
        """Raises BadRequestError."""
        line = self._reader.readline(limit)
        if b"\r" in line.removesuffix(b"\n").removesuffix(b"\r"):
            raise BadRequestError(HTTPStatus.BAD_REQUEST, "a header contains a carriage return")
        return line


def parse_request(line: bytes, reader: BinaryIO) -> Request:
    """The request with this first line; the headers are read. Raises BadRequestError."""
    match = _REQUEST_LINE.fullmatch(line.decode("latin-1"))
    if match is None:
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "the request line is invalid")
    method, target, version = match[1], match[2], (int(match[3]), int(match[4]))
    if not (1, 0) <= version < (2, 0):
        raise BadRequestError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1 is supported")
    try:
        headers = parse_headers(cast("BinaryIO", _HeaderLines(reader)))
    except HTTPException as error:  # a long line, or many of them
        raise BadRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the headers are too large") from error
    return Request(method, target, version >= (1, 1), headers)
