"""`gpusteward replay`: what a policy would have released in the past, and what would have been regretted; as tables, or
as one HTML page without scripts."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from gpusteward.analyzer.reclaim.policies.example import EXAMPLE
from gpusteward.cli import flags
from gpusteward.cli.json_access import Row
from gpusteward.cli.output import quantities
from gpusteward.cli.output.tables import Column, write_json, write_rows
from gpusteward.cli.program import EXIT_OK
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.messages import Language, Message
from gpusteward.messages.errors.os_errors import explain_os_error

POLICY = Message("POLICY", "策略")
PERIOD = Message(
    "{since} to {until}: {spells} idle spells; a release is regretted if work comes back within {minutes:g} min.",
    "{since} 至 {until}：{spells} 段空闲；归还后 {minutes:g} 分钟内又有工作即视为后悔。",
)
REGRETTED_TITLE = Message("Regretted releases of the policy", "该策略中会后悔的归还")
FRONTIER_TITLE = Message("The policy with other windows", "该策略使用其他窗口时")
NONE_REGRETTED = Message("No release would have been regretted.", "没有会后悔的归还。")
MORE_REGRETTED = Message("and {count} more; -o json lists all", "另有 {count} 条；-o json 列出全部")
FIXED = Message("fixed {minutes} min", "固定 {minutes} 分钟")

PATH = "/api/v1/replay"
FORMATS = ("table", "json", "html")
TABLE_ROWS = 20


def build_parser() -> flags.FlagParser:
    parser = flags.make_parser(
        "replay",
        "Replay a policy over the recorded idle spells: what it would have released and saved, and every "
        "release that would have been regretted; beside the present policy and fixed windows. Changes nothing.",
    )
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "--policy", metavar="FILE", help="policy file (YAML) to replay (default: the policies in effect)"
    )
    chosen.add_argument("--example", action="store_true", help="replay the policies of `gpusteward policies --example`")
    parser.add_argument(
        "--since", default="14d", metavar="TIME", help="start: 24h, 14d, 4w ago, or a date (default 14d)"
    )
    parser.add_argument(
        "--regret",
        type=flags.integer_between(1, 1440),
        default=30,
        metavar="MINUTES",
        help="a release is regretted if work comes back within this time (default 30)",
    )
    parser.add_argument("--output", "-o", choices=FORMATS, default="table", help="output format (default table)")
    flags.add_language_flag(parser)
    flags.add_server_flags(parser)
    parser.set_defaults(timeout=60.0)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, SourceError."""
    options = build_parser().parse(arguments)
    client, language = flags.make_analyzer_client(options), flags.language_of(options)
    body = {"since": options.since, "regret_minutes": options.regret, "policy": _read_policy(options)}
    page = client.write(PATH, body=json.dumps(body).encode())
    if not page.object("policy"):
        raise SourceError(f"unexpected response of {client.url}: not a replay; is it an analyzer of this version?")
    if options.output == "json":
        write_json(page)
    elif options.output == "html":
        sys.stdout.write(render_page(page, language))
    else:
        _write_tables(page, language)
    return EXIT_OK


def _read_policy(options: argparse.Namespace) -> str:
    if options.example:
        return EXAMPLE
    if not options.policy:
        return ""
    try:
        return Path(options.policy).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = explain_os_error(error) if isinstance(error, OSError) else error.reason
        raise ConfigurationError(f"--policy {options.policy}: {reason}") from error


def _write_tables(page: Row, language: Language) -> None:
    print(describe_period(page, language, show_time=quantities.iso_time))
    rows = [page.object("policy"), *page.objects("compared")]
    columns = list(list_columns(page.text("currency")))
    write_rows([show_totals(row, language) for row in rows], columns, keys=(), output="table", language=language)
    print(f"\n{FRONTIER_TITLE.text(language)}")
    frontier = [show_totals(row, language) for row in page.objects("frontier")]
    write_rows(frontier, columns, keys=(), output="table", language=language)
    regretted = page.objects("regretted")
    print(f"\n{(REGRETTED_TITLE if regretted else NONE_REGRETTED).text(language)}")
    if regretted:
        shown = [_show_release(row) for row in regretted[:TABLE_ROWS]]
        write_rows(shown, list(_list_release_columns()), keys=(), output="table", language=language)
    if len(regretted) > TABLE_ROWS:
        print(MORE_REGRETTED.text(language, count=len(regretted) - TABLE_ROWS))
    for note in page.texts("notes"):
        print(note)


def describe_period(page: Row, language: Language, *, show_time: Callable[[str], str] = str) -> str:
    return PERIOD.text(
        language,
        since=show_time(page.text("since")),
        until=show_time(page.text("until")),
        spells=page.count("spells"),
        minutes=page.number("regret_minutes") or 0,
    )


def list_columns(currency: str) -> Iterator[Column]:
    yield Column("name", POLICY, stands_alone=True)
    yield Column("releases", Message("RELEASES", "归还次数"), to_right=True)
    yield Column("regretted", Message("REGRETTED", "后悔次数"), to_right=True)
    yield Column("regret", Message("REGRET", "后悔率"), to_right=True)
    yield Column("gpu_hours", Message("GPU-HOURS", "GPU 小时"), to_right=True)
    if currency:
        yield Column("cost", Message("SAVED {currency}", "节省 {currency}").fill(currency=currency), to_right=True)
    yield Column("oracle_share", Message("OF POSSIBLE", "占可节省量"), to_right=True)
    yield Column("unmet_gpu_hours", Message("UNMET GPU-HOURS", "未满足 GPU 小时"), to_right=True)


