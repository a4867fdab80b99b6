"""Large response bodies that are compressed once and sent many times, each time with a different end: the /metrics page
of 50,000 GPUs is 60 MB of text and 10 MB compressed.

All is one gzip member: curl and other clients read only the first one. No compressor is kept for the end, which
`zlib.compressobj().copy()` would need: it holds 270 KB, and there may be hundreds of bodies.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator

_GZIP = 16 + zlib.MAX_WBITS
_LEVEL = 1  # half the CPU time of the default level, bodies a tenth larger
_STEP_BYTES = 1 << 18

MOST_PLAIN_BYTES = 32 << 20
"""A larger body is not kept uncompressed, even where it should be: names of hostile exporters may be long."""


class Body:
    """A body without its end, in pieces."""

    def __init__(self, pieces: Iterable[bytes] = (), *, keep_plain: bool = True) -> None:
        """`keep_plain`: sent uncompressed, it need not be decompressed before."""
        self.size = self._checksum = 0
        plain: list[bytes] | None = [] if keep_plain else None
        compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        packed = []
        for piece in pieces:
            packed.append(compressor.compress(piece))
            self.size += len(piece)
            self._checksum = zlib.crc32(piece, self._checksum)
            if self.size > MOST_PLAIN_BYTES:
                plain = None
            if plain is not None:
                plain.append(piece)
        # Ends at a byte boundary, so that the blocks of any end may follow.
        self._packed = [*filter(None, packed), compressor.flush(zlib.Z_FULL_FLUSH)]
        self._plain = plain

    @property
    def is_kept_plain(self) -> bool:
        return self._plain is not None

    def gzip(self, tail: bytes = b"") -> list[bytes]:
        """The body followed by `tail` as one gzip member, in pieces."""
        compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        end = compressor.compress(tail) + compressor.flush()
        # RFC 1952 2.3.1: checksum and length of the whole.
        size = (self.size + len(tail)) & 0xFFFFFFFF
        return [*self._packed, end + struct.pack("<II", zlib.crc32(tail, self._checksum), size)]

    def pieces(self, tail: bytes = b"") -> Iterator[bytes]:
        """The body followed by `tail`, uncompressed, in pieces."""
        if self._plain is not None:
            yield from self._plain
            yield tail
            return
        decompressor = zlib.decompressobj(_GZIP)
        for packed in self.gzip(tail):
            rest = packed
            while rest:
                yield decompressor.decompress(rest, _STEP_BYTES)
                rest = decompressor.unconsumed_tail
