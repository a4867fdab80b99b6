"""The screen of an opened workload: charts, verdict and reasons, processes, evidence."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Static

from gpusteward.cli.api.workloads import WorkloadReference
from gpusteward.cli.output import words
from gpusteward.cli.output.quantities import duration
from gpusteward.cli.output.terminal_text import Line, clean, fit, measure, wrap, wrap_lines
from gpusteward.cli.top.item_source import Charts, Detail, LineChart
from gpusteward.core.messages import Language, Message

if TYPE_CHECKING:
    from gpusteward.cli.top.app import TopApp

CHART_TITLE = Message("charts of the last {length}", "最近 {length} 的图表")
DETAIL_FOOTER = Message(
    " Esc back   j k scroll   t time range   r refresh   q quit",
    " Esc 返回   j k 滚动   t 时间范围   r 刷新   q 退出",
)

BLOCKS = "▁▂▃▄▅▆▇█"
GAP = " "


def draw_sparkline(
    points: Sequence[tuple[float, float]], *, start: float, end: float, width: int, top: float | None = None
) -> str:
    """One character per interval, with the height of the highest value in it, so that short bursts are seen.

    If points are further apart than intervals, a value lasts until the next one is due.
    """
    if width <= 0 or end <= start or not points:
        return GAP * max(0, width)
    distances = sorted(after[0] - before[0] for before, after in pairwise(points))
    usual = distances[len(distances) // 2] if distances else 0.0  # the median, so that gaps do not count
    step = (end - start) / width
    columns: list[float | None] = [None] * width
    for at, value in points:
        first = min(width - 1, _find_column(at - start, step)) if at <= end else width
        last = max(first, _find_column(at + usual - start, step) - 1)
        for number in range(max(0, first), min(width, last + 1)):
            before = columns[number]
            columns[number] = value if before is None else max(before, value)
    highest = top or max(value for _, value in points) or 1.0
    tops = (None if value is None else int(value / highest * len(BLOCKS)) for value in columns)
    return "".join(GAP if each is None else BLOCKS[min(len(BLOCKS) - 1, max(0, each))] for each in tops)


def _find_column(seconds: float, step: float) -> int:
    """Unix seconds have about seven digits after the point: a value on a border must not fall below it."""
    return int(seconds / step + 1e-5)


TIME_RANGES = (3600.0, 6 * 3600.0, 24 * 3600.0, 7 * 86400.0)
LABEL_CELLS = 26
VALUE_CELLS = 10


class DetailScreen(Screen[None]):
    """Requests its data through the app; shows the previous data while it waits."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,left,h,backspace", "app.pop_screen", "back"),
        ("j,down", "scroll(1)", "down"),
        ("k,up", "scroll(-1)", "up"),
        ("t", "time_range", "time range"),
        ("r,f5", "refresh", "refresh"),
    ]

    def __init__(self, app: "TopApp", workload: WorkloadReference) -> None:
        super().__init__()
        self._top = app
        self.workload = workload
        self._language: Language = app.language
        self.seconds = TIME_RANGES[0]
        self._detail: Detail | None = None
        self._charts: Charts | None = None
        self._processes: Sequence[Line] = ()
        self._errors: dict[str, str] = {}  # of the last request of each part

    def compose(self) -> ComposeResult:
        yield Static(id="detail-title", markup=False)
        yield VerticalScroll(Static(id="detail", markup=False), id="scroll")
        yield Static(id="detail-footer", markup=False)

    def on_mount(self) -> None:
        self._draw()
        self.action_refresh()

    def action_refresh(self) -> None:
        self._top.load_detail(self.workload, self.seconds)

    def action_time_range(self) -> None:
        self.seconds = TIME_RANGES[(TIME_RANGES.index(self.seconds) + 1) % len(TIME_RANGES)]
        self._charts = None
        self._errors.pop("charts", None)
        self._draw()
        self.action_refresh()

    def action_scroll(self, rows: int) -> None:
        self.query_one("#scroll", VerticalScroll).scroll_relative(y=rows, animate=False)

    def show(self, part: str, value: Detail | Charts | Sequence[Line] | None, error: str) -> None:
        """What was read before stays if a request fails."""
        self._errors[part] = error
        match value:
            case Detail():
                self._detail = value
            case Charts():
                self._charts = value
            case [*lines]:
                self._processes = lines
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        if self.query("#detail"):  # data and sizes may arrive before it is composed, and while it is closing
            footer = DETAIL_FOOTER.text(self._language)
            for bar, text in (("#detail-title", f" {self.workload}"), ("#detail-footer", footer)):
                self.query_one(bar, Static).update(
                    Text(fit(clean(text), self.size.width), style="reverse", no_wrap=True)
                )
            width = max(20, self.size.width - 4)  # margins, scrollbar, and a blank before it
            self.query_one("#detail", Static).update(Text("\n").join(self.describe(width)))

    def describe(self, width: int) -> Iterator[Text]:
        error = self._errors.get("detail", "")
        yield from (Text(line, style="bold red") for line in wrap(clean(error), width))
        if self._detail is None:
            yield Text("" if error else words.READING.text(self._language), style="dim")
            return
        yield from self._describe_charts(width)
        yield Text("")
        yield from _format(self._detail.lines, width)
        error = self._errors.get("processes", "")
        if self._processes or error:
            yield Text("")
            yield Text(Message("processes", "进程").text(self._language), style="bold")
        yield from (Text(line, style="yellow") for line in wrap(clean(error), width))
        yield from _format(self._processes, width)
        yield from _format(self._detail.evidence, width)

    def _describe_charts(self, width: int) -> Iterator[Text]:
        drawn, error = self._charts, self._errors.get("charts", "")
        length = drawn.seconds if drawn else self.seconds
        yield Text(CHART_TITLE.text(self._language, length=duration(length)), style="bold")
        if error:
            yield from (Text(line, style="yellow") for line in wrap(clean(error), width))
        elif drawn is None:
            yield Text(words.READING.text(self._language), style="dim")
        elif not drawn.charts:
            yield Text(Message("no data", "没有数据").text(self._language), style="dim")
        if drawn:
            end = drawn.at or max((chart.points[-1][0] for chart in drawn.charts), default=0.0)
            yield from (draw_chart(chart, end - length, end, width=width) for chart in drawn.charts)


def _format(lines: Sequence[Line], width: int) -> Iterator[Text]:
    for lead, text, style in wrap_lines(lines, width=width):
        yield Text(lead).append(text, style=style)


def draw_chart(chart: LineChart, start: float, end: float, *, width: int) -> Text:
    """`core GPU-a      ▁▁▂▅█▅▂▁      80%`."""
    chart_width = max(10, width - LABEL_CELLS - VALUE_CELLS - 2)
    line = Text(fit(clean(chart.label), LABEL_CELLS), no_wrap=True)
    line.append(" ")
    line.append(draw_sparkline(chart.points, start=start, end=end, width=chart_width, top=chart.top), style="green")
    line.append(" ")
    line.append(fit(chart.last_value, max(VALUE_CELLS, measure(chart.last_value)), to_right=True))
    return line
