"""The small parts: conditions, durations, intervals, shards, contradictions, folded exports."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.expressions import write_duration, write_range
from gpusteward.analyzer.sources.promql.sample_timing import infer_interval
from gpusteward.analyzer.sources.promql.scheme_reader import group
from gpusteward.analyzer.sources.usage.coverage import ExpectedSamples, ScrapeIntervals
from gpusteward.analyzer.sources.usage.label_mapping import map_labels
from gpusteward.analyzer.sources.usage.query_results import ScrapeTarget
from gpusteward.analyzer.sources.usage.selectors import Matcher, match_any, parse_condition, write_selector
from gpusteward.analyzer.sources.usage.unknown_rows import find_contradicted_zeros
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.settings import parse_duration


def test_a_condition_is_parsed_and_written_unchanged():
    text = r'{pod!="", namespace=~"a|b\\d", x="say \"hi\"",}'
    matchers = parse_condition(text)
    assert matchers == (Matcher("pod", "!=", ""), Matcher("namespace", "=~", r"a|b\d"), Matcher("x", "=", 'say "hi"'))
    assert parse_condition(write_selector("", matchers)) == matchers
    assert parse_condition("") == parse_condition("{}") == ()
    assert parse_condition("pod!=''") == (Matcher("pod", "!=", ""),)


@pytest.mark.parametrize("text", ["{pod}", '{pod=="a"}', '{pod="a"', '{pod="a"} or up', "{,}"])
def test_an_invalid_condition_is_refused_with_its_position(text: str):
    with pytest.raises(ConfigurationError, match="query_condition"):
        parse_condition(text)
    with pytest.raises(ValidationError):
        PrometheusSettings(query_condition=text)


@given(st.lists(st.text(min_size=1), min_size=1))
def test_special_characters_are_matched_literally(names: list[str]):
    matcher = match_any("node", names)
    assert parse_condition("{" + str(matcher) + "}") == (matcher,)


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("1h30m", 5400), ("500ms", 0.5), ("1.5m", 90)])
def test_durations_are_parsed(text: str, seconds: float):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "1x", "5m "[::-1], "0s", "-1s"])
def test_an_invalid_duration_is_refused(text: str):
    with pytest.raises(ValidationError):
        PrometheusSettings(step=text)


def test_windows_are_written_as_ranges_and_durations():
    assert write_range(600) == "[599999ms]"
    assert [write_duration(seconds) for seconds in (600, 7200, 90, 0.5)] == ["10m", "2h", "90s", "0_5s"]


@pytest.mark.parametrize("url", ["prometheus:9090", "ftp://x", "http://", "http://x/?a=b"])
def test_an_invalid_url_is_refused(url: str):
    with pytest.raises(ValidationError):
        PrometheusSettings(url=url)


@pytest.mark.parametrize(
    ("samples", "seconds"), [(20, 30), (21, 30), (40, 15), (41, 15), (10, 60), (11, 60), (120, 5), (600, 1), (1, None)]
)
def test_the_scrape_interval_is_inferred_from_a_count(samples: float, seconds: float | None):
    assert infer_interval(samples) == seconds


def test_without_up_the_highest_counts_of_the_last_hour_are_expected():
    expected = ExpectedSamples(window_seconds=600)
    expected.update(ScrapeIntervals(established=frozenset({"j"})))
    full, outage = np.array([20.0, 20.0, 10.0]), np.array([8.0, 8.0, 8.0])
    assert expected.measure_coverage(full, [ScrapeTarget("j")] * 3, 0.0).tolist() == [1.0, 1.0, 0.5]
    assert expected.measure_coverage(outage, [ScrapeTarget("j")] * 3, 300.0).tolist() == [0.4] * 3
    assert expected.measure_coverage(outage, [ScrapeTarget("j")] * 3, 4000.0).tolist() == [1.0] * 3, (
        "an interval that was changed, by now"
    )


def test_every_job_has_its_own_interval():
    expected = ExpectedSamples(window_seconds=600)
    expected.update(ScrapeIntervals({"slow": 60.0, "fast": 15.0, "other": 1.0}, frozenset({"slow", "fast", "other"})))
    counts = np.array([10.0, 20.0, 20.0])
    targets = [ScrapeTarget(job) for job in ("slow", "fast", "")]
    assert expected.measure_coverage(counts, targets, 0.0).tolist() == [1.0, 0.5, 0.5]


def test_a_slow_target_keeps_its_interval_during_a_gap_but_not_after_it_became_faster():
    expected = ExpectedSamples(window_seconds=600)
    slow, counts = ScrapeTarget("j", "slow"), np.array([40.0])
    known = ScrapeIntervals({"j": 5.0}, frozenset({"j"}), {slow: 15.0})
    for at_most, coverage in (({slow: 16.0}, 1.0), ({slow: 5.2}, 1 / 3), ({}, 1 / 3)):
        expected.update(known)
        expected.update(ScrapeIntervals({"j": 5.0}, frozenset({"j"}), at_most=at_most))
        assert expected.measure_coverage(counts, [slow], 0.0).tolist() == [coverage]


def test_ten_thousand_targets_cost_little():
    expected = ExpectedSamples(window_seconds=600)
    targets = [ScrapeTarget("j", f"node-{number}") for number in range(10_000) for _ in range(5)]
    expected.update(ScrapeIntervals({"j": 5.0}, frozenset({"j"}), dict.fromkeys(targets[::10], 15.0)))
    began = time.process_time()
    coverage = expected.measure_coverage(np.full(len(targets), 40.0), targets, 0.0)
    assert time.process_time() - began < 1
    assert sorted(set(coverage.tolist())) == [1 / 3, 1.0]


def test_a_new_job_has_no_expected_count():
    expected = ExpectedSamples(window_seconds=600)
    expected.update(ScrapeIntervals(established=frozenset({"old"})))
    assert np.isnan(expected.measure_coverage(np.array([5.0, 5.0]), [ScrapeTarget("new")] * 2, 0.0)).all()
    assert expected.new_jobs == {"new"}
    expected.update(ScrapeIntervals({"new": 30.0}, frozenset({"new"})))
    assert expected.measure_coverage(np.array([5.0]), [ScrapeTarget("new")], 300.0).tolist() == [0.25]
    assert not expected.new_jobs


def test_a_configured_interval_takes_precedence():
    expected = ExpectedSamples(window_seconds=600, fixed_interval=10)
    assert expected.measure_coverage(np.array([30.0]), [ScrapeTarget("j")], 0.0).tolist() == [0.5]


def test_shards_respect_the_limit_and_contain_every_node():
    sizes = [(f"n{number}", 8.0) for number in range(10)] + [("huge", 90.0)]
    groups = list(group(sizes, 20))
    assert [name for names in groups for name in names] == [name for name, _ in sizes]
    assert [len(names) for names in groups] == [2, 2, 2, 2, 2, 1]


def test_the_pod_of_the_exporter_is_not_the_holder():
    mapping = map_labels(["pod", "namespace", "container", "exported_pod", "exported_namespace", "exported_container"])
    assert mapping.holder[2:5] == ("exported_namespace", "exported_pod", "exported_container")
    assert map_labels(["pod", "pod_name", "pod_namespace", "namespace"]).pod == "pod_name"


def deny(core: list[float], device: list[int], **more: list[float]) -> list[bool]:
    nothing = [np.nan] * len(core)
    columns = {name: np.array(more.get(name, nothing)) for name in ("activity", "power", "limit")}
    return find_contradicted_zeros(np.array(core), device=np.array(device), **columns).tolist()


def test_a_zero_is_contradicted_only_if_no_holder_of_the_device_explains_its_activity():
    assert deny([0, 0], [0, 0], activity=[0.5, np.nan]) == [True, True]
    assert deny([0, 0.4], [0, 0], activity=[0.5, 0.5]) == [False, False]
    assert deny([0, 0.4], [0, 1], activity=[0.5, 0.5]) == [True, False]
    assert deny([0], [0], power=[300]) == [True]
    assert deny([0], [0], power=[200]) == [False], "an idle B200 draws as much"
    assert deny([0], [0], power=[40], limit=[72]) == [True]
    assert deny([0], [0], power=[120], limit=[700]) == [False]
    assert deny([np.nan], [0], activity=[0.5]) == [False]
    assert deny([], []) == []
