"""A report as one HTML file that needs no network: no scripts, no images, no external fonts."""

import base64
import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Generic, NamedTuple, TypeVar

from gpusteward.analyzer.reports.render import quantities
from gpusteward.analyzer.reports.render.charts import LAYERS, draw_days, draw_legend, draw_share, escape
from gpusteward.analyzer.reports.render.descriptions import (
    describe_evidence,
    describe_period,
    describe_profile,
    describe_recorded,
    describe_unused,
    list_notes,
    list_waste,
    name_group,
    name_grouping,
    name_workload,
    title_groups,
    write_token_cost,
)
from gpusteward.analyzer.reports.report import Finding, Group, Report, Waster
from gpusteward.core.messages import Language, Message
from gpusteward.messages import reports as messages

_LANGUAGE_TAGS = {"en": "en", "zh": "zh-CN"}
_HOUR_MS = 3_600_000
NOTABLE_CHANGE_RATIO = 0.1
NOTABLE_SHARE = 0.01
"""A change of idle time is coloured from a tenth of what it was, and from a hundredth of all idle time."""
Row = TypeVar("Row")


class _PageColumn(NamedTuple, Generic[Row]):
    """A column of a table: its title, and the text of the cell of a row."""

    title: Message
    text: Callable[[Row], str]


class _Tile(NamedTuple):
    """One number at the top of the page."""

    label: Message
    value: str
    unit: str
    change: float | None = None


def render_html(report: Report, language: Language = "en") -> str:
    title = messages.TITLE.text(language, by=name_grouping(report))
    body = [_head(report, title, language)]
    if report.points or report.groups:
        body += [_tiles(report, language), _groups(report, language), _wasters(report, language)]
        body += [_days(report, language), _findings(report, language)]
    else:
        body.append(_empty(messages.NOTHING, language))
    body.append(_notes(report, language))
    return (
        f'<!DOCTYPE html>\n<html lang="{_LANGUAGE_TAGS[language]}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(content_policy())}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_read_style()}</style>\n</head>\n"
        f"<body>\n{''.join(body)}\n</body>\n</html>\n"
    )


