"""Who is there: the rows of one dialect, each with its device, its parent, and whether it still speaks."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.read.prometheus.dialects import Dialect
from gpusteward.analyzer.read.prometheus.gather import Gathered
from gpusteward.analyzer.read.prometheus.keys import Details, Key, Rows
from gpusteward.analyzer.read.prometheus.quantities import ROLL_CALL, Fold, Level, Quantity
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
    """Rows: whoever answered the roll call with a pod, and whoever was seen in the window and went silent since.

    Whoever is missing while its device answers has ended and is left out.
    """

    def __init__(self, dialect: Dialect, gathered: Gathered) -> None:
        self.dialect = dialect
        self.gathered = gathered
        keys = gathered.holders.all
        there = dict.fromkeys((*gathered.present, *self._with_core_now()))
        present = [row for row in there if keys[row][_POD]]
        known = set(present)
        silent = dict.fromkeys((*self._list_silent(known), *self._list_unheard(known)))
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
        """Of each row node, gpu, model, job, and what the native dialect adds; neighbours on the device know the first
        four of who does not say."""
        present = self.gathered.present
        if all(map(present.__contains__, self.rows)):
            return [present[row] for row in self.rows]
        keys = self.gathered.holders.all
        neighbours = {keys[row][0]: said[:4] for row, said in present.items()}
        return [present.get(row) or neighbours.get(keys[row][0], NOBODY) for row in self.rows]

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
    def physical(self) -> list[str]:
        """The device of each row; of a MIG instance its parent."""
        return [said[0] or key[0] for said, key in zip(self.identities, self.keys, strict=True)]

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

    def _with_core_now(self) -> list[int]:
        """Of claims the roll call alone speaks: a process without one is nobody's allocation."""
        if self.dialect is Dialect.NATIVE:
            return []
        last = self.gathered.column(Level.HOLDER, Quantity.CORE, Fold.LAST)
        return np.flatnonzero(np.isfinite(last)).tolist()

    def _list_silent(self, present: set[int]) -> Iterator[int]:
        """Seen in the window, not at the roll call, and neither is the device."""
        gathered, keys = self.gathered, self.gathered.holders.all
        counts = gathered.column(Level.HOLDER, Quantity.CORE, Fold.COUNT)
        means = gathered.column(Level.HOLDER, Quantity.CORE, Fold.MEAN)
        seen = np.flatnonzero(np.isfinite(counts) | np.isfinite(means)).tolist()
        missing = [row for row in seen if row not in present]
        if not missing:
            return
        called = {keys[row][:2] for row in gathered.present}
        called |= {gathered.devices.all[row] for row in gathered.identities}
        yield from (row for row in missing if keys[row][:2] not in called)

    def _list_unheard(self, present: set[int]) -> Iterator[int]:
        """Where the roll call failed, who was there a cycle ago is not gone: nobody knows."""
        if ROLL_CALL in self.gathered.failures:
            yield from (row for row in self.gathered.before if row not in present)
