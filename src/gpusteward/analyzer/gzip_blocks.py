"""Large response bodies, kept gzip-compressed: the /metrics page of 50,000 GPUs is 60 MB of text and 10 MB compressed.

A body is a list of deflate blocks that are compressed independently. So blocks can be made in any order, one block can
be part of several bodies, and a body can get a different end for each request, all within one gzip member: curl and
other clients read only the first member. The CRC-32 of a body is computed from those of its blocks.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # RFC 1952 2.3: deflate, no time, no name
_LAST_BLOCK = b"\x03\x00"  # RFC 1951 3.2.6: an empty block marked as the last
_LEVEL = 1  # half the CPU time of the default level, bodies a tenth larger
_POLYNOMIAL = 0xEDB88320
_ONE = 1 << 31
_X = 1 << 30
_SIZE_BITS = 64

MOST_PLAIN_ROWS = 16_000
_MOST_PLAIN_BYTES = 32 << 20
"""Bodies of up to this many rows are also kept uncompressed: 20 MB, and decompressing takes longer than sending. Labels
of hostile exporters may be longer."""


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a body, compressed independently."""

    packed: bytes
    size: int  # of the text
    checksum: int  # CRC-32 of the text
    plain: bytes | None = None  # the text itself, where it is kept


def pack(piece: bytes, *, keep_plain: bool = False) -> Block:
    """The block ends at a byte boundary and refers to no earlier data: blocks may follow each other in any order."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)
    return Block(packed, len(piece), zlib.crc32(piece), piece if keep_plain else None)


class Packer:
    """Packs the pieces of one body, or of several that share them."""

    def __init__(self, *, rows: int) -> None:
        self._plain_left = _MOST_PLAIN_BYTES if rows <= MOST_PLAIN_ROWS else 0

    def pack(self, piece: bytes) -> Block:
        self._plain_left -= len(piece)
        return pack(piece, keep_plain=self._plain_left > 0)


class Body:
    """Blocks in order. Built by one thread, then read by any. It is kept uncompressed if each of its blocks is."""

    def __init__(self) -> None:
        self.size = 0
        self._blocks: list[Block] = []

    def add(self, block: Block) -> None:
        self.size += block.size
        self._blocks.append(block)

    def extend(self, other: "Body") -> None:
        """Append all blocks of another body."""
        self.size += other.size
        self._blocks += other._blocks

    @cached_property
    def _checksum(self) -> int:
        """Computed at the first request: of several formats of a body, most are never requested."""
        checksum = 0
        for block in self._blocks:
            checksum = combine_crc32(checksum, block.checksum, size=block.size)
        return checksum

    @property
    def is_kept_plain(self) -> bool:
        return all(block.plain is not None for block in self._blocks)

    def gzip(self, tail: bytes = b"") -> list[bytes]:
        """The body followed by `tail` as one gzip member, in pieces."""
        size = (self.size + len(tail)) & 0xFFFFFFFF
        end = struct.pack("<II", zlib.crc32(tail, self._checksum), size)
        return [_HEADER, *(block.packed for block in self._blocks), pack(tail).packed, _LAST_BLOCK + end]

    def pieces(self, tail: bytes = b"") -> Iterator[bytes]:
        """The body followed by `tail`, uncompressed, in pieces."""
        for block in self._blocks:
            yield zlib.decompressobj(-zlib.MAX_WBITS).decompress(block.packed) if block.plain is None else block.plain
        if tail:
            yield tail


def combine_crc32(first: int, second: int, *, size: int) -> int:
    """The CRC-32 of two texts in sequence from their own CRC-32s; `size` is the length of the second in bytes.

    Bits are coefficients of polynomials over GF(2), in the reversed order of RFC 1952: each following bit multiplies
    the checksum by x, modulo the polynomial of the CRC.
    """
    return _multiply(_power_of_x(size), first) ^ second


@lru_cache(maxsize=1024)  # headers have the same sizes in every body
def _power_of_x(size: int) -> int:
    """x to the power of the number of bits in `size` bytes."""
    product = _ONE
    for bit in range(size.bit_length()):
        if size >> bit & 1:
            product = _multiply(_POWERS[bit], product)
    return product


def _multiply(left: int, right: int) -> int:
    product = 0
    while left:
        if left & _ONE:
            product ^= right
        left = left << 1 & 0xFFFFFFFF
        right = right >> 1 ^ (_POLYNOMIAL if right & 1 else 0)
    return product


def _square(value: int, times: int) -> list[int]:
    squares = [value]
    for _ in range(times):
        squares.append(_multiply(squares[-1], squares[-1]))
    return squares


_POWERS = _square(_X, _SIZE_BITS + 3)[3:]  # x to the power of 8, 16, 32 and so on
