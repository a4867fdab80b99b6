"""The screen: keys and views."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from gpusteward.cli.api.workloads import WorkloadName
from gpusteward.cli.top import bars
from gpusteward.cli.top.detail import DetailScreen
from gpusteward.cli.top.dialogs import ChoiceScreen, HelpScreen
from gpusteward.cli.top.keys import KEYS
from gpusteward.cli.top.loader import Answered, Loader
from gpusteward.cli.top.prompt import Prompt
from gpusteward.cli.top.source_protocol import FIRST_ROWS, MOST_ROWS, Asked, Given, Source, View
from gpusteward.cli.top.table import ItemTable
from gpusteward.cli.top.views import Cell, sorts_of
from gpusteward.core.did_you_mean import suggest
from gpusteward.core.messages import Language, Message

PARTS = ("#title", "#summary", "#tabs", "#items", "#footer")
FILTERS = ("", "idle", "unknown", "active")
MORE_ROWS = 100
COMMANDS: Mapping[str, str] = {
    "gpus": "view('gpus')",
    "gpu": "view('gpus')",
    "workloads": "view('workloads')",
    "wl": "view('workloads')",
    "tenants": "view('tenants')",
    "namespaces": "view('tenants')",
    "ns": "view('tenants')",
    "help": "help",
    "q": "quit",
    "quit": "quit",
}
TABLE_ACTIONS = frozenset(key.action.partition("(")[0] for key in KEYS) - {"quit", "help", "refresh"}
NO_COMMAND = Message("there is no command {word!r}{near}", "没有命令 {word!r}{near}")
NO_VERDICTS = Message("an agent judges nothing: --server shows verdicts", "agent 不作判定：用 --server 查看结论")
NO_WORKLOAD = Message("nobody holds it", "没有占用者")
STYLE = """
Screen { background: ansi_default; }
#title, #summary, #tabs, #footer, #detail-title, #detail-footer { height: 1; }
#items { height: 1fr; background: ansi_default; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; }
#items > .datatable--header { text-style: bold; background: ansi_default; color: ansi_default; }
#items > .datatable--cursor, #items:focus > .datatable--cursor {
    text-style: reverse; background: ansi_default; color: ansi_default;
}
#items > .datatable--hover { background: ansi_default; }
#prompt { height: 1; border: none; padding: 0 1; display: none; background: ansi_default; }
#prompt.is-open { display: block; }
#scroll { height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
#scroll, #items { scrollbar-color: ansi_bright_black; scrollbar-background: ansi_default; }
ModalScreen { align: center middle; }
#note { width: auto; max-width: 76; height: auto; max-height: 22; border: solid ansi_default; padding: 0 1; }
"""


class TopApp(App[int]):
    """Asks a source again and again, and shows what it was told."""

    CSS = STYLE
    TITLE = "gpusteward top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key.keys, key.action, key.about.en, show=False, priority=key.is_prior) for key in KEYS
    ]

    def __init__(
        self,
        source: Source,
        cells: Mapping[View, Sequence[Cell]],
        *,
        first_sorts: Mapping[View, str],
        language: Language,
        refresh_seconds: float,
        view: View = View.WORKLOADS,
    ) -> None:
        super().__init__(ansi_color=True)
        self.language: Language = language
        self._source = source
        self._cells = cells
        self._sorts = dict(first_sorts)
        self._refresh_seconds = refresh_seconds
        self._asked = Asked(view, self._sorts[view])
        self._given: Given | None = None
        self._given_to: Asked | None = None  # which question that answers
        self._lost = ""
        self._loader = Loader(self)

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        yield Static(id="summary", markup=False)
        yield Static(id="tabs", markup=False)
        yield ItemTable(self.language)
        yield Prompt()
        yield Static(id="footer", markup=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys of the table do nothing while something lies over it."""
        del parameters
        return len(self.screen_stack) <= 1 or action not in TABLE_ACTIONS

    def on_mount(self) -> None:
        self._table.focus()
        self._draw()
        self.action_refresh()
        self.set_interval(self._refresh_seconds, self.action_refresh)

    @property
    def _table(self) -> ItemTable:
        return self.screen_stack[0].query_one(ItemTable)

    @property
    def _prompt(self) -> Prompt:
        return self.screen_stack[0].query_one(Prompt)

    def _draw(self, *, keeps_place: bool = True) -> None:
        base, room = self.screen_stack[0], bars.Room(self.size.width, self.language)
        if len(base.query(", ".join(PARTS))) < len(PARTS):
            return  # answers and sizes may come before it is composed, and while it is taken apart
        base.query_one("#title", Static).update(bars.write_title(self._source.title, self._given, room))
        base.query_one("#summary", Static).update(bars.write_summary(self._given, self._lost, room))
        base.query_one("#tabs", Static).update(bars.write_tabs(self._asked, self._given, room))
        base.query_one("#footer", Static).update(bars.write_footer(room))
        items = self._given.items if self._given else ()
        self._table.show(items, self._cells[self._asked.view], sort=self._asked.sort, keeps_place=keeps_place)

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    # Asking

    def action_refresh(self) -> None:
        asked = self._asked
        self._loader.ask("rows", asked, lambda: self._source.read(asked))
        if isinstance(self.screen, DetailScreen):
            self.screen.action_refresh()

    def _ask_for(self, asked: Asked) -> None:
        """Other rows; those of another view are gone at once, of the same one stay until the new ones are there."""
        if asked.view is not self._asked.view:
            self._given = None
        self._asked = asked
        self._draw()
        self.action_refresh()

    def ask_detail(self, workload: WorkloadName, seconds: float) -> None:
        self._loader.ask("detail", workload, lambda: self._source.open(workload))
        if self._source.answers_apart:
            self._loader.ask("processes", workload, lambda: self._source.read_processes(workload))
            ticket = (workload, seconds)
            self._loader.ask("charts", ticket, lambda: self._source.read_charts(workload, seconds))

    def on_answered(self, answered: Answered) -> None:
        """What was asked for before the person went elsewhere, or left, is of no use any more."""
        if not self.screen_stack:
            return
        if answered.group == "rows":
            self._take_rows(answered)
        elif answered.group == "workloads":
            self._take_workloads(answered)
        elif isinstance(self.screen, DetailScreen):
            self._take_detail(self.screen, answered)

    def _take_rows(self, answered: Answered) -> None:
        self._lost = answered.error
        keeps_place = True
        if not answered.error and answered.ticket == self._asked:
            keeps_place = self._given_to is not None and replace(self._given_to, rows=self._asked.rows) == self._asked
            self._given, self._given_to = answered.value, self._asked
        self._draw(keeps_place=keeps_place)

    def _take_workloads(self, answered: Answered) -> None:
        found = answered.value or ()
        if answered.error or not found:
            self.notify(answered.error or NO_WORKLOAD.text(self.language), severity="warning", markup=False)
        elif len(found) == 1:
            self.push_screen(DetailScreen(self, found[0]))
        else:
            self.push_screen(ChoiceScreen(found), self._open_chosen)

    def _open_chosen(self, workload: WorkloadName | None) -> None:
        if workload:
            self.push_screen(DetailScreen(self, workload))

    def _take_detail(self, screen: DetailScreen, answered: Answered) -> None:
        if answered.group == "detail" and answered.ticket == screen.workload:
            screen.take_detail(answered.value, answered.error)
        elif answered.group == "processes" and answered.ticket == screen.workload:
            screen.take_processes(answered.value, answered.error)
        elif answered.group == "charts":
            workload, seconds = _ticket(answered.ticket)
            if workload == screen.workload:
                screen.take_charts(answered.value, answered.error, seconds)

    # Keys

    def action_help(self) -> None:
        self.push_screen(HelpScreen(self.language))

    def action_view(self, name: str) -> None:
        view = View(name)
        self._ask_for(replace(self._asked, view=view, sort=self._sorts[view], rows=FIRST_ROWS, words=(), namespace=""))

    def action_next_view(self, step: int) -> None:
        views = list(View)
        self.action_view(views[(views.index(self._asked.view) + step) % len(views)])

    def action_sort(self) -> None:
        sorts = sorts_of(self._cells[self._asked.view])
        now = self._asked.sort.removeprefix("-")
        self._sort_by(sorts[(sorts.index(now) + 1) % len(sorts)] if now in sorts else sorts[0])

    def action_reverse(self) -> None:
        sort = self._asked.sort
        self._sort_by(sort.removeprefix("-") if sort.startswith("-") else f"-{sort}")

    def _sort_by(self, sort: str) -> None:
        self._sorts[self._asked.view] = sort
        self._ask_for(replace(self._asked, sort=sort, rows=FIRST_ROWS))

    def action_filter(self) -> None:
        if not self._source.has_verdicts:
            self.notify(NO_VERDICTS.text(self.language), severity="warning", markup=False)
            return
        self._filter_by(FILTERS[(FILTERS.index(self._asked.activity) + 1) % len(FILTERS)])

    def _filter_by(self, activity: str) -> None:
        self._ask_for(replace(self._asked, activity=activity, rows=FIRST_ROWS))

    def action_move(self, rows: int) -> None:
        self._table.move(rows)
        self._read_further()

    def action_page(self, pages: int) -> None:
        self.action_move(pages * self._table.page_rows)

    def action_edge(self, way: int) -> None:
        self.action_move(way * MOST_ROWS)

    def on_data_table_row_highlighted(self) -> None:
        self._read_further()

    def _read_further(self) -> None:
        """Near the end of what was read, more is asked for."""
        given, table = self._given, self._table
        if given is None or len(given.items) >= min(given.total, MOST_ROWS):
            return
        if table.cursor_row + table.page_rows >= len(given.items) and self._asked.rows <= len(given.items):
            rows = min(MOST_ROWS, len(given.items) + MORE_ROWS)
            self._asked = replace(self._asked, rows=rows)
            self.action_refresh()

    def action_open(self) -> None:
        item, asked = self._table.current, self._asked
        if item is None:
            return
        if asked.view is View.TENANTS:
            namespace = str(item.get("namespace", ""))
            self._ask_for(Asked(View.WORKLOADS, self._sorts[View.WORKLOADS], asked.activity, namespace))
        else:
            self._loader.ask("workloads", None, lambda: self._source.find_workloads(asked.view, item))

    def on_data_table_row_selected(self) -> None:
        self.action_open()

    def action_step_back(self) -> None:
        """One thing at a time: the prompt, the search, the tenant."""
        if self._prompt.is_open:
            self._prompt.close()
        elif self._asked.words:
            self._ask_for(replace(self._asked, words=()))
        elif self._asked.namespace:
            self.action_view(View.TENANTS)

    # The prompt

    def action_search(self) -> None:
        self._prompt.open("/" + " ".join(self._asked.words))

    def action_command(self) -> None:
        self._prompt.open(":")

    def on_prompt_closed(self) -> None:
        self._table.focus()

    def on_prompt_searched(self, searched: Prompt.Searched) -> None:
        self._ask_for(replace(self._asked, words=searched.words, rows=FIRST_ROWS))

    async def on_prompt_commanded(self, commanded: Prompt.Commanded) -> None:
        await self._obey(commanded.text)

    async def _obey(self, text: str) -> None:
        word, _, rest = text.partition(" ")
        if word == "sort" and rest.removeprefix("-") in sorts_of(self._cells[self._asked.view]):
            self._sort_by(rest)
        elif word == "filter" and rest.removeprefix("all") in FILTERS:
            self._filter_by(rest.removeprefix("all"))
        elif word in COMMANDS:
            await self.run_action(COMMANDS[word])
        else:
            near = suggest(word, [*COMMANDS, "sort", "filter"])
            self.notify(NO_COMMAND.text(self.language, word=text, near=near), severity="warning", markup=False)


def _ticket(given: object) -> tuple[Any, Any]:
    assert isinstance(given, tuple)
    return given[0], given[1]
