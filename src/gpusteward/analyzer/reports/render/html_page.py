"""One HTML file that opens without a network: no script, no picture, no font from elsewhere."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib.resources import files

from gpusteward.analyzer.reports.render import quantities
from gpusteward.analyzer.reports.render.charts import LAYERS, draw_days, draw_legend, draw_share
from gpusteward.analyzer.reports.render.descriptions import (
    Language,
    describe_evidence,
    describe_profile,
    describe_unused,
    list_notes,
    name_group,
    name_holder,
    say,
)
from gpusteward.analyzer.reports.report import Group, Report

_LANGUAGE_TAGS = {"en": "en", "zh": "zh-CN"}


def render_html(report: Report, language: Language = "en") -> str:
    title = say("title", language, by=say(f"by.{report.by}", language))
    body = [_head(report, title, language)]
    if report.points or report.groups:
        body += [_tiles(report, language), _days(report, language), _groups(report, language)]
        body += [_wasters(report, language), _findings(report, language)]
    else:
        body.append(f'<p class="empty">{escape(say("nothing", language))}</p>')
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
    """Nothing may be loaded or run, but the one style that is in the file."""
    digest = base64.b64encode(hashlib.sha256(_read_style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


@cache
def _read_style() -> str:
    return files(__package__).joinpath("page_style.css").read_text("utf-8")


def _head(report: Report, title: str, language: Language) -> str:
    span = f"{quantities.moment(report.range.since_ms)} – {quantities.moment(report.range.until_ms)} UTC"
    lines = [span]
    if report.namespaces:
        lines.append(f"{say('namespaces', language)}: {', '.join(report.namespaces)}")
    if report.unused:
        lines.append(describe_unused(report.unused, language))
    paragraphs = "".join(f"<p>{escape(line)}</p>" for line in lines)
    return f"<header><h1>{escape(title)}</h1>{paragraphs}</header>\n"


def _tiles(report: Report, language: Language) -> str:
    total, trend = report.total, report.trend
    rises = (
        (trend.allocated_change_ratio, trend.idle_change_ratio, trend.idle_cost_change_ratio) if trend else (None,) * 3
    )
    hours, idle = say("gpu_hours", language), quantities.percent(total.idle_ratio)
    tiles = [
        ("allocated", quantities.hours(total.allocated_gpu_ms), hours, rises[0]),
        ("idle", quantities.hours(total.idle_gpu_ms), f"{hours} · {idle}", rises[1]),
        ("idle_cost", quantities.money(total.idle_cost_micros), report.currency, rises[2]),
        ("cost", quantities.money(total.cost_micros), report.currency, None),
        ("unallocated", quantities.hours(total.unallocated_gpu_ms), hours, None),
        ("mean_score", quantities.score(total.mean_score), "0 – 100", None),
    ]
    if total.electricity_micros is not None:
        used = f"{report.currency} · {quantities.kilowatt_hours(total.energy_mj)} kWh"
        tiles.append(("electricity", quantities.money(total.electricity_micros), used, None))
    drawn = [_tile(key, value, unit, change=change, language=language) for key, value, unit, change in tiles]
    return f'<div class="tiles">{"".join(drawn)}</div>\n'


def _tile(key: str, value: str, unit: str, *, change: float | None, language: Language) -> str:
    told = f"<small>{escape(unit)}</small>"
    if change is not None:
        kind = "" if key == "allocated" else _judge(change)  # to hold more is neither good nor bad
        told += f'<small class="{kind}">{escape(say("versus", language, change=quantities.change(change)))}</small>'
    return f'<div class="tile"><span>{escape(say(key, language))}</span><b>{escape(value)}</b>{told}</div>'


def _judge(change: float) -> str:
    """More waste is bad news."""
    if abs(change) < 0.005:
        return ""
    return "worse" if change > 0 else "better"


def _days(report: Report, language: Language) -> str:
    title = say("per_hour" if report.step_ms == 3_600_000 else "per_day", language)
    is_fleet_known = any(point.unallocated_gpu_ms is not None for point in report.points)
    legend = draw_legend(language, LAYERS if is_fleet_known else LAYERS[:3])
    return f'<h2>{escape(title)}</h2>{legend}<div class="chart">{draw_days(report, language)}</div>\n'


def _groups(report: Report, language: Language) -> str:
    groups = [*report.groups, *([report.others] if report.others else [])]
    names = [name_group(group, language) for group in groups]
    is_placed = any(group.amounts.unallocated_gpu_ms is not None for group in groups)  # a team has none of its own
    keys = ("allocated", "active", "idle", "unknown", *(("unallocated",) if is_placed else ()))
    keys += ("idle_share", "cost", "idle_cost", "score", "idle_trend")
    titles = [say(report.by, language), "", *(say(key, language) for key in keys)]
    rows = [_amounts(name, each, is_placed=is_placed) for name, each in zip(names, groups, strict=True)]
    total = Group("", "", "", report.total, report.trend.idle_change_ratio if report.trend else None)
    foot = _amounts(say("total", language), total, is_placed=is_placed)
    heading = say("hours_by", language, by=say(f"by.{report.by}", language), currency=report.currency)
    return f"<h2>{escape(heading)}</h2>{_table(titles, rows, foot=foot)}\n"


def _amounts(name: str, group: Group, *, is_placed: bool) -> str:
    amounts, change = group.amounts, group.idle_change_ratio
    times = [amounts.allocated_gpu_ms, amounts.active_gpu_ms, amounts.idle_gpu_ms, amounts.unknown_gpu_ms]
    texts = [quantities.hours(each) for each in (*times, *([amounts.unallocated_gpu_ms] if is_placed else []))]
    texts += [quantities.percent(amounts.idle_ratio), quantities.money(amounts.cost_micros)]
    texts += [quantities.money(amounts.idle_cost_micros), quantities.score(amounts.mean_score)]
    trend = _cell(escape(quantities.change(change)), "" if change is None else _judge(change))
    return _row([_name(name), _cell(draw_share(amounts)), *(_cell(escape(text)) for text in texts), trend])


def _wasters(report: Report, language: Language) -> str:
    heading = f"<h2>{escape(say('wasters', language))}</h2>"
    if not report.wasters:
        return f'{heading}<p class="empty">{escape(say("no_wasters", language))}</p>\n'
    keys = ("workload", "model", "gpus", "idle", "idle_share", "idle_cost", "score")
    rows = [
        _row(
            [
                _name(name_holder(one), one.user),
                *(
                    _cell(escape(text))
                    for text in (
                        *(one.models, str(one.gpus), quantities.hours(one.amounts.idle_gpu_ms)),
                        *(quantities.percent(one.amounts.idle_ratio), quantities.money(one.amounts.idle_cost_micros)),
                        quantities.score(one.amounts.mean_score),
                    )
                ),
            ]
        )
        for one in report.wasters
    ]
    return f"{heading}{_table([say(key, language) for key in keys], rows)}\n"


def _findings(report: Report, language: Language) -> str:
    heading = f"<h2>{escape(say('findings', language))}</h2>"
    if not report.findings:
        return f'{heading}<p class="empty">{escape(say("no_findings", language))}</p>\n'
    keys = ("workload", "model", "gpus", "fits", "evidence", "saving")
    rows = [
        _row(
            [
                _name(name_holder(one)),
                *(_cell(escape(text)) for text in (one.model, str(one.gpus), describe_profile(one, language))),
                _cell(escape(describe_evidence(one))),
                _cell(escape(_saving(one.saving_gpu_ms, one.saving_micros, report.currency, language))),
            ]
        )
        for one in report.findings
    ]
    return f"{heading}{_table([say(key, language) for key in keys], rows)}\n"


def _saving(gpu_ms: int, micros: int | None, currency: str, language: Language) -> str:
    hours = f"{quantities.hours(gpu_ms)} {say('gpu_hours', language)}"
    return hours if micros is None else f"{quantities.money(micros, currency)} · {hours}"


def _notes(report: Report, language: Language) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in list_notes(report, language))
    made = f"gpusteward, {say('made', language)} {quantities.moment(report.made_ms)} UTC"
    return f"<footer><b>{escape(say('notes', language))}</b><ul>{items}</ul><p>{escape(made)}</p></footer>"


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


def _name(text: str, below: str = "") -> str:
    return f'<td class="name">{escape(text)}{f"<small>{escape(below)}</small>" if below else ""}</td>'


def _cell(html: str, kind: str = "") -> str:
    """`html` is escaped already."""
    return f'<td class="{kind}">{html}</td>' if kind else f"<td>{html}</td>"
