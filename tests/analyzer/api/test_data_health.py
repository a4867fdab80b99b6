"""Health and /metrics say how old and how complete the data is; results that are too old are not exported."""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gpusteward.analyzer.data_health import find_unknown_reason
from gpusteward.analyzer.results import find_visible, limit_result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.tables import Level, SiteFinding
from gpusteward.cli.main import main
from gpusteward.core.messages import Message
from gpusteward.core.namespaces import NamespacePattern, VisibleNamespaces
from gpusteward.messages import unknown_reasons
from gpusteward.messages.data_health import SUMMARIES
from tests.analyzer.api.server import Api, FakeSource, make_result, running_api
from tests.analyzer.usage_tables import resting, table_of, working
from tests.cli.screens import LARGE, app_of, read_screen, run, until_seen, watching

INTERVAL = Settings.model_validate({"scheduler": {"interval": 60}})  # the limit is 3 * 60 + 600 s
DAILY = Settings.model_validate({"scheduler": {"interval": 86_400}})
COMMANDS = (["idle"], ["explain", "team/pod-0"], ["top", "-o", "table"])


def result_of_age(seconds: float, *rows: Mapping[Any, float], settings: Settings = INTERVAL):
    return make_result(table_of(*(rows or (resting(), working())), at=time.time() - seconds), settings=settings)


def samples(api: Api) -> dict[str, str]:
    lines = api.get("/metrics").body.decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_a_result_that_is_too_old_is_not_exported_and_the_own_metrics_stay():
    for age, is_exported in ((700, True), (800, False)):
        with running_api(clock=time.time, result=result_of_age(age)) as api:
            found = samples(api)
        names = {name.partition("{")[0] for name in found}
        assert ("gpu_utilization_score" in names) is is_exported
        assert ("gpu_idle_count" in names) is is_exported
        assert {"gpu_analysis_total", "gpu_analysis_errors_total", "gpusteward_analyzer_build_info"} <= names
        assert float(found["gpusteward_analyzer_result_age_seconds"]) == pytest.approx(age, abs=30)
        assert float(found["gpusteward_analyzer_result_max_age_seconds"]) == 780


def test_the_limit_follows_from_interval_and_window():
    settings = Settings.model_validate({"scheduler": {"interval": 10}, "prometheus": {"time_window_min": 1}})
    with running_api(clock=time.time, result=result_of_age(110, settings=settings)) as api:
        assert not [name for name in samples(api) if name.startswith("gpu_utilization_score")]


def test_the_time_of_the_last_cycle_is_that_of_the_last_successful_one():
    with running_api(clock=time.time, result=result_of_age(200)) as api:
        before = samples(api)["gpusteward_analyzer_last_cycle_timestamp_seconds"]
        api.cycles.stats.failed, api.cycles.stats.last_error = 1, "the engine is down"
        api.cycles.stats.last_ended_at = time.time()
        assert samples(api)["gpusteward_analyzer_last_cycle_timestamp_seconds"] == before


@pytest.mark.parametrize(
    ("age", "rows", "targets", "status"),
    [
        (10, (resting(), working()), {}, "healthy"),
        (10, (resting(), {}), {}, "healthy"),
        (10, (resting(), {}, {}), {}, "warning"),
        (10, ({}, {}), {}, "degraded"),
        (200, (resting(),), {}, "warning"),
        (10, (resting(),), {"up": 3, "down": 1}, "warning"),
        (10, (resting(),), {"up": 1, "down": 3}, "warning"),
        (10, (resting(),), {"up": 0, "down": 3}, "degraded"),
    ],
)
def test_the_status_speaks_of_the_data(age: float, rows: Any, targets: dict[str, int], status: str):
    with running_api(
        clock=time.time, result=result_of_age(age, *rows), source=FakeSource(target_counts=targets)
    ) as api:
        short, full, found = api.get("/health"), api.get("/api/v1/health").json, samples(api)
    unknown = sum(not row for row in rows) / len(rows)
    assert short.status == 200, "a probe must not restart the analyzer for its data"
    for health in (short.json, full):
        assert health["status"] == status
        assert health["unknown_ratio"] == pytest.approx(unknown, abs=1e-4)
        assert (health["targets"], health["targets_up"]) == (
            (sum(targets.values()), targets["up"]) if targets else (None, None)
        )
        assert health["result_age_seconds"] == pytest.approx(age, abs=30)
    assert float(found["gpusteward_analyzer_unknown_ratio"]) == pytest.approx(unknown, abs=1e-4)
    shown = {word: found.get(f'gpusteward_analyzer_scrape_targets{{state="{word}"}}') for word in ("up", "down")}
    assert shown == {word: str(targets[word]) if targets else None for word in ("up", "down")}


