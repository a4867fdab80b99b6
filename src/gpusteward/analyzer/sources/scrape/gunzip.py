"""gzip that may not grow beyond a limit."""

import zlib

from gpusteward.core.errors import SourceError

_GZIP = 31  # zlib's window bits for a gzip header and trailer
_MOST_MEMBERS = 16
"""Exporters send one; a long row of empty ones would cost the square of its length."""


def unpack_gzip(packed: bytes, *, limit: int) -> bytes:
    """The text inside. Raises SourceError when it is damaged, cut short, or larger than the limit."""
    parts: list[bytes] = []
    size = 0
    while packed:
        if len(parts) == _MOST_MEMBERS:
            raise SourceError("the page is packed in too many pieces")
        stream = zlib.decompressobj(_GZIP)
        try:
            parts.append(stream.decompress(packed, limit - size + 1))
        except zlib.error as error:
            raise SourceError(f"the page is damaged: {error}") from error
        size += len(parts[-1])
        if size > limit:
            raise SourceError(f"the page is larger than {limit} bytes unpacked; raise scrape.page_limit_bytes")
        if not stream.eof:
            raise SourceError("the page is cut short")
        packed = stream.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)
