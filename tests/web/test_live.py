"""The pages over an API whose result the test decides: live updates, failures, hostile names, 10,000 GPUs."""

import time
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, expect

from gpusteward.analyzer.api.http.static_files import UiBundle
from gpusteward.core.node.containers import Container, Workload
from tests.analyzer.api.server import make_result, running_api
from tests.analyzer.usage_tables import allocation, resting, table_of, working
from tests.web.browser import visit
from tests.web.fleets import SETTINGS, make_fleet
from tests.web.reverse_proxy import running_proxy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HOSTILE = '<img src=x onerror="globalThis.attacked = true">'
FIRST_ROW = """() => {
  const list = document.querySelector(".grid").getBoundingClientRect();
  const rows = [...document.querySelectorAll(".grid-row")];
  const shown = rows.filter((row) => row.getBoundingClientRect().top >= list.top + 30);
  const first = shown.sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top)[0];
  return first?.innerText.split("\\n")[0];
}"""


def test_an_update_keeps_place_selection_and_search(browser: Browser, bundle: UiBundle):
    """The new result has other verdicts of the same workloads."""
    at = time.time()
    with running_api(make_fleet(2000, at=at), ui=bundle, clock=time.time) as api, visit(browser, api.url) as visitor:
        page = visitor.open("#/workloads/-/Deployment/team-00/app-01000?q=team&sort=workload")
        page.locator(".grid").evaluate("(list) => { list.scrollTop = 20000; }")
        page.wait_for_function("() => document.querySelector('.grid').scrollTop > 19000")
        before = page.wait_for_function(FIRST_ROW).json_value()  # rows are drawn after the scroll
        shown = page.locator(".freshness").inner_text()
        # The time on the page has seconds: the next result must have another one.
        api.publish(make_fleet(2000, at=at + 2, number=2, seed=1))
        page.wait_for_function(f"() => document.querySelector('.freshness').innerText !== {shown!r}")
        visitor.settle()
        assert page.evaluate(FIRST_ROW) == before
        assert "app-01000" in page.url
        assert "q=team" in page.url
        expect(page.get_by_role("heading", name="app-01000")).to_be_visible()


def test_the_numbers_of_the_overview_follow_a_new_result(browser: Browser, bundle: UiBundle):
    at = time.time()
    busy = make_result(table_of(*[working()] * 40, at=at), settings=SETTINGS)
    idle = make_result(table_of(*[resting()] * 40, at=at + 1), settings=SETTINGS, number=2)
    with running_api(busy, ui=bundle, clock=time.time) as api, visit(browser, api.url) as visitor:
        page = visitor.open()
        expect(page.locator("h1")).to_have_text("No GPU is held and idle.")
        api.publish(idle)
        expect(page.locator("h1")).to_contain_text("40")


def test_while_the_analyzer_is_away_the_last_data_stays_and_afterwards_it_is_read_again(
    browser: Browser, bundle: UiBundle
):
    at = time.time()
    with (
        running_api(make_fleet(400, at=at), ui=bundle, clock=time.time) as api,
        running_proxy(api.url) as proxy,
        visit(browser, proxy.url, expect_failures=True) as visitor,
    ):
        page = visitor.open()
        sentence = page.locator("h1").inner_text()
        proxy.point_to("")
        page.evaluate("dispatchEvent(new Event('online'))")  # connects again, as after a broken network
        page.evaluate("location.hash = '#/?days=14'")
        expect(page.locator(".state-error").first).to_be_visible()
        page.evaluate("location.hash = '#/'")
        expect(page.locator("h1")).to_have_text(sentence)
        proxy.point_to(api.url)
        api.publish(make_result(table_of(*[resting()] * 40, at=at + 5), settings=SETTINGS, number=2))
        expect(page.locator("h1")).to_contain_text("40 GPUs are held and idle", timeout=60_000)
        page.evaluate("location.hash = '#/?days=14'")
        expect(page.locator("h1")).to_contain_text("40 GPUs are held and idle", timeout=60_000)
        assert page.locator(".state-error").count() == 0


@pytest.mark.parametrize("address", ["#/", "#/workloads", "#/wall", "#/sources"])
def test_a_name_with_markup_is_shown_as_text(browser: Browser, bundle: UiBundle, address: str):
    owner = Workload("Deployment", "team", HOSTILE)
    held = replace(
        allocation(0, owner=owner),
        container=Container("team", HOSTILE, "uid-0", HOSTILE, owner, (), None),
        node=HOSTILE,
    )
    result = make_result(table_of(resting(), allocations=[held], at=time.time()), settings=SETTINGS)
    with running_api(result, ui=bundle, clock=time.time) as api, visit(browser, api.url) as visitor:
        page = visitor.open(address)
        if address in ("#/", "#/workloads"):
            page.get_by_text(HOSTILE).first.click()
            expect(page.get_by_role("heading", name=HOSTILE)).to_be_visible()
        assert page.evaluate("globalThis.attacked") is None
        assert page.locator("img[src='x']").count() == 0


def test_a_result_of_10000_gpus_is_drawn_searched_and_opened(browser: Browser, bundle: UiBundle):
    at = time.time()
    fleet = make_fleet(10_000, at=at)
    with running_api(fleet, ui=bundle, clock=time.time) as api, visit(browser, api.url) as visitor:
        page = visitor.open()
        expect(page.locator("h1")).to_contain_text("GPUs are held and idle")
        canvas = page.locator("canvas").first
        drawn = """(canvas) => {
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          return new Set(new Uint32Array(data.buffer)).size;
        }"""
        assert canvas.evaluate(drawn) > 4, "active, idle, lines and text have colours"
        page.keyboard.press("g")
        page.keyboard.press("w")
        page.locator(".grid-row").first.wait_for()
        assert page.locator(".grid-row").count() < 120, "only rows in view are in the document"
        expect(page.locator(".grid-footer")).to_contain_text("10,000")
        page.get_by_role("searchbox").last.fill("app-07777")
        expect(page.locator(".grid-row")).to_have_count(1)
        page.locator(".grid-row").click()
        expect(page.get_by_role("heading", name="app-07777")).to_be_visible()
