"""A report as CSV: one row per group, then the others, then the total; safe to open in a spreadsheet."""

import csv
import io
from collections.abc import Iterator

from gpusteward.analyzer.reports.render import quantities
from gpusteward.analyzer.reports.report import Group, Report
from gpusteward.analyzer.reports.report_query import find_grouping
from gpusteward.control_characters import replace_controls

_HOUR_MS = 3_600_000
_FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_TIMES = ("allocated", "active", "idle", "unknown", "unallocated")
_PARTS_OF_ACTIVE = ("effective", "ineffective")
_COSTS = ("active_cost", "idle_cost", "unknown_cost", "electricity")
COLUMNS = (
    *("row", "by", "namespace", "kind", "name", "since", "until", "currency", "allocations"),
    *(f"{name}_gpu_hours" for name in _TIMES),
    *(f"{name}_gpu_ms" for name in _TIMES),
    *_COSTS,
    *("unpriced_gpu_ms", "energy_mj", "energy_gpu_ms", "mean_score", "idle_change_ratio"),
    *("unallocated_cost", "is_partial", "cluster"),
    *(f"{name}_{unit}" for unit in ("gpu_hours", "gpu_ms", "cost") for name in _PARTS_OF_ACTIVE),
    *("tokens", "served_gpu_ms", "served_cost", "cost_per_million_tokens"),
)
"""Hours are rounded; milliseconds and money are exact. An empty cell is unknown."""


def render_csv(report: Report) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")  # RFC 4180
    writer.writerow(COLUMNS)
    for row, group in _rows(report):
        cells = _cells(report, row, group)
        writer.writerow([escape_cell(cells[name]) for name in COLUMNS])
    return out.getvalue()


def _rows(report: Report) -> Iterator[tuple[str, Group]]:
    yield from (("group", group) for group in report.groups)
    if report.others:
        yield "others", report.others
    yield "total", Group("", "", "", report.total, report.trend.idle_change_ratio if report.trend else None)


def _cells(report: Report, row: str, group: Group) -> dict[str, object]:
    amounts = group.amounts
    is_day = (
        row == "group" and find_grouping(report.by) == "day"
    )  # its own mark; other rows are partial if the period is
    times = {name: getattr(amounts, f"{name}_gpu_ms") for name in (*_TIMES, *_PARTS_OF_ACTIVE)}
    return {
        "row": row,
        "by": report.by,
        "cluster": group.cluster,
        "namespace": group.namespace,
        "kind": group.kind if row == "group" else "",
        "name": group.name,
        "since": quantities.iso(report.range.since_ms),
        "until": quantities.iso(report.range.until_ms),
        "currency": report.currency,
        "allocations": amounts.allocations,
        **{f"{name}_gpu_hours": _in_hours(gpu_ms) for name, gpu_ms in times.items()},
        **{f"{name}_gpu_ms": gpu_ms for name, gpu_ms in times.items()},
        **{name: format_micros(getattr(amounts, f"{name}_micros")) for name in _COSTS},
        **{f"{name}_cost": format_micros(getattr(amounts, f"{name}_cost_micros")) for name in _PARTS_OF_ACTIVE},
        "unpriced_gpu_ms": amounts.unpriced_gpu_ms,
        "energy_mj": amounts.energy_mj,
        "energy_gpu_ms": amounts.energy_gpu_ms,
        "mean_score": None if amounts.mean_score is None else round(amounts.mean_score, 2),
        "unallocated_cost": format_micros(amounts.unallocated_cost_micros),
        "tokens": amounts.tokens,
        "served_gpu_ms": amounts.served_gpu_ms,
        "served_cost": format_micros(amounts.served_cost_micros),
        "cost_per_million_tokens": format_micros(amounts.cost_per_million_tokens_micros),
        "is_partial": str(group.is_partial or (report.range.is_partial and not is_day)).lower(),
        "idle_change_ratio": None if group.idle_change_ratio is None else round(group.idle_change_ratio, 4),
    }


def _in_hours(gpu_ms: int | None) -> float | None:
    return None if gpu_ms is None else round(gpu_ms / _HOUR_MS, 4)


def format_micros(micros: int | None) -> str | None:
    """Exact: six decimals."""
    return None if micros is None else f"{micros // 1_000_000}.{micros % 1_000_000:06d}"


def escape_cell(value: object) -> object:
    """A text that a spreadsheet would treat as a formula is marked as text."""
    if not isinstance(value, str):
        return "" if value is None else value
    text = replace_controls(value)
    return f"'{text}" if text.lstrip(" \N{REPLACEMENT CHARACTER}").startswith(_FORMULA_STARTS) else text
