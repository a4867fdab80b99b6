"""The HTML page of `gpusteward replay -o html`: tables, and saving against regret. One file, no script."""

from collections.abc import Iterator, Sequence
from html import escape

from gpusteward.cli.json_access import Row, get_count, get_number, get_object, get_objects, get_text, get_texts
from gpusteward.cli.output import quantities
from gpusteward.core.messages import Language
from gpusteward.messages.cli import replay as messages

_STYLE = """body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#1b1f24}
table{border-collapse:collapse;margin:1rem 0;width:100%}
th,td{padding:.35rem .6rem;text-align:right;border-bottom:1px solid #d8dee4}
th:first-child,td:first-child{text-align:left}caption{text-align:left;font-weight:600;padding:.5rem 0}
svg{width:100%;max-width:44rem;height:auto}
@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}}"""
_WIDTH, _HEIGHT, _MARGIN = 640, 320, 48


def render_page(page: Row, language: Language) -> str:
    """All texts of the response are escaped: names come from tenants."""
    title = messages.PAGE_TITLE.text(language)
    currency = get_text(page, "currency")
    rows = [get_object(page, "policy"), *get_objects(page, "compared")]
    frontier, regretted = get_objects(page, "frontier"), get_objects(page, "regretted")
    period = messages.PERIOD.text(
        language,
        since=get_text(page, "since"),
        until=get_text(page, "until"),
        spells=get_count(page, "spells"),
        minutes=get_number(page, "regret_minutes") or 0,
    )
    parts = [
        f'<!doctype html><html lang="{"zh-CN" if language == "zh" else "en"}"><head><meta charset="utf-8">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>",
        f"<p>{escape(period)}</p>",
        _render_totals(rows, "", currency, language),
        _render_totals(frontier, messages.FRONTIER_TITLE.text(language), currency, language),
        _render_frontier(frontier, get_object(page, "policy")),
        _render_regretted(regretted, language),
        *(f"<p>{escape(note)}</p>" for note in get_texts(page, "notes")),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _render_totals(rows: Sequence[Row], caption: str, currency: str, language: Language) -> str:
    titles = [messages.POLICY, messages.RELEASES, messages.REGRETTED, messages.REGRET, messages.GPU_HOURS]
    titles += [messages.COST.fill(currency=currency)] if currency else []
    titles += [messages.SHARE, messages.UNMET]
    cells = [list(_list_cells(row, has_cost=bool(currency))) for row in rows]
    return _render_table([each.text(language) for each in titles], cells, caption)


def _list_cells(row: Row, *, has_cost: bool) -> Iterator[str]:
    yield get_text(row, "name")
    yield str(get_count(row, "releases"))
    yield str(get_count(row, "regretted"))
    yield _percent(get_number(row, "regret"))
    yield f"{get_number(row, 'gpu_hours') or 0:.1f}"
    if has_cost:
        yield quantities.amount(get_number(row, "cost"))
    yield _percent(get_number(row, "oracle_share"))
    yield f"{get_number(row, 'unmet_gpu_hours') or 0:.1f}"


def _render_regretted(rows: Sequence[Row], language: Language) -> str:
    if not rows:
        return f"<p>{escape(messages.NONE_REGRETTED.text(language))}</p>"
    titles = (messages.WORKLOAD, messages.POLICY, messages.RELEASED_AT, messages.NEEDED_AFTER, messages.GPUS)
    cells = [
        [
            "/".join(part for part in (get_text(row, key) for key in ("cluster", "namespace", "kind", "name")) if part),
            get_text(row, "policy"),
            get_text(row, "at"),
            quantities.duration((get_number(row, "minutes") or 0) * 60),
            quantities.gpus(get_number(row, "gpus")),
        ]
        for row in rows
    ]
    return _render_table([each.text(language) for each in titles], cells, messages.REGRETTED_TITLE.text(language))


def _render_table(titles: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in titles)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _render_frontier(rows: Sequence[Row], policy: Row) -> str:
    """Saving to the right, regret upwards."""
    points = [
        (get_number(row, "gpu_hours") or 0, get_number(row, "regret") or 0, get_text(row, "name")) for row in rows
    ]
    points.append((get_number(policy, "gpu_hours") or 0, get_number(policy, "regret") or 0, get_text(policy, "name")))
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


def _percent(share: float | None) -> str:
    return quantities.UNKNOWN if share is None else f"{share:.0%}"
