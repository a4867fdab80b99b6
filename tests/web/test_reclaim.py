"""Actions and Policies in a browser, on the demo in mode enforce: warning, snooze, suspend, restore, the switch."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from gpusteward.analyzer.api.http.static_files import UiBundle
from gpusteward.analyzer.reclaim.decisions.guards import GUARDS
from tests.local.processes import Program
from tests.waiting import wait_until
from tests.web.browser import PHONE, visit
from tests.web.conftest import TOKENS, start_demo
from tests.web.test_people import sign_in

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

QUICK = ("scrape.interval=10", "scheduler.interval=10", "prometheus.time_window_min=2")
PLANNED = "/api/v1/plan?outcome=wait&outcome=warn&outcome=act"
ENGLISH = re.compile(r"\b(the|is|are|of|not|within|warnings?|delivered|policy|signature)\b")
LONG_MS = 360_000
"""The demo warns, waits for two minutes, and suspends one workload in each cycle."""


@pytest.fixture(scope="module")
def enforcing(bundle: UiBundle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """The demo with short cycles, once it has warned."""
    flags = [word for each in QUICK for word in ("--set", each)]
    for demo in start_demo(tmp_path_factory.mktemp("reclaim"), *flags):
        wait_until(lambda demo=demo: len(demo.get(PLANNED)["items"]) >= 3, seconds=180)
        yield demo


def test_what_is_planned_has_every_guard_and_a_snooze_stops_it(browser: Browser, enforcing: Program):
    with visit(browser, enforcing.url) as visitor:
        sign_in(visitor, TOKENS["operator"])
        visitor.page.locator("h1").wait_for()
        page = visitor.open("#/actions")
        name = page.locator(".actions-detail .actions-title").inner_text()
        expect(page.locator(".actions-detail")).to_contain_text("guards agree")
        page.get_by_text("that agree").click()
        expect(page.locator(".guard-list li").first).to_be_visible()
        assert page.locator(".guard-list li").count() == len(GUARDS)
        page.get_by_role("link", name="Open the workload").click()
        page.get_by_role("button", name="Snooze…").click()
        page.get_by_label("Reason").fill("still needed")
        page.get_by_role("dialog").get_by_role("button", name="Snooze", exact=True).click()
        expect(page.get_by_role("button", name="End snooze")).to_be_visible()
        page = visitor.open("#/actions")
        row = page.locator(".actions-table .row").filter(has_text=name)
        expect(row).to_contain_text("snoozed until", timeout=LONG_MS)
        assert visitor.find_barriers() == []


def test_a_workload_is_suspended_and_restored_and_the_saving_grows(browser: Browser, enforcing: Program):
    with visit(browser, enforcing.url) as visitor:
        sign_in(visitor, TOKENS["operator"])
        page = visitor.page
        page.locator("h1").wait_for()
        visitor.open("#/actions?part=done")
        wait_until(
            lambda: enforcing.get("/api/v1/savings")["gpus"] > 0,
            seconds=LONG_MS / 1000,
            about=lambda: enforcing.get(f"{PLANNED}&outcome=refuse"),
        )
        expect(page.locator("h1")).to_have_text(re.compile(r"\d GPUs? (is|are) given back now\."), timeout=LONG_MS)
        page.locator(".actions-table .row").first.wait_for(timeout=LONG_MS)
        restore = page.get_by_role("button", name="Restore…")
        expect(restore).to_be_visible(timeout=LONG_MS)
        page.locator(".actions-table .row a").first.click()
        name = page.locator(".actions-detail .actions-title").inner_text()
        expect(page.locator(".actions-detail")).to_contain_text("PATCH /api")
        expect(page.locator(".actions-sub")).to_contain_text("Saved")
        restore.click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("Exactly the original is put back")
        dialog.get_by_role("button", name="Restore", exact=True).click()
        expect(page.get_by_text(f"{name}: restored, waiting for ")).to_be_visible()
        page = visitor.open("#/actions?part=restored")
        expect(page.locator(".actions-table")).to_contain_text(name)
        page = visitor.open("#/")
        expect(page.locator(".headline-reclaim")).to_contain_text("Reclaim has saved", timeout=LONG_MS)
    with visit(browser, enforcing.url, locale="zh-CN") as visitor:
        panel = visitor.open("#/actions?part=restored").locator(".actions-detail")
        expect(panel.locator(".steps")).to_contain_text("警告已送达")
        panel.locator("summary").click()
        assert panel.locator(".guard-list li").count() == len(GUARDS)
        assert not ENGLISH.search(panel.inner_text())


def test_the_switch_is_for_administrators_and_stops_everything(browser: Browser, enforcing: Program):
    with visit(browser, enforcing.url) as visitor:
        sign_in(visitor, TOKENS["operator"])
        visitor.page.locator("h1").wait_for()
        page = visitor.open("#/actions")
        expect(page.get_by_role("button", name="Stop all actions…")).to_be_disabled()
        expect(page.get_by_role("button", name="Stop all actions…")).to_have_attribute(
            "title", "Stopping needs the role admin; yours is operator."
        )
    with visit(browser, enforcing.url) as visitor:
        sign_in(visitor, TOKENS["admin"])
        visitor.page.locator("h1").wait_for()
        page = visitor.open("#/actions")
        page.get_by_role("button", name="Stop all actions…").click()
        page.get_by_label("Reason").fill("an incident")
        page.get_by_role("dialog").get_by_role("button", name="Stop all actions").click()
        expect(page.locator("h1")).to_have_text("All actions are stopped.")
        expect(page.locator(".actions-sub")).to_contain_text("an incident")
        page.get_by_role("button", name="Allow actions again…").click()
        page.get_by_role("dialog").get_by_role("button", name="Allow actions").click()
        expect(page.locator("h1")).not_to_contain_text("stopped")


def test_the_replay_follows_the_slider_and_a_file_is_tried(browser: Browser, enforcing: Program):
    with visit(browser, enforcing.url, expect_failures=True) as visitor:
        page = visitor.open("#/policies")
        expect(page.locator("h1")).to_contain_text("would have given")
        slider = page.get_by_role("slider")
        slider.focus()
        page.keyboard.press("End")
        expect(page.locator(".slider output")).to_have_text("1\u00a0d")
        expect(page.locator(".compare-table")).to_contain_text("Window 1\u00a0d")
        expect(page.locator(".rules-table")).to_contain_text("demo-quick")
        expect(page.locator(".rules-panel .badge-good")).to_have_text("valid")
        expect(page.locator(".lendable-panel")).to_contain_text("until morning")
        area = page.get_by_label("Policies as YAML")
        area.fill("policies: [{name: a, windw: 1h}]")
        page.get_by_role("button", name="Replay").click()
        expect(page.get_by_role("alert")).to_contain_text("window")
        area.fill("policies: [{name: a, window: 1h, action: suspend}]")
        page.get_by_role("button", name="Replay").click()
        expect(page.locator(".compare-table")).to_contain_text("Your file")
        assert visitor.find_barriers() == []


@pytest.mark.parametrize("address", ["#/actions", "#/actions?part=done", "#/actions?part=all", "#/policies"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_both_pages_are_chinese_dark_and_fit_a_phone(browser: Browser, enforcing: Program, address: str, theme: str):
    with visit(browser, enforcing.url, locale="zh-CN", size=PHONE, color_scheme=theme) as visitor:
        page = visitor.open(address)
        expect(page.locator("h1")).to_contain_text("GPU")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        assert page.locator(".state-error").count() == 0
        assert visitor.find_barriers() == []
