"""The CRC-32 of a text out of those of its parts: a part that is packed already need not be read again.

Bits are polynomials over 0 and 1, turned around as RFC 1952 has them: a checksum that so many bytes follow is
multiplied by x once for each of their bits, modulo the polynomial of the CRC.
"""

_POLYNOMIAL = 0xEDB88320
_ONE = 1 << 31
_X = 1 << 30
_MOST_BITS = 64  # of a size


def join_checksums(first: int, second: int, *, size: int) -> int:
    """The checksum of two texts in a row; `size` is how many bytes the second one has."""
    return _multiply(_shift(size), first) ^ second


def _shift(size: int) -> int:
    """x to the power of the bits of so many bytes."""
    product = _ONE
    for place in range(size.bit_length()):
        if size >> place & 1:
            product = _multiply(_BYTES[place], product)
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


_BYTES = _square(_X, _MOST_BITS + 3)[3:]  # x to the power of 8, 16, 32 and so on
