"""/ui/: the files of the web UI, and where a browser is sent."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusteward.analyzer.api.http.static_files import UiBundle
from gpusteward.analyzer.settings.settings import Settings
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import Api, running_api

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
SCRIPT = b"console.log(1);" * 100


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("static")
    (directory / "assets").mkdir()
    (directory / "index.html").write_text("<!doctype html><script type=module src=assets/app-1a2b.js></script>")
    (directory / "icon.svg").write_text("<svg/>")
    (directory / "assets" / "app-1a2b.js").write_bytes(SCRIPT)
    (directory / "assets" / "app-1a2b.js.gz").write_bytes(gzip.compress(SCRIPT))
    (directory.parent / "secret.txt").write_text("secret")
    return directory


@pytest.fixture(scope="module")
def api(bundle: Path) -> Iterator[Api]:
    closed = Settings.model_validate({"server": {"anonymous_reads": "never", "tokens": "viewer: " + "v" * 20}})
    with running_api(small_result(), ui=UiBundle(bundle), settings=closed) as running:
        yield running


def test_never_serves_a_file_outside_the_bundle(api: Api):
    names = ("../secret.txt", "..%2fsecret.txt", "%2e%2e/secret.txt", "assets/..%2f..%2fsecret.txt", ".hidden", "")
    for name in names[:-1]:
        assert api.get(f"/ui/{name}").status == 404
    assert api.get("/ui/assets/app-1a2b.js.gz").status == 404


def test_a_browser_is_sent_to_the_ui_without_a_token_and_others_get_json(api: Api):
    response = api.get("/", Accept=BROWSER)
    assert (response.status, response.headers["location"]) == (307, "ui/")
    assert api.get("/", Accept="application/json").status == 401
    assert api.get("/", Accept="application/json", token="v" * 20).json["service"] == "GPU Utilization Monitor"


def test_the_redirect_is_relative_so_that_it_keeps_the_prefix_of_a_proxy(api: Api):
    assert api.get("/ui").headers["location"] == "ui/"


def test_the_page_is_checked_each_time_and_hashed_files_are_kept(api: Api):
    page, script, icon = api.get("/ui/"), api.get("/ui/assets/app-1a2b.js"), api.get("/ui/icon.svg")
    assert [each.status for each in (page, script, icon)] == [200, 200, 200]
    assert page.headers["cache-control"] == icon.headers["cache-control"] == "no-cache"
    assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert api.get("/ui/", If_None_Match=page.headers["etag"]).status == 304
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert icon.headers["content-type"] == "image/svg+xml"


def test_a_precompressed_file_is_sent_to_clients_that_accept_it(api: Api):
    packed = api.get("/ui/assets/app-1a2b.js", Accept_Encoding="gzip, br")
    assert (packed.headers["content-encoding"], gzip.decompress(packed.body)) == ("gzip", SCRIPT)
    plain = api.get("/ui/assets/app-1a2b.js", Accept_Encoding="gzip;q=0, identity")
    assert (plain.headers["content-encoding"], plain.body) == (None, SCRIPT)
    assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
    assert packed.headers["etag"] != plain.headers["etag"]


def test_the_policy_allows_scripts_of_this_server_only(api: Api):
    policy = api.get("/ui/").headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize(("language", "word"), [("en", "not part of"), ("zh-CN", "网页界面")])
def test_without_a_bundle_the_page_says_how_to_build_it(language: str, word: str):
    with running_api(small_result()) as api:
        response = api.get("/ui/", Accept_Language=language)
        assert (response.status, response.headers["cache-control"]) == (200, "no-store")
        assert word in response.body.decode()
        assert "make web" in response.body.decode()
        assert api.get("/ui/assets/app.js").status == 404
        assert api.get("/", Accept=BROWSER).status == 200


def test_a_new_build_is_served_at_once(tmp_path: Path):
    bundle, index = UiBundle(tmp_path), tmp_path / "index.html"
    assert (bundle.is_built, bundle.read("index.html")) == (False, None)
    index.write_text("one")
    first = bundle.read("index.html")
    index.write_text("other")
    second = bundle.read("index.html")
    assert first is not None
    assert second is not None
    assert (first.body, second.body, first.etag == second.etag) == (b"one", b"other", False)
