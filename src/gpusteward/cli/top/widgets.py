"""What the terminal UI shows: the table of a view, the lines above and below it, help, choices and the prompt."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.coordinate import Coordinate
from textual.message import Message as Event
from textual.screen import ModalScreen
from textual.widgets import DataTable, Input, OptionList, Static
from textual.widgets.option_list import Option

from gpusteward.cli.api.workloads import WorkloadReference
from gpusteward.cli.json_access import Row
from gpusteward.cli.output import words
from gpusteward.cli.output.terminal_text import STYLES, clean, cut, fit, measure
from gpusteward.cli.output.verdict_texts import describe_time, is_stale, translate
from gpusteward.cli.top.columns import TITLES, View, ViewColumn, choose_columns, divide_width
from gpusteward.cli.top.item_source import ItemList, ListRequest
from gpusteward.core.messages import Language, Message
from gpusteward.messages.verdicts import VERDICTS

STALE_SECONDS = 600.0  # older data is shown with its age


class Key(NamedTuple):
    """An action and its keys; the footer shows the first one."""

    keys: str  # names in Textual
    shown: str  # for the help
    action: str
    about: Message
    short: Message | None = None  # for the footer
    has_priority: bool = False  # over the focused widget


KEYS = (
    Key("question_mark,f1,h", "? F1", "help", Message("this help", "本帮助"), Message("Help", "帮助")),
    Key("slash,f3", "/ F3", "search", Message("search names", "搜索名称"), Message("Search", "搜索")),
    Key("f,f4", "f F4", "filter", Message("filter by verdict", "按结论筛选"), Message("Filter", "筛选")),
    Key("s,f6", "s F6", "sort", Message("sort by the next column", "按下一列排序"), Message("Sort", "排序")),
    Key("S,i", "S i", "reverse", Message("reverse the order", "反向排序")),
    Key("r,f5", "r F5", "refresh", Message("refresh now", "立即刷新"), Message("Refresh", "刷新")),
    Key("tab", "Tab", "next_view(1)", Message("next view", "下一个视图"), Message("View", "视图"), has_priority=True),
    Key("shift+tab", "Shift-Tab", "next_view(-1)", Message("previous view", "上一个视图"), has_priority=True),
    Key("1", "1", "view('gpus')", Message("GPUs", "GPU")),
    Key("2", "2", "view('workloads')", Message("workloads", "工作负载")),
    Key("3", "3", "view('tenants')", Message("tenants: namespaces", "租户（命名空间）")),
    Key("j,down", "j Down", "move(1)", Message("down", "向下")),
    Key("k,up", "k Up", "move(-1)", Message("up", "向上")),
    Key("ctrl+f,pagedown", "PgDn", "page(1)", Message("page down", "下一页")),
    Key("ctrl+b,pageup", "PgUp", "page(-1)", Message("page up", "上一页")),
    Key("g,home", "g Home", "edge(-1)", Message("first row", "首行")),
    Key("G,end", "G End", "edge(1)", Message("last loaded row", "已加载的末行")),
    Key("enter,l", "Enter", "open", Message("open", "打开"), Message("Open", "打开")),
    Key("escape", "Esc", "step_back", Message("back", "返回")),
    Key("t", "t", "time_range", Message("charts: 1h, 6h, 24h, 7d", "图表：1h、6h、24h、7d")),
    Key("colon", ":", "command", Message("command: gpus, sort score", "命令：gpus、sort score")),
    Key("q,f10,ctrl+c", "q F10", "quit", Message("quit", "退出"), Message("Quit", "退出")),
)


def write_title(title: str, listing: ItemList | None, *, width: int, language: Language) -> Text:
    """The source, and the time of its data."""
    age, now = "", time.time()
    if listing is not None and listing.at is not None:
        is_old = is_stale(listing.stamp) or now - listing.at > STALE_SECONDS
        age = describe_time(listing.at, language, now=now, has_age=is_old)
    left = max(0, width - measure(age) - 2)
    bar = Text(no_wrap=True, style="reverse")
    bar.append(fit(f" gpusteward  {cut(title, max(0, left - 14))}", left))
    bar.append(f" {age} ")
    return bar


def write_summary(listing: ItemList | None, error: str, *, width: int, language: Language) -> Text:
    """The summary of the source, or the error of the last request."""
    if error:
        lost = f" {Message('no data: {error}', '没有数据：{error}').text(language, error=error)}"
        return Text(cut(lost, width), style="bold red", no_wrap=True)
    if listing is None:
        return Text(f" {words.READING.text(language)}", style="dim", no_wrap=True)
    line = Text(no_wrap=True)
    most = width // 2 if listing.warning else width  # the rest is for the warning
    for number, (text, word) in enumerate(listing.summary):
        if number and line.cell_len + measure(text) + 2 > most:
            break
        line.append("  " if number else " ")
        line.append(text, style=STYLES.get(word, ""))
    if listing.warning:
        line.append(f"  {cut(listing.warning, max(10, width - line.cell_len - 2))}", style="yellow")
    return line


def write_tabs(request: ListRequest, listing: ItemList | None, *, width: int, language: Language) -> Text:
    """The views, and the filters of the current one."""
    line = Text(no_wrap=True)
    for number, view in enumerate(View, start=1):
        style = "bold reverse" if view is request.view else ""
        line.append(" ")
        line.append(f" {number} {TITLES[view].text(language)} ", style=style)
    parts = []
    if request.namespace:
        parts.append(Message("tenant {name}", "租户 {name}").text(language, name=request.namespace))
    if request.verdict and request.view is not View.TENANTS:
        parts.append(translate(VERDICTS, request.verdict, language))
    if request.words:
        parts.append("/" + " ".join(request.words))
    if listing is not None:
        message = words.FIRST_ROWS if len(listing.items) < listing.total else words.ALL_ROWS
        parts.append(message.text(language, shown=len(listing.items), total=listing.total))
    left = max(0, width - line.cell_len - 1)
    line.append(fit(f" {cut('  '.join(parts), left - 1)}", left, to_right=True), style="dim")
    return line


def write_footer(*, width: int, language: Language) -> Text:
    line = Text(no_wrap=True)
    for key in KEYS:
        if key.short:
            entry = f"{key.short.text(language)} "
            name = key.shown.split()[0]
            if line.cell_len + measure(name) + measure(entry) + 2 > width:
                break
            line.append(f" {name} ", style="bold")
            line.append(entry, style="reverse")
    return line


PADDING = 1
SCROLLBAR = 1


class ItemTable(DataTable[Text], inherit_bindings=False):
    """Rows of items. Cells are plain text: names are never interpreted as markup."""

    def __init__(self, language: Language) -> None:
        super().__init__(cursor_type="row", cell_padding=PADDING, zebra_stripes=False, id="items")
        self._language = language
        self.items: Sequence[Row] = ()
        self._all_columns: Sequence[ViewColumn] = ()
        self._columns: Sequence[ViewColumn] = ()  # those that are shown
        self._sort = ""
        self._drawn: object = None

    def show(
        self, items: Sequence[Row], columns: Sequence[ViewColumn], *, sort: str, keeps_cursor: bool = False
    ) -> None:
        """Draw again if anything visible has changed. The cursor stays on its item, or goes to the first one."""
        kept = self.current_key if keeps_cursor and columns is self._all_columns else None
        self.items, self._all_columns, self._sort = items, columns, sort
        self._columns = choose_columns(columns, self.size.width)
        widths = divide_width(self._columns, self.size.width - 2 * PADDING * len(self._columns) - SCROLLBAR)
        lines = [
            [self._write(item, column, width) for column, width in zip(self._columns, widths, strict=True)]
            for item in items
        ]
        drawn = (widths, sort, [[(cell.plain, str(cell.style)) for cell in line] for line in lines], id(columns))
        if drawn != self._drawn:
            self._drawn = drawn
            self._draw(lines, widths, kept)

    def _draw(self, lines: Sequence[Sequence[Text]], widths: Sequence[int], kept: str | None) -> None:
        row, top = self.cursor_row, self.scroll_y
        with self.app.batch_update():
            self.clear(columns=True)
            for column, width in zip(self._columns, widths, strict=True):
                self.add_column(self._title(column, width), width=width)
            for line in lines:
                self.add_row(*line)
            self._return_to(kept, row, top)

    def _return_to(self, key: str | None, row: int, top: float) -> None:
        """To the same item, or to the same position if it no longer exists."""
        keys = [str(item.get("key", "")) for item in self.items]
        target = keys.index(key) if key in keys else 0 if key is None else min(row, len(keys) - 1)
        if keys:
            self.move_cursor(row=target, animate=False, scroll=False)
            self.scroll_to(y=0 if key is None else top + target - row, animate=False)

    def _title(self, column: ViewColumn, width: int) -> Text:
        title = column.title.text(self._language).upper()
        if column.sort and column.sort == self._sort.removeprefix("-"):
            title += "▼" if self._sort.startswith("-") else "▲"
        return Text(fit(title, width, to_right=column.to_right))

    def _write(self, item: Row, column: ViewColumn, width: int) -> Text:
        written = fit(clean(column.show(item, self._language, width)), width, to_right=column.to_right)
        return Text(written, style=STYLES.get(item.text(column.word), "") if column.word else "", no_wrap=True)

    @property
    def current_key(self) -> str | None:
        item = self.current
        return None if item is None else str(item.get("key", ""))

    @property
    def current(self) -> Row | None:
        """The item under the cursor."""
        return self.items[self.cursor_row] if 0 <= self.cursor_row < len(self.items) else None

    def move(self, rows: int) -> None:
        target = max(0, min(len(self.items) - 1, self.cursor_row + rows))
        self.cursor_coordinate = Coordinate(target, 0)

    @property
    def page_rows(self) -> int:
        return max(1, self.size.height - 2)


class HelpScreen(ModalScreen[None]):
    """Lists the keys."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,q,question_mark,f1,enter,space", "dismiss", "close")]

    def __init__(self, language: Language) -> None:
        super().__init__()
        self._language = language

    def compose(self) -> ComposeResult:
        half = (len(KEYS) + 1) // 2
        lines = [self._write(left) + self._write(right) for left, right in zip(KEYS[:half], KEYS[half:], strict=False)]
        yield Static(Text("\n").join(lines), id="note", markup=False)

    def _write(self, key: Key) -> Text:
        return Text.assemble((fit(key.shown, 10), "bold"), fit(key.about.text(self._language), 26), no_wrap=True)


