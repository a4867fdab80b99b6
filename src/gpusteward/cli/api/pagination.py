"""Lists of the analyzer's API, page by page."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from gpusteward.cli.api.client import Client, Query, StatusError
from gpusteward.cli.json_access import Row, get_count, get_object, get_objects, get_time
from gpusteward.cli.output.tables import Advance

MAX_PAGE_ROWS = 1000
GONE = 410
"""Status of a cursor whose cycle is over."""
ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class ListPage:
    """Some rows of a list."""

    rows: list[Row]
    total: int
    next_cursor: str | None
    result: Row  # number and time of the cycle


@dataclass(frozen=True, slots=True)
class WholeList:
    """All rows, and the end of the window that they are about."""

    rows: list[Row]
    at: float | None
    result: Row = field(default_factory=dict)  # its stamp


def read_page(client: Client, path: str, query: Query, *, cursor: str | None = None) -> ListPage:
    """Raises UnreachableError, StatusError."""
    page = client.read(path, [*query, ("cursor", cursor)] if cursor else query)
    next_cursor = page.get("next")
    return ListPage(
        get_objects(page, "items"),
        get_count(page, "total"),
        next_cursor if isinstance(next_cursor, str) else None,
        get_object(page, "result"),
    )


def read_all(
    client: Client,
    path: str,
    query: Query,
    *,
    advance: Advance = lambda _done, _total: None,
    is_wanted: Callable[[Row], bool] = lambda _: True,
    attempts: int = ATTEMPTS,
) -> WholeList:
    """All rows up to the first that is not wanted; the query has to sort the wanted ones first.

    If a cycle ends between two pages, the list is read again from its beginning.
    Raises UnreachableError, StatusError.
    """
    try:
        return _collect(_read_pages(client, path, [*query, ("limit", str(MAX_PAGE_ROWS))], advance=advance), is_wanted)
    except StatusError as error:
        if error.status != GONE or attempts == 1:
            raise
    return read_all(client, path, query, advance=advance, is_wanted=is_wanted, attempts=attempts - 1)


def _read_pages(client: Client, path: str, query: Query, *, advance: Advance) -> Iterator[ListPage]:
    done, cursor = 0, None
    while True:
        page = read_page(client, path, query, cursor=cursor)
        yield page
        done += len(page.rows)
        advance(done, page.total)
        if page.next_cursor in (None, cursor):  # a list that never ends is no list
            return
        cursor = page.next_cursor


def _collect(pages: Iterable[ListPage], is_wanted: Callable[[Row], bool]) -> WholeList:
    rows: list[Row] = []
    at: float | None = None
    result: Row = {}
    for page in pages:
        wanted = list(takewhile(is_wanted, page.rows))
        rows, at, result = [*rows, *wanted], get_time(page.result, "at"), page.result
        if len(wanted) < len(page.rows):
            break
    return WholeList(rows, at, result)
