"""Lists of the analyzer's API, page after page."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile

from gpusteward.cli.api.client import Client, Query
from gpusteward.cli.api.errors import StatusError
from gpusteward.cli.json_access import Row, count, each, inner, moment
from gpusteward.cli.output.console import Advance

LARGEST_PAGE = 1000
GONE = 410
ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class ListPage:
    """Some rows of a list, how to go on, and which cycle they are from."""

    rows: list[Row]
    total: int
    following: str | None
    stamp: Row


@dataclass(frozen=True, slots=True)
class Listed:
    """A whole list, and the end of the window it was judged on."""

    rows: list[Row]
    at: float | None


def read_page(client: Client, path: str, query: Query, *, cursor: str | None = None) -> ListPage:
    """Raises UnreachableError, StatusError."""
    asked = [*query, ("cursor", cursor)] if cursor else query
    answer = client.read(path, asked)
    answer = answer if isinstance(answer, dict) else {}
    following = answer.get("next")
    return ListPage(
        each(answer, "items"),
        count(answer, "total"),
        following if isinstance(following, str) else None,
        inner(answer, "result"),
    )


def read_all(
    client: Client,
    path: str,
    query: Query,
    *,
    advance: Advance,
    wanted: Callable[[Row], bool] = lambda _: True,
    attempts: int = ATTEMPTS,
) -> Listed:
    """Rows to the end of the list, or to the first that is not wanted: a list is asked for in the order that allows it.

    A cycle that finishes in between changes the list under the cursor: then it is read again from its beginning.
    Raises UnreachableError, StatusError.
    """
    asked = [*query, ("limit", str(LARGEST_PAGE))]
    try:
        return _gather(_walk(client, path, asked, advance=advance), wanted)
    except StatusError as error:
        if error.status != GONE or attempts == 1:
            raise
    return read_all(client, path, query, advance=advance, wanted=wanted, attempts=attempts - 1)


def _walk(client: Client, path: str, query: Query, *, advance: Advance) -> Iterator[ListPage]:
    done, cursor = 0, None
    while True:
        page = read_page(client, path, query, cursor=cursor)
        yield page
        done, cursor = done + len(page.rows), page.following
        advance(done, page.total)
        if cursor is None:
            return


def _gather(pages: Iterable[ListPage], wanted: Callable[[Row], bool]) -> Listed:
    rows: list[Row] = []
    at = None
    for page in pages:
        taken = list(takewhile(wanted, page.rows))
        rows, at = [*rows, *taken], moment(page.stamp, "at")
        if len(taken) < len(page.rows):
            break
    return Listed(rows, at)
