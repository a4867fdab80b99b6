"""Reproducible random values without state: the same arguments give the same value, in any order."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import TypeVar

_T = TypeVar("_T")
_MASK = (1 << 64) - 1


@lru_cache(maxsize=4096)  # each snapshot uses a block at several moments
def hash_to_unit(seed: int, number: int) -> float:
    """A number in [0, 1) from a seed and a number: splitmix64, fast enough for every reading."""
    mixed = (seed + number * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((mixed ^ (mixed >> 31)) >> 11) / (1 << 53)


@dataclass(frozen=True, slots=True)
class SeededRandom:
    """Draws values by name, so that another draw never changes the others. Used to build nodes."""

    seed: int

    def child(self, *names: object) -> "SeededRandom":
        return SeededRandom(self.number(*names))

    def number(self, *names: object) -> int:
        return int.from_bytes(self._digest(names, 8), "big")

    def between(self, low: float, high: float, *names: object) -> float:
        return low + (high - low) * self.number(*names) / _MASK

    def pick(self, options: Sequence[_T], *names: object) -> _T:
        return options[self.number(*names) % len(options)]

    def text(self, alphabet: str, length: int, *names: object) -> str:
        return "".join(alphabet[byte % len(alphabet)] for byte in self._digest(names, length))

    def hexadecimal(self, length: int, *names: object) -> str:
        return self._digest(names, length // 2).hex()

    def uuid(self, *names: object) -> str:
        text = self.hexadecimal(32, *names)
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def _digest(self, names: tuple[object, ...], length: int) -> bytes:
        return blake2b(repr((self.seed, *names)).encode(), digest_size=length).digest()
