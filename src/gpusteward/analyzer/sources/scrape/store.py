"""All targets together, within limits. Safe to use from several threads."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from math import ceil

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.sources.scrape.metric_filter import FAMILIES
from gpusteward.analyzer.sources.scrape.records import Record, Room, Window
from gpusteward.analyzer.sources.scrape.series import Clerk, Labels, Rows
from gpusteward.analyzer.sources.usage.row_index import K, LabelRowIndex
from gpusteward.analyzer.sources.usage.selectors import Matchers

_FEW_ROWS = 10_000
_MOST_STALE = 2
"""Rows and texts of pods long gone are dropped when there are this many times as many as are alive."""
_FEW_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Shape:
    """How much a store keeps, and of what."""

    interval: float  # seconds between two scrapes
    keep_seconds: float
    series_limit: int = 1_000_000  # of all targets
    target_series_limit: int = 20_000  # of one
    target_label_limit_bytes: int = 16 << 20  # of one: 20,000 lines of 800 bytes, and an agent's longest has 300
    condition: Matchers = ()


class Store:
    """The last values of every target."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._capacity = ceil(shape.keep_seconds / shape.interval) + 2
        self._clerk = Clerk(shape.condition)
        self._records: dict[str, Record] = {}
        self._lock = threading.Lock()
        self._size = 0  # lines that are known, of all records

    def __len__(self) -> int:
        """Targets of which something is kept."""
        return len(self._records)

    @property
    def series(self) -> int:
        """Of all targets. Numbers for people are read without the lock: a cycle may hold it for a while."""
        return sum(len(record.roll) for record in list(self._records.values()))

    @property
    def nbytes(self) -> int:
        return sum(record.nbytes for record in list(self._records.values()))

    def ingest(self, target: str, page: bytes, at: float, *, labels: Labels | None = None) -> int:
        """Take in a page of a target; how many values were read."""
        with self._lock:
            record = self._records[target] if target in self._records else self._open(target, labels)
            before = len(record)
            read = record.ingest(page, at)
            self._size += len(record) - before
            return read

    def miss(self, target: str, at: float) -> None:
        """A scrape failed, or the target is no longer one."""
        with self._lock:
            if target in self._records:
                self._records[target].miss(at)

    def forget_silent(self, at: float) -> None:
        """Targets that have not answered for as long as anything is kept."""
        with self._lock:
            for target, record in list(self._records.items()):
                if record.answered_at < at - self.shape.keep_seconds:
                    self._drop(target)

    def look_back(self, at: float, seconds: float) -> tuple[Window, Rows]:
        """Every series of every target over the window before `at`, and whose rows they are."""
        with self._lock:
            self._forget_rows()
            windows = [record.look_back(at, seconds) for record in self._records.values()]
            return _join(windows), self._clerk.list_rows()

    def list_names(self) -> set[str]:
        """Families that are kept now."""
        with self._lock:
            numbers = set[int]().union(*(record.roll.families for record in self._records.values()))
        return {FAMILIES[number].name for number in numbers}

    def describe_target(self, target: str) -> tuple[int, Mapping[str, int], Mapping[str, str]]:
        """Its series, and its bad lines: how many by reason, with an example each."""
        record = self._records.get(target)
        if record is None:
            return 0, {}, {}
        return len(record.roll), dict(record.faults.counts), dict(record.faults.examples)

    @contextmanager
    def read_records(self) -> Iterator[tuple[Clerk, Mapping[str, Record]]]:
        """Whose rows they are, and the records themselves by target: locked, because both change together."""
        with self._lock:
            yield self._clerk, self._records

    def forget(self, target: str) -> None:
        """Nothing is kept of this target any more."""
        with self._lock:
            self._drop(target)

    def _drop(self, target: str) -> None:
        if record := self._records.pop(target, None):
            self._size -= len(record)

    def _open(self, target: str, labels: Labels | None) -> Record:
        told = {"instance": target, "job": "scrape", **(labels or {})}
        record = Record(told, self._clerk, capacity=self._capacity, find_room=lambda: self._find_room(target))
        self._records[target] = record
        return record

    def _find_room(self, target: str) -> Room:
        mine = self._records[target]
        room = min(self.shape.series_limit - self._size, self.shape.target_series_limit - len(mine))
        return Room(room, self.shape.target_label_limit_bytes - mine.roll.label_bytes)

    def _forget_rows(self) -> None:
        """Pods come and go; the numbers of those that are gone would stay for ever."""
        kept_bytes = sum(record.roll.label_bytes for record in self._records.values())
        has_few_rows = len(self._clerk) <= _MOST_STALE * self._size + _FEW_ROWS
        if has_few_rows and self._clerk.filed_bytes <= _MOST_STALE * kept_bytes + _FEW_BYTES:
            return
        before, self._clerk = self._clerk, Clerk(self.shape.condition)
        self._clerk.filed_bytes = kept_bytes
        alive = {row for record in self._records.values() for row in record.roll.list_rows()}
        holders = {
            scheme: _renumber(keys, self._clerk.holders[scheme], {row for whose, row, _ in alive if whose is scheme})
            for scheme, keys in before.holders.items()
        }
        devices = _renumber(before.devices, self._clerk.devices, {device for _, _, device in alive})
        for record in self._records.values():
            record.renumber(self._clerk, holders, devices)


def _renumber(before: LabelRowIndex[K], after: LabelRowIndex[K], alive: set[int]) -> NDArray[np.int32]:
    numbers = np.full(len(before), -1, np.int32)
    for row in sorted(alive):
        numbers[row] = after.add_key(before.keys[row])
    return numbers


def _join(windows: list[Window]) -> Window:
    parts = {
        field.name: np.concatenate([getattr(window, field.name) for window in windows] or [np.empty(0)])
        for field in fields(Window)
    }
    return Window(**parts)
