"""Sites that differ from the demo: two clusters, no ledger, no prices with a channel that refuses messages."""

import os
import re
import sys
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from gpusteward.analyzer.api.http.static_files import UiBundle
from tests.fakes.receivers import Receiver
from tests.local.processes import Program, running_command
from tests.waiting import wait_until
from tests.web import two_clusters as program
from tests.web.browser import WALL, Visitor, visit
from tests.web.conftest import TOKENS, start_demo
from tests.web.test_people import sign_in

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ADDRESSES = (
    *("#/", "#/workloads", "#/teams", "#/teams?by=user", "#/nodes", "#/actions", "#/actions?part=done", "#/policies"),
    *("#/sources", "#/sources?tab=targets", "#/sources?tab=deliveries", "#/wall", "#/sign-in"),
)
NOT_MEASURED = re.compile(r"NaN|undefined|\bnull\b|Infinity|Invalid Date|\[object")
MONEY = re.compile(r"USD|\$|\b0\.00\b")
ROW_NAMES = "(names) => names.map((name) => name.innerText)"


def names_in(page: Page, selector: str) -> list[str]:
    return list(page.locator(selector).evaluate_all(ROW_NAMES))


def clusters_in(page: Page, selector: str) -> set[str]:
    return {name.partition("/")[0].strip() for name in names_in(page, selector)}


def check_words(visitor: Visitor, address: str, *forbidden: re.Pattern[str]) -> Page:
    """A page has a title, no failed panel, and none of these words."""
    page = visitor.open(address)
    expect(page.locator("h1").first).not_to_be_empty()
    assert page.locator(".state-error").count() == 0, page.locator(".state-error").all_inner_texts()
    text = page.evaluate("document.body.innerText")
    for pattern in forbidden:
        assert not pattern.search(text), f"{address}: {pattern.findall(text)}"
    return page


# Two clusters with workloads, nodes and GPUs of the same names.


