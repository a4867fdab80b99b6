"""Large bodies, made once and kept packed: the page of 50,000 GPUs is 100 MB of text and 5 MB packed.

A body is a row of deflate blocks, each packed on its own. So the same block can stand in several bodies, and a body
can get another end at every request, within one gzip member: curl and others read no more than the first member.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # RFC 1952 2.3: deflate, no time, no name
_LAST_BLOCK = b"\x03\x00"  # RFC 1951 3.2.6: an empty block that says it is the last
_LEVEL = 1  # half the CPU of the default level for bodies a tenth larger

PLAIN_LIMIT_BYTES = 32 * 1024 * 1024
"""A body up to this size is kept unpacked too: 10,000 GPUs are 20 MB, and unpacking them takes longer than sending."""


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a body, packed on its own."""

    plain: bytes
    packed: bytes


def pack(piece: bytes) -> Block:
    """Ends at a byte and looks back at nothing: blocks may follow each other in any order."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return Block(piece, packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH))


class Body:
    """Blocks in order. Added to by one thread, then read by any."""

    def __init__(self, *, plain_limit: int = PLAIN_LIMIT_BYTES) -> None:
        self.size = 0
        self._limit = plain_limit
        self._packed: list[bytes] = []
        self._plain: list[bytes] | None = []
        self._checksum = 0

    def add(self, block: Block) -> None:
        self.size += len(block.plain)
        self._checksum = zlib.crc32(block.plain, self._checksum)
        self._packed.append(block.packed)
        if self._plain is not None:
            self._plain.append(block.plain)
        if self.size > self._limit:
            self._plain = None

    @property
    def is_kept_plain(self) -> bool:
        return self._plain is not None

    def gzip(self, tail: bytes = b"") -> bytes:
        """Everything as one gzip member, with this behind it."""
        size = (self.size + len(tail)) & 0xFFFFFFFF
        end = struct.pack("<II", zlib.crc32(tail, self._checksum), size)
        return b"".join([_HEADER, *self._packed, pack(tail).packed, _LAST_BLOCK, end])

    def pieces(self, tail: bytes = b"") -> Iterator[bytes]:
        """Everything unpacked, piece by piece, with this behind it."""
        if self._plain is not None:
            yield from self._plain
        else:
            for packed in self._packed:
                yield zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed)
        if tail:
            yield tail