class ChoiceScreen(ModalScreen[WorkloadReference]):
    """Choice of one of several workloads."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,q", "dismiss", "close"),
        ("j", "cursor(1)", "down"),
        ("k", "cursor(-1)", "up"),
    ]

    def __init__(self, workloads: Sequence[WorkloadReference]) -> None:
        super().__init__()
        self._workloads = workloads

    def compose(self) -> ComposeResult:
        yield OptionList(*(Option(Text(str(one))) for one in self._workloads), id="note", markup=False)

    def on_mount(self) -> None:
        self.query_one(OptionList).highlighted = 0

    def action_cursor(self, way: int) -> None:
        options = self.query_one(OptionList)
        (options.action_cursor_down if way > 0 else options.action_cursor_up)()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._workloads[event.option_index])


class Prompt(Input):
    """The line at the bottom for a search (`/`) or a command (`:`), hidden until it is opened."""

    @dataclass
    class Entered(Event):
        text: str  # begins with `/` or `:`

    class Closed(Event):
        """The prompt no longer has the focus."""

    def __init__(self) -> None:
        super().__init__(id="prompt", compact=True, max_length=200, select_on_focus=False)

    @property
    def is_open(self) -> bool:
        return self.has_class("is-open")

    def open(self, text: str) -> None:
        self.add_class("is-open")
        self.value, self.cursor_position = text, len(text)
        self.focus()

    def close(self) -> None:
        self.remove_class("is-open")
        self.post_message(self.Closed())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.close()
        self.post_message(self.Entered(event.value))
