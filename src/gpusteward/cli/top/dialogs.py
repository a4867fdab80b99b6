"""Small windows over the screen: help, and a choice."""

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from gpusteward.cli.api.workloads import WorkloadName
from gpusteward.cli.output.terminal_text import fit
from gpusteward.cli.top.keys import KEYS, Key
from gpusteward.core.messages import Language


class HelpScreen(ModalScreen[None]):
    """Every key; any of the usual ones closes it."""

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
    """One of several workloads."""

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
