"""The embedded source as a whole: real HTTP, targets that come and go, and the status report."""

import json
import os
import time
from contextlib import closing
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
import time_machine

from gpusteward.analyzer.active_source import ActiveSource
from gpusteward.analyzer.setting_values import SecretFile
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.usages import Measure, Stat
from gpusteward.messages import unknown_reasons
from gpusteward.messages.errors.source_errors import NO_SOURCE
from tests.analyzer.serve_process import running_serve
from tests.analyzer.sources.scrape.page_server import PageServer, serving_pages, wait_for
from tests.analyzer.sources.scrape.test_page_parser import page
from tests.analyzer.tables import of_pod

pytestmark = pytest.mark.slow

QUICK = {"interval": 1, "timeout": 2.0, "selector": ""}
ENVIRONMENT = {"PATH": os.environ["PATH"]}


def source_of(server: PageServer, *paths: str, **settings: object) -> ScrapeSource:
    targets = [server.address(path) for path in paths]
    return ScrapeSource(ScrapeSettings(**{**QUICK, "targets": targets, **settings}), window_seconds=60)


def state(source: ScrapeSource, path: str) -> dict:
    (found,) = [one for one in source.describe()["states"] if one["target"].endswith(path)]
    return found


def test_the_first_read_waits_for_every_target_and_later_reads_have_more_samples():
    pages = {"/a": page("one").encode(), "/b": page("two").encode()}
    with serving_pages(pages) as server, closing(source_of(server, "/a", "/b")) as source:
        assert {one.container.pod for one in source.read(time.time()).allocations} == {"one", "two"}
        server.pages["/a"] = page("one", core="90").encode()
        wait_for(lambda: of_pod(source.read(time.time()), "one").stats[Measure.CORE, Stat.PEAK] > 0.8)
        assert source.request_counts["ok"] >= 3
        assert source.request_counts["failed"] == 0


def test_a_failing_target_affects_no_other_and_its_reason_is_reported():
    pages = {"/good": page("one").encode(), "/hangs": None}
    with serving_pages(pages) as server, closing(source_of(server, "/good", "/hangs", "/gone", timeout=0.5)) as source:
        table = source.read(time.time())
        assert [one.container.pod for one in table.allocations] == ["one"]
        report = source.describe()
        assert (report["targets"], report["targets_up"]) == (3, 1)
        assert source.target_counts == {"up": 1, "down": 2}
        assert "within 0.5 s" in state(source, "/hangs")["error"]
        assert "404" in state(source, "/gone")["error"]
        assert state(source, "/good")["error"] == ""
        assert [one["target"][-5:] for one in report["states"]][-1] == "/good"
        assert json.dumps(report)


def test_the_clock_of_the_targets_is_the_middle_one_of_their_responses():
    ahead = {"/one": 3600.0, "/two": 7.0, "/three": 0.0, "/four": -1e9, "/silent": None}
    with serving_pages({}) as server:

        def respond(handler: BaseHTTPRequestHandler) -> bool:
            seconds, body = ahead[handler.path], page(handler.path.strip("/")).encode()
            handler.send_response_only(200)
            if seconds is not None:
                handler.send_header("Date", formatdate(time.time() + seconds, usegmt=True))
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)
            return True

        server.respond = respond
        with closing(source_of(server, *ahead)) as source:
            skew = source.read(time.time()).clock_skew
    assert skew is not None
    assert 5 <= skew <= 7.5


def test_a_clock_that_steps_after_a_scrape_differs_from_that_of_the_targets():
    def respond(handler: BaseHTTPRequestHandler) -> bool:
        handler.send_response_only(200)
        handler.send_header("Date", formatdate(now(), usegmt=True))
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
        return True

    body, begun, began = page("one").encode(), time.monotonic(), time.time()

    def now() -> float:
        return began + time.monotonic() - begun

    with serving_pages({}) as server:
        server.respond = respond
        with closing(source_of(server, "/one")) as source:
            assert abs(source.read(time.time()).clock_skew or 0) < 3
            with time_machine.travel(time.time() + 365 * 86_400, tick=True):
                skew = source.read(time.time()).clock_skew
    assert skew is not None
    assert skew < -364 * 86_400


def test_malformed_lines_are_counted_by_reason_in_the_status_report():
    text = page("one", core="ERROR - FAILED TO CONVERT TO STRING")
    with serving_pages({"/a": text.encode()}) as server, closing(source_of(server, "/a")) as source:
        source.read(time.time())
        assert source.describe()["bad_lines"]["value is not a number"] >= 1
        assert state(source, "/a")["examples"] == {
            "value is not a number": "DCGM_FI_DEV_GPU_UTIL ERROR - FAILED TO CONVERT TO STRING"
        }


def test_allocations_of_a_failing_target_are_unknown_until_it_recovers():
    with serving_pages({"/a": page("one").encode()}) as server, closing(source_of(server, "/a")) as source:
        assert source.read(time.time()).unknown == {}
        kept = server.pages.pop("/a")
        wait_for(lambda: source.read(time.time()).unknown == {0: unknown_reasons.NO_CURRENT_SAMPLE})
        server.pages["/a"] = kept
        wait_for(lambda: source.read(time.time()).unknown == {})


