"""The line at the bottom that takes a search (`/`) or a command (`:`)."""

from dataclasses import dataclass

from textual.message import Message
from textual.widgets import Input


class Prompt(Input):
    """Hidden until it is opened. The first character says what the rest is."""

    @dataclass
    class Searched(Message):
        words: tuple[str, ...]

    @dataclass
    class Commanded(Message):
        text: str

    class Closed(Message):
        """The keys belong to the table again."""

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
