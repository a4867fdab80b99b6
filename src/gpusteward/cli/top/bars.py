"""The lines above and below the table, and the keys that the footer and the help list."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text

from gpusteward.cli.output.formats import STYLES
from gpusteward.cli.output.terminal_text import cut, fit, measure
from gpusteward.cli.output.verdict_labels import translate
from gpusteward.cli.output.verdict_texts import describe_time, is_stale
from gpusteward.cli.top.source_protocol import Listing, ListRequest, View
from gpusteward.cli.top.views import TITLES
from gpusteward.core.messages import Language, Message
from gpusteward.messages.cli import top as messages
from gpusteward.messages.verdicts import ACTIVITIES

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
    Key("f,f4", "f F4", "filter", Message("filter by activity", "按活动筛选"), Message("Filter", "筛选")),
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


class Layout(NamedTuple):
    """Width and language of the screen."""

    width: int
    language: Language


def write_title(title: str, listing: Listing | None, layout: Layout) -> Text:
    """The source, and the time of its data."""
    age = _age(listing, layout.language)
    width = max(0, layout.width - measure(age) - 2)
    bar = Text(no_wrap=True, style="reverse")
    bar.append(fit(f" gpusteward  {cut(title, max(0, width - 14))}", width))
    bar.append(f" {age} ")
    return bar


def _age(listing: Listing | None, language: Language) -> str:
    if listing is None or listing.at is None:
        return ""
    now = time.time()
    return describe_time(
        listing.at, language, now=now, has_age=is_stale(listing.stamp) or now - listing.at > STALE_SECONDS
    )


def write_summary(listing: Listing | None, error: str, layout: Layout) -> Text:
    """The summary of the source, or the error of the last request."""
    if error:
        return Text(
            cut(f" {messages.CONNECTION_LOST.text(layout.language, error=error)}", layout.width),
            style="bold red",
            no_wrap=True,
        )
    if listing is None:
        return Text(f" {messages.READING.text(layout.language)}", style="dim", no_wrap=True)
    line = Text(no_wrap=True)
    most = layout.width // 2 if listing.warning else layout.width  # the rest is for the warning
    for number, (text, word) in enumerate(listing.summary):
        if number and line.cell_len + measure(text) + 2 > most:
            break
        line.append("  " if number else " ")
        line.append(text, style=STYLES.get(word, ""))
    if listing.warning:
        line.append(f"  {cut(listing.warning, max(10, layout.width - line.cell_len - 2))}", style="yellow")
    return line


def write_tabs(request: ListRequest, listing: Listing | None, layout: Layout) -> Text:
    """The views, and the filters of the current one."""
    line = Text(no_wrap=True)
    for number, view in enumerate(View, start=1):
        style = "bold reverse" if view is request.view else ""
        line.append(" ")
        line.append(f" {number} {TITLES[view].text(layout.language)} ", style=style)
    left = max(0, layout.width - line.cell_len - 1)
    description = "  ".join(_describe_list(request, listing, layout.language))
    line.append(fit(f" {cut(description, left - 1)}", left, to_right=True), style="dim")
    return line


def _describe_list(request: ListRequest, listing: Listing | None, language: Language) -> Sequence[str]:
    parts = []
    if request.namespace:
        parts.append(messages.TENANT.text(language, name=request.namespace))
    if request.activity and request.view is not View.TENANTS:
        parts.append(translate(ACTIVITIES, request.activity, language))
    if request.words:
        parts.append("/" + " ".join(request.words))
    if listing is not None:
        message = messages.FIRST_ROWS if len(listing.items) < listing.total else messages.ALL_ROWS
        parts.append(message.text(language, shown=len(listing.items), total=listing.total))
    return parts


def write_footer(layout: Layout) -> Text:
    line = Text(no_wrap=True)
    for key in KEYS:
        if key.short:
            entry = f"{key.short.text(layout.language)} "
            name = key.shown.split()[0]
            if line.cell_len + measure(name) + measure(entry) + 2 > layout.width:
                break
            line.append(f" {name} ", style="bold")
            line.append(entry, style="reverse")
    return line