@pytest.mark.parametrize(("hours", "is_late"), [(25, False), (27, True)])
def test_a_result_is_late_after_a_day_whatever_the_interval(hours: int, is_late: bool):
    result = result_of_age(0)
    settings = Settings.model_validate({"scheduler": {"interval": 10**9}})
    with running_api(clock=lambda: result.at + hours * 3600, result=result, settings=settings) as api:
        health = api.get("/health").json
    assert (health["analysis_timeout"], health["status"]) == ((True, "warning") if is_late else (False, "healthy"))


def found_at(api: Api, **headers: str) -> list[tuple[str, str]]:
    """The findings of /api/v1/health, which those of /api/v1/sources, /health and /metrics agree with."""
    full, sources = api.get("/api/v1/health", **headers).json, api.get("/api/v1/sources", **headers).json
    assert (sources["status"], sources["findings"]) == (full["status"], full["findings"])
    short = api.get("/health", **headers).json
    assert (short["status"], len(short["reasons"])) == (full["status"], len(full["findings"]))
    shown = {f'level="{one["level"]}",code="{one["code"]}"' for one in full["findings"]}
    names = {name for name in samples(api) if name.startswith("gpusteward_analyzer_data_findings")}
    assert names == {f"gpusteward_analyzer_data_findings{{{labels}}}" for labels in shown}
    return [(one["level"], one["text"]) for one in full["findings"]]


@pytest.mark.parametrize("level", ["degraded", "warning", "info"])
def test_findings_of_the_site_make_the_status_and_are_named_everywhere(
    capsys: pytest.CaptureFixture[str], level: Level
):
    named = SiteFinding(level, "source-incomplete", Message("engine b.example is down", "引擎 b.example 无法访问"))
    table = replace(table_of(resting(), at=time.time() - 5), findings=(named,))
    with running_api(make_result(table, settings=INTERVAL), clock=time.time) as api:
        assert found_at(api) == [(level, "engine b.example is down")]
        assert found_at(api, Accept_Language="zh") == [(level, "引擎 b.example 无法访问")]
        short = api.get("/health")
        failed = main(["doctor", "--server", api.url, "-o", "json"])
    assert (short.status, short.json["status"]) == (200, "healthy" if level == "info" else level)
    assert "example" not in str(short.json), "it is shown without a token"
    printed = json.loads(capsys.readouterr().out)
    rows = [(row["status"], row["finding"]) for row in printed if row["check"] == "data"]
    assert rows == [({"degraded": "fail", "warning": "warn", "info": "ok"}[level], "engine b.example is down")]
    assert failed or level != "degraded"


def test_the_worst_finding_is_the_first():
    names = [SiteFinding(level, level, Message(level, level)) for level in ("info", "warning", "degraded", "warning")]
    table = replace(table_of(resting(), at=time.time() - 5), findings=tuple(names))
    with running_api(make_result(table, settings=INTERVAL), clock=time.time) as api:
        assert [level for level, _ in found_at(api)] == ["degraded", "warning", "warning", "info"]


def test_people_who_see_some_namespaces_learn_of_findings_without_names():
    named = SiteFinding("warning", "source-incomplete", Message("engine b.example is down", "引擎 b.example 无法访问"))
    result = make_result(replace(table_of(resting()), findings=(named,)))
    visible = VisibleNamespaces(frozenset({NamespacePattern("nobody")}))
    limited = limit_result(result, visible, find_visible(result, visible))
    (shown,) = limited.verdicts.usage.findings
    assert (shown.level, shown.code) == (named.level, named.code)
    assert shown.message == SUMMARIES[named.code]


def test_every_list_says_how_old_it_is_and_an_etag_ends_when_it_becomes_stale():
    result, clock = result_of_age(0), [0.0]
    with running_api(result, clock=lambda: result.at + clock[0]) as api:
        fresh = api.get("/api/v1/workloads")
        assert (fresh.json["result"]["stale"], fresh.json["result"]["age_seconds"]) == (False, 0)
        clock[0] = 150
        assert api.get("/api/v1/health").json["result"]["stale"] is True
        stale = api.get("/api/v1/workloads", If_None_Match=fresh.headers["etag"])
        assert (stale.status, stale.json["result"]["stale"]) == (200, True)
        assert api.get("/api/v1/workloads", If_None_Match=stale.headers["etag"]).status == 304


@pytest.mark.parametrize(
    ("language", "text"), [("en", "(3m ago): no newer result"), ("zh", "3m 前）：此后引擎没有响应")]
)
def test_the_commands_say_that_a_result_is_old(capsys: pytest.CaptureFixture[str], language: str, text: str):
    result = result_of_age(0)
    with running_api(result, clock=lambda: result.at + 180) as api:
        for command in COMMANDS:
            assert main([*command, "--language", language, "--server", api.url]) == 0
            assert text in capsys.readouterr().out
            assert main([*command, "-o", "json", "--language", language, "--server", api.url]) == 0
            shown = capsys.readouterr()
            assert text in shown.err
            assert text not in shown.out, "programs read it"


