"""Names chosen by tenants never become a mention, a link, markup or a second line of a message."""

import re
from dataclasses import replace

import pytest

from gpusteward.analyzer.notify.notices.formatting import MAX_NAME_LENGTH, safe_label, safe_line, safe_name
from gpusteward.analyzer.notify.notices.idle_workloads import NoticeWorkloadBuilder
from gpusteward.analyzer.notify.notices.messages import MessageOptions, write_idle, write_outage
from tests.analyzer.notify.notifier_setup import gpu_of, result_of, settings_of
from tests.analyzer.usage_tables import AT

pytestmark = pytest.mark.slow

HOSTILE_NAMES = (
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
    "a\nIdle GPUs: forged",
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


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_hostile_name_is_made_harmless(name: str):
    assert not FORBIDDEN.search(safe_name(name).replace("[.]", ""))
    assert len(safe_label(name)) <= MAX_NAME_LENGTH


@pytest.mark.parametrize("name", ["web-5d9f-x2k", "v1.2-rc3", "训练任务", "NVIDIA A100-SXM4-80GB", "a_b"])
def test_an_ordinary_name_is_unchanged(name: str):
    assert safe_name(name) == name


def test_a_domain_name_does_not_become_a_link():
    assert safe_name("www.evil.example") == "www[.]evil[.]example"
    assert safe_label("www.evil.example") == "www.evil.example"


def test_a_foreign_error_becomes_one_harmless_line():
    text = safe_line('no route to <at user_id="all">\nhttp://evil.example/x @all')
    assert not FORBIDDEN.search(text.replace("[.]", ""))


@pytest.mark.parametrize("language", ["zh", "en"])
@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_hostile_name_adds_no_line_and_no_markup_to_a_message(name: str, language: str):
    options = MessageOptions(language, "UTC", "USD", repeat_hours=24, window_seconds=600)
    settings = settings_of()
    for count in (1, 3):
        ordinary = result_of([gpu_of("ml", "web", gpu=n) for n in range(count)], settings=settings)
        hostile = result_of(
            [gpu_of(name, name, gpu=n, node=name, kind=name.replace("/", "")) for n in range(count)],
            settings=settings,
        )
        expected, written = (
            write_idle(list(NoticeWorkloadBuilder(each).build([0])), options, at=AT) for each in (ordinary, hostile)
        )
        assert written.count("\n") == expected.count("\n")
        own = re.sub(r"[()（）]", "", written.replace("[.]", "").replace("\n", ""))
        assert not FORBIDDEN.search(own)
    assert "@" not in write_outage("@all\n@all", options, since=AT, now=AT + 60)


@pytest.mark.parametrize("count", [1, 3])
def test_a_notice_says_that_samples_miss_short_work(count: int):
    options = MessageOptions("en", "UTC", "USD", repeat_hours=24, window_seconds=600)
    result = result_of([gpu_of("ml", f"web-{number}", gpu=number) for number in range(count)], settings=settings_of())
    idle = list(NoticeWorkloadBuilder(result).build(range(count)))
    for is_sampled in (True, False):
        text = write_idle([replace(each, is_sampled=is_sampled) for each in idle], options, at=AT)
        assert ("short work between two samples is not seen" in text) is is_sampled
