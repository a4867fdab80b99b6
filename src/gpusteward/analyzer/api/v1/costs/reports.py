"""/api/v1/reports: GPU-hours and cost of a period, as JSON, CSV or HTML, or as charges (FOCUS). Reads the database.

The number of concurrent reports and the time for each are limited: a hanging database does not affect other requests.
"""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Annotated, Literal, TypeVar

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import ApiDependencies, Dependencies
from gpusteward.analyzer.api.http.concurrency_limits import query_ledger
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.api.http.responses import DocumentedRoute
from gpusteward.analyzer.api.v1.pagination import FilterValues
from gpusteward.analyzer.reports.render.csv_text import render_csv
from gpusteward.analyzer.reports.render.focus_csv import write_focus
from gpusteward.analyzer.reports.render.html_page import content_policy, render_html
from gpusteward.analyzer.reports.render.json_text import render_json
from gpusteward.analyzer.reports.report import GroupDetails, Report
from gpusteward.analyzer.reports.report_query import (
    GROUPINGS,
    ReportQuery,
    check_grouping,
    find_grouping,
    parse_time_range,
)
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.messages import Language
from gpusteward.http_server.negotiation import parse_accept
from gpusteward.messages.errors import api_errors

router = APIRouter(route_class=DocumentedRoute, prefix="/api/v1", dependencies=[Depends(may_read)], tags=["reports"])

T = TypeVar("T")
Format = Literal["json", "csv", "html", "focus"]
TYPES: Mapping[Format, str] = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "focus": "text/csv; charset=utf-8",
}
_SPOOL_BYTES = 8 << 20
"""A larger export is written to a temporary file: a slow client must not keep a transaction open."""
_PIECE_BYTES = 1 << 16


