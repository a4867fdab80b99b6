"""Charts of a report, as SVG. Colours come from the page; sizes are attributes, so that no inline style is needed."""

import html
import math
from collections.abc import Sequence

from gpusteward.analyzer.reports.render import quantities
from gpusteward.analyzer.reports.report import Amounts, Point, Report
from gpusteward.control_characters import escape_controls
from gpusteward.core.messages import Language
from gpusteward.messages import reports as messages

_HOUR_MS = 3_600_000
WIDTH, HEIGHT = 1120, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 8, 10, 28
MAX_LABELS = 16
LAYERS = ("active", "idle", "unknown", "unallocated")  # from the bottom up


def escape(text: str) -> str:
    """For HTML: a name can neither be markup nor hide or reverse what follows it."""
    return html.escape(escape_controls(text, keep="\n"))


def draw_days(report: Report, language: Language) -> str:
    """Stacked bars, one per step; a step without records is a gap, not an empty bar."""
    first_ms = report.points[0].at_ms if report.points else 0  # the chart begins with the first record
    since_ms = max(report.range.since_ms - report.range.since_ms % report.step_ms, first_ms)
    steps = max(1, math.ceil((report.range.until_ms - since_ms) / report.step_ms))
    top = _round_up(max((sum(_parts(point)) for point in report.points), default=0) / _HOUR_MS)
    slot = (WIDTH - LEFT - RIGHT) / steps
    bars = [
        _draw_bar(
            point, left=LEFT + (point.at_ms - since_ms) / report.step_ms * slot, width=slot, top=top, language=language
        )
        for point in report.points
    ]
    labels = _draw_labels(report, since_ms=since_ms, steps=steps, slot=slot)
    title = (messages.PER_HOUR if report.step_ms == _HOUR_MS else messages.PER_DAY).text(language)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"{_draw_grid(top)}{''.join(bars)}{labels}</svg>"
    )


def draw_share(amounts: Amounts) -> str:
    """One bar: how the allocated time was used."""
    parts = [getattr(amounts, f"{layer}_gpu_ms") for layer in LAYERS[:3]]
    total = sum(parts)
    if not total:
        return ""
    left, drawn = 0.0, []
    for layer, part in zip(LAYERS, parts, strict=False):
        width = 100 * part / total
        drawn.append(f'<rect class="{layer}" x="{left:.2f}" y="0" width="{width:.2f}" height="10"/>' if part else "")
        left += width
    return f'<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{"".join(drawn)}</svg>'


def draw_legend(language: Language, layers: Sequence[str] = LAYERS, *, has_partial: bool = False) -> str:
    swatch = '<svg viewBox="0 0 10 10" aria-hidden="true"><rect class="{0}" width="10" height="10" rx="2"/></svg>'
    items = [f"<li>{swatch.format(layer)}{escape(messages.TIME_LABELS[layer].text(language))}</li>" for layer in layers]
    items += [f"<li>{escape(messages.NOTE_PARTIAL.text(language))}</li>"] if has_partial else []
    return f'<ul class="legend">{"".join(items)}</ul>'


def _parts(point: Point) -> tuple[int, ...]:
    return (point.active_gpu_ms, point.idle_gpu_ms, point.unknown_gpu_ms, point.unallocated_gpu_ms or 0)


def _draw_bar(point: Point, *, left: float, width: float, top: float, language: Language) -> str:
    gap = min(6.0, width * 0.2)
    ground, scale = float(HEIGHT - BOTTOM), (HEIGHT - TOP - BOTTOM) / top
    drawn = []
    for layer, part in zip(LAYERS, _parts(point), strict=True):
        height = part / _HOUR_MS * scale
        ground -= height
        size = f'x="{left + gap / 2:.1f}" y="{ground:.1f}" width="{width - gap:.1f}" height="{height:.1f}"'
        drawn.append(f'<rect class="{layer}" {size}/>' if part else "")
    kind = ' class="partial"' if point.is_partial else ""
    return f"<g{kind}><title>{escape(_describe(point, language))}</title>{''.join(drawn)}</g>"


def _describe(point: Point, language: Language) -> str:
    parts = [point.active_gpu_ms, point.idle_gpu_ms, point.unknown_gpu_ms, point.unallocated_gpu_ms]
    lines = [
        f"{messages.TIME_LABELS[layer].text(language)}: {quantities.hours(part)}"
        for layer, part in zip(LAYERS, parts, strict=True)
    ]
    partial = f" {messages.PARTIAL.text(language)}" if point.is_partial else ""
    return "\n".join([f"{quantities.moment(point.at_ms)} UTC{partial}", *lines])


def _draw_grid(top: float) -> str:
    lines = []
    for number in range(5):
        y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * number / 4
        value = f"{top * number / 4:,.{0 if top >= 8 else 1}f}" if number else "0"
        lines.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value}</text>')
    return "".join(lines)


def _draw_labels(report: Report, *, since_ms: int, steps: int, slot: float) -> str:
    write = quantities.hour if report.step_ms == _HOUR_MS else quantities.day
    every = math.ceil(steps / MAX_LABELS)
    partial = {(point.at_ms - since_ms) // report.step_ms for point in report.points if point.is_partial}
    return "".join(
        f'<text x="{LEFT + (number + 0.5) * slot:.1f}" y="{HEIGHT - 8}" text-anchor="middle">'
        f"{write(since_ms + number * report.step_ms)}{messages.PARTIAL_MARK if number in partial else ''}</text>"
        for number in range(0, steps, every)
    )


def _round_up(value: float) -> float:
    """To the next number that is easy to divide by four."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return next(step * unit for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if step * unit >= value)
