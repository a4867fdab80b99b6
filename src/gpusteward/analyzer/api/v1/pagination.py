"""Lists of the API: rows filtered and sorted by columns, pages by cursor, ETag.

A cursor belongs to one result, one sort order and one choice of filters. Once a newer result is published, the cursor
is refused with 410, so that no row is skipped or repeated: the client starts again without a cursor.
"""

import base64
import binascii
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import msgspec
import numpy as np
from fastapi import Request, Response
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.api.dependencies import ApiDependencies
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.api.http.responses import format_utc, has_current, send_json, send_not_modified
from gpusteward.analyzer.judge.allocation_columns import CodedColumn, Mask, encode
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import Codes, Column
from gpusteward.core.api_rows import Page, ResultStamp
from gpusteward.core.verdicts import Activity, Proof, Signature, State, VerdictName
from gpusteward.messages.errors import api_errors

Order = NDArray[np.intp]
Sortable = NDArray[np.float64] | NDArray[np.intp] | Sequence[str]
Filter = Callable[[Sequence[str]], Mask]


def both_ways(*names: str) -> tuple[str, ...]:
    """The names of sorts, ascending and descending."""
    return tuple(f"{sign}{name}" for name in names for sign in ("", "-"))


class RowList:
    """The rows of one resource in one result."""

    def __init__(
        self,
        size: int,
        *,
        sorts: Mapping[str, Sortable | Callable[[], Sortable]],
        filters: Mapping[str, Filter],
        tie_breakers: Sequence[str] = (),
    ) -> None:
        """`sorts`: columns, or what reads them. `tie_breakers`: the sorts that order rows with equal keys, the most
        important first."""
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
                column = self._sorts[key.removeprefix("-")]
                order = _sort(column() if callable(column) else column, order, is_descending=key.startswith("-"))
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


MOST_ROWS = 1000
STALE_INTERVALS = 2
Row = TypeVar("Row")
FilterValue = Annotated[str, Field(max_length=253)]
FilterValues = Annotated[tuple[FilterValue, ...], Field(max_length=50)]
if TYPE_CHECKING:
    StateName = str
    ActivityName = str
    SignatureName = str
    ProofName = str
    VerdictWord = str
else:  # the enums as literals, for the API document
    StateName = Literal[tuple(each.value for each in State)]
    ActivityName = Literal[tuple(each.value for each in Activity)]
    SignatureName = Literal[tuple(each.value for each in Signature)]
    ProofName = Literal[tuple(each.value for each in Proof)]
    VerdictWord = Literal[tuple(each.value for each in VerdictName)]


class ListQuery(BaseModel):
    """Parameters of every list. Several values of one filter: any of them; several filters: all of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    limit: int = Field(default=100, ge=1, le=MOST_ROWS, description="Maximum number of rows.")
    cursor: str | None = Field(
        default=None, max_length=500, description="`next` of the previous page; 410 once a newer result is published."
    )
    q: FilterValues = Field(default=(), description="Rows whose names contain all of these words.")

    @property
    def sorting(self) -> str:
        return str(getattr(self, "sort"))  # noqa: B009 - each list declares its own sorts

    @property
    def filters(self) -> Mapping[str, Sequence[str]]:
        """The filters that were given, by name."""
        given = self.model_dump(exclude={"limit", "cursor", "sort"})
        return {name: tuple(values) for name, values in given.items() if values}


class _Cursor(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    tag: str
    fingerprint: str
    offset: int


def send_page(
    request: Request,
    query: ListQuery,
    *,
    result: Result,
    listing: RowList,
    make_rows: Callable[[Sequence[int]], Iterable[object]],
    version: bytes = b"",
) -> Response:
    """One page, or 304 when the client has it. `make_rows`: from the numbers of the rows in the list. `version`: what
    else it is made from. Raises a 410 or 422 problem for an invalid cursor."""
    etag = make_etag(request, result, version=version)
    if has_current(request, etag):
        return send_not_modified(etag)
    offset = _read_cursor(query, result)
    order = listing.select(query.sorting, query.filters)
    end = offset + query.limit
    items = list(make_rows(order[offset:end].tolist()))
    following = None
    if end < len(order):
        written = msgspec.json.encode(_Cursor(result.tag, _fingerprint(query), end))
        following = base64.urlsafe_b64encode(written).decode().rstrip("=")
    return send_json(Page(items, len(order), following, stamp(result, dependencies_of(request))), etag=etag)


def make_etag(request: Request, result: Result, *, version: bytes = b"") -> str:
    """Changes with the result, every minute once that is stale, and with the path and query of the request. `version`:
    what else the response is made from."""
    target, now = f"{request.url.path}?{request.url.query}", stamp(result, dependencies_of(request))
    if now.stale:
        target += f" {now.age_seconds // 60:.0f} {now.last_error}"
    if version:
        target += f" {version.hex()}"
    return f'"{result.tag}-{_digest(target)}"'


def dependencies_of(request: Request) -> ApiDependencies:
    dependencies: ApiDependencies = request.state.dependencies
    return dependencies


def stamp(result: Result, dependencies: ApiDependencies) -> ResultStamp:
    now, stats = dependencies.clock(), dependencies.stats
    # Of a cycle after this result: a result is published before its cycle ends.
    error = stats.last_error if (stats.last_ended_at or 0.0) >= result.at else ""
    return ResultStamp(
        tag=result.tag,
        number=result.number,
        at=format_utc(result.at) or "",
        window_seconds=result.verdicts.usage.window_seconds,
        age_seconds=round(max(0.0, now - result.at), 1),
        stale=bool(error) or now - result.read_at > STALE_INTERVALS * result.settings.scheduler.interval,
        last_error=error,
    )


def _fingerprint(query: ListQuery) -> str:
    return _digest(msgspec.json.encode([query.sorting, sorted(query.filters.items())]).decode())


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=9).hexdigest()


def _read_cursor(query: ListQuery, result: Result) -> int:
    if query.cursor is None:
        return 0
    try:
        padded = query.cursor + "=" * (-len(query.cursor) % 4)
        cursor = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Cursor)
    except (binascii.Error, ValueError):
        raise ProblemError(422, "invalid-parameter", api_errors.CURSOR_INVALID) from None
    if cursor.tag != result.tag:
        raise ProblemError(410, "cursor-expired", api_errors.CURSOR_EXPIRED)
    if cursor.fingerprint != _fingerprint(query) or cursor.offset < 0:
        raise ProblemError(422, "invalid-parameter", api_errors.CURSOR_MISMATCH)
    return cursor.offset
