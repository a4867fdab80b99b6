"""How lists are asked for: pages by cursor, sorting, filters, ETag.

A cursor belongs to one result, one sorting and one choice of filters. When the next cycle has finished in between, it
is refused with 410 instead of skipping or repeating rows silently: begin again without a cursor.
"""

import base64
import binascii
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Generic, Literal, TypeVar

import msgspec
from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.api.http.responses import has_current, send_json, send_not_modified
from gpusteward.analyzer.api.v1.listing import Listing
from gpusteward.analyzer.results import Result
from gpusteward.core.verdicts import Activity, Signature, State
from gpusteward.messages import api_errors

MOST_ROWS = 1000
Row = TypeVar("Row")
Word = Annotated[str, Field(max_length=253)]
Words = Annotated[tuple[Word, ...], Field(max_length=50)]
if TYPE_CHECKING:
    StateWord = str
    ActivityWord = str
    SignatureWord = str
else:  # words in the API document, made from the enums
    StateWord = Literal[tuple(each.value for each in State)]
    ActivityWord = Literal[tuple(each.value for each in Activity)]
    SignatureWord = Literal[tuple(each.value for each in Signature)]


class ListQuery(BaseModel):
    """What every list takes. Several words of one filter mean any of them; several filters mean all of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    limit: int = Field(default=100, ge=1, le=MOST_ROWS, description="How many rows at most.")
    cursor: str | None = Field(
        default=None, max_length=500, description="`next` of the page before; 410 once another cycle has finished."
    )
    q: Words = Field(default=(), description="Rows that hold all of these words somewhere in their names.")

    @property
    def sorting(self) -> str:
        return str(getattr(self, "sort"))  # noqa: B009 - each list declares its own words for it

    @property
    def filters(self) -> Mapping[str, Sequence[str]]:
        """What was asked for, by name; nothing for filters that were left out."""
        told = self.model_dump(exclude={"limit", "cursor", "sort", "lang"})
        return {name: tuple(words) for name, words in told.items() if words}


@dataclass(frozen=True)
class ResultStamp:
    """Which cycle an answer is from."""

    tag: str
    number: int
    at: Annotated[str, Field(description="The end of the judged window, UTC.")]
    window_seconds: float


@dataclass(frozen=True)
class Page(Generic[Row]):
    """Some rows of a list."""

    items: list[Row]
    total: Annotated[int, Field(description="How many rows pass the filters, on all pages.")]
    next: Annotated[str | None, Field(description="The cursor of the next page; null on the last one.")]
    result: ResultStamp


class _Cursor(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    tag: str
    fingerprint: str
    offset: int


def answer_page(
    request: Request, query: ListQuery, *, result: Result, listing: Callable[[], Listing], row: Callable[[int], object]
) -> Response:
    """One page, or 304 when the client has it. Raises a 410 or 422 problem for a cursor that leads nowhere."""
    etag = make_etag(request, result)
    if has_current(request, etag):
        return send_not_modified(etag)
    offset = _read_cursor(query, result)
    order = listing().select(query.sorting, query.filters)
    end = offset + query.limit
    items = [row(number) for number in order[offset:end].tolist()]
    following = _write_cursor(query, result, end) if end < len(order) else None
    return send_json(Page(items, len(order), following, stamp(result)), etag=etag)


def make_etag(request: Request, result: Result) -> str:
    """Changes with the result and with what was asked of it."""
    asked = f"{request.url.path}?{request.url.query}"
    return f'"{result.tag}-{_digest(asked)}"'


def stamp(result: Result) -> ResultStamp:
    return ResultStamp(result.tag, result.number, format_utc(result.at) or "", result.verdicts.usage.window_seconds)


def format_utc(at: float | None) -> str | None:
    """`2026-11-15T22:13:09Z`; None for what is not known."""
    if at is None or math.isnan(at):
        return None
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


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
