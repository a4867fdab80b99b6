"""Costs in two currencies are never added: a report over both has hours, and a note about the currencies."""

from itertools import pairwise

import pytest

from gpusteward.analyzer.ledger.database.periods import DAY_MS, HOUR_MS, floor_day
from gpusteward.analyzer.ledger.ledger import Ledger
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.reports.make_report import make_report
from gpusteward.analyzer.reports.render.csv_text import render_csv
from gpusteward.analyzer.reports.render.descriptions import list_notes
from gpusteward.analyzer.reports.render.html_page import render_html
from gpusteward.analyzer.reports.report import CurrencyChange, Report
from gpusteward.analyzer.reports.report_query import ReportQuery
from gpusteward.analyzer.settings.settings import SchedulerSettings
from tests.analyzer.ledger.cycles import RESTING, SETTINGS, START, WORKING, cycle, hour, open_ledger, read_table
from tests.analyzer.usage_tables import allocation

pytestmark = pytest.mark.slow

DOLLARS = PriceSettings(currency="USD", per_gpu_hour={"*": 1.2}, electricity_per_kwh=0.5)
YUAN = PriceSettings(currency="CNY", per_gpu_hour={"*": 12.0}, electricity_per_kwh=0.8)
NO_PRICES = PriceSettings(currency="USD")
ROWS = [(allocation(0), RESTING), (allocation(1), WORKING)]


def record(ledger: Ledger, minutes: range, prices: PriceSettings) -> None:
    scheduler = SchedulerSettings(interval=60 * minutes.step)
    settings = SETTINGS.model_copy(update={"prices": prices, "scheduler": scheduler})
    for minute in minutes:
        ledger.record(cycle(ROWS, START + 60 * minute, settings=settings))


def report_of(ledger: Ledger, since: float, until: float, prices: PriceSettings = YUAN) -> Report:
    return make_report(ledger.engine, ReportQuery(hour(since), hour(until)), prices=prices, now_ms=hour(until))


@pytest.fixture(scope="module")
def changed(kept_database_url):
    """Two hours in dollars, and from the middle of the third in yuan."""
    ledger = open_ledger(kept_database_url)
    record(ledger, range(0, 155, 5), DOLLARS)
    record(ledger, range(155, 365, 5), YUAN)
    yield ledger
    ledger.close()


def test_costs_of_a_period_are_in_the_currency_of_the_period(changed: Ledger):
    before, after = report_of(changed, 0, 2), report_of(changed, 3, 6)
    assert (before.currency, before.total.idle_cost_micros) == ("USD", 2_400_000)
    assert (after.currency, after.total.idle_cost_micros) == ("CNY", 36_000_000)
    assert (before.currency_changes, after.currency_changes) == ([], [])
    assert before.total.electricity_micros is None  # its price is known in yuan only
    assert after.total.electricity_micros is not None
    assert read_table(changed.engine, "currencies") == [
        {"since_ms": 0, "currency": "USD"},
        {"since_ms": hour() + 150 * 60_000, "currency": "CNY"},
    ]


@pytest.mark.parametrize(("since", "until"), [(0, 6), (2, 3), (2, 6)])
def test_a_period_with_both_currencies_has_hours_and_no_costs(changed: Ledger, since: int, until: int):
    report = report_of(changed, since, until)
    hours = until - since
    assert (report.total.allocated_gpu_ms, report.total.idle_gpu_ms) == (2 * hours * HOUR_MS, hours * HOUR_MS)
    everything = [report.total, *(group.amounts for group in report.groups), *(one.amounts for one in report.wasters)]
    for amounts in everything:
        assert (amounts.cost_micros, amounts.idle_cost_micros) == (None, None)
        assert (amounts.effective_cost_micros, amounts.ineffective_cost_micros) == (None, None)
    assert {point.idle_cost_micros for point in report.points} == {None}
    assert report.currency_changes == [CurrencyChange(hour() + 150 * 60_000, "USD", "CNY")]


def test_a_note_names_the_change_and_suggests_other_periods(changed: Ledger):
    report = report_of(changed, 0, 6)
    notes = list_notes(report, "en")
    assert [note for note in notes if "changed from USD to CNY at 2026-09-21 17:30 UTC" in note]
    assert not [note for note in notes if "have no price" in note]
    assert "由 USD 改为 CNY" in render_html(report, "zh")
    assert render_csv(report).splitlines()[-1].split(",")[19:22] == ["", "", ""]


def test_without_costs_waste_is_sorted_by_time(database_url):
    ledger = open_ledger(database_url)
    dear = PriceSettings(currency="USD", per_gpu_hour={"A100": 1000.0, "*": 1.0})
    rows = {"long": allocation(0), "dear": allocation(1, model="NVIDIA A100")}
    for minute, (name, prices) in enumerate([("dear", dear), ("dear", dear), *[("long", YUAN)] * 8]):
        settings = SETTINGS.model_copy(update={"prices": prices})
        held = [(one, RESTING if name == key else WORKING) for key, one in rows.items()]
        ledger.record(cycle(held, START + 300 * minute, settings=settings))
    report = make_report(ledger.engine, ReportQuery(hour(), hour(1), by="model"), prices=YUAN, now_ms=hour(1))
    idle = [group.amounts.idle_gpu_ms for group in report.groups]
    assert all(one >= other for one, other in pairwise(idle))
    assert len(idle) == 2
    ledger.close()


def test_costs_are_not_compared_with_those_in_another_currency(changed: Ledger):
    trend = report_of(changed, 4, 6).trend
    assert trend is not None
    assert (trend.idle_gpu_ms, trend.idle_cost_micros, trend.idle_cost_change_ratio) == (2 * HOUR_MS, None, None)


def test_a_currency_set_before_any_price_is_not_a_change(database_url):
    ledger = open_ledger(database_url)
    record(ledger, range(0, 125, 5), NO_PRICES)
    record(ledger, range(125, 245, 5), YUAN)
    report = report_of(ledger, 0, 4)
    assert (report.currency, report.total.idle_cost_micros, report.currency_changes) == ("CNY", 24_000_000, [])
    ledger.close()


def test_returning_to_the_first_currency_is_a_change_too(database_url):
    ledger = open_ledger(database_url)
    for begin, prices in ((0, DOLLARS), (65, YUAN), (125, DOLLARS)):
        record(ledger, range(begin, begin + 60, 5), prices)
    changes = report_of(ledger, 0, 3, DOLLARS).currency_changes
    assert [(each.before, each.after) for each in changes] == [("USD", "CNY"), ("CNY", "USD")]
    ledger.close()


def test_days_without_hours_keep_their_currency(database_url):
    ledger = open_ledger(database_url, hourly_days=1)
    record(ledger, range(0, 2 * 1440, 60), DOLLARS)
    record(ledger, range(2 * 1440, 5 * 1440, 60), YUAN)
    while ledger.prune(START + 5 * 86_400):
        pass
    day = floor_day(hour())
    reports = [
        make_report(ledger.engine, ReportQuery(day + n * DAY_MS, day + (n + 1) * DAY_MS), prices=YUAN, now_ms=hour(120))
        for n in (1, 2, 3)
    ]
    assert [report.currency for report in reports] == ["USD", "CNY", "CNY"]
    assert [report.total.idle_cost_micros is None for report in reports] == [False, True, False]
    ledger.close()