def show_totals(row: Row, language: Language) -> dict[str, object]:
    return {
        "name": name_policy(row.text("name"), language),
        "releases": row.count("releases"),
        "regretted": row.count("regretted"),
        "regret": quantities.chance(row.number("regret")),
        "gpu_hours": f"{row.number('gpu_hours') or 0:.1f}",
        "cost": quantities.amount(row.number("cost")),
        "oracle_share": quantities.chance(row.number("oracle_share")),
        "unmet_gpu_hours": f"{row.number('unmet_gpu_hours') or 0:.1f}",
    }


def name_policy(name: str, language: Language) -> str:
    named = {"policy": Message("policy", "该策略"), "present policy": Message("present policy", "当前策略")}
    if name in named:
        return named[name].text(language)
    if name.startswith("fixed "):
        return FIXED.text(language, minutes=name.removeprefix("fixed ").removesuffix(" min"))
    return name


def _list_release_columns() -> Iterator[Column]:
    yield Column("workload", Message("WORKLOAD", "工作负载"), stands_alone=True)
    yield Column("policy", POLICY)
    yield Column("at", Message("RELEASED AT", "归还时间"))
    yield Column("needed", Message("NEEDED AFTER", "多久后又需要"), to_right=True)
    yield Column("gpus", Message("GPUS", "GPU 数"), to_right=True)


def _show_release(row: Row) -> dict[str, object]:
    return {
        "workload": name_workload(row),
        "policy": row.text("policy"),
        "at": quantities.iso_time(row.text("at")),
        "needed": quantities.duration((row.number("minutes") or 0) * 60),
        "gpus": quantities.gpus(row.number("gpus")),
    }


def name_workload(row: Row) -> str:
    parts = [row.text(key) for key in ("cluster", "namespace", "kind", "name")]
    return "/".join(part for part in parts if part)


_STYLE = """body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#1b1f24}
table{border-collapse:collapse;margin:1rem 0;width:100%}
th,td{padding:.35rem .6rem;text-align:right;border-bottom:1px solid #d8dee4}
th:first-child,td:first-child{text-align:left}caption{text-align:left;font-weight:600;padding:.5rem 0}
svg{width:100%;max-width:44rem;height:auto}
@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}}"""
_WIDTH, _HEIGHT, _MARGIN = 640, 320, 48


def render_page(page: Row, language: Language) -> str:
    """All texts of the response are escaped: names come from tenants."""
    title = Message("Replay of a reclaim policy", "回收策略回放").text(language)
    currency = page.text("currency")
    rows = [page.object("policy"), *page.objects("compared")]
    frontier, regretted = page.objects("frontier"), page.objects("regretted")
    parts = [
        f'<!doctype html><html lang="{"zh-CN" if language == "zh" else "en"}"><head><meta charset="utf-8">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>",
        f"<p>{escape(describe_period(page, language))}</p>",
        _render_totals(rows, "", currency, language),
        _render_totals(frontier, FRONTIER_TITLE.text(language), currency, language),
        _render_frontier(frontier, page.object("policy")),
        _render_regretted(regretted, language),
        *(f"<p>{escape(note)}</p>" for note in page.texts("notes")),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _render_totals(rows: Sequence[Row], caption: str, currency: str, language: Language) -> str:
    columns = list(list_columns(currency))
    shown = [{**show_totals(row, language), "name": row.text("name")} for row in rows]
    return _render_table(columns, shown, caption, language)


def _render_regretted(rows: Sequence[Row], language: Language) -> str:
    if not rows:
        return f"<p>{escape(NONE_REGRETTED.text(language))}</p>"
    shown = [{**_show_release(row), "at": row.text("at")} for row in rows]
    return _render_table(list(_list_release_columns()), shown, REGRETTED_TITLE.text(language), language)


def _render_table(
    columns: Sequence[Column], rows: Sequence[Mapping[str, object]], caption: str, language: Language
) -> str:
    head = "".join(f'<th scope="col">{escape(column.title.text(language))}</th>' for column in columns)
    cells = ("".join(f"<td>{escape(str(row[column.key]))}</td>" for column in columns) for row in rows)
    body = "".join(f"<tr>{each}</tr>" for each in cells)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _render_frontier(rows: Sequence[Row], policy: Row) -> str:
    """Saving to the right, regret upwards."""
    points = [(row.number("gpu_hours") or 0, row.number("regret") or 0, row.text("name")) for row in rows]
    points.append((policy.number("gpu_hours") or 0, policy.number("regret") or 0, policy.text("name")))
    most = max((hours for hours, _, _ in points), default=0) or 1
    marks = "".join(
        f'<circle cx="{_MARGIN + hours / most * (_WIDTH - 2 * _MARGIN):.1f}" '
        f'cy="{_HEIGHT - _MARGIN - regret * (_HEIGHT - 2 * _MARGIN):.1f}" r="5" '
        f'fill="{"#cf222e" if number == len(points) - 1 else "#0969da"}"><title>{escape(name)}: {hours:.1f} GPU-h, '
        f"{regret:.0%}</title></circle>"
        for number, (hours, regret, name) in enumerate(points)
    )
    axes = (
        f'<path d="M{_MARGIN} {_MARGIN}V{_HEIGHT - _MARGIN}H{_WIDTH - _MARGIN}" stroke="#8c959f" fill="none"/>'
        f'<text x="{_WIDTH - _MARGIN}" y="{_HEIGHT - 12}" text-anchor="end" fill="#8c959f">GPU-h {most:.0f}</text>'
        f'<text x="8" y="{_MARGIN}" fill="#8c959f">100 %</text>'
    )
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{axes}{marks}</svg>'
