"""The pictures of the documentation are pages of the demo. `GPUSTEWARD_WRITE_PICTURES=1` writes them anew."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.documents import ROOT
from tests.local.processes import Program
from tests.web.browser import DESKTOP, WALL, visit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

IMAGES = ROOT / "docs/images"
WRITES = os.environ.get("GPUSTEWARD_WRITE_PICTURES") == "1"
PICTURES = {
    "web-overview": ("#/", "light", (1480, 1230)),
    "web-workload": ("#/workloads", "light", DESKTOP),
    "web-teams": ("#/teams?group=vision", "light", DESKTOP),
    "web-nodes": ("#/nodes?node=a100-80gb-003", "dark", DESKTOP),
    "web-actions": ("#/actions", "light", DESKTOP),
    "web-policies": ("#/policies", "light", DESKTOP),
    "web-sources": ("#/sources", "light", DESKTOP),
    "web-sign-in": ("#/sign-in", "light", (1000, 760)),
    "web-wall": ("#/wall", "dark", WALL),
}
MIN_BYTES = 15_000


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_shows_a_page_of_the_demo(browser: Browser, demo: Program, tmp_path: Path, name: str):
    address, theme, size = PICTURES[name]
    path = (IMAGES if WRITES else tmp_path) / f"{name}.png"
    with visit(browser, demo.url, size=size, color_scheme=theme) as visitor:
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
