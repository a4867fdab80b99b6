"""Label texts -> row numbers. A text is parsed when it is new; every later answer, and every later cycle, finds its row
by the hash of the text.

The texts themselves are not kept: at 50,000 GPUs they would be 20 MB. Python hashes bytes to 64 bits under a key drawn
at every start, so nobody can aim for a collision; by chance two of a hundred thousand texts meet in one of four billion
clusters. Keys are found the same way.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.sources.engine.decode import decode_labels
from gpusteward.analyzer.sources.usage.keys import Details, Key, Keys, Rows

Hashes = NDArray[np.int64]
Message = tuple[Rows, list[Details]]


class TextKeys(Keys):
    """Found by the texts of their labels, many at once."""

    def __init__(self, labels: Sequence[str]) -> None:
        super().__init__(labels)
        self._by_text, self._by_key = _Index(), _Index()
        self._sayings = _Index()  # text -> its place in the next two
        self._said_of: Rows = np.empty(0, np.int64)
        self._said: list[Details] = []

    def locate(self, keys: Sequence[Key]) -> Rows:
        return self._by_key.find(_hash(keys))

    def admit(self, keys: Sequence[Key]) -> Rows:
        rows, before = self.locate(keys), len(self.all)
        fresh: dict[Key, int] = {}
        for place in np.flatnonzero(rows < 0).tolist():
            rows[place] = fresh.setdefault(keys[place], before + len(fresh))
        self.all += fresh
        self._by_key.add(_hash(fresh), np.arange(before, len(self.all)))
        return rows

    def find(self, texts: Sequence[bytes]) -> Rows:
        """The row of each text, new rows made as needed. Raises SourceError for labels that cannot be read."""
        hashes = _hash(texts)
        rows = self._by_text.find(hashes)
        new = np.flatnonzero(rows < 0)
        if len(new):
            rows[new] = self._add([decode_labels(texts[place]) for place in new.tolist()])
            self._by_text.add(hashes[new], rows[new])
        return rows

    def describe(self, texts: Sequence[bytes], more: Sequence[str]) -> Message:
        """The row of each text, and what its further labels say. Raises SourceError for labels that cannot be read."""
        hashes = _hash(texts)
        places = self._sayings.find(hashes)
        new = np.flatnonzero(places < 0)
        if len(new):
            labels = [decode_labels(texts[place]) for place in new.tolist()]
            places[new] = np.arange(len(new)) + len(self._said)
            self._said_of = np.concatenate((self._said_of, self._add(labels)))
            self._said += [tuple([self._share(each.get(name, "")) for name in more]) for each in labels]
            self._sayings.add(hashes[new], places[new])
        return self._said_of[places], list(map(self._said.__getitem__, places.tolist()))

    def settle(self, like: Keys) -> None:
        """For rows that are hardly ever asked about again: their texts are forgotten, and their devices named by the
        very strings of others. At 50,000 GPUs that is 6 MB."""
        names = {key[0]: key[0] for key in like.all}
        self.all = [(names.get(key[0], key[0]), *key[1:]) for key in self.all]
        self._by_text = _Index()

    def _add(self, labels: Iterable[Mapping[str, str]]) -> Rows:
        """The row of each, a new one as needed."""
        return self.admit([self._read(each) for each in labels])


class _Index:
    """Hashes -> numbers in 12 bytes each: a dict of Python's needs ten times that."""

    def __init__(self) -> None:
        self._hashes: Hashes = np.empty(0, np.int64)  # rising
        self._numbers: NDArray[np.int32] = np.empty(0, np.int32)

    def find(self, hashes: Hashes) -> Rows:
        """The number of each; -1 where there is none."""
        if not len(self._hashes):
            return np.full(len(hashes), -1, np.int64)
        places = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        return np.where(self._hashes[places] == hashes, self._numbers[places], np.int64(-1))

    def add(self, hashes: Hashes, numbers: Rows) -> None:
        """Of hashes that are not there yet."""
        joined = np.concatenate((self._hashes, hashes))
        order = np.argsort(joined, kind="stable")
        self._hashes = joined[order]
        self._numbers = np.concatenate((self._numbers, numbers.astype(np.int32)))[order]


def _hash(values: Collection[bytes] | Collection[Key]) -> Hashes:
    return np.fromiter(map(hash, values), np.int64, len(values))
