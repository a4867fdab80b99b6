"""Names that other people chose: nothing in a message is a mention, a link, markup or a second line."""

import re

import pytest

from gpusteward.analyzer.notify.notices.findings import FindingMaker
from gpusteward.analyzer.notify.notices.formatting import LONGEST, bare, line, plain
from gpusteward.analyzer.notify.notices.messages import MessageOptions, write_idle, write_lost
from tests.analyzer.notify.notifier_setup import gpu_of, result_of, settings_of
from tests.analyzer.usage_tables import AT

EVIL = (
    "@all",
    "@everyone",
    '<at user_id="all">all</at>',
    "<!channel>",
    "<@U123>",
    "[win](http://evil.example/x)",
    "http://evil.example/x",
    "www.evil.example",
    "**bold**",
    "`code`",
    "a\nGPUs idle: forged",
    "a\r\nb",
    "\u202eevil",
    "zero\u200bwidth",
    "\x1b[31mred",
    "line\u2028separator",
    "{format} %s",
    "|table|",
    "~gone~",
    "<script>alert(1)</script>",
    "x" * 5000,
)
FORBIDDEN = re.compile(r"[@<>\[\]()*`|~\\\n\r\x00-\x1f\u200b\u2028\u202e]|https?:|www\.evil")


@pytest.mark.parametrize("name", EVIL)
def test_a_name_cannot_say_more_than_a_name(name: str):
    assert not FORBIDDEN.search(plain(name).replace("[.]", ""))
    assert len(bare(name)) <= LONGEST


@pytest.mark.parametrize("name", ["web-5d9f-x2k", "v1.2-rc3", "训练任务", "NVIDIA A100-SXM4-80GB", "a_b"])
def test_an_honest_name_stays_as_it_is(name: str):
    assert plain(name) == name


def test_a_dot_makes_no_link():
    assert plain("www.evil.example") == "www[.]evil[.]example"
    assert bare("www.evil.example") == "www.evil.example"


def test_an_error_from_elsewhere_is_one_harmless_line():
    said = line('no route to <at user_id="all">\nhttp://evil.example/x @all')
    assert not FORBIDDEN.search(said.replace("[.]", ""))


@pytest.mark.parametrize("language", ["zh", "en"])
@pytest.mark.parametrize("name", EVIL)
def test_a_whole_message_has_only_our_own_lines(name: str, language: str):
    options = MessageOptions(language, "UTC", "USD", 24, 600)
    settings = settings_of()
    for count in (1, 3):
        honest = result_of([gpu_of("ml", "web", gpu=n) for n in range(count)], settings=settings)
        evil = result_of(
            [gpu_of(name, name, gpu=n, node=name, kind=name.replace("/", "")) for n in range(count)],
            settings=settings,
        )
        expected, written = (write_idle(list(FindingMaker(each).make([0])), options) for each in (honest, evil))
        assert written.count("\n") == expected.count("\n")
        own = re.sub(r"[()（）]", "", written.replace("[.]", "").replace("\n", ""))
        assert not FORBIDDEN.search(own)
    assert "@" not in write_lost("@all\n@all", options, since=AT, now=AT + 60)
