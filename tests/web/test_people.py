"""Who may see and do what: sign-in, roles, an identity from a proxy, a base path, and from a search to a snooze."""

import pytest
from playwright.sync_api import Browser, expect

from tests.local.processes import Program
from tests.web.browser import Visitor, visit
from tests.web.conftest import PROXY_ADDRESS, TOKENS
from tests.web.reverse_proxy import running_proxy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def sign_in(visitor: Visitor, token: str) -> None:
    page = visitor.open("#/sign-in")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()


def as_person(user: str) -> dict[str, str]:
    return {"X-Forwarded-User": user}


def test_a_token_becomes_a_cookie_that_scripts_cannot_read(browser: Browser, demo: Program):
    with visit(browser, demo.url) as visitor:
        sign_in(visitor, TOKENS["operator"])
        page = visitor.page
        expect(page.locator("h1")).to_contain_text("GPUs are held and idle")
        (cookie,) = page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert TOKENS["operator"] not in page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
        assert page.evaluate("document.cookie") == ""
        page = visitor.open("#/sign-in")
        expect(page.get_by_text("operator: also notifies")).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="You are not signed in")).to_be_visible()
        assert page.context.cookies() == []


def test_an_unknown_token_is_refused_with_the_reason(browser: Browser, demo: Program):
    with visit(browser, demo.url, expect_failures=True) as visitor:
        sign_in(visitor, "nonsense")
        expect(visitor.page.get_by_role("alert")).to_contain_text("token")
        assert visitor.page.context.cookies() == []


def test_a_viewer_reads_and_cannot_act(browser: Browser, demo: Program):
    with visit(browser, demo.url) as visitor:
        sign_in(visitor, TOKENS["viewer"])
        visitor.page.get_by_role("heading", name="GPUs are held and idle").wait_for()
        session = visitor.page.evaluate("fetch('../api/v1/session').then((response) => response.json())")
        assert (session["role"], session["may_operate"]) == ("viewer", False)


def test_from_a_search_to_a_workload_to_a_snooze(browser: Browser, demo: Program):
    with visit(browser, demo.url) as visitor:
        sign_in(visitor, TOKENS["operator"])
        page = visitor.page
        page.get_by_role("heading", name="GPUs are held and idle").wait_for()
        page.keyboard.press("/")
        page.keyboard.type("debug-shell")
        page.keyboard.press("Enter")
        page.locator(".grid-row").first.wait_for()
        assert all("debug-shell" in each for each in page.locator(".grid-row").all_inner_texts())
        page.locator(".grid-row").first.click()
        page.get_by_role("button", name="Snooze…").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("button", name="Snooze")).to_be_disabled()
        dialog.get_by_label("Reason").fill("debugging with the vendor")
        dialog.get_by_role("button", name="Snooze").click()
        expect(page.get_by_role("button", name="End snooze")).to_be_visible()
        expect(page.get_by_text("debugging with the vendor").first).to_be_visible()
        page.get_by_role("button", name="End snooze").click()
        expect(page.get_by_role("button", name="Snooze…")).to_be_visible()


def test_a_viewer_cannot_snooze_and_is_told_why(browser: Browser, demo: Program):
    with visit(browser, demo.url) as visitor:
        page = visitor.open("#/workloads")
        page.locator(".grid-row").first.click()
        expect(page.get_by_role("button", name="Snooze…")).to_be_disabled()
        expect(page.get_by_text("need the role operator; yours is viewer")).to_be_visible()


def test_settings_are_for_operators_and_show_where_they_come_from(browser: Browser, demo: Program):
    with visit(browser, demo.url, expect_failures=True) as visitor:
        page = visitor.open("#/sources?tab=settings")
        expect(page.locator(".state-forbidden")).to_be_visible()
        sign_in(visitor, TOKENS["operator"])
        page.locator("h1").wait_for()
        page = visitor.open("#/sources?tab=settings&changed=1")
        row = page.get_by_role("row").filter(has_text="auth.proxy.addresses")
        expect(row).to_contain_text(PROXY_ADDRESS)
        expect(row).to_contain_text("--set")
        assert TOKENS["operator"] not in page.inner_text("body")


def test_a_person_from_the_proxy_is_signed_in_and_sees_the_own_namespace_only(browser: Browser, demo: Program):
    with (
        running_proxy(demo.url, identity=as_person("lead"), source_address=PROXY_ADDRESS) as proxy,
        visit(browser, proxy.url, expect_failures=True) as visitor,
    ):
        page = visitor.open("#/teams")
        expect(page.locator("h1")).to_contain_text("vision")
        assert page.locator(".teams-table tbody tr").count() == 1
        page = visitor.open("#/workloads")
        names = page.locator(".grid-row .secondary:first-child").all_inner_texts()
        assert {each for each in names if each.endswith("/")} == {"vision/"}
        page = visitor.open("#/sources?tab=targets")
        expect(page.locator(".state-forbidden")).to_be_visible()
        page = visitor.open("#/sign-in")
        expect(page.get_by_role("heading", name="You are signed in as lead")).to_be_visible()
        expect(page.get_by_text("vision", exact=True)).to_be_visible()


def test_somebody_whom_the_proxy_does_not_name_must_sign_in_on_every_page(browser: Browser, demo: Program):
    with (
        running_proxy(demo.url, source_address=PROXY_ADDRESS) as proxy,
        visit(browser, proxy.url, expect_failures=True) as visitor,
    ):
        page = visitor.open("#/teams")
        expect(page.get_by_role("heading", name="Sign in to gpusteward")).to_be_visible()
        page.get_by_label("Token").fill(TOKENS["viewer"])
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("h1")).to_contain_text("on idle GPUs")
        assert "#/teams" in page.url


@pytest.mark.parametrize("address", ["#/", "#/workloads", "#/teams", "#/nodes", "#/sources", "#/wall"])
def test_everything_works_below_a_base_path(browser: Browser, demo: Program, address: str):
    with running_proxy(demo.url, prefix="/gpu/steward") as proxy, visit(browser, proxy.url) as visitor:
        page = visitor.open(address)
        assert page.locator(".state-error, .page-note").count() == 0
        paths = page.evaluate("performance.getEntriesByType('resource').map((each) => new URL(each.name).pathname)")
        assert len(paths) > 4
        assert all(path.startswith("/gpu/steward/") for path in paths)


def test_the_first_page_is_reached_from_the_root_of_a_base_path(browser: Browser, demo: Program):
    with running_proxy(demo.url, prefix="/gpu") as proxy, visit(browser, proxy.url, base_path="/") as visitor:
        visitor.open()
        assert visitor.page.url == f"{proxy.url}/ui/"