@cache
def content_policy() -> str:
    """Nothing may be loaded or run except the style sheet in the file."""
    digest = base64.b64encode(hashlib.sha256(_read_style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


@cache
def _read_style() -> str:
    return files(__package__).joinpath("page_style.css").read_text("utf-8")


def _head(report: Report, title: str, language: Language) -> str:
    lines = [describe_period(report, language), *filter(None, [describe_recorded(report, language)])]
    if report.clusters:
        lines.append(f"{messages.CLUSTERS.text(language)}: {', '.join(report.clusters)}")
    if report.namespaces:
        lines.append(f"{messages.NAMESPACES.text(language)}: {', '.join(report.namespaces)}")
    if report.unused:
        lines.append(describe_unused(report.unused, language))
    paragraphs = "".join(f"<p>{escape(line)}</p>" for line in lines)
    waste = list_waste(report, language) if report.groups else []
    lead = f'<p class="lead">{"<br>".join(map(escape, waste))}</p>' if waste else ""
    return f"<header><h1>{escape(title)}</h1>{lead}{paragraphs}</header>\n"


def _tiles(report: Report, language: Language) -> str:
    drawn = [_draw_tile(tile, language) for tile in _list_tiles(report, messages.GPU_HOURS.text(language))]
    return f'<div class="tiles">{"".join(drawn)}</div>\n'


def _list_tiles(report: Report, hours: str) -> list[_Tile]:
    """`hours`: the unit."""
    total, trend, currency = report.total, report.trend, report.currency
    idle_unit = f"{hours} · {quantities.percent(total.idle_ratio)}"
    unallocated_unit, effective_unit = (
        hours if cost is None else f"{hours} · {quantities.money(cost, currency)}"
        for cost in (total.unallocated_cost_micros, total.effective_cost_micros)
    )
    cost_change, idle_change, allocated_change = (
        (trend.idle_cost_change_ratio, trend.idle_change_ratio, trend.allocated_change_ratio) if trend else [None] * 3
    )
    tiles = [
        _Tile(messages.IDLE_COST, quantities.money(total.idle_cost_micros), currency, cost_change),
        _Tile(messages.IDLE, quantities.hours(total.idle_gpu_ms), idle_unit, idle_change),
        _Tile(messages.UNALLOCATED, quantities.hours(total.unallocated_gpu_ms), unallocated_unit),
        _Tile(messages.ALLOCATED, quantities.hours(total.allocated_gpu_ms), hours, allocated_change),
        _Tile(messages.EFFECTIVE_AT_MOST, quantities.hours(total.effective_gpu_ms), effective_unit),
        _Tile(messages.COST, quantities.money(total.cost_micros), currency),
        _Tile(messages.MEAN_SCORE, quantities.score(total.mean_score), "0 – 100"),
    ]
    if total.electricity_micros is not None:
        used = f"{currency} · {quantities.kilowatt_hours(total.energy_mj)} kWh"
        tiles.append(_Tile(messages.ELECTRICITY, quantities.money(total.electricity_micros), used))
    return tiles


def _draw_tile(tile: _Tile, language: Language) -> str:
    below = f"<small>{escape(tile.unit)}</small>"
    if tile.change is not None:
        kind = "" if tile.label == messages.ALLOCATED else _rate(tile.change)  # more allocation is neither good nor bad
        text = messages.VERSUS_PREVIOUS.text(language, change=quantities.change(tile.change))
        below += f'<small class="{kind}">{escape(text)}</small>'
    return f'<div class="tile"><span>{escape(tile.label.text(language))}</span><b>{escape(tile.value)}</b>{below}</div>'


def _rate(change: float, *, idle_ms: int = 0, total_idle_ms: int = 0) -> str:
    """The CSS class of a change: more waste is worse. A small change, or one of little time, is noise.

    `idle_ms`, `total_idle_ms`: the idle time of a group and of all groups.
    """
    changed_ms = idle_ms * abs(change) / (1 + change) if change > -1 else total_idle_ms
    if abs(change) < NOTABLE_CHANGE_RATIO or changed_ms < NOTABLE_SHARE * total_idle_ms:
        return ""
    return "worse" if change > 0 else "better"


def _days(report: Report, language: Language) -> str:
    title = (messages.PER_HOUR if report.step_ms == _HOUR_MS else messages.PER_DAY).text(language)
    is_fleet_known = any(point.unallocated_gpu_ms is not None for point in report.points)
    layers = LAYERS if is_fleet_known else tuple(layer for layer in LAYERS if layer != "unallocated")
    legend = draw_legend(language, layers, has_partial=any(point.is_partial for point in report.points))
    return f'<h2>{escape(title)}</h2>{legend}<div class="chart">{draw_days(report, language)}</div>\n'


def _groups(report: Report, language: Language) -> str:
    groups = [*report.groups, *([report.others] if report.others else [])]
    columns = _group_columns(groups, language)
    titles = ["", *(column.title.text(language) for column in columns), messages.IDLE_TREND.text(language)]
    total_idle_ms = report.total.idle_gpu_ms
    rows = [_group_row(name_group(group, report, language), group, columns, total_idle_ms) for group in groups]
    total = Group("", "", "", report.total, report.trend.idle_change_ratio if report.trend else None)
    foot = _group_row(messages.TOTAL.text(language), total, columns, total_idle_ms)
    heading = messages.HOURS_BY.text(language, by=name_grouping(report), currency=report.currency)
    name_title = title_groups(report).text(language)
    return f"<h2>{escape(heading)}</h2>{_table([name_title, *titles], rows, foot=foot)}\n"


def _group_columns(groups: Sequence[Group], language: Language) -> list[_PageColumn[Group]]:
    has_unallocated = any(group.amounts.unallocated_gpu_ms is not None for group in groups)  # not of namespaces
    unallocated: list[_PageColumn[Group]] = [
        _PageColumn(messages.UNALLOCATED, lambda group: quantities.hours(group.amounts.unallocated_gpu_ms)),
        _PageColumn(messages.UNALLOCATED_COST, lambda group: quantities.money(group.amounts.unallocated_cost_micros)),
    ]
    token_cost = _PageColumn[Group](messages.TOKEN_COST, lambda group: write_token_cost(group.amounts, language))
    return [
        _PageColumn(messages.IDLE_COST, lambda group: quantities.money(group.amounts.idle_cost_micros)),
        _PageColumn(messages.IDLE, lambda group: quantities.hours(group.amounts.idle_gpu_ms)),
        _PageColumn(messages.IDLE_SHARE, lambda group: quantities.percent(group.amounts.idle_ratio)),
        *(unallocated if has_unallocated else []),
        _PageColumn(messages.ALLOCATED, lambda group: quantities.hours(group.amounts.allocated_gpu_ms)),
        _PageColumn(messages.ACTIVE, lambda group: quantities.hours(group.amounts.active_gpu_ms)),
        _PageColumn(messages.EFFECTIVE, lambda group: quantities.hours(group.amounts.effective_gpu_ms)),
        _PageColumn(messages.INEFFECTIVE, lambda group: quantities.hours(group.amounts.ineffective_gpu_ms)),
        _PageColumn(messages.UNKNOWN, lambda group: quantities.hours(group.amounts.unknown_gpu_ms)),
        _PageColumn(messages.COST, lambda group: quantities.money(group.amounts.cost_micros)),
        *([token_cost] if any(group.amounts.tokens is not None for group in groups) else []),
        _PageColumn(messages.SCORE, lambda group: quantities.score(group.amounts.mean_score)),
    ]


def _group_row(name: str, group: Group, columns: Sequence[_PageColumn[Group]], total_idle_ms: int) -> str:
    """With a bar after the name, and the trend at the end."""
    change, idle_ms = group.idle_change_ratio, group.amounts.idle_gpu_ms
    kind = "" if change is None else _rate(change, idle_ms=idle_ms, total_idle_ms=total_idle_ms)
    trend = _cell(escape(quantities.change(change)), kind)
    return _row([_name(name), _cell(draw_share(group.amounts)), *_cells(group, columns), trend])


_WASTER_COLUMNS: Sequence[_PageColumn[Waster]] = (
    _PageColumn(messages.IDLE_COST, lambda one: quantities.money(one.amounts.idle_cost_micros)),
    _PageColumn(messages.IDLE, lambda one: quantities.hours(one.amounts.idle_gpu_ms)),
    _PageColumn(messages.IDLE_SHARE, lambda one: quantities.percent(one.amounts.idle_ratio)),
    _PageColumn(messages.GPUS, lambda one: str(one.gpus)),
    _PageColumn(messages.MODEL, lambda one: one.models),
    _PageColumn(messages.SCORE, lambda one: quantities.score(one.amounts.mean_score)),
)


def _wasters(report: Report, language: Language) -> str:
    heading = f"<h2>{escape(messages.WASTERS.text(language))}</h2>"
    if not report.wasters:
        return heading + _empty(messages.NO_WASTERS, language)
    rows = [
        _row([_name(name_workload(one, report), one.user), *_cells(one, _WASTER_COLUMNS)]) for one in report.wasters
    ]
    return f"{heading}{_table(_titles(_WASTER_COLUMNS, language), rows)}\n"


def _findings(report: Report, language: Language) -> str:
    heading = f"<h2>{escape(messages.FINDINGS.text(language))}</h2>"
    if not report.findings:
        return heading + _empty(messages.NO_FINDINGS, language)
    columns: Sequence[_PageColumn[Finding]] = (
        _PageColumn(messages.MODEL, lambda one: one.model),
        _PageColumn(messages.GPUS, lambda one: str(one.gpus)),
        _PageColumn(messages.WOULD_FIT, lambda one: describe_profile(one, language)),
        _PageColumn(messages.PEAKS, describe_evidence),
        _PageColumn(messages.SAVING, lambda one: _describe_saving(one, report.currency, language)),
    )
    rows = [_row([_name(name_workload(one, report)), *_cells(one, columns)]) for one in report.findings]
    return f"{heading}{_table(_titles(columns, language), rows)}\n"


def _describe_saving(finding: Finding, currency: str, language: Language) -> str:
    hours = f"{quantities.hours(finding.saving_gpu_ms)} {messages.GPU_HOURS.text(language)}"
    if finding.saving_micros is None:
        return hours
    return f"{quantities.money(finding.saving_micros, currency)} · {hours}"


def _notes(report: Report, language: Language) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in list_notes(report, language))
    made = messages.MADE.text(language, at=quantities.moment(report.made_ms))
    return f"<footer><b>{escape(messages.NOTES.text(language))}</b><ul>{items}</ul><p>{escape(made)}</p></footer>"


def _empty(message: Message, language: Language) -> str:
    return f'<p class="empty">{escape(message.text(language))}</p>\n'


def _titles(columns: Sequence[_PageColumn[Row]], language: Language) -> list[str]:
    return [messages.WORKLOAD.text(language), *(column.title.text(language) for column in columns)]


def _table(titles: Sequence[str], rows: Iterable[str], *, foot: str = "") -> str:
    head = "".join(
        f'<th{" class=name" if number == 0 else ""} scope="col">{escape(title)}</th>'
        for number, title in enumerate(titles)
    )
    feet = f"<tfoot>{foot}</tfoot>" if foot else ""
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody>{feet}</table></div>'
    )


def _row(cells: Sequence[str]) -> str:
    return f"<tr>{''.join(cells)}</tr>"


def _cells(row: Row, columns: Sequence[_PageColumn[Row]]) -> list[str]:
    return [_cell(escape(column.text(row))) for column in columns]


def _name(text: str, below: str = "") -> str:
    return f'<td class="name">{escape(text)}{f"<small>{escape(below)}</small>" if below else ""}</td>'


def _cell(html: str, kind: str = "") -> str:
    """`html` is already escaped."""
    return f'<td class="{kind}">{html}</td>' if kind else f"<td>{html}</td>"
