"""Who is there: the rows of one dialect, each with its device, its parent, and whether it still speaks."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.sources.promql.query_runner import Gathered
from gpusteward.analyzer.sources.usage.dialects import Dialect
from gpusteward.analyzer.sources.usage.keys import Details, Key, Rows
from gpusteward.analyzer.sources.usage.quantities import ROLL_CALL, Fold, Level, Quantity
from gpusteward.analyzer.tables import Column
from gpusteward.core.allocations import Share

Flags = NDArray[np.bool_]
_POD = 3
_JOB = 3
_SHARE = 7
_WHOLE = frozenset({"", Share.EXCLUSIVE, Share.MIG})
NOBODY: Details = ("",) * 4
_NOTHING: Details = ("", "")


class Roster:
    """Rows: whoever answered the roll call with a pod, and whoever was seen in the window, or in the table of the last
    cycle, and went silent since.

    Whoever is missing while its device answers has ended and is left out.
    """

    def __init__(self, dialect: Dialect, gathered: Gathered) -> None:
        self.dialect = dialect
        self.gathered = gathered
        keys = gathered.holders.all
        there = dict.fromkeys((*gathered.present, *_list_cores(gathered)))
        present = [row for row in there if keys[row][_POD]]
        silent = dict.fromkeys((*list_silent(gathered), *_list_unheard(gathered, set(present))))
        self.rows = [*present, *silent]
        self.keys: list[Key] = [keys[row] for row in self.rows]
        self.silent: Flags = np.arange(len(self.rows)) >= len(present)
        self._rows: Rows = np.array(self.rows, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, level: Level, quantity: Quantity, fold: Fold) -> Column:
        """A column for these rows; of a device its own value, else its parent's."""
        column = self.gathered.column(level, quantity, fold)
        if level is Level.HOLDER:
            return column if self._is_everybody else column[self._rows]  # without a copy: most cycles
        padded = np.append(column, np.nan)  # row -1: no such device
        own = padded[self._own]
        return np.where(np.isfinite(own), own, padded[self._parent])

    def take_device(self, quantity: Quantity, fold: Fold) -> Column:
        """What the device says of itself; DCGM says it on the holder's row."""
        return self.take(Level.HOLDER if self.dialect is Dialect.DCGM else Level.DEVICE, quantity, fold)

    @cached_property
    def _is_everybody(self) -> bool:
        """Whether the rows are all that are known, in their order."""
        return np.array_equal(self._rows, np.arange(len(self.gathered.holders)))

    @cached_property
    def details(self) -> list[Details]:
        """Of each row node, gpu, model, job, and what the native dialect adds. Of who does not say it any more what it
        said before; neighbours on the device know the first four."""
        present = self.gathered.present
        if all(map(present.__contains__, self.rows)):
            return [present[row] for row in self.rows]
        keys = self.gathered.holders.all
        neighbours = {keys[row][0]: said[:4] for row, said in present.items()}
        said_before = self.gathered.remembered
        return [present.get(row) or said_before.get(row) or neighbours.get(keys[row][0], NOBODY) for row in self.rows]

    @cached_property
    def identities(self) -> list[Details]:
        """Of each row the parent of its MIG instance, and the model, as the device says them."""
        known = self.gathered.identities
        return [known.get(row, _NOTHING) for row in self._own.tolist()] if known else [_NOTHING] * len(self)

    @cached_property
    def claimed_twice(self) -> Flags:
        return np.isin(self._rows, list(self.gathered.claimed_twice))

    @cached_property
    def jobs(self) -> list[str]:
        return [said[_JOB] for said in self.details]

    @cached_property
    def in_slices(self) -> Flags:
        return np.array([bool(key[1]) for key in self.keys], dtype=bool)

    @cached_property
    def shared(self) -> Flags:
        """Rows that have neighbours on their device, or could have."""
        if self.dialect is not Dialect.NATIVE:
            return np.full(len(self), self.dialect is Dialect.HAMI)
        shares = (said[_SHARE] if len(said) > _SHARE else "" for said in self.details)
        return np.array([share not in _WHOLE for share in shares], dtype=bool)

    @cached_property
    def device_numbers(self) -> NDArray[np.int64]:
        """Rows with the same number share a device or an instance."""
        numbers: dict[Key, int] = {}
        return np.array([numbers.setdefault(key[:2], len(numbers)) for key in self.keys], np.int64)

    @cached_property
    def neighbours(self) -> Column:
        """How many rows are on the device of each row."""
        return np.bincount(self.device_numbers, minlength=1)[self.device_numbers].astype(np.float64)

    @cached_property
    def _own(self) -> Rows:
        devices = self.gathered.devices
        if not len(devices):
            return np.full(len(self), -1)
        return devices.locate([key[:2] for key in self.keys])

    @cached_property
    def _parent(self) -> Rows:
        parents = [said[0] for said in self.identities]
        rows = self.gathered.devices.locate([(parent, "") for parent in parents])
        return np.where(np.array(parents, dtype=bool), rows, -1)


def list_silent(gathered: Gathered) -> list[int]:
    """Seen in the window, not at the roll call, and neither is the device."""
    counts = gathered.column(Level.HOLDER, Quantity.CORE, Fold.COUNT)
    means = gathered.column(Level.HOLDER, Quantity.CORE, Fold.MEAN)
    is_missing = np.isfinite(counts) | np.isfinite(means)
    is_missing[[*gathered.present, *_list_cores(gathered)]] = False
    keys = gathered.holders.all
    missing = [row for row in np.flatnonzero(is_missing).tolist() if keys[row][_POD]]
    return _keep_uncalled(gathered, missing)


def _list_unheard(gathered: Gathered, present: set[int]) -> list[int]:
    """Who was there a cycle ago is not gone because nobody speaks: be it that the roll call failed, or that the device
    has been silent for longer than the window."""
    if present.issuperset(gathered.before):
        return []  # most cycles
    missing = [row for row in gathered.before if row not in present]
    return missing if ROLL_CALL in gathered.failures else _keep_uncalled(gathered, missing)


def _list_cores(gathered: Gathered) -> list[int]:
    """Who has a core now. It is not asked where the roll call alone speaks of claims, as in the native dialect: there a
    process without one is nobody's allocation."""
    if not gathered.has(Level.HOLDER, Quantity.CORE, Fold.LAST):
        return []
    return np.flatnonzero(np.isfinite(gathered.column(Level.HOLDER, Quantity.CORE, Fold.LAST))).tolist()


def _keep_uncalled(gathered: Gathered, rows: list[int]) -> list[int]:
    """Those whose device did not answer either."""
    if not rows:
        return []
    keys = gathered.holders.all
    called = {keys[row][:2] for row in gathered.present}
    called |= {gathered.devices.all[row] for row in gathered.identities}
    return [row for row in rows if keys[row][:2] not in called]
