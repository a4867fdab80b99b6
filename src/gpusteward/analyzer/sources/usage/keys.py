"""Who is known by number: the rows of one level of one dialect."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Key = tuple[str, ...]
Rows = NDArray[np.int64]
Details = tuple[str, ...]  # what the labels beyond the key say


_OWN = 0
"""The device: hardly two rows have the same, so looking for equal strings would cost more than it saves."""


class Keys(ABC):
    """In the order they were first seen. Of a key the first part is the device, the second its MIG instance."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = tuple(labels)
        self._share = _make_sharing()
        self._parts = [(name, str if part == _OWN else self._share) for part, name in enumerate(self._labels)]
        self.all: list[Key] = []

    @property
    def width(self) -> int:
        return len(self._labels)

    def __len__(self) -> int:
        return len(self.all)

    @abstractmethod
    def locate(self, keys: Sequence[Key]) -> Rows:
        """The row of each key, -1 for one never seen."""

    @abstractmethod
    def admit(self, keys: Sequence[Key]) -> Rows:
        """The row of each key, a new one as needed."""

    def _read(self, labels: Mapping[str, str]) -> Key:
        return tuple([share(labels.get(name, "")) for name, share in self._parts])


def _make_sharing() -> Callable[[str], str]:
    """Equal strings are kept once: namespaces and nodes repeat by the thousand.

    No method: with one of their own in hand, the keys would stay in memory until Python looks for such rings.
    """
    same: dict[str, str] = {}
    return lambda text: same.setdefault(text, text)


class LabelKeys(Keys):
    """Found by their labels, one at a time."""

    def __init__(self, labels: Sequence[str]) -> None:
        super().__init__(labels)
        self._by_key: dict[Key, int] = {}

    def locate(self, keys: Sequence[Key]) -> Rows:
        return np.fromiter((self._by_key.get(key, -1) for key in keys), np.int64, len(keys))

    def admit(self, keys: Sequence[Key]) -> Rows:
        return np.fromiter(map(self._admit, keys), np.int64, len(keys))

    def copy(self) -> "LabelKeys":
        """The rows as they are now, for who reads while others add."""
        made = LabelKeys(self._labels)
        made._by_key, made.all = self._by_key.copy(), self.all.copy()
        return made

    def add(self, labels: Mapping[str, str]) -> int:
        """The row of these labels, a new one as needed."""
        return self._admit(self._read(labels))

    def _admit(self, key: Key) -> int:
        row = self._by_key.get(key)
        if row is None:
            row = len(self.all)
            self._by_key[key] = row
            self.all.append(key)
        return row