@pytest.mark.parametrize(("language", "as_of"), [("en", "as of"), ("zh", "截至")])
def test_the_commands_always_say_what_time_a_result_is_from(
    capsys: pytest.CaptureFixture[str], language: str, as_of: str
):
    result = result_of_age(0)
    day, clock = (time.strftime(form, time.localtime(result.at)) for form in ("%Y-%m-%d", "%H:%M:%S"))
    for settings, age, shown in ((INTERVAL, 0, clock), (DAILY, 86_400, f"{day} {clock}")):
        with running_api(replace(result, settings=settings), clock=lambda age=age: result.at + age) as api:
            for command in COMMANDS:
                assert main([*command, "--language", language, "--server", api.url]) == 0
                printed = capsys.readouterr()
                assert f"{as_of} {shown}\n" in printed.out
                assert printed.err == ""


def test_the_first_failed_cycle_makes_a_result_stale_until_the_next_one(capsys: pytest.CaptureFixture[str]):
    result = result_of_age(0)
    with running_api(result, clock=lambda: result.at + 30) as api:
        fresh = api.get("/api/v1/workloads")
        assert (fresh.json["result"]["stale"], fresh.json["result"]["last_error"]) == (False, "")
        stats = api.cycles.stats
        stats.last_error, stats.last_ended_at = "the engine is\x1b[31m down", result.at + 20
        failed = api.get("/api/v1/workloads", If_None_Match=fresh.headers["etag"])
        assert (failed.status, failed.json["result"]["stale"]) == (200, True)
        for command in COMMANDS:
            assert main([*command, "--server", api.url]) == 0
            shown = capsys.readouterr().out.replace("\n", " ")
            assert "(30s ago): no newer result, the last cycle failed: the engine is\ufffd[31m down" in shown
        api.publish(replace(result, at=result.at + 25, number=2))
        assert api.get("/api/v1/workloads").json["result"]["stale"] is False, "before its cycle has ended"


def test_the_head_of_top_shows_the_age_of_a_stale_result_and_the_reason():
    async def watch(api: Api) -> None:
        async with watching("--server", api.url, size=LARGE) as pilot:
            assert " ago)" not in read_screen(app_of(pilot))
            api.cycles.stats.last_error = "connection refused"
            await pilot.press("r")
            await until_seen(pilot, "03:04:05 (", "s ago)", "connection refused")

    async def watch_old(api: Api) -> None:
        async with watching("--server", api.url, size=LARGE) as pilot:
            await until_seen(pilot, "03:04:05 (", "m ", "s ago)", "no newer result: the engine does not answer")

    for age, check in ((40, watch), (150, watch_old)):
        with running_api(result_of_age(age), clock=time.time) as api:
            run(check(api))


@pytest.mark.parametrize(
    ("rows", "level", "text"),
    [
        ((resting(), {}), "info", "1 of 2 allocations could not be judged. Most frequent reason: core utilization is"),
        (({}, {}, resting()), "warning", "2 of 3 allocations"),
        (({}, {}), "degraded", "None of the 2 allocations could be judged. Most frequent reason: core utilization is"),
    ],
)
def test_allocations_that_could_not_be_judged_are_named_with_the_reason(rows: Any, level: str, text: str):
    with running_api(clock=time.time, result=result_of_age(10, *rows)) as api:
        (found,) = api.get("/api/v1/health").json["findings"]
    assert (found["level"], found["code"]) == (level, "unknown-gpus")
    assert found["text"].startswith(text)


def test_the_reason_is_that_of_the_source_where_it_has_one():
    table = table_of(resting(), resting(), unknown={0: unknown_reasons.NO_CORE, 1: unknown_reasons.NO_CORE})
    assert find_unknown_reason(make_result(table)) == unknown_reasons.NO_CORE


@pytest.mark.parametrize("key", ["dialects", "engines"])
def test_a_site_without_video_fields_is_a_warning_that_names_them(key: str):
    dialects = [{"name": "dcgm", "missing_metrics": ["DCGM_FI_DEV_ENC_UTIL"]}]
    sources = {"dialects": dialects} if key == "dialects" else {"engines": [{"dialects": dialects}]}
    with running_api(clock=time.time, result=replace(result_of_age(10, resting()), sources=sources)) as api:
        (found,) = api.get("/api/v1/health").json["findings"]
    assert (found["level"], found["code"]) == ("warning", "no-video-fields")
    assert "DCGM_FI_DEV_ENC_UTIL" in found["text"]
