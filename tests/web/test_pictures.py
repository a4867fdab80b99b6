"""The pictures of the documentation are pages of the demo. `GPUSTEWARD_WRITE_PICTURES=1` writes them anew."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.documents import ROOT
from tests.local.processes import Program
from tests.waiting import wait_until
from tests.web.browser import DESKTOP, WALL, visit
from tests.web.conftest import start_demo

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

IMAGES = ROOT / "docs/images"
WRITES = os.environ.get("GPUSTEWARD_WRITE_PICTURES") == "1"
PICTURES = {
    "web-overview": ("#/", "light", (1480, 1230)),
    "web-workload": ("#/workloads", "light", DESKTOP),
    "web-teams": ("#/teams?group=vision", "light", DESKTOP),
    "web-nodes": ("#/nodes?node=a100-80gb-003", "dark", DESKTOP),
    "web-actions": ("#/actions", "light", (1480, 740)),
    "web-policies": ("#/policies", "light", (1480, 896)),
    "web-sources": ("#/sources", "light", (1480, 920)),
    "web-sign-in": ("#/sign-in", "light", (1000, 760)),
    "web-wall": ("#/wall", "dark", WALL),
}
MIN_BYTES = 15_000
PLANNED = "/api/v1/plan?outcome=wait&outcome=warn&outcome=act"


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest) -> Iterator[Program]:
    """The demo. Pictures that are kept show it after some cycles, when workloads are warned, and no folder of tests."""
    if not WRITES:
        yield request.getfixturevalue("demo")
        return
    request.getfixturevalue("bundle")
    with tempfile.TemporaryDirectory(prefix="gpusteward-") as folder:
        for demo in start_demo(Path(folder)):
            wait_until(lambda demo=demo: len(demo.get(PLANNED)["items"]) >= 3, seconds=180)
            wait_until(lambda demo=demo: demo.get("/api/v1/health")["status"] == "healthy", seconds=180)
            yield demo


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_shows_a_page_of_the_demo(browser: Browser, site: Program, tmp_path: Path, name: str):
    address, theme, size = PICTURES[name]
    path = (IMAGES if WRITES else tmp_path) / f"{name}.png"
    with visit(browser, site.url, size=size, color_scheme=theme) as visitor:
        page = visitor.open(address)
        if name == "web-workload":
            page.locator(".grid-row").first.click()
            visitor.settle()
        page.screenshot(path=path, animations="disabled")
    assert path.stat().st_size > MIN_BYTES, "an empty page is smaller"


@pytest.mark.parametrize("page", ["docs/web.md", "docs/zh-CN/web.md"])
def test_the_page_on_the_web_ui_has_every_picture(page: str):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert all(f"images/{name}.png)" in text for name in PICTURES)
    assert all((IMAGES / f"{name}.png").exists() for name in PICTURES)


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_the_readme_has_two_of_them(page: str):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert "docs/images/web-overview.png" in text
    assert "docs/images/web-workload.png" in text
