"""Lists of the API: pages by cursor, sort order, filters, ETag.

A cursor belongs to one result, one sort order and one choice of filters. Once a newer result is published, the cursor
is refused with 410, so that no row is skipped or repeated: the client starts again without a cursor.
"""

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import msgspec
from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.api.dependencies import ApiDependencies
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.api.http.responses import format_utc, has_current, send_json, send_not_modified
from gpusteward.analyzer.api.v1.listing import Listing
from gpusteward.analyzer.pipeline import CycleStats
from gpusteward.analyzer.results import Result
from gpusteward.core.api_rows import Page, ResultStamp
from gpusteward.core.verdicts import Activity, Proof, Signature, State
from gpusteward.messages.errors import api_errors

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
else:  # the enums as literals, for the API document
    StateName = Literal[tuple(each.value for each in State)]
    ActivityName = Literal[tuple(each.value for each in Activity)]
    SignatureName = Literal[tuple(each.value for each in Signature)]
    ProofName = Literal[tuple(each.value for each in Proof)]


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
    listing: Listing,
    make_rows: Callable[[Sequence[int]], Sequence[object]],
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
    following = _write_cursor(query, result, end) if end < len(order) else None
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
    now, error = dependencies.clock(), _find_error(result, dependencies.cycles.stats)
    return ResultStamp(
        tag=result.tag,
        number=result.number,
        at=format_utc(result.at) or "",
        window_seconds=result.verdicts.usage.window_seconds,
        age_seconds=round(max(0.0, now - result.at), 1),
        stale=bool(error) or now - result.read_at > STALE_INTERVALS * result.settings.scheduler.interval,
        last_error=error,
    )


def _find_error(result: Result, stats: CycleStats) -> str:
    """Of a cycle after this result: a result is published before its cycle ends."""
    return stats.last_error if (stats.last_ended_at or 0.0) >= result.at else ""


def _fingerprint(query: ListQuery) -> str:
    return _digest(msgspec.json.encode([query.sorting, sorted(query.filters.items())]).decode())


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=9).hexdigest()


def _write_cursor(query: ListQuery, result: Result, offset: int) -> str:
    written = msgspec.json.encode(_Cursor(result.tag, _fingerprint(query), offset))
    return base64.urlsafe_b64encode(written).decode().rstrip("=")


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