@pytest.fixture(scope="module")
def two_clusters(bundle: UiBundle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("clusters")
    command = [sys.executable, "-m", program.__name__, str(folder)]
    environment = {**os.environ, "TMPDIR": str(folder), "HOME": str(folder)}
    with (folder / "log").open("w") as log, running_command(command, env=environment, stderr=log) as started:
        started.wait_for_address(120)
        started.wait_for("/api/v1/workloads", 60)
        yield started


def test_a_cluster_is_chosen_for_all_pages(browser: Browser, two_clusters: Program):
    every = two_clusters.get("/api/v1/overview")["gpus"]
    east, west = (two_clusters.get(f"/api/v1/overview?cluster={name}")["gpus"] for name in program.CLUSTERS)
    assert east == west
    assert every["idle"] == pytest.approx(2 * west["idle"]), "nothing is merged"
    with visit(browser, two_clusters.url) as visitor:
        page = visitor.open()
        expect(page.locator("h1 em")).to_have_text(str(round(every["idle"])))
        page.get_by_role("button", name="Cluster: All clusters").click()
        page.get_by_role("menuitemradio", name="west").click()
        assert "cluster=west" in page.url
        expect(page.locator("h1 em")).to_have_text(str(round(west["idle"])))
        page.get_by_role("link", name="Nodes").click()
        expect(page.locator(".nodes-table tbody tr")).to_have_count(program.NODES)
        page.get_by_role("link", name="Teams").click()
        page.locator(".teams-table tbody tr").first.wait_for()
        names = names_in(page, ".teams-name a")
        assert len(set(names)) == len(names) == len({name.rpartition("/")[2] for name in names})


def test_every_list_names_the_cluster_and_keeps_equal_names_apart(browser: Browser, two_clusters: Program):
    total = two_clusters.get("/api/v1/workloads?limit=1")["total"]
    with visit(browser, two_clusters.url) as visitor:
        page = visitor.open()
        assert clusters_in(page, ".top-table .workload-link") == {"east", "west"}
        assert clusters_in(page, ".waste-name") == {"east", "west"}
        page = visitor.open("#/nodes")
        nodes = names_in(page, ".nodes-name a")
        assert len(set(nodes)) == 2 * program.NODES
        assert {name.partition("/")[0] for name in nodes} == {"east", "west"}
        page = visitor.open("#/workloads")
        expect(page.locator(".grid-footer")).to_contain_text(str(total))
        names = names_in(page, ".grid-row .workload-link")
        assert {name.partition("/")[0] for name in names} == {"east", "west"}
        page.locator(".grid-row .workload-link").first.click()
        cluster, _, rest = names[0].partition("/")
        expect(page.locator(".detail-path")).to_contain_text(cluster)
        expect(page.get_by_role("heading", name=rest.rpartition("/")[2])).to_be_visible()
        assert visitor.find_barriers() == []


def test_a_node_of_a_name_that_both_clusters_have_opens_with_its_own_gpus(browser: Browser, two_clusters: Program):
    node = two_clusters.get("/api/v1/nodes?cluster=west")["items"][0]
    with visit(browser, two_clusters.url) as visitor:
        page = visitor.open("#/nodes")
        page.get_by_role("link", name=f"west/{node['node']}").click()
        visitor.settle()
        expect(page.locator(".nodes-detail")).to_contain_text(node["node"])
        assert page.locator(".nodes-detail .gpu").count() == node["gpus"]
        links = page.locator(".nodes-detail .holders a").evaluate_all("(all) => all.map((each) => each.hash)")
        assert links
        assert all(link.startswith("#/workloads/west/") for link in links)


def test_the_wall_names_clusters_too(browser: Browser, two_clusters: Program):
    with visit(browser, two_clusters.url, size=WALL) as visitor:
        page = visitor.open("#/wall")
        expect(page.locator(".wall-name .workload-name").first).to_contain_text(re.compile("^(east|west)/"))


# Groups by a label of pods.


def test_teams_are_grouped_by_a_recorded_label_and_downloaded_so(browser: Browser, two_clusters: Program):
    by = f"label:{program.LABEL}"
    report = two_clusters.get(f"/api/v1/reports?since=7d&by={by}&format=json&cluster=east")
    hours = {group["name"]: group["amounts"]["allocated_gpu_ms"] / 3_600_000 for group in report["groups"]}
    assert {"cc-100", "cc-200", ""} <= hours.keys()
    with visit(browser, two_clusters.url) as visitor:
        page = visitor.open("#/teams?cluster=east")
        page.get_by_role("button", name=program.LABEL, exact=True).click()
        visitor.settle()
        assert parse_qs(urlsplit(page.url.partition("#")[2]).query)["by"] == [by]
        expect(page.locator(".teams-table thead th").first).to_contain_text(program.LABEL)
        row = page.locator(".teams-table tbody tr").filter(has_text="cc-100")
        expect(row).to_contain_text(f"{hours['cc-100']:,.0f}")
        expect(page.locator(".teams-table")).to_contain_text("without this label")
        row.get_by_role("link").first.click()
        expect(page.locator(".teams-title")).to_contain_text("cc-100")
        panel = page.locator(".teams-detail")
        expect(panel.locator(".teams-facts")).to_contain_text(f"{hours['cc-100']:,.0f}")
        spaces = {name.split("/")[0] for name in names_in(page, ".teams-detail .workload-link")}
        assert spaces
        assert all(program.COST_CENTERS.get(space) == "cc-100" for space in spaces)
        page.get_by_role("button", name="Download").click()
        links = page.get_by_role("menuitem").evaluate_all("(all) => all.map((each) => each.href)")
        queries = [parse_qs(urlsplit(link).query) for link in links]
        assert [query["by"] for query in queries] == [[by]] * 3
        with page.expect_download() as csv:
            page.get_by_role("menuitem", name="This table (CSV)").click()
        text = csv.value.path().read_text()
        assert "cc-100" in text
        assert "cc-200" in text


# Without a ledger.


@pytest.fixture(scope="module")
def no_ledger(bundle: UiBundle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("no-ledger")
    yield from start_demo(folder, "--nodes", "4", "--set", "ledger.enabled=false", "--set", "reclaim.mode=off")


def test_without_a_ledger_every_page_says_what_is_missing_and_none_fails(browser: Browser, no_ledger: Program):
    with visit(browser, no_ledger.url) as visitor:
        for address in ADDRESSES:
            check_words(visitor, address, NOT_MEASURED)
        page = visitor.open()
        expect(page.locator("h1")).to_contain_text("held and idle")
        expect(page.locator(".problems")).to_contain_text("ledger.enabled")
        expect(page.locator(".top-table")).to_contain_text("USD so far")
        for address in ("#/teams", "#/policies"):
            expect(visitor.open(address).locator("h1")).to_contain_text("the ledger")
            expect(visitor.page.locator("main")).to_contain_text("ledger.enabled")


def test_without_a_ledger_a_workload_has_its_verdict_and_no_history(browser: Browser, no_ledger: Program):
    with visit(browser, no_ledger.url) as visitor:
        page = visitor.open("#/workloads")
        page.locator(".grid-row").first.click()
        visitor.settle()
        expect(page.locator(".detail .facts")).to_contain_text("Idle for")
        assert page.locator(".state-error").count() == 0
        assert not NOT_MEASURED.search(page.inner_text("main"))


# Without prices, and with a channel whose receiver refuses every message until it is told otherwise.


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as started:
        started.fault = "400"
        yield started


GIVEN_UP_SECONDS = 120
"""A receiver that rejects a message is asked five times, with growing waits."""


@pytest.fixture(scope="module")
def no_prices(bundle: UiBundle, receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    values = (
        *("prices.per_gpu_hour={}", "prices.discount_percent={}", "prices.electricity_per_kwh=0"),
        f'notify.channels={{"ops": "{receiver.url}/services/T0/B0/ops"}}',
        *("notify.idle_minutes=5", "reclaim.mode=observe"),
    )
    flags = [word for value in values for word in ("--set", value)]
    yield from start_demo(tmp_path_factory.mktemp("no-prices"), "--nodes", "4", *flags)


def test_without_prices_every_page_counts_gpu_hours_and_shows_no_money(browser: Browser, no_prices: Program):
    with visit(browser, no_prices.url) as visitor:
        for address in ADDRESSES:
            check_words(visitor, address, NOT_MEASURED, MONEY)
        page = visitor.open()
        expect(page.locator(".headline-cost")).to_contain_text("GPU-hours")
        hours = [float(text.replace(",", "")) for text in page.locator(".top-cost strong").all_inner_texts()]
        assert hours == sorted(hours, reverse=True)
        assert hours[0] > 0
        expect(visitor.open("#/teams").locator("h1")).to_contain_text("GPU-hours")
        page = visitor.open("#/workloads")
        page.locator(".grid-row").first.click()
        visitor.settle()
        expect(page.locator(".detail .facts")).to_contain_text("Idle GPU-hours")
        assert not MONEY.search(page.inner_text("main"))


def test_a_dead_delivery_is_shown_to_a_viewer_who_cannot_retry_it(browser: Browser, no_prices: Program):
    wait_until(lambda: bool(no_prices.get("/api/v1/deliveries?state=dead")["items"]), GIVEN_UP_SECONDS)
    with visit(browser, no_prices.url) as visitor:
        page = visitor.open("#/sources?tab=deliveries&state=dead")
        row = page.locator("tbody tr").first
        expect(row).to_contain_text("HTTP 400")
        expect(row).to_contain_text("ops")
        expect(page.get_by_text("needs the role operator")).to_be_visible()
        expect(row.get_by_role("button", name="Retry")).to_be_disabled()
        assert visitor.find_barriers() == []


def test_an_operator_retries_a_dead_delivery_and_it_arrives(browser: Browser, no_prices: Program, receiver: Receiver):
    wait_until(lambda: bool(no_prices.get("/api/v1/deliveries?state=dead")["items"]), GIVEN_UP_SECONDS)
    receiver.fault = ""
    dead = [each["id"] for each in no_prices.get("/api/v1/deliveries?state=dead")["items"]]
    with visit(browser, no_prices.url) as visitor:
        sign_in(visitor, TOKENS["operator"])
        visitor.page.locator("h1").wait_for()
        page = visitor.open("#/sources?tab=deliveries&state=dead")
        expect(page.locator("tbody tr")).to_have_count(len(dead))
        page.get_by_role("button", name="Retry").first.click()
        expect(page.get_by_text(f"Delivery {dead[0]} will be tried again.")).to_be_visible()
        expect(page.locator("tbody tr")).to_have_count(len(dead) - 1)
        receiver.wait_for(lambda it: bool(it.accepted))
        wait_until(lambda: dead[0] in [each["id"] for each in no_prices.get("/api/v1/deliveries?state=done")["items"]])
        page = visitor.open("#/sources?tab=deliveries&state=done")
        expect(page.locator("tbody tr").filter(has_text="delivered").first).to_be_visible()