def test_targets_of_a_file_are_added_and_removed_while_it_runs(tmp_path: Path):
    path = tmp_path / "targets.json"
    with serving_pages({"/a": page("one").encode(), "/b": page("two").encode()}) as server:
        path.write_text(json.dumps([{"targets": [server.address("/a")]}]))
        with closing(source_of(server, targets=[], targets_file=path)) as source:
            assert len(source.read(time.time())) == 1
            path.write_text(json.dumps([{"targets": [server.address("/b")]}]))
            wait_for(lambda: len(source.read(time.time())) == 2)
            table = source.read(time.time())
            assert of_pod(table, "one").unknown_reason
            assert not of_pod(table, "two").unknown_reason


def list_nodes(source: ScrapeSource) -> list[str]:
    """None between the moment a target is forgotten and its next scrape: then there is nothing to read."""
    try:
        return [one.node for one in source.read(time.time()).allocations]
    except SourceError:
        return []


def test_changed_labels_in_the_file_apply_from_the_next_scrape(tmp_path: Path):
    path = tmp_path / "targets.json"
    bare = page("one").replace('Hostname="n1",', "").encode()
    with serving_pages({"/a": bare}) as server:
        group = {"targets": [server.address("/a")], "labels": {"node": "before"}}
        path.write_text(json.dumps([group]))
        with closing(source_of(server, targets=[], targets_file=path)) as source:
            assert [one.node for one in source.read(time.time()).allocations] == ["before"]
            path.write_text(json.dumps([{**group, "labels": {"node": "after it"}}]))
            wait_for(lambda: list_nodes(source) == ["after it"])


def test_credentials_are_sent_with_every_scrape_and_never_shown(tmp_path: Path):
    token = tmp_path / "token"
    token.write_text("s3cret-one\n")
    identity = {"bearer_token": SecretFile(token), "headers": {"X-Tenant": "s3cret"}}
    with serving_pages({"/a": page("one").encode()}) as server, closing(source_of(server, "/a", **identity)) as source:
        source.read(time.time())
        assert "s3cret" not in json.dumps(source.describe()) + repr(vars(source))
        token.write_text("s3cret-two\n")
        wait_for(lambda: server.requests[-1][1].get("Authorization") == "Bearer s3cret-two")
    assert server.requests[0][1]["Authorization"] == "Bearer s3cret-one"
    assert server.requests[0][1]["X-Tenant"] == "s3cret"


def test_unusable_files_are_refused_at_the_start(tmp_path: Path):
    for wrong in ({"ca_file": tmp_path / "no"}, {"username": "me", "password": SecretFile(tmp_path / "no")}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong)).replace("username", "password_file")):
            ScrapeSource(ScrapeSettings(**QUICK, **wrong), window_seconds=60)


def test_if_no_target_can_be_read_the_error_has_the_reason():
    reason = "none of 1 target could be read: the target responded with HTTP 404"
    with (
        serving_pages({}) as server,
        closing(source_of(server, "/gone")) as source,
        pytest.raises(SourceError, match=reason),
    ):
        source.read(time.time())
    with closing(ScrapeSource(ScrapeSettings(**QUICK), window_seconds=60)) as source:
        with pytest.raises(SourceError, match=r"set prometheus\.url .* or scrape\.targets"):
            source.read(time.time())
        assert source.describe()["failures"] == {"targets": NO_SOURCE.en}


def test_it_is_used_without_an_engine_and_changed_settings_keep_its_samples():
    pages = {"/a": page("one").encode(), "/b": page("two").encode()}
    with serving_pages(pages) as server:

        def settings(*paths: str) -> Settings:
            scrape = {**QUICK, "targets": [server.address(path) for path in paths]}
            return Settings.model_validate({"scrape": scrape})

        with closing(ActiveSource(settings("/a"), environ={})) as current:
            assert isinstance(current.source, ScrapeSource)
            assert len(current.read(time.time())) == 1
            current.adopt(settings("/a", "/b"))
            assert len(current.read(time.time())) == 2
            assert current.request_counts["ok"] >= 3
            engine = Settings.model_validate({"prometheus": {"url": "http://127.0.0.1:9"}})
            current.adopt(engine)
            assert isinstance(current.source, PrometheusSource)


def test_closing_ends_its_thread_and_may_be_repeated():
    with serving_pages({"/a": None}) as server:
        source = source_of(server, "/a", timeout=60)
        wait_for(lambda: bool(server.requests))
        before = time.monotonic()
        source.close()
        source.close()
        assert time.monotonic() - before < 3


def test_serve_starts_without_a_source_and_reports_what_to_set(tmp_path: Path):
    with running_serve(tmp_path, env=ENVIRONMENT) as server:
        server.wait_for(lambda it: it.get("/api/v1/health").json["cycles"]["last_error"] != "")
        assert server.get("/api/v1/health").json["cycles"]["last_error"] == NO_SOURCE.en
        assert server.get("/api/v1/sources").json["failures"] == {"targets": NO_SOURCE.en}
        assert NO_SOURCE.en in server.log.read_text()


def test_serve_scrapes_and_judges_without_an_engine(tmp_path: Path):
    with serving_pages({"/metrics": page("one").encode()}) as pages:
        flags = (f"--set=scrape.targets={pages.address('/metrics')}", "--set=scrape.interval=1")
        with running_serve(tmp_path, *flags, env=ENVIRONMENT) as server:
            server.wait_for(lambda it: it.get("/health").json["last_analysis"] is not None)
            assert server.get("/api/v1/sources").json["targets_up"] == 1
            (row,) = server.get("/api/v1/workloads").json["items"]
            assert row["namespace"] == "ml"
