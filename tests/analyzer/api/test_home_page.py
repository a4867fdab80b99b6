"""The page at `/`: for browsers only, with links that work."""

import re
from html import unescape

import pytest

from gpusteward.analyzer.api.compat.config import send_home_page
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import running_api

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


def links(page: str) -> list[str]:
    return [unescape(path) for path in re.findall(r'<a href="([^"]+)"', page)]


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (BROWSER, "text/html"),
        ("*/*", "application/json"),
        ("", "application/json"),
        ("application/json", "application/json"),
        ("application/json, text/html", "application/json"),
    ],
)
def test_browsers_get_a_page_and_other_clients_json(accept: str, content_type: str):
    with running_api(small_result()) as api:
        response = api.get("/", Accept=accept)
    assert response.status == 200
    assert response.headers.get_content_type() == content_type
    if content_type == "application/json":
        assert response.json["service"] == "GPU Utilization Monitor"


def test_the_page_loads_nothing_from_elsewhere_and_has_the_security_headers():
    with running_api(small_result()) as api:
        response = api.get("/", Accept=BROWSER)
    page = response.body.decode()
    assert not re.search(r"<script|<img|(?:href|src)=\"(?:https?:)?//", page)
    assert response.headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'self'")
    assert response.headers["X-Frame-Options"] == "DENY"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Vary"] == "Accept, Accept-Language"


@pytest.mark.parametrize(("language", "word"), [("zh-CN,zh;q=0.9,en;q=0.8", "集群"), ("en-US,en;q=0.9", "workload")])
def test_its_language_is_that_of_the_browser(language: str, word: str):
    with running_api(small_result()) as api:
        page = api.get("/", Accept=BROWSER, Accept_Language=language).body.decode()
    assert word in page
    assert f"language={language[:2]}" in unescape(page)


def test_every_link_works():
    with running_api(small_result()) as api:
        paths = links(api.get("/", Accept=BROWSER).body.decode())
        assert len(paths) > 5
        assert {path: api.get(f"/{path}").status for path in paths} == dict.fromkeys(paths, 200)
        assert api.get("/docs/docs.css").status == 200


def test_the_name_of_the_host_is_escaped():
    assert "<b>" not in send_home_page("en", url="http://<b>").body.decode()
