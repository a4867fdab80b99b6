"""Rows that can be filtered and sorted without being made: only those of the page that is asked for are."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.judge.keys import Coded, Mask, encode
from gpusteward.analyzer.tables import Codes, Column

Order = NDArray[np.intp]
Sortable = NDArray[np.float64] | NDArray[np.intp] | Sequence[str]
Filter = Callable[[Sequence[str]], Mask]


class Listing:
    """One noun of one result."""

    def __init__(
        self,
        size: int,
        *,
        sorts: Mapping[str, Callable[[], Sortable]],
        filters: Mapping[str, Filter],
        among_equals: str = "",
    ) -> None:
        """`among_equals`: the sort that decides between rows that are equal in another; else they keep their order."""
        self.size = size
        self._sorts = sorts
        self._filters = filters
        self._among_equals = among_equals
        self._orders: dict[str, Order] = {}

    def select(self, sort: str, filters: Mapping[str, Sequence[str]]) -> Order:
        """The numbers of the rows that pass every filter, in order. `-` before the name of a sort turns it around."""
        order = self._order(sort)
        mask: Mask | None = None
        for name, words in filters.items():
            passing = self._filters[name](words)
            mask = passing if mask is None else mask & passing
        return order if mask is None else order[mask[order]]

    def _order(self, sort: str) -> Order:
        """Kept: a result is sorted at most once by each key. Two threads at once only do the same work twice."""
        order = self._orders.get(sort)
        if order is None:
            column = self._sorts[sort.removeprefix("-")]()
            before = self._order(self._among_equals) if self._among_equals not in ("", sort) else np.arange(self.size)
            order = self._orders[sort] = _sort(column, before, is_descending=sort.startswith("-"))
        return order


def _sort(column: Sortable, before: Order, *, is_descending: bool) -> Order:
    """Equals keep the order they had before; the unknown comes last, whichever way."""
    if isinstance(column, np.ndarray):
        return before[np.argsort((-column if is_descending else column)[before], kind="stable")]
    order = sorted(before.tolist(), key=column.__getitem__, reverse=is_descending)
    return np.array(order, dtype=np.intp)


class Texts:
    """A column of texts that is read from the rows when it is first asked for."""

    def __init__(self, read: Callable[[], Sequence[str]]) -> None:
        self._read = read

    @cached_property
    def _coded(self) -> Coded:
        return encode(self._read())

    def sort(self) -> Sortable:
        """Few different texts: their places among each other stand for them."""
        names = self._coded.names
        places = np.empty(len(names), dtype=np.intp)
        places[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        return places[self._coded.codes]

    def among(self, words: Sequence[str]) -> Mask:
        return self._coded.among(words)

    def containing(self, words: Sequence[str]) -> Mask:
        """Which rows hold every word, whatever their case."""
        wanted = [word.lower() for word in words]
        hits = [all(word in name for word in wanted) for name in map(str.lower, self._coded.names)]
        return np.array(hits, dtype=bool)[self._coded.codes]


def filter_codes(codes: Codes, names: Sequence[str]) -> Filter:
    """Which rows have one of these words, of a column that numbers them."""
    return lambda words: np.isin(codes, [names.index(word) for word in words])


def lift(rows: Filter, codes: NDArray[np.intp], *, size: int) -> Filter:
    """A filter of rows as a filter of the groups they belong to: any of its rows passes."""
    return lambda words: np.bincount(codes[rows(words)], minlength=size) > 0


def mean_by(column: Column, codes: NDArray[np.intp], *, size: int) -> Column:
    """The mean of what is known of each group; NaN where nothing is."""
    known = ~np.isnan(column)
    count = np.bincount(codes[known], minlength=size)
    with np.errstate(invalid="ignore"):
        return np.bincount(codes[known], weights=column[known], minlength=size) / count


def sum_by(column: Column, codes: NDArray[np.intp], *, size: int) -> Column:
    """The sum of what is known of each group; NaN where nothing is."""
    known = ~np.isnan(column)
    total = np.bincount(codes[known], weights=column[known], minlength=size)
    return np.where(np.bincount(codes[known], minlength=size) > 0, total, np.nan)
