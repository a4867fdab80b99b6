"""Lists of the analyzer's API, page by page."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile

from gpusteward.cli.api.client import Client, Query, StatusError
from gpusteward.cli.json_access import Row
from gpusteward.cli.output.tables import Advance

MAX_PAGE_ROWS = 1000
GONE = 410
"""Status of a cursor whose cycle is over."""
ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class ListPage:
    """Rows of a list."""

    rows: list[Row]
    total: int
    next_cursor: str | None
    result: Row  # number and time of the cycle


def read_page(client: Client, path: str, query: Query, *, cursor: str | None = None) -> ListPage:
    """Raises UnreachableError, StatusError."""
    page = client.read(path, [*query, ("cursor", cursor)] if cursor else query)
    next_cursor = page.get("next")
    return ListPage(
        page.objects("items"),
        page.count("total"),
        next_cursor if isinstance(next_cursor, str) else None,
        page.object("result"),
    )


def read_all(
    client: Client,
    path: str,
    query: Query,
    *,
    advance: Advance = lambda _done, _total: None,
    is_wanted: Callable[[Row], bool] = lambda _: True,
) -> ListPage:
    """All rows up to the first that is not wanted; the query has to sort the wanted ones first.

    If a cycle ends between two pages, the list is read again from its beginning.
    Raises UnreachableError, StatusError.
    """
    attempts, done, cursor = 1, 0, None
    rows: list[Row] = []
    while True:
        try:
            page = read_page(client, path, [*query, ("limit", str(MAX_PAGE_ROWS))], cursor=cursor)
        except StatusError as error:
            if error.status != GONE or attempts == ATTEMPTS:
                raise
            attempts, done, cursor, rows = attempts + 1, 0, None, []
            continue
        wanted = list(takewhile(is_wanted, page.rows))
        rows += wanted
        done += len(page.rows)
        advance(done, page.total)
        is_last = page.next_cursor in (None, cursor)  # a list that never ends is no list
        if is_last or len(wanted) < len(page.rows):
            return replace(page, rows=rows)
        cursor = page.next_cursor
