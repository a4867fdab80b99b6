"""The sizes of what a client may send, checked before anything of it is interpreted. The limit of the whole head is the
server's (`http_server.py`): it parses the head."""

import re

from starlette.datastructures import Headers
from starlette.types import Scope

from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.api.http.sessions import COOKIE, read_cookie
from gpusteward.http_server.header_limits import find_long_header
from gpusteward.messages.errors import api_errors

LARGEST_REQUEST_BYTES = 64 * 1024
"""No endpoint needs more."""
MOST_HEADERS = 100
_LENGTH = re.compile(r"[0-9]{1,9}")
_SESSION = re.compile(r"[A-Za-z0-9_-]{1,100}")


def limit_request(scope: Scope) -> None:
    """Of all cookies the session's own stays: FastAPI parses them for every route, and before 3.12.6 Python takes
    seconds to parse some. Raises a 413 or 431 problem."""
    headers = Headers(scope=scope)
    if len(scope["headers"]) > MOST_HEADERS:
        raise ProblemError(431, "too-large", api_errors.TOO_MANY_HEADERS, most=MOST_HEADERS)
    if name := find_long_header(headers.items()):
        raise ProblemError(431, "too-large", api_errors.HEADER_TOO_LONG, name=name)
    length = headers.get("content-length", "0")
    if not _LENGTH.fullmatch(length) or int(length) > LARGEST_REQUEST_BYTES:
        raise ProblemError(413, "too-large", api_errors.TOO_LARGE, bytes=LARGEST_REQUEST_BYTES)
    if "cookie" in headers:
        others = [(name, value) for name, value in scope["headers"] if name != b"cookie"]
        value = read_cookie(headers)
        own = [(b"cookie", f"{COOKIE}={value}".encode())] if _SESSION.fullmatch(value) else []
        scope["headers"] = others + own
