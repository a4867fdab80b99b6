"""The channel of the demo: takes notices as an incoming webhook of Slack does, and prints them in the terminal."""

import sys
from collections.abc import Iterator, Sequence
from typing import TextIO

import msgspec

INBOX_PATH = "/services/T0DEMO/B0DEMO/inbox"


class _Text(msgspec.Struct):
    text: str = ""


class _Button(msgspec.Struct):
    text: _Text
    url: str = ""


class _Block(msgspec.Struct):
    type: str = ""
    text: _Text | None = None
    elements: Sequence[_Button] = ()


class _Message(msgspec.Struct):
    blocks: Sequence[_Block] = ()


class DemoInbox:
    """Prints the title of each notice and its first link."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout

    def receive(self, body: bytes) -> None:
        """Raises ValueError for anything but a message."""
        message = msgspec.json.decode(body, type=_Message)
        print("\n".join(_describe(message)), file=self._out, flush=True)


def _describe(message: _Message) -> Iterator[str]:
    for block in message.blocks:
        if block.type == "header" and block.text:
            yield f"* {block.text.text}"
        for button in block.elements[:1]:
            yield f"  {button.text.text}: {button.url}"
