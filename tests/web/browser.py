"""Pages in Debian's Chromium, driven by Playwright. Every page reports what must never happen on any of them.

with open_browser(path) as browser:
    with visit(browser, url) as visitor:
        visitor.open("#/teams")
        visitor.page.get_by_role("heading", name="GPUs").wait_for()
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page, Request, expect, sync_playwright

from tests.documents import ROOT

OFF_IN_PLAYWRIGHT = (
    *("AimEnabled", "AvoidCorsURLLoaderRestartOnRedirect", "AvoidUnnecessaryBeforeUnloadCheckSync"),
    *("DestroyProfileOnBrowserClose", "HttpsFirstBalancedModeAutoEnable", "HttpsUpgrades", "LensOverlay"),
    *("MediaRouter", "NetworkTimeServiceQuerying", "OptimizationHints", "PaintHolding", "PreconnectToSearch"),
    *("TcpPortRandomizationWin", "ThirdPartyStoragePartitioning"),
)
"""Features that Playwright turns off by itself; of several such flags Chromium reads the last."""
ADDRESS_BAR = ("WebUIOmniboxPopup", "WebUIOmniboxAimPopup")
"""Pages of their own for the address bar of every window, which nobody sees: they double the cost of a visit."""
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
    f"--disable-features={','.join((*OFF_IN_PLAYWRIGHT, *ADDRESS_BAR))}",
)
DESKTOP, PHONE, WALL = (1480, 1000), (390, 844), (1920, 1080)
WAIT_MS = 30_000
"""Much longer than anything takes: the machine may be busy."""
AXE = ROOT / "web/node_modules/axe-core/axe.min.js"

expect.set_options(timeout=WAIT_MS)

_WATCH_POLICY = """
globalThis.policyViolations = [];
addEventListener("securitypolicyviolation", (event) =>
  policyViolations.push(`${event.effectiveDirective} ${event.blockedURI}`));
"""


@dataclass
class Visitor:
    """One person with one page. `failures`: errors of scripts and the console, and requests to other sites."""

    page: Page
    base: str
    failures: list[str] = field(default_factory=list)

    def open(self, address: str = "", *, wait: str = "main") -> Page:
        """A view by its hash, such as `#/teams`; ready when the page has read its data."""
        self.page.goto(self.base + address)
        self.page.locator(wait).first.wait_for()
        self.settle()
        return self.page

    def settle(self) -> None:
        """Until no panel is loading."""
        self.page.wait_for_function(
            "() => document.querySelector('main') && !document.querySelector('.state-loading, .page-loading')"
        )

    def until(self, script: str, *arguments: object) -> None:
        """Until a condition in the page is true."""
        self.page.wait_for_function(script, arg=list(arguments))

    def find_violations(self) -> list[str]:
        """Of the content security policy."""
        return list(self.page.evaluate("() => globalThis.policyViolations"))

    def find_barriers(self) -> list[str]:
        """What axe finds serious or critical. Its script runs through the protocol of the browser, so that the content
        policy of the page stays in force."""
        protocol = self.page.context.new_cdp_session(self.page)
        protocol.send("Runtime.evaluate", {"expression": AXE.read_text(encoding="utf-8")})
        run = "axe.run(document, {resultTypes: ['violations']}).then((found) => JSON.stringify(found.violations))"
        answer = protocol.send("Runtime.evaluate", {"expression": run, "awaitPromise": True, "returnByValue": True})
        protocol.detach()
        found = json.loads(answer["result"]["value"])
        return [
            f"{each['id']}: {each['help']}: {[node['target'] for node in each['nodes'][:3]]}"
            for each in found
            if each["impact"] in ("serious", "critical")
        ]


@contextmanager
def open_browser(executable: str) -> Iterator[Browser]:
    """Close it before another test of the same process needs an event loop: Playwright keeps one running."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visit(
    browser: Browser,
    url: str,
    *,
    size: tuple[int, int] = DESKTOP,
    expect_failures: bool = False,
    base_path: str = "/ui/",
    **options: Any,
) -> Iterator[Visitor]:
    """A new person on the site. Fails at the end if anything failed in the page, unless that is expected."""
    width, height = size
    options = {"locale": "en-US", "timezone_id": "UTC", "color_scheme": "light", **options}
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    context.set_default_timeout(WAIT_MS)
    context.add_init_script(_WATCH_POLICY)
    page = context.new_page()
    visitor = Visitor(page, url + base_path)
    _watch(context, visitor, url)
    try:
        yield visitor
        violations = visitor.find_violations()
    finally:
        context.close()
    assert not violations, violations
    assert expect_failures or not visitor.failures, visitor.failures


def _watch(context: BrowserContext, visitor: Visitor, url: str) -> None:
    note = visitor.failures.append
    visitor.page.on("pageerror", lambda error: note(f"script: {error}"))
    visitor.page.on("console", lambda message: note(f"console: {message.text}") if message.type == "error" else None)
    context.on("request", _refuse_others(urlsplit(url).netloc, note))


def _refuse_others(site: str, note: Callable[[str], None]) -> Callable[[Request], None]:
    def check(request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme not in ("data", "blob") and address.netloc != site:
            note(f"request to another site: {request.url}")

    return check
