"""Request line and headers of an HTTP/1 request.

Not `http.server`: it loads the HTML entities, MIME types and socket servers, 0.7 MB that the agent does not need.
"""

import re
from http import HTTPStatus
from typing import NamedTuple

from gpusteward.http.http1 import Headers, LongMessageError, MessageError, Reader, read_headers
from gpusteward.http_server.header_limits import find_long_header

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
    headers: Headers

    @property
    def path(self) -> str:
        """Without the query, and without the host if the target is a whole URL."""
        target = self.target.partition("?")[0]
        return target if target.startswith("/") else "/" + target.partition("://")[2].partition("/")[2]

    @property
    def keeps_connection(self) -> bool:
        connection = self.headers.get("Connection", "").lower()
        return connection != "close" and (self.is_http11 or connection == "keep-alive")


def parse_request(line: bytes, reader: Reader) -> Request:
    """The request with this first line; the headers are read. Raises BadRequestError."""
    match = _REQUEST_LINE.fullmatch(line.decode("latin-1"))
    if match is None:
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "the request line is invalid")
    method, target, version = match[1], match[2], (int(match[3]), int(match[4]))
    if not (1, 0) <= version < (2, 0):
        raise BadRequestError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1 is supported")
    try:
        headers = read_headers(reader)
    except LongMessageError as error:
        raise BadRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the headers are too large") from error
    except MessageError as error:
        raise BadRequestError(HTTPStatus.BAD_REQUEST, f"invalid headers: {error or 'incomplete'}") from error
    if name := find_long_header(headers.items()):
        raise BadRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the header {name} is too long")
    return Request(method, target, version >= (1, 1), headers)
