"""Filters and sorts the rows of a list by columns; only the rows of the requested page become objects."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.judge.allocation_columns import CodedColumn, Mask, encode
from gpusteward.analyzer.tables import Codes, Column

Order = NDArray[np.intp]
Sortable = NDArray[np.float64] | NDArray[np.intp] | Sequence[str]
Filter = Callable[[Sequence[str]], Mask]


class Listing:
    """The rows of one resource in one result."""

    def __init__(
        self,
        size: int,
        *,
        sorts: Mapping[str, Callable[[], Sortable]],
        filters: Mapping[str, Filter],
        tie_breakers: Sequence[str] = (),
    ) -> None:
        """`tie_breakers`: the sorts that order rows with equal keys, the most important first."""
        self.size = size
        self._sorts = sorts
        self._filters = filters
        self._tie_breakers = tie_breakers
        self._orders: dict[str, Order] = {}

    def select(self, sort: str, filters: Mapping[str, Sequence[str]]) -> Order:
        """The numbers of the rows that pass every filter, in order. `-` before the name of a sort: descending."""
        order = self._order(sort)
        mask: Mask | None = None
        for name, values in filters.items():
            passing = self._filters[name](values)
            mask = passing if mask is None else mask & passing
        return order if mask is None else order[mask[order]]

    def _order(self, sort: str) -> Order:
        """Cached: a result is sorted at most once by each key. Two threads at once do the same work twice."""
        order = self._orders.get(sort)
        if order is None:
            order = np.arange(self.size)
            for key in reversed((sort, *self._tie_breakers)):
                order = _sort(self._sorts[key.removeprefix("-")](), order, is_descending=key.startswith("-"))
            self._orders[sort] = order
        return order


def _sort(column: Sortable, before: Order, *, is_descending: bool) -> Order:
    """A stable sort; unknown values come last in both directions."""
    if isinstance(column, np.ndarray):
        return before[np.argsort((-column if is_descending else column)[before], kind="stable")]
    order = sorted(before.tolist(), key=column.__getitem__, reverse=is_descending)
    return np.array(order, dtype=np.intp)


class TextColumn:
    """A column of texts, read from the rows when it is first used."""

    def __init__(self, read: Callable[[], Sequence[str]]) -> None:
        self._read = read

    @cached_property
    def _coded(self) -> CodedColumn:
        return encode(self._read())

    def sort(self) -> Sortable:
        """The rank of each row's text: there are few different texts."""
        names = self._coded.names
        ranks = np.empty(len(names), dtype=np.intp)
        ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        return ranks[self._coded.codes]

    def is_any_of(self, values: Sequence[str]) -> Mask:
        return self._coded.among(values)

    def contains_all(self, words: Sequence[str]) -> Mask:
        """The rows that contain every word, ignoring case."""
        lower = [word.lower() for word in words]
        matches = [all(word in name for word in lower) for name in map(str.lower, self._coded.names)]
        return np.array(matches, dtype=bool)[self._coded.codes]


def filter_codes(codes: Codes, names: Sequence[str]) -> Filter:
    """A filter of a coded column by the names of its codes."""
    return lambda values: np.isin(codes, [names.index(value) for value in values])


def filter_groups(rows: Filter, codes: NDArray[np.intp], *, size: int) -> Filter:
    """A filter of groups: a group passes if any of its rows does. `codes`: the group of each row."""
    return lambda values: np.bincount(codes[rows(values)], minlength=size) > 0


def mean_by(column: Column, codes: NDArray[np.intp], *, size: int) -> Column:
    """The mean of the known values of each group; NaN where there are none."""
    known = ~np.isnan(column)
    count = np.bincount(codes[known], minlength=size)
    with np.errstate(invalid="ignore"):
        return np.bincount(codes[known], weights=column[known], minlength=size) / count


def sum_by(column: Column, codes: NDArray[np.intp], *, size: int) -> Column:
    """The sum of the known values of each group; NaN where there are none."""
    known = ~np.isnan(column)
    total = np.bincount(codes[known], weights=column[known], minlength=size)
    return np.where(np.bincount(codes[known], minlength=size) > 0, total, np.nan)


def name_in_cluster(cluster: str, name: str) -> str:
    """An id that is unique among all clusters; the name itself where the cluster is not known."""
    return f"{cluster}:{name}" if cluster else name


def known_value(column: Column, number: int, *, digits: int = 4) -> float | None:
    """A rounded value of a column; None where it is unknown."""
    value = float(column[number])
    return None if math.isnan(value) else round(value, digits)
