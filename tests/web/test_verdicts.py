"""One verdict for a workload on every page, and numbers that add up to the rows behind them; on the demo."""

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.local.processes import Program
from tests.waiting import wait_until
from tests.web.browser import PHONE, visit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WORDS = {
    "en-US": ("suspicious", "workloads look busy but are not", "wait for data", "Verdict"),
    "zh-CN": ("可疑", "看似繁忙、实际没有工作", "在等待数据", "结论"),
}


def read_suspicious(demo: Program) -> list[dict]:
    return demo.get("/api/v1/workloads?verdict=suspicious&limit=1000")["items"]


@pytest.mark.parametrize("locale", WORDS)
def test_suspicious_workloads_have_their_part_their_line_and_their_list(browser: Browser, demo: Program, locale: str):
    word, busy, starved, title = WORDS[locale]
    wait_until(lambda: any(row["signature"] == "stalled" for row in read_suspicious(demo)), seconds=240)
    with visit(browser, demo.url, locale=locale) as visitor:
        page = visitor.open("#/")
        overview, rows = demo.get("/api/v1/overview"), read_suspicious(demo)
        assert overview["suspicious"]["workloads"] == len(rows) > 5
        part = page.locator(".legend dl > div").filter(has_text=word)
        shown = int(part.locator("dd").inner_text())
        assert shown == pytest.approx(overview["gpus"]["suspicious"], abs=1.5)
        line = page.locator(".headline-busy")
        expect(line).to_contain_text(busy)
        expect(line).to_contain_text(starved)
        assert visitor.find_barriers() == []
        line.locator("a").first.click()
        visitor.settle()
        expect(page.locator(".grid-row").first).to_be_visible()
        assert page.locator(".grid-row").count() == pytest.approx(len(rows), abs=2)
        page.locator(".grid-row").filter(has_text="long-context-sft").click()
        expect(page.locator(".facts").first).to_contain_text(title)
        expect(page.locator(".facts").first).to_contain_text(re.compile(rf"{word}.+8"))


def test_a_gpu_of_a_suspicious_workload_has_its_colour_in_the_panel_of_its_node(browser: Browser, demo: Program):
    [stalled] = [row for row in read_suspicious(demo) if row["name"].startswith("long-context-sft")]
    with visit(browser, demo.url, size=PHONE, color_scheme="dark") as visitor:
        page = visitor.open(f"#/nodes?node={stalled['nodes'][0]}")
        expect(page.locator(".holders .fill-suspicious").first).to_be_visible()
        assert page.locator(".holders .fill-suspicious").count() == 7
        assert visitor.find_barriers() == []


@pytest.mark.parametrize("size", [(1280, 720), (1440, 900), (1680, 1050), (1920, 1080), (1920, 1200), (1080, 1920)])
def test_nothing_leaves_the_wall_at_any_size(browser: Browser, demo: Program, size: tuple[int, int]):
    with visit(browser, demo.url, size=size) as visitor:
        page = visitor.open("#/wall")
        page.locator(".wall-list li").first.wait_for()
        shown = ".wall h1, .wall .stacked, .wall-cost, .wall-clock, .wall-top"
        right = page.evaluate(
            "(shown) => Math.max(...[...document.querySelectorAll(shown)].map((e) => e.getBoundingClientRect().right))",
            shown,
        )
        assert right <= size[0], "money, bar and clock are on the screen"
