"""Messages of HTTP/1.1 (RFC 9112): headers, requests to send, responses as they arrive.

Not `http.client`: it loads the parsers of e-mail and, where no TLS is used, ssl: 7 MB of an agent's memory.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

MAX_LINE_BYTES = 65_536
MAX_HEADERS = 100
_CHUNK_BYTES = 1 << 18
_STATUS_LINE = re.compile(r"HTTP/1\.(\d) +(\d{3})(?: +(.*))?")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;.*)?")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


class MessageError(Exception):
    """Not a message of HTTP/1.1."""


class LongMessageError(MessageError):
    """A line that is too long, or too many headers."""


class TruncatedError(MessageError):
    """The connection ended inside a message."""


class NothingReceivedError(TruncatedError):
    """The connection ended before a message."""


class Reader(Protocol):
    """A buffered reader of a connection."""

    def readline(self, limit: int = ..., /) -> bytes: ...

    def read1(self, size: int = ..., /) -> bytes: ...

    def close(self) -> None: ...


class Headers:
    """Headers by name in any case, in their order."""

    def __init__(self) -> None:
        self._values: dict[str, list[str]] = {}  # by name in lower case

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def add(self, name: str, value: str) -> None:
        self._values.setdefault(name.lower(), []).append(value)

    def keys(self) -> Iterable[str]:
        """Names in lower case."""
        return self._values.keys()

    def items(self) -> Iterable[tuple[str, str]]:
        """Names in lower case; one that occurs twice is there twice."""
        return ((name, value) for name, values in self._values.items() for value in values)

    def get(self, name: str, default: str = "", /) -> str:
        """The first value."""
        return self._values.get(name.lower(), (default,))[0]

    def get_all(self, name: str) -> list[str]:
        return self._values.get(name.lower(), [])

    def last_values(self) -> dict[str, str]:
        return {name: values[-1] for name, values in self._values.items()}


def read_headers(reader: Reader) -> Headers:
    """The headers up to the empty line that ends them. Raises MessageError and its kinds, OSError."""
    fields: list[tuple[str, str]] = []
    lines = 0  # also those that continue another
    while line := _read_line(reader):
        if (lines := lines + 1) > MAX_HEADERS:
            raise LongMessageError(f"more than {MAX_HEADERS} headers")
        name, colon, value = line.partition(":")
        if line[0] in " \t" and fields:  # a folded line continues the last one
            name, value = fields[-1][0], f"{fields.pop()[1]} {line}"
        elif not colon or not _NAME.fullmatch(name):
            raise MessageError("a line that is not a header")
        fields.append((name, value.strip(" \t")))
    headers = Headers()
    for name, value in fields:
        headers.add(name, value)
    return headers


def _read_line(reader: Reader) -> str:
    """A line without its end. A carriage return alone is no end: others might see one there."""
    line = reader.readline(MAX_LINE_BYTES + 1)
    if len(line) > MAX_LINE_BYTES:
        raise LongMessageError(f"a line of more than {MAX_LINE_BYTES} bytes")
    if not line.endswith(b"\n"):
        raise TruncatedError
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    if b"\r" in line:
        raise MessageError("a carriage return inside a line")
    return line.decode("latin-1")


def encode_request(method: str, target: str, *, host: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
    """Request line and headers. The headers must be valid."""
    own = {"Host": host, "Accept-Encoding": "identity"}
    if body is not None or method in _METHODS_WITH_BODY:
        own["Content-Length"] = str(len(body or b""))
    given = {name.lower() for name in headers}
    own = {name: value for name, value in own.items() if name.lower() not in given}
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in (own | dict(headers)).items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


class RawResponse:
    """A response whose headers have arrived; its body is read piece by piece, as it was sent."""

    def __init__(self, reader: Reader, method: str, on_continue: Callable[[], None] = lambda: None) -> None:
        """Read up to the end of the headers. `on_continue` is called when the server asks for the body with the status
        100. Raises MessageError and its kinds, OSError, and what `on_continue` raises."""
        self._reader = reader
        self.status, self.reason, is_http11, self.headers = _read_head(reader, on_continue)
        self._is_chunked = self.headers.get("transfer-encoding").lower() == "chunked"
        self._left: int | None = None  # bytes of the body, or of its current chunk; None: until the connection ends
        if method == "HEAD" or self.status in (204, 304) or (method == "CONNECT" and self.status < 300):
            self._left, self._is_chunked = 0, False
        elif self._is_chunked:
            self._left = 0
        elif (length := self.headers.get("content-length")).isascii() and length.isdecimal() and len(length) < 19:
            self._left = int(length)
        self._has_chunk = False  # whose end was not read yet
        self.is_complete = self._left == 0 and not self._is_chunked
        connection = self.headers.get("connection").lower()
        keeps = "close" not in connection if is_http11 else "keep-alive" in connection
        self.will_close = not keeps or self._left is None

    def read_some(self) -> bytes:
        """What has arrived of the body, without waiting for more; empty at its end. Raises as the constructor."""
        if not self.is_complete and self._is_chunked and not self._left:
            self._begin_chunk()
        if self.is_complete:
            return b""
        piece = self._reader.read1(_CHUNK_BYTES if self._left is None else min(_CHUNK_BYTES, self._left))
        if self._left is None:
            self.is_complete = not piece
        elif not piece:
            raise TruncatedError
        else:
            self._left -= len(piece)
            self.is_complete = not self._left and not self._is_chunked
        return piece

    def close(self) -> None:
        self._reader.close()

    def _begin_chunk(self) -> None:
        """Read the end of the last chunk and the size of the next one; after the last, what follows the body."""
        if self._has_chunk and _read_line(self._reader):
            raise MessageError("a chunk that is longer than its size")
        match = _CHUNK_SIZE.fullmatch(_read_line(self._reader).encode("latin-1"))
        if match is None:
            raise MessageError("an invalid chunk size")
        self._left, self._has_chunk = int(match[1], 16), True
        if not self._left:
            read_headers(self._reader)
            self.is_complete = True


def _read_head(reader: Reader, on_continue: Callable[[], None]) -> tuple[int, str, bool, Headers]:
    """Status, reason, whether it is HTTP/1.1, headers. Interim responses are skipped."""
    while True:
        if not (line := reader.readline(MAX_LINE_BYTES)):
            raise NothingReceivedError
        match = _STATUS_LINE.fullmatch(line.decode("latin-1").rstrip("\r\n"))
        if match is None:
            raise MessageError(line[:200].decode("latin-1").strip())
        headers = read_headers(reader)
        if not match[2].startswith("1") or match[2] == "101":
            return int(match[2]), (match[3] or "").strip(), match[1] != "0", headers
        if match[2] == "100":
            on_continue()
