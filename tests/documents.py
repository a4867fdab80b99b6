"""The documents and their code blocks, for the tests of the documents."""

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
READMES = ("README.md", "README.zh-CN.md")
DOCUMENTS = sorted(
    str(path.relative_to(ROOT))
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/**/*.md"))
)

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*) *(?P<mark>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)


class Block(NamedTuple):
    """A fenced code block: its language, the rest of the fence line, and its text."""

    document: str
    language: str
    mark: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{' '.join(self.text.split())[:60]}"


def read_document(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def list_blocks(language: str, *documents: str) -> list[Block]:
    """Blocks in this language of these documents, or of all; a block that a translation repeats is listed once."""
    blocks = [
        Block(name, found["language"], found["mark"], textwrap.dedent(found["text"]))
        for name in documents or DOCUMENTS
        for found in _FENCE.finditer(read_document(name))
        if found["language"] == language
    ]
    return list({block.text: block for block in reversed(blocks)}.values())[::-1]


def list_fences(document: str) -> list[str]:
    """The languages of all code blocks, in order."""
    return [found["language"] for found in _FENCE.finditer(read_document(document))]


def prose(document: str) -> str:
    """A document without its code blocks."""
    return _FENCE.sub("", read_document(document))
