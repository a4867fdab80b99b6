"""What people read: in English a word follows its number, in Chinese one thing has one word."""

import re
import string
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import gpusteward.cli
from gpusteward.analyzer.judge import texts as reasons
from gpusteward.analyzer.reports.render import descriptions as report_words
from gpusteward.core.messages import Message, format_text
from gpusteward.core.verdicts import Activity, Signature, State, Step
from gpusteward.messages import notices
from gpusteward.messages.verdict_words import CHINESE

ROOT = Path(__file__).parent.parent
COUNTED = re.compile(r"\{(\w+)[^}]*\} ?(?:个|张|行|项|次|分钟|小时|天)")  # Chinese says which numbers count something
SINGULAR = frozenset({"is", "was", "has", "holds", "works", "runs", "process", "s"})
OTHER_WORDS = re.compile("闲置|空置|块 GPU|得分|成本|持有|挂起|保活|分析器|提醒|采样点|把握")
STATE_WORDS = re.compile(
    rf"(?<![\w./=-])({'|'.join(sorted({*CHINESE} | {'healthy', 'degraded', 'fail', 'skip'}))})(?![\w./-])"
)
DOCUMENTS = [ROOT / "README.zh-CN.md", *sorted((ROOT / "docs" / "zh-CN").glob("*.md"))]


def commands() -> Iterator[tuple[str, str]]:
    for found in walk_packages(gpusteward.cli.__path__, "gpusteward.cli."):
        yield from said_in(list(vars(import_module(found.name)).values()))


def said_in(values: list[object]) -> Iterator[tuple[str, str]]:
    for value in values:
        if isinstance(value, Message):
            yield value.en, value.zh
        elif isinstance(value, dict):
            yield from said_in(list(value.values()))
        elif isinstance(value, list | tuple):
            yield from said_in(list(value))
        elif isinstance(title := getattr(value, "title", None), Message):
            yield title.en, title.zh


TEXTS = sorted(
    {
        *reasons.TEXTS.values(),
        *said_in(list(vars(notices).values())),
        *report_words._WORDS.values(),
        *report_words._NOTES.values(),
        *commands(),
    }
)


def say_of_one(english: str, chinese: str) -> str:
    """The English text where everything that is counted is there once."""
    counted = set(COUNTED.findall(chinese))
    facts: dict[str, object] = {}
    for _, name, spec, _ in string.Formatter().parse(english):
        if name and facts.get(name) != 1:
            facts[name] = 1 if name in counted or spec else "x"
    return format_text(english, facts)


@pytest.mark.parametrize(("english", "chinese"), TEXTS)
def test_one_of_a_thing_is_not_told_as_many(english: str, chinese: str):
    said = say_of_one(english, chinese)
    words = re.findall(r"\b1 (?:more |GPU )?([A-Za-z]+)\b", said)
    assert [word for word in words if word.endswith("s") and word not in SINGULAR] == [], said


def test_the_texts_are_all_there():
    assert len(TEXTS) > 250
    assert say_of_one("{count} rows, {name}", "{name} 共 {count} 行") == "1 rows, x"


@pytest.mark.parametrize(("english", "chinese"), TEXTS)
def test_chinese_has_one_word_for_a_thing_and_no_english_states(english: str, chinese: str):
    del english
    assert not OTHER_WORDS.search(chinese)
    assert not STATE_WORDS.search(re.sub(r"\{.*?\}", "", chinese))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_chinese_pages_use_the_words_of_the_program(path: Path):
    assert not re.search("闲置|空置|块 GPU|得分|成本", path.read_text(encoding="utf-8"))


def test_every_word_of_a_verdict_has_its_chinese_one_and_the_page_tells_it():
    assert {*Activity, *Signature, *State, *Step} <= CHINESE.keys()
    page = (ROOT / "docs" / "zh-CN" / "switching.md").read_text(encoding="utf-8")
    for word, chinese in CHINESE.items():
        assert f"`{word}` {chinese}" in page


def test_what_stands_in_a_fact_is_no_place_to_fill():
    assert format_text("{name} {number:|one|many}", {"name": "{number:|x|y}", "number": 2}) == "{number:|x|y} many"


@pytest.mark.parametrize(
    ("number", "word"), [(0, "minutes"), (0.4, "minutes"), (0.7, "minute"), (1, "minute"), (1.6, "minutes")]
)
def test_a_word_follows_the_number_as_it_is_written(number: float, word: str):
    assert format_text("{number:.0f} {number:|minute|minutes}", {"number": number}) == f"{number:.0f} {word}"
