"""Content encodings, decoded with bounded memory: a small chunk may expand to a large one."""

import zlib
from collections.abc import Iterable, Iterator

from gpusteward.http.errors import ProtocolError, ResponseTooLargeError
from gpusteward.messages.errors import http_errors as messages

_STEP_BYTES = 1 << 20
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32  # detected from the content
_MEMBER_LIMIT = 16
"""Servers send one gzip member. A long row of empty ones would cost the square of its length."""


def decode(chunks: Iterable[bytes], encoding: str, *, limit_bytes: int | None = None) -> Iterator[bytes]:
    """The content of a response; the limit is that of the sent and of the decoded bytes.

    Raises ProtocolError and ResponseTooLargeError while it is read: the status may be all that a caller needs.
    """
    name = encoding.strip().lower()
    if name not in ("", "identity", "gzip", "deflate"):
        raise ProtocolError(messages.UNSUPPORTED_ENCODING, encoding=name[:40])
    chunks = _limit(chunks, limit_bytes)
    yield from _limit(_decompress(chunks), limit_bytes) if name in ("gzip", "deflate") else chunks


def _limit(chunks: Iterable[bytes], limit_bytes: int | None) -> Iterator[bytes]:
    if limit_bytes is None:
        yield from chunks
        return
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > limit_bytes:
            raise ResponseTooLargeError(messages.RESPONSE_TOO_LARGE, limit_bytes=limit_bytes)
        yield chunk


def _decompress(chunks: Iterable[bytes]) -> Iterator[bytes]:
    stream = zlib.decompressobj(_GZIP_OR_ZLIB)
    members = 1
    try:
        for chunk in chunks:
            rest = chunk
            while rest:
                if stream.eof:
                    members += 1
                    if members > _MEMBER_LIMIT:
                        raise ProtocolError(messages.TOO_MANY_MEMBERS)
                    stream = zlib.decompressobj(_GZIP_OR_ZLIB)
                yield stream.decompress(rest, _STEP_BYTES)
                rest = stream.unused_data if stream.eof else stream.unconsumed_tail
    except zlib.error as error:
        raise ProtocolError(messages.DAMAGED_CONTENT, reason=error) from error
    if not stream.eof:
        raise ProtocolError(messages.TRUNCATED_CONTENT)
