"""Unallocated time covers the time in which the number of GPUs was known; the report states how much that is."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from gpusteward.analyzer.ledger.database.periods import DAY_MS, HOUR_MS, floor_day
from gpusteward.analyzer.ledger.ledger import Ledger
from gpusteward.analyzer.reports.make_report import make_report
from gpusteward.analyzer.reports.render.descriptions import list_notes
from gpusteward.analyzer.reports.render.html_page import render_html
from gpusteward.analyzer.reports.render.json_text import read_report, render_json
from gpusteward.analyzer.reports.report import Report
from gpusteward.analyzer.reports.report_query import ReportQuery
from gpusteward.analyzer.settings.settings import SchedulerSettings
from gpusteward.core.usages import AllocationKey
from tests.analyzer.ledger.cycles import RESTING, SETTINGS, START, WORKING, cycle, hour, open_ledger
from tests.analyzer.usage_tables import allocation

pytestmark = pytest.mark.slow

H100 = "NVIDIA H100 80GB HBM3"
EIGHT = {("node-0", H100): 8}
EVERY_5_MINUTES = SETTINGS.model_copy(update={"scheduler": SchedulerSettings(interval=300)})


def record(ledger: Ledger, minutes: range, fleet: Mapping[tuple[str, str], int]) -> None:
    """Two GPUs of node-0 and one of node-1 are allocated all the time."""
    rows = [(allocation(0), WORKING), (allocation(1), RESTING), (allocation(8), WORKING)]
    settings = SETTINGS.model_copy(update={"scheduler": SchedulerSettings(interval=60 * minutes.step)})
    for minute in minutes:
        ledger.record(cycle(rows, START + 60 * minute, fleet=fleet, settings=settings))


def report_of(ledger: Ledger, since_ms: int, until_ms: int, by: str = "namespace") -> Report:
    return make_report(ledger.engine, ReportQuery(since_ms, until_ms, by=by), now_ms=until_ms)


def test_time_allocated_while_the_number_of_gpus_was_unknown_is_not_subtracted(database_url):
    ledger = open_ledger(database_url)
    record(ledger, range(0, 65, 5), EIGHT)
    record(ledger, range(65, 245, 5), {})
    report = report_of(ledger, hour(), hour(4), by="node")
    assert report.total.unallocated_gpu_ms == 6 * HOUR_MS
    assert {group.name: group.amounts.unallocated_gpu_ms for group in report.groups} == {
        "node-0": 6 * HOUR_MS,
        "node-1": None,
    }
    assert report.fleet_coverage_ratio == 0.25
    assert [point.unallocated_gpu_ms for point in report.points] == [6 * HOUR_MS, None, None, None]
    ledger.close()


def test_part_of_an_hour_counts_as_that_part(database_url):
    ledger = open_ledger(database_url)
    record(ledger, range(0, 95, 5), {})
    record(ledger, range(95, 125, 5), EIGHT)
    report = report_of(ledger, hour(), hour(2))
    assert report.total.unallocated_gpu_ms == 6 * HOUR_MS // 2
    assert report.fleet_coverage_ratio == 0.25
    assert report.unused is not None
    assert (report.unused.gpus, report.unused.unallocated) == (8 + 1, 6), "one is held on a node of unknown size"
    ledger.close()


@pytest.mark.parametrize("forgets", [False, True])
def test_days_have_the_same_unallocated_time_as_their_hours(database_url, forgets):
    ledger = open_ledger(database_url, hourly_days=1 if forgets else 35)
    days = 4
    for day in range(days):  # each day for a quarter of it
        begin = day * 1440
        record(ledger, range(begin, begin + 360, 60), EIGHT)
        record(ledger, range(begin + 360, begin + 1440, 60), {})
    while ledger.prune(START + days * 86_400):
        pass
    since_ms = floor_day(hour()) + DAY_MS
    report = report_of(ledger, since_ms, since_ms + 2 * DAY_MS)
    known_ms = 2 * 6 * HOUR_MS
    assert report.fleet_coverage_ratio == pytest.approx(0.25, abs=0.01)
    assert report.total.unallocated_gpu_ms == pytest.approx(6 * known_ms, rel=0.05)
    ledger.close()


def test_a_report_states_for_how_much_of_its_time_the_number_was_known(tmp_path):
    ledger = open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    record(ledger, range(0, 65, 5), EIGHT)
    whole = report_of(ledger, hour(), hour(1))
    record(ledger, range(65, 245, 5), {})
    part = report_of(ledger, hour(), hour(4))
    assert whole.fleet_coverage_ratio == 1.0
    assert not [note for note in list_notes(whole, "en") if "was known for" in note]
    assert [note for note in list_notes(part, "en") if "was known for 25% of this period" in note]
    assert "25%" in render_html(part, "zh").split("GPU 总数仅在")[1]
    assert '"fleet_coverage_ratio":0.25' in render_json(part)
    some = make_report(ledger.engine, ReportQuery(hour(), hour(4), namespaces=("team",)), now_ms=hour(4))
    assert some.fleet_coverage_ratio is None
    ledger.close()


def test_a_report_of_an_older_analyzer_can_be_read(tmp_path):
    ledger = open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    record(ledger, range(0, 65, 5), EIGHT)
    old = json.loads(render_json(report_of(ledger, hour(), hour(1))))
    del old["fleet_coverage_ratio"], old["currency_changes"]
    assert read_report(old).fleet_coverage_ratio is None
    ledger.close()


def _in_cluster(one: AllocationKey, cluster: str) -> AllocationKey:
    return replace(one, container=replace(one.container, cluster=cluster))


def test_a_report_of_one_cluster_has_the_unallocated_gpus_of_that_cluster(database_url):
    ledger = open_ledger(database_url)
    rows = [(_in_cluster(allocation(0), "east"), WORKING), (_in_cluster(allocation(1), "west"), WORKING)]
    fleet = {("node-0", H100, "east"): 8, ("node-0", H100, "west"): 4}
    for minute in range(0, 125, 5):
        ledger.record(cycle(rows, START + 60 * minute, fleet=fleet, settings=EVERY_5_MINUTES))

    def report_cluster(cluster: str, by: str = "node") -> Report:
        return make_report(
            ledger.engine, ReportQuery(hour(), hour(2), by=by, clusters=(cluster,)), now_ms=hour(2) + HOUR_MS
        )

    for by in ("node", "day", "model"):
        east, west = report_cluster("east", by), report_cluster("west", by)
        assert (east.total.unallocated_gpu_ms, west.total.unallocated_gpu_ms) == (14 * HOUR_MS, 6 * HOUR_MS)
        assert [group.amounts.unallocated_gpu_ms for group in west.groups] == [6 * HOUR_MS]
        assert [point.unallocated_gpu_ms for point in west.points] == [3 * HOUR_MS, 3 * HOUR_MS]
        assert west.fleet_coverage_ratio == 1
        assert west.unused is not None
        assert (west.unused.gpus, west.unused.unallocated) == (4, 3)
    ledger.close()


def test_the_time_of_a_cluster_that_joined_later_begins_when_it_joined(tmp_path):
    ledger = open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    east, west = (_in_cluster(allocation(0), "east"), WORKING), (_in_cluster(allocation(1), "west"), WORKING)
    fleet = {("node-0", H100, "east"): 8, ("node-0", H100, "west"): 4}
    for minute in range(0, 245, 5):
        rows, known = ([east], {("node-0", H100, "east"): 8}) if minute < 185 else ([east, west], fleet)
        ledger.record(cycle(rows, START + 60 * minute, fleet=known, settings=EVERY_5_MINUTES))
    query = ReportQuery(hour(), hour(4), clusters=("west",))
    assert make_report(ledger.engine, query, now_ms=hour(4)).fleet_coverage_ratio == 1.0
    ledger.close()
