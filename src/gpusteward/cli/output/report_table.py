"""A report as tables for a terminal. Columns that do not fit are left out, the least important first."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

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
)
from gpusteward.analyzer.reports.report import Amounts, Finding, Group, Report, Waster
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


@dataclass(frozen=True, slots=True)
class _ReportColumn:
    """One column; the one with the highest rank is left out first, one of rank 0 never."""

    title: str
    cells: Sequence[str]
    rank: int = 0

    @property
    def width(self) -> int:
        return max(map(measure, (self.title, *self.cells)))


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
    rows = [*report.groups, *([report.others] if report.others else []), _total(report, language)]
    names = [name_group(row, report, language) for row in rows]
    amounts = [row.amounts for row in rows]
    has_ineffective = report.total.ineffective_gpu_ms > 0

    def column(label: Message, write: Callable[[Amounts], str], rank: int) -> _ReportColumn:
        return _ReportColumn(label.text(language), [write(each) for each in amounts], rank)

    columns = [
        column(messages.IDLE_COST, lambda each: quantities.money(each.idle_cost_micros), 1),
        column(messages.IDLE, lambda each: quantities.hours(each.idle_gpu_ms), 0),
        column(messages.IDLE_SHARE, lambda each: quantities.percent(each.idle_ratio), 1),
        column(messages.UNALLOCATED, lambda each: quantities.hours(each.unallocated_gpu_ms), 7),
        column(messages.UNALLOCATED_COST, lambda each: quantities.money(each.unallocated_cost_micros), 8),
        column(messages.ALLOCATED, lambda each: quantities.hours(each.allocated_gpu_ms), 0),
        column(messages.ACTIVE, lambda each: quantities.hours(each.active_gpu_ms), 3),
        column(messages.EFFECTIVE, lambda each: quantities.hours(each.effective_gpu_ms), 3 if has_ineffective else 9),
        column(
            messages.INEFFECTIVE, lambda each: quantities.hours(each.ineffective_gpu_ms), 2 if has_ineffective else 10
        ),
        column(
            messages.UNKNOWN,
            lambda each: quantities.hours(each.unknown_gpu_ms),
            2 if report.total.unknown_gpu_ms else 6,
        ),
        column(messages.COST, lambda each: quantities.money(each.cost_micros), 5),
        column(messages.SCORE, lambda each: quantities.score(each.mean_score), 4),
        _ReportColumn(
            messages.IDLE_TREND.text(language), [quantities.change(row.idle_change_ratio) for row in rows], 4
        ),
    ]
    heading = messages.HOURS_BY.text(language, by=name_grouping(report), currency=report.currency)
    _print_table(console, heading, _ReportColumn(title_groups(report).text(language), names), columns, has_total=True)


def _total(report: Report, language: Language) -> Group:
    change = report.trend.idle_change_ratio if report.trend else None
    return Group(messages.TOTAL.text(language), "", "", report.total, change)


def _print_wasters(console: "Console", report: Report, language: Language) -> None:
    shown: Sequence[Waster] = report.wasters
    if not shown:
        _print(console, "")
        _print(console, messages.NO_WASTERS.text(language))
        return
    columns = [
        _ReportColumn(
            messages.IDLE_COST.text(language), [quantities.money(one.amounts.idle_cost_micros) for one in shown]
        ),
        _ReportColumn(messages.IDLE.text(language), [quantities.hours(one.amounts.idle_gpu_ms) for one in shown]),
        _ReportColumn(
            messages.IDLE_SHARE.text(language), [quantities.percent(one.amounts.idle_ratio) for one in shown], 1
        ),
        _ReportColumn(messages.GPUS.text(language), [str(one.gpus) for one in shown], 1),
        _ReportColumn(messages.MODEL.text(language), [one.models for one in shown], 3),
        _ReportColumn(messages.USER.text(language), [one.user or quantities.UNKNOWN for one in shown], 2),
    ]
    name = _ReportColumn(messages.WORKLOAD.text(language), [name_workload(one, report) for one in shown])
    _print_table(console, messages.WASTERS.text(language), name, columns)


def _print_findings(console: "Console", report: Report, language: Language) -> None:
    shown: Sequence[Finding] = report.findings
    if not shown:
        return
    columns = [
        _ReportColumn(messages.MODEL.text(language), [one.model for one in shown], 3),
        _ReportColumn(messages.GPUS.text(language), [str(one.gpus) for one in shown], 2),
        _ReportColumn(messages.WOULD_FIT.text(language), [describe_profile(one, language) for one in shown]),
        _ReportColumn(messages.PEAKS.text(language), [describe_evidence(one) for one in shown], 1),
        _ReportColumn(messages.SAVING.text(language), [_format_saving(one) for one in shown]),
    ]
    name = _ReportColumn(messages.WORKLOAD.text(language), [name_workload(one, report) for one in shown])
    _print_table(console, messages.FINDINGS.text(language), name, columns)


def _format_saving(finding: Finding) -> str:
    """The saving as money where there is a price, else as GPU-hours."""
    if finding.saving_micros is None:
        return f"{quantities.hours(finding.saving_gpu_ms)} h"
    return quantities.money(finding.saving_micros)


def _print_table(
    console: "Console", heading: str, name: _ReportColumn, columns: Sequence[_ReportColumn], *, has_total: bool = False
) -> None:
    from rich.table import Table
    from rich.text import Text

    chosen = _fit_columns(columns, width=console.width - min(name.width, MIN_NAME_WIDTH))
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
    table.add_column(Text(name.title), overflow="fold")
    for column in chosen:
        table.add_column(Text(column.title), justify="right", no_wrap=True)
    for number, text in enumerate(name.cells):
        cells = [text, *(column.cells[number] for column in chosen)]
        is_total = has_total and number == len(name.cells) - 1
        table.add_row(*(Text(clean(cell)) for cell in cells), style="bold" if is_total else "")
    _print(console, "")
    _print(console, heading, style="bold")
    console.print(table)


def _fit_columns(columns: Sequence[_ReportColumn], *, width: int) -> list[_ReportColumn]:
    """The columns that fit, in their order; empty ones are left out."""
    kept = [each for each in columns if set(each.cells) - {quantities.UNKNOWN}]
    while kept and sum(each.width + GAP for each in kept) > width:
        last = max(kept, key=lambda each: each.rank)
        if last.rank == 0:
            break
        kept.remove(last)
    return kept
