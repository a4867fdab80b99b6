"""Large bodies, made once and kept packed: the page of 50,000 GPUs is 60 MB of text and 10 MB packed.

A body is a row of deflate blocks, each packed on its own. So a block can be made before the one that stands in front of
it, the same block can stand in several bodies, and a body can get another end at every request, within one gzip member:
curl and others read no more than the first member.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpusteward.analyzer.api.http.crc32_combine import join_checksums

_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # RFC 1952 2.3: deflate, no time, no name
_LAST_BLOCK = b"\x03\x00"  # RFC 1951 3.2.6: an empty block that says it is the last
_LEVEL = 1  # half the CPU of the default level for bodies a tenth larger

MOST_PLAIN_ROWS = 16_000
"""Bodies of up to so many rows are kept unpacked too: 20 MB, and unpacking them takes longer than sending."""


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a body, packed on its own."""

    packed: bytes
    size: int  # of the text
    checksum: int  # of the text
    plain: bytes | None = None  # the text itself, where it is to be kept


def pack(piece: bytes, *, keep_plain: bool = False) -> Block:
    """Ends at a byte and looks back at nothing: blocks may follow each other in any order."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)
    return Block(packed, len(piece), zlib.crc32(piece), piece if keep_plain else None)


class Body:
    """Blocks in order. Added to by one thread, then read by any. It is kept unpacked if each of its blocks is."""

    def __init__(self) -> None:
        self.size = 0
        self._blocks: list[Block] = []
        self._checksum = 0

    def add(self, block: Block) -> None:
        self._append([block], size=block.size, checksum=block.checksum)

    def extend(self, other: "Body") -> None:
        """All blocks of another one behind these."""
        self._append(other._blocks, size=other.size, checksum=other._checksum)

    def _append(self, blocks: Sequence[Block], *, size: int, checksum: int) -> None:
        self.size += size
        self._checksum = join_checksums(self._checksum, checksum, size=size)
        self._blocks += blocks

    @property
    def is_kept_plain(self) -> bool:
        return all(block.plain is not None for block in self._blocks)

    def gzip(self, tail: bytes = b"") -> list[bytes]:
        """Everything as one gzip member in pieces, with this behind it."""
        size = (self.size + len(tail)) & 0xFFFFFFFF
        end = struct.pack("<II", zlib.crc32(tail, self._checksum), size)
        return [_HEADER, *(block.packed for block in self._blocks), pack(tail).packed, _LAST_BLOCK + end]

    def pieces(self, tail: bytes = b"") -> Iterator[bytes]:
        """Everything unpacked, piece by piece, with this behind it."""
        for block in self._blocks:
            yield zlib.decompressobj(-zlib.MAX_WBITS).decompress(block.packed) if block.plain is None else block.plain
        if tail:
            yield tail
