"""Who was in the last table, and may have fallen silent only.

A node that dies takes its exporter with it, and after one window nothing is left of its samples. Its allocations are
not gone because of that: left out, they would make the rest of their workload look idle. They are awaited for an hour,
unless somebody says that they have ended: their GPU speaks without them, or their pod speaks from where it was not
before.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.sources.promql.query_runner import Gathered
from gpusteward.analyzer.sources.usage.blocks import Block
from gpusteward.analyzer.sources.usage.keys import Key, Keys
from gpusteward.analyzer.sources.usage.quantities import LAST_WORDS, ROLL_CALL, Fold, Level, Quantity

AWAITED_SECONDS = 3600.0
"""Long enough to bring a node back, or to take it out of the cluster, which makes its pods anew elsewhere."""
MOST_AWAITED = 50_000
"""As many as the largest site has that is measured: exporters that name new GPUs at every scrape fill no memory."""
_POD = slice(2, 4)  # of a key: namespace and pod

Silent = Mapping[int, int]  # place in the block -> row


class Absences:
    """The rows of one dialect, from cycle to cycle."""

    def __init__(self) -> None:
        self._all: list[Key] = []  # what the numbers of rows below mean
        self._rows: list[int] = []
        self._ended: list[int] = []  # whose samples are in the window still
        self._since: dict[Key, float] = {}  # when those who are awaited were first missed
        self.unseen: frozenset[int] = frozenset()
        """Places in the last block of those without any sample in the window, who are only awaited."""

    def recall(self, keys: Keys, at: float) -> Sequence[int]:
        """The rows of the last cycle of which nobody said that they have ended, by the numbers they have in `keys`."""
        if keys.all is not self._all:
            self._renumber(keys)
        late = {key for key, since in self._since.items() if abs(at - since) > AWAITED_SECONDS}
        if late:
            self._rows = [row for row in self._rows if self._all[row] not in late]
            self._since = {key: since for key, since in self._since.items() if key not in late}
        return self._rows

    def _renumber(self, keys: Keys) -> None:
        """Keys are made anew, or copied: then the same objects have the same numbers."""
        if keys.all[: len(self._all)] != self._all:
            rows, ended = ([self._all[row] for row in group] for group in (self._rows, self._ended))
            self._rows, self._ended = keys.admit(rows).tolist(), keys.admit(ended).tolist()
        self._all = keys.all

    def find_strangers(self, silent: Sequence[int]) -> set[int]:
        """Those who were silent whenever they could have been in a table: nothing is known of them."""
        return set(silent).difference(self._rows, self._ended) if silent else set()

    def note(self, gathered: Gathered, block: Block, at: float, *, calls_devices: bool) -> None:
        """The rows of this cycle. `calls_devices`: whether a GPU that nobody holds answers the roll call too."""
        silent = dict(_find_silent(gathered, block))
        if ROLL_CALL in gathered.failures:  # nobody is missed who was not called
            self.unseen, self._rows = frozenset(), block.rows
            return
        is_seen = _find_seen(gathered)
        self.unseen = frozenset(place for place, row in silent.items() if not is_seen[row])
        dismissed = set(self._dismiss(gathered, block, silent, calls_devices=calls_devices))
        awaited = [gathered.holders.all[row] for row in silent.values() if row not in dismissed]
        self._since = _keep_latest({key: self._since.get(key, at) for key in awaited}, MOST_AWAITED)
        gone = {row for row in silent.values() if gathered.holders.all[row] not in self._since}
        is_ended = np.zeros(len(is_seen), dtype=bool)
        is_ended[[*self._rows, *self._ended]] = True
        self._rows = [row for row in block.rows if row not in gone] if gone else block.rows
        is_ended[self._rows] = False
        self._ended = np.flatnonzero(is_ended & is_seen).tolist()

    def _dismiss(self, gathered: Gathered, block: Block, silent: Silent, *, calls_devices: bool) -> Iterator[int]:
        """Silent rows that are not awaited."""
        if not silent:
            return
        yield from self._ended
        if LAST_WORDS in gathered.failures:
            yield from self.find_strangers([*silent.values()])  # so that they are asked for again
        keys, known = gathered.holders.all, set(self._rows)
        speaking = {keys[row][0] for row in gathered.present}
        speaking |= {gathered.devices.all[row][0] for row in gathered.identities}
        nodes = set() if calls_devices else {said[0] for said in gathered.present.values()} - {""}
        newcomers = {keys[row][_POD]: gathered.present[row][0] for row in gathered.present.keys() - known}
        for place, row in silent.items():
            allocation = block.allocations[place]
            has_moved = row in known and newcomers.get(keys[row][_POD], allocation.node) != allocation.node
            if has_moved or allocation.gpu_uuid in speaking or allocation.node in nodes:
                yield row


def _find_silent(gathered: Gathered, block: Block) -> Iterator[tuple[int, int]]:
    """Nobody who is silent is known, so only the unknown are looked at: mostly a few."""
    cores = gathered.column(Level.HOLDER, Quantity.CORE, Fold.LAST) if block.unknown else np.empty(0)
    for place in block.unknown:
        row = block.rows[place]
        if row not in gathered.present and not np.isfinite(cores[row]):
            yield place, row


def _find_seen(gathered: Gathered) -> NDArray[np.bool_]:
    """Which rows have a sample of their core in the window."""
    counts = gathered.column(Level.HOLDER, Quantity.CORE, Fold.COUNT)
    return np.isfinite(counts) | np.isfinite(gathered.column(Level.HOLDER, Quantity.CORE, Fold.MEAN))


def _keep_latest(since: dict[Key, float], most: int) -> dict[Key, float]:
    return since if len(since) <= most else dict(sorted(since.items(), key=lambda one: one[1])[-most:])
