"""The Textual application: keys, views, refresh; requests run in threads, so that it never waits for a response."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message as Event
from textual.widgets import Static

from gpusteward.cli.api.workloads import WorkloadReference
from gpusteward.cli.top import widgets
from gpusteward.cli.top.columns import View, choose_columns, sorts_of
from gpusteward.cli.top.detail import DetailScreen
from gpusteward.cli.top.item_source import FIRST_ROWS, MAX_ROWS, ItemList, ItemSource, ListRequest
from gpusteward.cli.top.widgets import ChoiceScreen, HelpScreen, ItemTable, Prompt
from gpusteward.core.did_you_mean import make_suggestion
from gpusteward.core.errors import GpustewardError
from gpusteward.core.messages import Language, Message

UNKNOWN_COMMAND = Message("unknown command {word!r}{suggestion}", "未知命令 {word!r}{suggestion}")
NO_VERDICTS = Message("an agent has no verdicts: use --server", "agent 不提供结论：请用 --server")
NOT_HELD = Message("no workload holds this GPU", "没有工作负载占用该 GPU")


@dataclass
class Loaded(Event):
    """The result of a request. `key` identifies the request it belongs to."""

    group: str
    key: object
    value: Any = None
    error: str = ""


class _Request(NamedTuple):
    key: object
    read: Callable[[], Any]


class Loader:
    """Results are sent to the app as `Loaded` messages.

    One request of a group runs, and the last that came meanwhile waits: a slow server gets no queue of them. These are
    no workers of Textual: there a new one starts beside a request that cannot be cancelled, and `quit` waits for both.
    """

    def __init__(self, app: App[Any], language: Language) -> None:
        self._app = app
        self._language: Language = language
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        self._waiting: dict[str, _Request] = {}

    def load(self, group: str, key: object, read: Callable[[], Any]) -> None:
        with self._lock:
            if group in self._busy:
                self._waiting[group] = _Request(key, read)
                return
            self._busy.add(group)
        threading.Thread(target=self._work, args=(group, _Request(key, read)), daemon=True).start()

    def _work(self, group: str, request: _Request) -> None:
        current: _Request | None = request
        while current is not None:
            self._app.post_message(self._read(group, current))
            with self._lock:
                current = self._waiting.pop(group, None)
                if current is None:
                    self._busy.discard(group)

    def _read(self, group: str, request: _Request) -> Loaded:
        try:
            return Loaded(group, request.key, request.read())
        except GpustewardError as error:
            return Loaded(group, request.key, error=str(error))
        # An unexpected error costs this result, not the UI.
        except Exception as error:  # noqa: BLE001
            text = f"internal error: {type(error).__name__}: {error}"
            return Loaded(group, request.key, error=text)


PARTS = ("#title", "#summary", "#tabs", "#items", "#footer")
FILTERS = ("", "idle", "suspicious", "unknown", "active")
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
TABLE_ACTIONS = frozenset(key.action.partition("(")[0] for key in widgets.KEYS) - {"quit", "help", "refresh"}
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
    """Reads a source at intervals and shows the current view of it."""

    CSS = STYLE
    TITLE = "gpusteward top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key.keys, key.action, key.about.en, show=False, priority=key.has_priority) for key in widgets.KEYS
    ]

    def __init__(
        self,
        source: ItemSource,
        request: ListRequest,
        *,
        language: Language,
        refresh_seconds: float,
    ) -> None:
        """`request`: the first one."""
        super().__init__(ansi_color=True)
        self.language: Language = language
        self.source = source
        self.request = request
        self.listing: ItemList | None = None
        self.error = ""  # of the last request
        self._listed_request: ListRequest | None = None  # the request of the listing
        self._sorts = {**source.first_sorts, request.view: request.sort}
        self._refresh_seconds = refresh_seconds
        self._loader = Loader(self, language)

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        yield Static(id="summary", markup=False)
        yield Static(id="tabs", markup=False)
        yield ItemTable(self.language)
        yield Prompt()
        yield Static(id="footer", markup=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys of the table have no effect while another screen covers it."""
        del parameters
        return len(self.screen_stack) <= 1 or action not in TABLE_ACTIONS

    def on_mount(self) -> None:
        self.table.focus()
        self._draw()
        self.action_refresh()
        self.set_interval(self._refresh_seconds, self.action_refresh)

    @property
    def table(self) -> ItemTable:
        return self.screen_stack[0].query_one(ItemTable)

    @property
    def prompt(self) -> Prompt:
        return self.screen_stack[0].query_one(Prompt)

    def _draw(self, *, keeps_cursor: bool = True) -> None:
        base, width, language = self.screen_stack[0], self.size.width, self.language
        if len(base.query(", ".join(PARTS))) < len(PARTS):
            return  # data and sizes may arrive before it is composed, and while it is shutting down
        lines = {
            "#title": widgets.write_title(self.source.title, self.listing, width=width, language=language),
            "#summary": widgets.write_summary(self.listing, self.error, width=width, language=language),
            "#tabs": widgets.write_tabs(self.request, self.listing, width=width, language=language),
            "#footer": widgets.write_footer(width=width, language=language),
        }
        for part, text in lines.items():
            base.query_one(part, Static).update(text)
        items = self.listing.items if self.listing else ()
        self.table.show(
            items, self.source.columns[self.request.view], sort=self.request.sort, keeps_cursor=keeps_cursor
        )

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    # Requests

    def action_refresh(self) -> None:
        if not self.screen_stack:
            return  # the timer may fire while it is shutting down
        request = self.request
        self._loader.load("rows", request, lambda: self.source.read(request))
        if isinstance(self.screen, DetailScreen):
            self.screen.action_refresh()

    def _change_request(self, request: ListRequest) -> None:
        """Rows of the same view stay until the new ones arrive."""
        if request.view is not self.request.view:
            self.listing = None
        self.request = request
        self._draw()
        self.action_refresh()

    def load_detail(self, workload: WorkloadReference, seconds: float) -> None:
        key = (workload, seconds)
        self._loader.load("detail", key, lambda: self.source.read_detail(workload))
        self._loader.load("processes", key, lambda: self.source.read_processes(workload))
        self._loader.load("charts", key, lambda: self.source.read_charts(workload, seconds))

    def on_loaded(self, loaded: Loaded) -> None:
        """Responses that arrive after the view has changed, or while the app is shutting down, are ignored."""
        if not self.screen_stack:
            return
        if loaded.group == "rows":
            self._show_rows(loaded)
        elif loaded.group == "workloads":
            self._open_workloads(loaded)
        elif isinstance(self.screen, DetailScreen) and loaded.key == (self.screen.workload, self.screen.seconds):
            self.screen.show(loaded.group, loaded.value, loaded.error)

    def _show_rows(self, loaded: Loaded) -> None:
        self.error = loaded.error
        keeps_cursor = True
        if not loaded.error and loaded.key == self.request:
            before = self._listed_request
            keeps_cursor = before is not None and replace(before, rows=self.request.rows) == self.request
            self.listing, self._listed_request = loaded.value, self.request
        self._draw(keeps_cursor=keeps_cursor)

    def _open_workloads(self, loaded: Loaded) -> None:
        found = loaded.value or ()
        if loaded.error or not found:
            self.notify(loaded.error or NOT_HELD.text(self.language), severity="warning", markup=False)
        elif len(found) == 1:
            self.push_screen(DetailScreen(self, found[0]))
        else:
            self.push_screen(ChoiceScreen(found), self._open_chosen)

    def _open_chosen(self, workload: WorkloadReference | None) -> None:
        if workload:
            self.push_screen(DetailScreen(self, workload))

    # Keys

    def action_help(self) -> None:
        self.push_screen(HelpScreen(self.language))

    def action_view(self, name: str) -> None:
        view = View(name)
        self._change_request(
            replace(self.request, view=view, sort=self._sorts[view], rows=FIRST_ROWS, words=(), namespace="")
        )

    def action_next_view(self, step: int) -> None:
        views = list(View)
        self.action_view(views[(views.index(self.request.view) + step) % len(views)])

    def action_sort(self) -> None:
        sorts = sorts_of(choose_columns(self.source.columns[self.request.view], self.size.width))
        now = self.request.sort.removeprefix("-")
        self._sort_by(sorts[(sorts.index(now) + 1) % len(sorts)] if now in sorts else sorts[0])

    def action_reverse(self) -> None:
        sort = self.request.sort
        self._sort_by(sort.removeprefix("-") if sort.startswith("-") else f"-{sort}")

    def _sort_by(self, sort: str) -> None:
        self._sorts[self.request.view] = sort
        self._change_request(replace(self.request, sort=sort, rows=FIRST_ROWS))

    def action_filter(self) -> None:
        if not self.source.has_verdicts:
            self.notify(NO_VERDICTS.text(self.language), severity="warning", markup=False)
            return
        self._filter_by(FILTERS[(FILTERS.index(self.request.verdict) + 1) % len(FILTERS)])

    def _filter_by(self, verdict: str) -> None:
        self._change_request(replace(self.request, verdict=verdict, rows=FIRST_ROWS))

    def action_move(self, rows: int) -> None:
        self.table.move(rows)
        self._load_more()

    def action_page(self, pages: int) -> None:
        self.action_move(pages * self.table.page_rows)

    def action_edge(self, direction: int) -> None:
        self.action_move(direction * MAX_ROWS)

    def on_data_table_row_highlighted(self) -> None:
        self._load_more()

    def _load_more(self) -> None:
        """Request more rows when the cursor is near the end of the loaded ones."""
        listing, table = self.listing, self.table
        if listing is None or len(listing.items) >= min(listing.total, MAX_ROWS):
            return
        if table.cursor_row + table.page_rows >= len(listing.items) and self.request.rows <= len(listing.items):
            rows = min(MAX_ROWS, len(listing.items) + MORE_ROWS)
            self.request = replace(self.request, rows=rows)
            self.action_refresh()

    def action_open(self) -> None:
        item, request = self.table.current, self.request
        if item is None:
            return
        if request.view is View.TENANTS:
            namespace = str(item.get("namespace", ""))
            self._change_request(ListRequest(View.WORKLOADS, self._sorts[View.WORKLOADS], request.verdict, namespace))
        else:
            self._loader.load("workloads", None, lambda: self.source.find_workloads(request.view, item))

    def on_data_table_row_selected(self) -> None:
        self.action_open()

    def action_step_back(self) -> None:
        """Close the prompt, else clear the search, else leave the tenant."""
        if self.prompt.is_open:
            self.prompt.close()
        elif self.request.words:
            self._change_request(replace(self.request, words=()))
        elif self.request.namespace:
            self.action_view(View.TENANTS)

    # Prompt

    def action_search(self) -> None:
        self.prompt.open("/" + " ".join(self.request.words))

    def action_command(self) -> None:
        self.prompt.open(":")

    def on_prompt_closed(self) -> None:
        self.table.focus()

    async def on_prompt_entered(self, entered: Prompt.Entered) -> None:
        kind, text = entered.text[:1], entered.text[1:].strip()
        if kind == "/":
            self._change_request(replace(self.request, words=tuple(text.split()), rows=FIRST_ROWS))
        elif kind == ":" and text:
            await self._run_command(text)

    async def _run_command(self, text: str) -> None:
        word, _, rest = text.partition(" ")
        if word == "sort" and rest.removeprefix("-") in sorts_of(self.source.columns[self.request.view]):
            self._sort_by(rest)
        elif word == "filter" and rest.removeprefix("all") in FILTERS:
            self._filter_by(rest.removeprefix("all"))
        elif word in COMMANDS:
            await self.run_action(COMMANDS[word])
        else:
            suggestion = make_suggestion(word, [*COMMANDS, "sort", "filter"]) or ""
            note = UNKNOWN_COMMAND.text(self.language, word=text, suggestion=suggestion)
            self.notify(note, severity="warning", markup=False)
