"""A report as tables for a terminal. Columns that do not fit are left out, the least important first."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from gpusteward.analyzer.reports.render import quantities
from gpusteward.analyzer.reports.render.descriptions import (
    describe_evidence,
    describe_period,
    describe_profile,
    describe_recorded,
    describe_total,
    describe_unused,
    list_notes,
    list_waste,
    name_group,
    name_grouping,
    name_workload,
    title_groups,
    write_token_cost,
)
from gpusteward.analyzer.reports.report import Finding, Group, Report
from gpusteward.cli.output.tables import open_console
from gpusteward.cli.output.terminal_text import clean, measure
from gpusteward.cli.program import require_libraries
from gpusteward.core.messages import Language, Message
from gpusteward.messages import reports as messages

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 200
"""Wide enough for every column and for long names on one line."""
MIN_NAME_WIDTH = 34
"""Longer names are wrapped before a column is left out."""
GAP = 2


class _ReportColumn(NamedTuple):
    """One column; the one with the highest rank is left out first, one of rank 0 never."""

    title: Message
    write: Callable[[Any], str]  # a row -> its cell
    rank: int = 0


def print_report(report: Report, language: Language, out: TextIO) -> None:
    """Raises MissingLibraryError if rich is not installed."""
    has_width = out.isatty() or "COLUMNS" in os.environ
    with require_libraries():
        console = open_console(out, width=None if has_width else PIPE_WIDTH)
    _print(console, messages.TITLE.text(language, by=name_grouping(report)), style="bold")
    _print(console, describe_period(report, language))
    if recorded := describe_recorded(report, language):
        _print(console, recorded)
    for line in list_waste(report, language) if report.groups else ():
        _print(console, line, style="bold")
    if report.unused:
        _print(console, describe_unused(report.unused, language))
    if report.groups:
        _print(console, describe_total(report.total, report.currency, language))
        _print_groups(console, report, language)
        _print_wasters(console, report, language)
        _print_findings(console, report, language)
    else:
        _print(console, messages.NOTHING.text(language))
    _print(console, "")
    for note in list_notes(report, language):
        _print(console, note, style="dim")


def _print(console: "Console", text: str, *, style: str = "") -> None:
    """Names are never interpreted as markup or control characters."""
    console.print(clean(text), style=style, markup=False, emoji=False)


def _print_groups(console: "Console", report: Report, language: Language) -> None:
    change = report.trend.idle_change_ratio if report.trend else None
    total = Group(messages.TOTAL.text(language), "", "", report.total, change)
    rows = [*report.groups, *([report.others] if report.others else []), total]
    has_ineffective, has_tokens = report.total.ineffective_gpu_ms > 0, report.total.tokens is not None

    def hours(title: Message, amount: str, rank: int) -> _ReportColumn:
        return _ReportColumn(title, lambda row: quantities.hours(getattr(row.amounts, amount)), rank)

    def money(title: Message, amount: str, rank: int) -> _ReportColumn:
        return _ReportColumn(title, lambda row: quantities.money(getattr(row.amounts, amount)), rank)

    name = _ReportColumn(title_groups(report), lambda row: name_group(row, report, language))
    token_cost = _ReportColumn(messages.TOKEN_COST, lambda row: write_token_cost(row.amounts, language), 2)
    columns = [
        money(messages.IDLE_COST, "idle_cost_micros", 1),
        hours(messages.IDLE, "idle_gpu_ms", 0),
        _ReportColumn(messages.IDLE_SHARE, lambda row: quantities.percent(row.amounts.idle_ratio), 1),
        hours(messages.UNALLOCATED, "unallocated_gpu_ms", 7),
        money(messages.UNALLOCATED_COST, "unallocated_cost_micros", 8),
        hours(messages.ALLOCATED, "allocated_gpu_ms", 0),
        hours(messages.ACTIVE, "active_gpu_ms", 3),
        hours(messages.EFFECTIVE, "effective_gpu_ms", 3 if has_ineffective else 9),
        hours(messages.INEFFECTIVE, "ineffective_gpu_ms", 2 if has_ineffective else 10),
        hours(messages.UNKNOWN, "unknown_gpu_ms", 2 if report.total.unknown_gpu_ms else 6),
        money(messages.COST, "cost_micros", 5),
        *([token_cost] if has_tokens else []),
        _ReportColumn(messages.SCORE, lambda row: quantities.score(row.amounts.mean_score), 4),
        _ReportColumn(messages.IDLE_TREND, lambda row: quantities.change(row.idle_change_ratio), 4),
    ]
    heading = messages.HOURS_BY.text(language, by=name_grouping(report), currency=report.currency)
    _print_table(console, heading, rows, [name, *columns], language, has_total=True)


def _print_wasters(console: "Console", report: Report, language: Language) -> None:
    if not report.wasters:
        _print(console, "")
        _print(console, messages.NO_WASTERS.text(language))
        return
    columns = [
        _ReportColumn(messages.WORKLOAD, lambda one: name_workload(one, report)),
        _ReportColumn(messages.IDLE_COST, lambda one: quantities.money(one.amounts.idle_cost_micros)),
        _ReportColumn(messages.IDLE, lambda one: quantities.hours(one.amounts.idle_gpu_ms)),
        _ReportColumn(messages.IDLE_SHARE, lambda one: quantities.percent(one.amounts.idle_ratio), 1),
        _ReportColumn(messages.GPUS, lambda one: str(one.gpus), 1),
        _ReportColumn(messages.MODEL, lambda one: one.models, 3),
        _ReportColumn(messages.USER, lambda one: one.user or quantities.UNKNOWN, 2),
    ]
    _print_table(console, messages.WASTERS.text(language), report.wasters, columns, language)


def _print_findings(console: "Console", report: Report, language: Language) -> None:
    if not report.findings:
        return
    columns = [
        _ReportColumn(messages.WORKLOAD, lambda one: name_workload(one, report)),
        _ReportColumn(messages.MODEL, lambda one: one.model, 3),
        _ReportColumn(messages.GPUS, lambda one: str(one.gpus), 2),
        _ReportColumn(messages.WOULD_FIT, lambda one: describe_profile(one, language)),
        _ReportColumn(messages.PEAKS, describe_evidence, 1),
        _ReportColumn(messages.SAVING, _format_saving),
    ]
    _print_table(console, messages.FINDINGS.text(language), report.findings, columns, language)


def _format_saving(finding: Finding) -> str:
    """The saving as money where there is a price, else as GPU-hours."""
    if finding.saving_micros is None:
        return f"{quantities.hours(finding.saving_gpu_ms)} h"
    return quantities.money(finding.saving_micros)


def _print_table(
    console: "Console",
    heading: str,
    rows: Sequence[object],
    columns: Sequence[_ReportColumn],
    language: Language,
    *,
    has_total: bool = False,
) -> None:
    """The first column has the names. Of the others those that fit, in their order; empty ones are left out."""
    from rich.table import Table
    from rich.text import Text

    name, *others = columns
    cells = {column: [column.write(row) for row in rows] for column in columns}
    widths = {each: max(map(measure, (each.title.text(language), *cells[each]))) for each in columns}
    kept = [each for each in others if set(cells[each]) - {quantities.UNKNOWN}]
    while kept and sum(widths[each] + GAP for each in kept) > console.width - min(widths[name], MIN_NAME_WIDTH):
        last = max(kept, key=lambda each: each.rank)
        if last.rank == 0:
            break
        kept.remove(last)
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
    table.add_column(Text(name.title.text(language)), overflow="fold")
    for column in kept:
        table.add_column(Text(column.title.text(language)), justify="right", no_wrap=True)
    for number, line in enumerate(zip(*(cells[each] for each in (name, *kept)), strict=True), start=1):
        style = "bold" if has_total and number == len(rows) else ""
        table.add_row(*(Text(clean(cell)) for cell in line), style=style)
    _print(console, "")
    _print(console, heading, style="bold")
    console.print(table)
