"""Label texts -> row numbers. A text is parsed when it is new; every later answer, and every later cycle, finds its row
by the hash of the text.

The texts themselves are not kept: at 50,000 GPUs they would be 20 MB. Python hashes bytes to 64 bits under a key drawn
at every start, so nobody can aim for a collision; by chance two of a hundred thousand texts meet in one of four billion
clusters.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.read.prometheus.decode import decode_labels

Key = tuple[str, ...]
Rows = NDArray[np.int64]
Details = tuple[str, ...]  # what the labels beyond the key say


_OWN = (0, 3)
"""Device and pod: hardly two rows have the same, so looking for equal strings would cost more than it saves."""


class Keys:
    """The rows of one level of one dialect, in the order they were first seen. Of a key the first part is the device,
    the second its MIG instance."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = tuple(labels)
        self._by_hash: dict[int, int] = {}
        self._by_key: dict[Key, int] = {}
        self._said: dict[int, tuple[int, Details]] = {}
        self._same: dict[str, str] = {}  # equal strings kept once: namespaces and nodes repeat by the thousand
        self._parts = [(name, str if part in _OWN else self._share) for part, name in enumerate(self._labels)]
        self.all: list[Key] = []

    @property
    def width(self) -> int:
        return len(self._labels)

    def __len__(self) -> int:
        return len(self.all)

    def __getitem__(self, key: Key) -> int:
        """-1 for a key never seen."""
        return self._by_key.get(key, -1)

    def copy(self) -> "Keys":
        """The rows as they are now, for who reads while others add."""
        made = Keys(self._labels)
        made._by_key, made.all = self._by_key.copy(), self.all.copy()
        return made

    def find(self, texts: Sequence[bytes]) -> Rows:
        """The row of each text, new rows made as needed. Raises SourceError for labels that cannot be read."""
        try:
            return np.fromiter(map(self._by_hash.__getitem__, map(hash, texts)), np.int64, len(texts))
        except KeyError:
            return np.fromiter(map(self._row, texts), np.int64, len(texts))

    def describe(self, texts: Sequence[bytes], more: Sequence[str]) -> Iterable[tuple[int, Details]]:
        """The row of each text, and what its further labels say. Raises SourceError for labels that cannot be read."""
        try:
            return list(map(self._said.__getitem__, map(hash, texts)))
        except KeyError:
            return [self._describe(text, more) for text in texts]

    def _row(self, text: bytes) -> int:
        row = self._by_hash.get(hash(text))
        if row is None:
            row = self._by_hash[hash(text)] = self.add(decode_labels(text))
        return row

    def _describe(self, text: bytes, more: Sequence[str]) -> tuple[int, Details]:
        known = self._said.get(hash(text))
        if known is None:
            labels = decode_labels(text)
            said = tuple([self._share(labels.get(name, "")) for name in more])
            known = self._said[hash(text)] = self.add(labels), said
        return known

    def settle(self, like: "Keys") -> None:
        """For rows that are hardly ever asked about again: their texts are forgotten, and their devices named by the
        very strings of others. At 50,000 GPUs that is 10 MB."""
        names = {key[0]: key[0] for key in like.all}
        self.all = [(names.get(key[0], key[0]), *key[1:]) for key in self.all]
        self._by_key = {key: row for row, key in enumerate(self.all)}
        self._by_hash.clear()

    def add(self, labels: Mapping[str, str]) -> int:
        """The row of these labels, a new one as needed."""
        key = tuple([share(labels.get(name, "")) for name, share in self._parts])
        row = self._by_key.get(key)
        if row is None:
            row = len(self.all)
            self._by_key[key] = row
            self.all.append(key)
        return row

    def _share(self, text: str) -> str:
        return self._same.setdefault(text, text)
