"""Help, choice of a workload, and the prompt for searches and commands."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message as Event
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from gpusteward.cli.api.workloads import WorkloadName
from gpusteward.cli.output.terminal_text import fit
from gpusteward.cli.top.bars import KEYS, Key
from gpusteward.core.messages import Language


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


class ChoiceScreen(ModalScreen[WorkloadName]):
    """Choice of one of several workloads."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,q", "dismiss", "close"),
        ("j", "cursor(1)", "down"),
        ("k", "cursor(-1)", "up"),
    ]

    def __init__(self, workloads: Sequence[WorkloadName]) -> None:
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
    class Searched(Event):
        words: tuple[str, ...]

    @dataclass
    class Commanded(Event):
        text: str

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
        kind, text = event.value[:1], event.value[1:].strip()
        if kind == "/":
            self.post_message(self.Searched(tuple(text.split())))
        elif kind == ":" and text:
            self.post_message(self.Commanded(text))
