"""What the doctor says of samples: of what can be measured, and blaming nobody who is not to blame."""

import time
from collections.abc import Mapping
from typing import Any

import pytest

from gpusteward.cli.api.client import make_client
from gpusteward.cli.api.errors import Peer
from gpusteward.cli.doctor.findings import Finding, Status
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


def diagnose(coverage: list[float], sources: Mapping[str, Any]) -> Finding:
    """The one finding about samples."""
    table = table_of(*(resting() for _ in coverage), coverage=coverage, at=time.time())
    with running_api(make_result(table), source=FakeSource(described=sources)) as api:
        _, *found = check_analyzer(make_client(Peer.ANALYZER, api.url), is_named=True)
    (one,) = found
    assert one.check == "samples"
    return one


def test_what_cannot_be_measured_is_no_missing_sample() -> None:
    found = diagnose([1.0, 1.0, 0.0, 0.0], HEALTHY)
    assert found.status is Status.OK
    assert found.tell("en")["finding"] == (
        "100% of expected samples seen of 2 allocations; "
        "2 have no utilization to measure, as MIG instances before Hopper"
    )
    assert "另有 2 个无利用率可测" in found.tell("zh")["finding"]


def test_where_all_is_measured_nothing_else_is_said() -> None:
    assert diagnose([1.0], HEALTHY).tell("en")["finding"] == "100% of expected samples seen of 1 allocation"


def test_in_the_first_window_it_is_not_full_yet_and_nobody_is_to_blame() -> None:
    young = {**HEALTHY, "scrapes": {"ok": 4, "failed": 0}, "states": [{"target": "a", "scrapes": 2}]}
    found = diagnose([0.3, 0.3], young)
    assert found.status is Status.OK
    assert found.tell("en")["finding"].startswith("the window is not full yet: 30% of the samples of ")
    assert "窗口尚未填满" in found.tell("zh")["finding"]


def test_targets_that_fail_are_named_with_their_reason() -> None:
    broken = {**HEALTHY, "failures": {"http://b:9400/metrics": "no connection: refused"}}
    found = diagnose([1.0, 0.5], broken)
    assert found.status is Status.WARN
    assert found.tell("en")["finding"] == (
        "only 75% of expected samples seen of 2 allocations; one with less than 90% is not called idle"
    )
    assert found.tell("en")["mend"].startswith("bring back what fails, http://b:9400/metrics: no connection: refused")


def test_scrapes_that_failed_before_are_counted() -> None:
    found = diagnose([0.5], {**HEALTHY, "scrapes": {"ok": 300, "failed": 100}})
    assert "100 of 400 scrapes failed" in found.tell("en")["mend"]


@pytest.mark.parametrize("sources", [HEALTHY, {"engine": "Prometheus", "failures": {}}, {"failures": 5, "states": 7}])
def test_without_a_failure_no_scrape_is_blamed(sources: Mapping[str, Any]) -> None:
    found = diagnose([0.5], sources)
    assert found.status is Status.WARN
    assert found.tell("en")["mend"].startswith("look for gaps in the metric `up`")


def test_nothing_measured_at_all_is_told_with_what_to_export() -> None:
    found = diagnose([0.0, 0.0], HEALTHY)
    assert found.status is Status.WARN
    assert "DCGM_FI_PROF_GR_ENGINE_ACTIVE" in found.tell("en")["mend"]
