"""Every page on the demo: in both languages and themes, on a phone, on a wall, with a keyboard and a screen reader."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.local.processes import Program
from tests.web.browser import DESKTOP, PHONE, WALL, Visitor, visit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PAGES = {
    "overview": ("#/", "GPUs are held and idle"),
    "workloads": ("#/workloads", None),
    "teams": ("#/teams", "on idle GPUs"),
    "nodes": ("#/nodes", "of 208 GPUs are free"),
    "node": ("#/nodes?node=a100-80gb-003", "of 208 GPUs are free"),
    "actions": ("#/actions", None),
    "policies": ("#/policies", None),
    "sources": ("#/sources", "42 of 42 exporters respond"),
    "targets": ("#/sources?tab=targets", "42 of 42 exporters respond"),
    "deliveries": ("#/sources?tab=deliveries", "42 of 42 exporters respond"),
    "wall": ("#/wall", "GPUs are held and idle"),
    "sign-in": ("#/sign-in", "You are not signed in"),
}
CHINESE = {"overview": "被占用却空闲", "teams": "空闲 GPU 上花费", "sources": "个响应正常", "sign-in": "您尚未登录"}


Visitors = Callable[..., Visitor]


@pytest.fixture(scope="module")
def visitors(browser: Browser, demo: Program) -> Iterator[Visitors]:
    """Visitors by their options, for the tests of this file: a new one costs as much as a page."""
    with ExitStack() as stack:
        yield cache(lambda **options: stack.enter_context(visit(browser, demo.url, **options)))


@contextmanager
def loading(visitor: Visitor, name: str) -> Iterator[Page]:
    """A page, loaded anew. Nothing may fail in it."""
    try:
        yield visitor.open(PAGES[name][0])
        assert visitor.find_violations() == []
        assert visitor.failures == []
    finally:
        visitor.page.goto("about:blank")
        visitor.failures.clear()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_its_sentence_and_has_no_barriers(visitors: Visitors, name: str):
    visitor, sentence = visitors(), PAGES[name][1]
    with loading(visitor, name) as page:
        if sentence:
            expect(page.locator("h1")).to_contain_text(sentence)
        assert page.locator(".state-error, .state-forbidden").count() == 0
        assert visitor.find_barriers() == []


@pytest.mark.parametrize("name", ["overview", "workloads", "teams", "node", "sources", "wall"])
def test_a_page_has_no_barriers_in_the_dark(visitors: Visitors, name: str):
    visitor = visitors(color_scheme="dark")
    with loading(visitor, name) as page:
        assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(15, 20, 28)"
        assert visitor.find_barriers() == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_chinese_for_a_chinese_browser(visitors: Visitors, name: str):
    with loading(visitors(locale="zh-CN"), name) as page:
        assert page.get_attribute("html", "lang") == "zh-CN"
        if name in CHINESE:
            expect(page.locator("h1")).to_contain_text(CHINESE[name])
        words = page.evaluate("document.body.innerText")
        assert re.search(r"[一-鿿]{2}", words)
        assert not re.search(r"\b(idle|GPU-hours|held|namespace|Loading)\b", words.replace("ml-platform", ""))


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("size", [PHONE, DESKTOP, WALL], ids=["phone", "desktop", "wall"])
def test_a_page_never_scrolls_sideways(visitors: Visitors, name: str, size: tuple[int, int]):
    with loading(visitors(size=size), name) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]


def find_ineffective(route: Route) -> None:
    """The demo, as if a quarter of its active GPUs were shown to be ineffective, now and in the period."""
    answer = route.fetch()
    overview = answer.json()
    gpus = overview["gpus"]
    gpus |= {"effective": gpus["active"] * 0.75, "ineffective": gpus["active"] * 0.25}
    active, effective = overview["funnel"][2:]
    effective |= {name: active[name] * 0.75 for name in ("gpus", "gpu_hours")}
    effective["cost_micros"] = active["cost_micros"] * 3 // 4
    route.fulfill(response=answer, json=overview)


@pytest.mark.parametrize(
    ("options", "word", "note"),
    [
        ({}, "effective, at most", "an upper bound, not MFU"),
        ({"color_scheme": "dark", "locale": "zh-CN", "size": PHONE}, "有效（上限）", "是上限，不是 MFU"),
    ],
    ids=["desktop", "phone"],
)
def test_the_overview_shows_what_is_left_of_all_gpus_down_to_effective_work(
    browser: Browser, demo: Program, options: dict[str, Any], word: str, note: str
):
    with visit(browser, demo.url, **options) as visitor:
        visitor.page.route("**/api/v1/overview?*", find_ineffective)
        page = visitor.open()
        numbers = page.locator(".funnel-gpus")
        expect(numbers).to_have_count(4)
        expect(page.locator(".funnel dt").last).to_have_text(word)
        expect(page.locator(".funnel p")).to_contain_text(note)
        total, allocated, active, effective = (int(each) for each in numbers.all_inner_texts())
        assert total == 208
        assert total > allocated > active > effective == pytest.approx(active * 0.75, abs=1)
        widths = page.locator(".funnel-track i").evaluate_all("all => all.map((each) => each.clientWidth)")
        assert widths == sorted(widths, reverse=True)
        assert len({*widths}) == 4
        assert visitor.find_barriers() == []


def test_pages_are_reached_with_the_keyboard(browser: Browser, demo: Program):
    with visit(browser, demo.url) as visitor:
        page = visitor.open()
        page.keyboard.press("g")
        page.keyboard.press("t")
        expect(page.locator("h1")).to_contain_text("on idle GPUs")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.keyboard.press("/")
        expect(page.get_by_role("combobox", name="Search")).to_be_focused()


def test_times_are_in_the_zone_of_the_viewer_with_utc_on_hover(browser: Browser, demo: Program):
    with visit(browser, demo.url, timezone_id="Asia/Shanghai") as visitor:
        page = visitor.open("#/sources")
        time = page.locator("dd time").last
        shown, utc = time.inner_text(), str(time.get_attribute("title"))
        assert utc.endswith(" UTC")
        hour = int(re.findall(r"(\d\d):\d\d:\d\d", shown)[0])
        assert (hour - int(utc[11:13])) % 24 == 8


def test_the_teams_page_has_the_numbers_of_the_report_and_its_downloads(browser: Browser, demo: Program):
    with visit(browser, demo.url) as visitor:
        page = visitor.open("#/teams")
        report = demo.get("/api/v1/reports?since=7d&by=namespace&format=json")
        worst = report["groups"][0]
        row = page.get_by_role("row").filter(has_text=worst["name"]).first
        expect(row).to_contain_text(f"{worst['amounts']['allocated_gpu_ms'] / 3_600_000:,.0f}")
        row.get_by_role("link").first.click()
        expect(page.locator(".teams-title")).to_have_text(worst["name"])
        assert f"group={worst['name']}" in page.url
        page.get_by_role("button", name="team", exact=True).click()
        expect(page.get_by_role("cell", name="language").first).to_be_visible()
        page.get_by_role("button", name="Download").click()
        with page.expect_download() as csv:
            page.get_by_role("menuitem", name="CSV").first.click()
        assert csv.value.suggested_filename == "gpusteward-team.csv"
        assert "allocated_gpu_ms" in csv.value.path().read_text()


def test_the_teams_page_has_the_ineffective_part_where_there_is_one(browser: Browser, demo: Program):
    def find_some(route: Route) -> None:
        answer = route.fetch()
        report = answer.json()
        total = report["total"]
        total |= {"effective_gpu_ms": 12_000 * 3_600_000, "ineffective_gpu_ms": 3_600_000}
        total["ineffective_cost_micros"] = 2_500_000_000
        route.fulfill(response=answer, json=report)

    with visit(browser, demo.url) as visitor:
        visitor.page.route("**/api/v1/reports?*", find_some)
        page = visitor.open("#/teams")
        facts = page.locator(".teams-facts")
        expect(facts).to_contain_text("Effective, at most12,000")
        expect(facts).to_contain_text("Ineffective2,500 USD")
        assert visitor.find_barriers() == []


def test_the_period_of_the_teams_page_is_days_months_or_dates(browser: Browser, demo: Program):
    with visit(browser, demo.url) as visitor:
        page = visitor.open("#/teams?days=14")
        expect(page.locator(".teams-sub")).to_contain_text("in the last 14 days")
        page.get_by_role("button", name="Period: Last 14 days").click()
        page.get_by_role("menuitemradio", name="From").click()
        first, last = page.get_by_label("From"), page.get_by_label("To", exact=True)
        last.fill(first.input_value())
        page.get_by_role("button", name="Show").click()
        assert "period=dates" in page.url
        visitor.settle()
        expect(page.get_by_role("button", name="Period:")).to_contain_text("–")


def test_the_wall_has_no_controls_fits_the_screen_and_escape_leads_back(browser: Browser, demo: Program):
    with visit(browser, demo.url, size=WALL) as visitor:
        page = visitor.open("#/wall?theme=dark")
        assert page.locator("button:visible, a:visible, input:visible").count() == 0
        assert page.evaluate("document.documentElement.scrollHeight") <= WALL[1]
        assert page.get_attribute("html", "data-theme") == "dark"
        cut = """() => [...document.querySelectorAll('.wall-list li')].filter((row) =>
            row.getBoundingClientRect().bottom > row.parentElement.getBoundingClientRect().bottom + 1).length"""
        assert page.evaluate(cut) == 0
        page.keyboard.press("Escape")
        expect(page.get_by_role("navigation")).to_be_visible()
        assert page.get_attribute("html", "data-theme") is None


def test_a_node_has_its_readings_its_mig_layout_to_scale_and_its_holders(browser: Browser, demo: Program):
    with visit(browser, demo.url) as visitor:
        page = visitor.open("#/nodes?q=mig")
        mig = [each["node"] for each in demo.get("/api/v1/nodes")["items"] if "mig" in each["shares"]]
        expect(page.locator(".nodes-table tbody tr")).to_have_count(len(mig))
        page.get_by_role("link", name="a100-80gb-003").click()
        gpu = page.locator(".gpu").first
        expect(gpu).to_contain_text("NVIDIA A100-SXM4-80GB")
        expect(gpu.locator(".readings")).to_contain_text("Temperature")
        expect(gpu.locator(".readings")).to_contain_text("Power")
        layout = """(slots) => slots.map((slot) =>
            [slot.innerText, Math.round(slot.offsetWidth * 70 / slot.parentElement.offsetWidth)])"""
        assert gpu.locator(".mig-slot").evaluate_all(layout)[:2] == [["3g.40gb", 30], ["2g.20gb", 20]]
        holder = gpu.locator(".holders a").first
        name = holder.inner_text()
        holder.click()
        expect(page.get_by_role("heading", name=name.rpartition("/")[2])).to_be_visible()


def test_the_page_of_sources_has_every_exporter(browser: Browser, demo: Program):
    with visit(browser, demo.url) as visitor:
        page = visitor.open("#/sources?tab=targets")
        assert page.locator("tbody tr").count() == 42
        states = demo.get("/api/v1/sources")["states"]
        page.get_by_role("searchbox", name="Search exporters").fill("h100")
        expect(page.locator("tbody tr")).to_have_count(sum("h100" in each["target"] for each in states))
        page.get_by_label("Only failing").check()
        expect(page.get_by_text("No exporter matches.")).to_be_visible()


@pytest.mark.parametrize(("locale", "text"), [("en-US", "used by {}"), ("zh-CN", "由 {} 使用")])
def test_the_page_of_a_holder_names_the_pod_that_uses_its_gpu(
    visitors: Visitors, demo: Program, locale: str, text: str
):
    [pair] = [each for each in demo.get("/api/v1/allocations?limit=1000")["items"] if each["used_by"]]
    holder = pair["workload"]
    page = visitors(locale=locale).open(f"#/workloads/{holder['kind']}/{holder['namespace']}/{holder['name']}")
    for section in ("GPU", "VLLM::EngineCore"):  # its GPUs, and the processes on them
        table = page.locator(".detail-table").filter(has_text=section).first
        expect(table).to_contain_text(text.format(pair["used_by"]))
    page.goto("about:blank")
