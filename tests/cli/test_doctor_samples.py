"""The check of sample coverage."""

import time
from collections.abc import Mapping
from typing import Any

import pytest

from gpusteward.cli.api.client import Peer, make_client
from gpusteward.cli.doctor.check_results import CheckResult, CheckStatus
from gpusteward.cli.doctor.servers import check_analyzer
from tests.analyzer.api.server import FakeSource, make_result, running_api
from tests.analyzer.usage_tables import resting, table_of

HEALTHY: Mapping[str, Any] = {
    "engine": "gpusteward",
    "scrape_intervals_seconds": {"scrape": 30.0},
    "targets": 2,
    "targets_up": 2,
    "scrapes": {"ok": 400, "failed": 0},
    "failures": {},
    "states": [{"target": "a", "scrapes": 200}, {"target": "b", "scrapes": 200}],
}


def diagnose(coverage: list[float], sources: Mapping[str, Any]) -> CheckResult:
    """The only result of the check of samples."""
    table = table_of(*(resting() for _ in coverage), coverage=coverage, at=time.time())
    with running_api(make_result(table), source=FakeSource(described=sources)) as api:
        found = check_analyzer(make_client(Peer.ANALYZER, api.url), is_required=True)
        (one,) = [each for each in found if each.check == "samples"]
    return one


def test_allocations_that_cannot_be_measured_do_not_lower_the_coverage() -> None:
    found = diagnose([1.0, 1.0, 0.0, 0.0], HEALTHY)
    assert found.status is CheckStatus.OK
    assert found.finding == (
        "sample coverage 100% of 2 allocations; the utilization of 2 others cannot be measured, such as MIG instances"
        " before Hopper without a DCGM hostengine"
    )


def test_full_coverage_is_one_short_text() -> None:
    assert diagnose([1.0], HEALTHY).finding == "sample coverage 100% of 1 allocation"


def test_the_first_window_is_not_full_yet() -> None:
    young = {**HEALTHY, "scrapes": {"ok": 4, "failed": 0}, "states": [{"target": "a", "scrapes": 2}]}
    found = diagnose([0.3, 0.3], young)
    assert found.status is CheckStatus.OK
    assert found.finding.startswith("the window is not full yet: sample coverage 30% of ")


def test_failing_targets_are_named_with_their_reason() -> None:
    broken = {**HEALTHY, "failures": {"http://b:9400/metrics": "no connection: refused"}}
    found = diagnose([1.0, 0.5], broken)
    assert found.status is CheckStatus.WARN
    assert found.finding == ("sample coverage only 75% of 2 allocations; an allocation below 90% is not judged idle")
    assert found.mend.startswith("restore http://b:9400/metrics: no connection: refused")


def test_scrapes_that_failed_before_are_counted() -> None:
    found = diagnose([0.5], {**HEALTHY, "scrapes": {"ok": 300, "failed": 100}})
    assert "100 of 400 scrapes of 2 targets failed" in found.mend


@pytest.mark.parametrize("sources", [HEALTHY, {"engine": "Prometheus", "failures": {}}, {"failures": 5, "states": 7}])
def test_without_failed_scrapes_gaps_are_suggested_as_the_cause(sources: Mapping[str, Any]) -> None:
    found = diagnose([0.5], sources)
    assert found.status is CheckStatus.WARN
    assert found.mend.startswith("look for gaps in the metric `up`")


def test_no_utilization_at_all_is_a_warning_with_the_metrics_to_export() -> None:
    found = diagnose([0.0, 0.0], HEALTHY)
    assert found.status is CheckStatus.WARN
    assert "DCGM_FI_PROF_GR_ENGINE_ACTIVE" in found.mend