class PeriodParameters(BaseModel):
    """Period, grouping and scope of a report."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    since: str = Field(
        default="7d", max_length=40, description="Start: 24h, 7d, 4w before `until`, or a date or time (ISO 8601)."
    )
    until: str | None = Field(default=None, max_length=40, description="End, in the same form; default: now.")
    by: str = Field(
        default="namespace",
        max_length=400,
        description=f"What the rows are grouped by: {', '.join(GROUPINGS)}, or label:KEY for a recorded pod label.",
        json_schema_extra={"pattern": f"^({'|'.join(GROUPINGS)}|label:[A-Za-z0-9][A-Za-z0-9._/-]{{0,316}})$"},
    )
    namespace: FilterValues = Field(default=(), description="Only these namespaces.")
    cluster: FilterValues = Field(default=(), description="Only these clusters.")

    def make_query(self, *, top: int, rows: int) -> ReportQuery:
        """Up to now, unless `until` says otherwise. Raises a 422 problem."""
        try:
            since_ms, until_ms = parse_time_range(self.since, self.until, now_ms=time.time_ns() // 1_000_000)
        except ConfigurationError as error:
            raise ProblemError(422, "invalid-parameter", api_errors.INVALID_TIME_RANGE, reason=error.message) from None
        _check_grouping(self.by)
        return ReportQuery(
            since_ms=since_ms,
            until_ms=until_ms,
            by=self.by,
            namespaces=self.namespace,
            clusters=self.cluster,
            top=top,
            rows=rows,
        )


class ReportParameters(PeriodParameters):
    """Parameters of a report."""

    top: int = Field(default=10, ge=0, le=1000, description="Number of top wasters and of right-sizing findings.")
    rows: int = Field(default=1000, ge=1, le=10000, description="Number of groups; all others become one row.")
    format: Format | None = Field(default=None, description="Format; default: by `Accept`.")
    language: Language = Field(default="en", description="The language of the HTML page.")


class GroupParameters(PeriodParameters):
    """Parameters of the groups of a report."""

    top: int = Field(default=5, ge=0, le=50, description="Number of workloads of each group.")
    rows: int = Field(default=100, ge=1, le=1000, description="Number of groups, those with the highest idle cost.")


def _check_grouping(by: str) -> None:
    """Raises a 422 problem."""
    try:
        check_grouping(by)
    except ConfigurationError as error:
        message = api_errors.INVALID_PARAMETER
        raise ProblemError(422, "invalid-parameter", message, name="by", reason=error.as_message()) from None


@router.get(
    "/reports",
    summary="Report",
    response_model=Report,
    responses={200: {"content": {TYPES[kind]: {"schema": {"type": "string"}} for kind in ("csv", "html")}}},
)
async def make_report(
    request: Request, dependencies: Dependencies, parameters: Annotated[ReportParameters, Query()]
) -> Response:
    """GPU-hours and cost allocated, used, idle and unknown, by group; top wasters, trend, right-sizing.

    Time is in GPU-milliseconds and money in millionths of the currency, both exact. null is unknown, never 0.
    """
    query = parameters.make_query(top=parameters.top, rows=parameters.rows)
    chosen = parameters.format or _choose_format(request.headers.get("accept", ""))
    if chosen == "focus":
        return await _export_charges(dependencies, query)
    language = parameters.language
    body = await _query(lambda: _render(dependencies, query, chosen, language), dependencies)
    headers = {"Cache-Control": "private, no-store", "Vary": "Accept"}
    if chosen == "html":
        headers["Content-Security-Policy"] = f"{content_policy()}; frame-ancestors 'none'"
    if chosen == "csv":
        headers["Content-Disposition"] = f'attachment; filename="gpusteward-{find_grouping(parameters.by)}.csv"'
    return Response(body, headers=headers, media_type=TYPES[chosen])


@router.get("/reports/groups", summary="Groups of a report over time", response_model=GroupDetails)
async def read_groups(dependencies: Dependencies, parameters: Annotated[GroupParameters, Query()]) -> Response:
    """GPU-hours of each group per day, or per hour for up to two days, and its workloads with the highest idle cost.

    Groups by day have none: they are the days themselves.
    """
    query = parameters.make_query(top=parameters.top, rows=parameters.rows)
    ledger, visible = dependencies.ledger, dependencies.visible
    body = await _query(lambda: msgspec.json.encode(ledger.read_group_details(query, visible=visible)), dependencies)
    return Response(body, headers={"Cache-Control": "private, no-store"}, media_type=TYPES["json"])


async def _query(read: Callable[[], T], dependencies: Dependencies) -> T:
    """Raises a 422, 503 or 504 problem."""
    try:
        return await query_ledger(read, dependencies.limits.reports)
    except ConfigurationError as error:
        raise ProblemError.from_error(422, "invalid-parameter", error) from error


async def _export_charges(dependencies: Dependencies, query: ReportQuery) -> Response:
    """The charges of the period as CSV with the columns of FOCUS."""
    ledger, visible = dependencies.ledger, dependencies.visible
    file, size = await _query(lambda: _spool(write_focus(ledger.read_charges(query, visible=visible))), dependencies)
    headers = {
        "Cache-Control": "private, no-store",
        "Content-Disposition": 'attachment; filename="gpusteward-focus.csv"',
        "Content-Length": str(size),
    }
    return StreamingResponse(_read_pieces(file), headers=headers, media_type=TYPES["focus"])


def _spool(pieces: Iterable[str]) -> tuple[IO[bytes], int]:
    """Runs in a thread, because it waits for the database."""
    file = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115 - closed when it has been sent
    for piece in pieces:
        file.write(piece.encode("utf-8", "replace"))
    size = file.tell()
    file.seek(0)
    return file, size


def _read_pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def _render(dependencies: ApiDependencies, query: ReportQuery, chosen: Format, language: Language) -> bytes:
    """Read the report and render it. Runs in a thread, because it waits for the database."""
    report = dependencies.ledger.read_report(query, visible=dependencies.visible)
    if chosen == "html":
        return render_html(report, language).encode("utf-8", "replace")
    return (render_csv(report) if chosen == "csv" else render_json(report)).encode("utf-8", "replace")


def _choose_format(accept: str) -> Format:
    """By `Accept`: HTML for a browser, JSON by default."""
    known: Mapping[str, Format] = {"application/json": "json", "text/csv": "csv", "text/html": "html"}
    items = sorted(parse_accept(accept), key=lambda item: -item.weight)
    return next((known[item.name] for item in items if item.name in known and item.weight > 0), "json")
