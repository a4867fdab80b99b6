"""/api/v1/reports: what the books say about a time. It asks the database, as `deliveries.py` does.

A few reports may be made at once, each within a time limit, in threads that nobody has to wait for: a database that
hangs costs its readers an error, and nobody else anything.
"""

import time
from collections.abc import Mapping
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.api.dependencies import Dependencies, LedgerReader
from gpusteward.analyzer.api.http.authorization import may_read
from gpusteward.analyzer.api.http.concurrency_limits import query_ledger
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.api.v1.pagination import Words
from gpusteward.analyzer.reports.render.csv_text import render_csv
from gpusteward.analyzer.reports.render.html_page import content_policy, render_html
from gpusteward.analyzer.reports.render.json_text import render_json
from gpusteward.analyzer.reports.report import By, Report, ReportQuery, parse_time_range
from gpusteward.core.messages import Language
from gpusteward.core.negotiation import parse_accept
from gpusteward.messages import api_errors

router = APIRouter(prefix="/api/v1", dependencies=[Depends(may_read)], tags=["reports"])

Format = Literal["json", "csv", "html"]
TYPES: Mapping[Format, str] = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "html": "text/html; charset=utf-8",
}


class ReportParameters(BaseModel):
    """What is asked for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    since: str = Field(
        default="7d", max_length=40, description="From when: 24h, 7d, 4w before `until`, or a date or time (ISO 8601)."
    )
    until: str | None = Field(default=None, max_length=40, description="Until when: in the same way; now, if left out.")
    by: By = Field(default="namespace", description="What a row is about.")
    namespace: Words = Field(default=(), description="Only these.")
    top: int = Field(default=10, ge=0, le=1000, description="How many wasters, and how many right-sizing findings.")
    rows: int = Field(default=1000, ge=1, le=10000, description="How many groups; all others are one row.")
    format: Format | None = Field(default=None, description="How it is written; if left out, as `Accept` wishes.")
    lang: Language = Field(default="en", description="The language of the HTML page.")

    def to_query(self, *, now_ms: int) -> ReportQuery:
        """Raises a 422 problem."""
        try:
            since_ms, until_ms = parse_time_range(self.since, self.until, now_ms=now_ms)
        except ValueError as error:
            raise ProblemError(422, "invalid-parameter", api_errors.INVALID_TIME_RANGE, reason=error) from None
        return ReportQuery(since_ms, until_ms, self.by, self.namespace, self.top, self.rows)


@router.get(
    "/reports",
    summary="Report",
    response_model=Report,
    responses={200: {"content": {TYPES[kind]: {"schema": {"type": "string"}} for kind in ("csv", "html")}}},
)
async def make_report(
    request: Request, dependencies: Dependencies, asked: Annotated[ReportParameters, Query()]
) -> Response:
    """GPU-hours and money allocated, used, idle and unknown, and by whom; top wasters, trend, right-sizing.

    Time is in GPU-milliseconds and money in millionths of the currency, both exact. null is unknown, never 0.
    """
    query = asked.to_query(now_ms=time.time_ns() // 1_000_000)
    chosen = asked.format or _choose(request.headers.get("accept", ""))
    body = await query_ledger(
        lambda: _write(dependencies.ledger, query, chosen, asked.lang), dependencies.limits.reports
    )
    headers = {"Cache-Control": "private, no-store", "Vary": "Accept"}
    if chosen == "html":
        headers["Content-Security-Policy"] = f"{content_policy()}; frame-ancestors 'none'"
    if chosen == "csv":
        headers["Content-Disposition"] = f'attachment; filename="gpusteward-{asked.by}.csv"'
    return Response(body, headers=headers, media_type=TYPES[chosen])


def _write(ledger: LedgerReader, query: ReportQuery, chosen: Format, language: Language) -> bytes:
    """In a thread: asking and writing."""
    report = ledger.read_report(query)
    if chosen == "html":
        return render_html(report, language).encode("utf-8", "replace")
    return (render_csv(report) if chosen == "csv" else render_json(report)).encode("utf-8", "replace")


def _choose(accept: str) -> Format:
    """A browser that just goes there gets the page."""
    known: Mapping[str, Format] = {"application/json": "json", "text/csv": "csv", "text/html": "html"}
    wishes = sorted(parse_accept(accept), key=lambda wish: -wish.weight)
    return next((known[wish.name] for wish in wishes if wish.name in known and wish.weight > 0), "json")
