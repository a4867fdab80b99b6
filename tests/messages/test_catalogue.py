"""Texts that people read exist in English and Chinese, as messages with the same fields, and in no other form."""

import ast
import re
import string
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from gpusteward.cli.commands.reclaim import build_parser
from gpusteward.cli.main import COMMANDS
from gpusteward.core.messages import format_text
from gpusteward.core.verdicts import Activity, Signature, State, Step
from gpusteward.messages import verdicts

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src" / "gpusteward"
CHINESE = re.compile(r"[\u4e00-\u9fff]")
COUNTED = re.compile(r"\{(\w+)[^}]*\} ?(?:个|张|行|项|次|分钟|小时|天)")  # Chinese shows which numbers count something
SINGULAR = frozenset({"is", "was", "has", "holds", "works", "runs", "process", "s"})
SYNONYMS = re.compile(
    "闲置|空置|块 GPU|得分|成本|持有|占有|挂起|保活|分析器|分析程序|导出器|报告|理由|提醒|采样点|把握|bearer token"
)  # the catalogue has other words
STATE_WORDS = re.compile(
    rf"(?<![\w./=-])({'|'.join(sorted({*verdicts.WORDS} | {'healthy', 'degraded', 'fail', 'skip'}))})(?![\w./-])"
)
DOCUMENTS = [ROOT / "README.zh-CN.md", *sorted((ROOT / "docs" / "zh-CN").rglob("*.md"))]
COMMAND = re.compile(r"`gpusteward ([a-z]+)(?: ([a-z]+))?")
NOT_MESSAGES = {
    "analyzer/explain/prompts.py",  # sets the language of the model
}


class Text(NamedTuple):
    """One `Message(...)` of the source."""

    path: str
    line: int
    en: str
    zh: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@cache
def modules() -> list[tuple[str, ast.Module]]:
    return [
        (path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text(encoding="utf-8")))
        for path in sorted(SOURCE.rglob("*.py"))
    ]


def message_calls(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Message":
            yield node


def constants(call: ast.Call) -> list[str]:
    return [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]


@cache
def texts() -> list[Text]:
    return [
        Text(path, call.lineno, *found)
        for path, tree in modules()
        for call in message_calls(tree)
        if len(found := constants(call)) == 2
    ]


def fields_of(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def format_one(text: Text) -> str:
    """The English text with 1 for everything that is counted."""
    counted = set(COUNTED.findall(text.zh))
    values: dict[str, object] = {}
    for _, name, spec, _ in string.Formatter().parse(text.en):
        if name and values.get(name) != 1:
            values[name] = 1 if name in counted or spec else "x"
    return format_text(text.en, values)


def test_the_texts_are_found():
    assert len(texts()) > 300
    assert format_one(Text("", 0, "{count} rows, {name}", "{name} 共 {count} 行")) == "1 rows, x"


def test_a_message_has_two_constant_texts():
    """Or two computed ones, where it carries an error that already exists in both languages."""
    for path, tree in modules():
        for call in message_calls(tree):
            assert len(call.args) == 2, f"{path}:{call.lineno}"
            assert len(constants(call)) in (0, 2), f"{path}:{call.lineno}"


def test_both_languages_have_a_text_with_the_same_fields():
    assert [str(text) for text in texts() if bool(text.en.strip()) != bool(text.zh.strip())] == []
    assert [str(text) for text in texts() if fields_of(text.en) != fields_of(text.zh)] == []
    assert [str(text) for text in texts() if CHINESE.search(text.en)] == []


def test_chinese_text_is_in_messages_only():
    for path, tree in modules():
        if path in NOT_MESSAGES:
            continue
        inside = {id(each) for call in message_calls(tree) for each in call.args}
        other = [
            f"{path}:{node.lineno}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and CHINESE.search(node.value)
            if id(node) not in inside
        ]
        assert other == []


def test_english_uses_the_singular_for_one():
    counted = {str(text): re.findall(r"\b1 (?:more |GPU )?([A-Za-z]+)\b", format_one(text)) for text in texts()}
    plural = {
        where: [word for word in words if word.endswith("s") and word not in SINGULAR]
        for where, words in counted.items()
    }
    assert {where: words for where, words in plural.items() if words} == {}


def test_chinese_has_one_word_for_a_thing_and_no_english_states():
    assert [str(text) for text in texts() if SYNONYMS.search(text.zh)] == []
    plain = {str(text): re.sub(r"\{.*?\}|gpusteward [a-z]+", "", text.zh) for text in texts()}
    assert [where for where, chinese in plain.items() if STATE_WORDS.search(chinese)] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_chinese_pages_use_the_words_of_the_program(path: Path):
    assert not re.search(
        "闲置|空置|块 GPU|得分|成本|占有|导出器|账目|空档|[一每]轮|bearer token", path.read_text(encoding="utf-8")
    )


def test_every_word_of_a_verdict_is_translated_and_documented():
    assert {*Activity, *Signature, *State, *Step} <= verdicts.WORDS.keys()
    page = (ROOT / "docs" / "zh-CN" / "switching.md").read_text(encoding="utf-8")
    for word, message in verdicts.WORDS.items():
        assert f"`{word}` {message.zh}" in page


def test_a_command_in_a_text_exists():
    commands = [
        (f"{path}:{node.lineno}", *found)
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for found in COMMAND.findall(node.value)
    ]
    assert len(commands) > 50
    for text, command, word in commands:
        assert command in COMMANDS, f"{text}: gpusteward {command}"
        if command == "reclaim":
            build_parser().parse([word])


def test_braces_in_a_value_are_not_interpreted():
    assert format_text("{name} {number:|one|many}", {"name": "{number:|x|y}", "number": 2}) == "{number:|x|y} many"


@pytest.mark.parametrize(
    ("number", "word"), [(0, "minutes"), (0.4, "minutes"), (0.7, "minute"), (1, "minute"), (1.6, "minutes")]
)
def test_a_word_follows_the_number_as_it_is_printed(number: float, word: str):
    assert format_text("{number:.0f} {number:|minute|minutes}", {"number": number}) == f"{number:.0f} {word}"
