"""The lines above and below the table."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text

from gpusteward.cli.output.formats import STYLES
from gpusteward.cli.output.quantities import span
from gpusteward.cli.output.terminal_text import cut, fit, measure
from gpusteward.cli.output.verdict_labels import translate
from gpusteward.cli.top.keys import KEYS
from gpusteward.cli.top.source_protocol import Asked, Given, View
from gpusteward.cli.top.views import TITLES
from gpusteward.core.messages import Language, Message
from gpusteward.messages.verdicts import ACTIVITIES

LOADING = Message("reading ...", "正在读取 ...")
LOST = Message("lost: {error}", "连接中断：{error}")
OLD = Message("{age} old", "{age} 前的数据")
NOW = Message("of {clock}", "截至 {clock}")
FIRST = Message("first {shown} of {total}", "前 {shown} / 共 {total}")
ALL = Message("{total} {total:|row|rows}", "共 {total} 行")
NAMESPACE = Message("tenant {name}", "租户 {name}")
STALE_SECONDS = 600.0  # older than that is told as an age


class Room(NamedTuple):
    """How wide the screen is, and what it speaks."""

    width: int
    language: Language


def write_title(title: str, given: Given | None, room: Room) -> Text:
    """Who is asked, and how old what is shown is."""
    told = _age(given, room.language)
    width = max(0, room.width - measure(told) - 2)
    bar = Text(no_wrap=True, style="reverse")
    bar.append(fit(f" gpusteward  {cut(title, max(0, width - 14))}", width))
    bar.append(f" {told} ")
    return bar


def _age(given: Given | None, language: Language) -> str:
    if given is None or given.at is None:
        return ""
    if time.time() - given.at > STALE_SECONDS:
        return OLD.text(language, age=span(time.time() - given.at))
    return NOW.text(language, clock=time.strftime("%H:%M:%S", time.localtime(given.at)))


def write_summary(given: Given | None, lost: str, room: Room) -> Text:
    """How the whole fares; a lost server in its place."""
    if lost:
        return Text(cut(f" {LOST.text(room.language, error=lost)}", room.width), style="bold red", no_wrap=True)
    if given is None:
        return Text(f" {LOADING.text(room.language)}", style="dim", no_wrap=True)
    line = Text(no_wrap=True)
    most = room.width // 2 if given.warning else room.width  # a warning needs room too
    for number, (said, word) in enumerate(given.summary):
        if number and line.cell_len + measure(said) + 2 > most:
            break
        line.append("  " if number else " ")
        line.append(said, style=STYLES.get(word, ""))
    if given.warning:
        line.append(f"  {cut(given.warning, max(10, room.width - line.cell_len - 2))}", style="yellow")
    return line


def write_tabs(asked: Asked, given: Given | None, room: Room) -> Text:
    """Which view, and what of it."""
    line = Text(no_wrap=True)
    for number, view in enumerate(View, start=1):
        style = "bold reverse" if view is asked.view else ""
        line.append(" ")
        line.append(f" {number} {TITLES[view].text(room.language)} ", style=style)
    left = max(0, room.width - line.cell_len - 1)
    told = "  ".join(_tell(asked, given, room.language))
    line.append(fit(f" {cut(told, left - 1)}", left, to_right=True), style="dim")
    return line


def _tell(asked: Asked, given: Given | None, language: Language) -> Sequence[str]:
    told = []
    if asked.namespace:
        told.append(NAMESPACE.text(language, name=asked.namespace))
    if asked.activity and asked.view is not View.TENANTS:
        told.append(translate(ACTIVITIES, asked.activity, language))
    if asked.words:
        told.append("/" + " ".join(asked.words))
    if given is not None:
        part = FIRST if len(given.items) < given.total else ALL
        told.append(part.text(language, shown=len(given.items), total=given.total))
    return told


def write_footer(room: Room) -> Text:
    line = Text(no_wrap=True)
    for key in KEYS:
        if key.short:
            entry = f"{key.short.text(room.language)} "
            name = key.shown.split()[0]
            if line.cell_len + measure(name) + measure(entry) + 2 > room.width:
                break
            line.append(f" {name} ", style="bold")
            line.append(entry, style="reverse")
    return line
