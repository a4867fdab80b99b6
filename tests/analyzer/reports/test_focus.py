"""FOCUS exports: the columns and rules of FOCUS 1.2, and exactly the sums of a report over the same period."""

import csv
import io
from collections.abc import Iterator
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpusteward.analyzer.ledger.database.periods import HOUR_MS
from gpusteward.analyzer.ledger.database.schema import currencies
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.reports.focus import read_charges
from gpusteward.analyzer.reports.make_report import make_report
from gpusteward.analyzer.reports.render.focus_csv import COLUMNS, write_focus
from gpusteward.analyzer.reports.report import Report
from gpusteward.analyzer.reports.report_query import ReportQuery
from gpusteward.core.errors import ConfigurationError
from tests.analyzer.reports.ledger_rows import A100, H100, T4, LedgerRows, at, make_usage, open_ledger_rows
from tests.analyzer.reports.test_make_report import ROWS, fill

pytestmark = pytest.mark.slow

PRICES = PriceSettings(per_gpu_hour={"A100": 2, "T4": 0.4}, discount_percent={"cheap": 25})
MANDATORY = (
    *("BilledCost", "BillingAccountId", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory"),
    *("ChargePeriodEnd", "ChargePeriodStart", "ContractedCost", "EffectiveCost", "InvoiceIssuerName", "ListCost"),
    *("PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "ServiceCategory", "ServiceName"),
)
"""Columns that FOCUS 1.2 requires, without null."""


@pytest.fixture
def ledger(database_url: str) -> Iterator[LedgerRows]:
    with open_ledger_rows(database_url) as opened:
        yield opened


def export(ledger: LedgerRows, since: float, until: float, **query: object) -> list[dict[str, str]]:
    charges = read_charges(
        ledger.engine,
        ReportQuery(at(since), at(until), **query),
        prices=PRICES,
        teams={"vision": "perception"},
        now_ms=at(until),
    )
    return list(csv.DictReader(io.StringIO("".join(write_focus(charges)))))


def report(ledger: LedgerRows, since: float, until: float) -> Report:
    return make_report(ledger.engine, ReportQuery(at(since), at(until)), prices=PRICES, now_ms=at(until))


def add(rows: list[dict[str, str]], column: str) -> Decimal:
    return sum((Decimal(row[column]) for row in rows if row[column]), Decimal(0))


def test_a_row_has_the_allocation_the_charge_and_its_active_and_idle_parts(ledger: LedgerRows):
    ledger.hold(
        1,
        namespace="vision",
        owner_name="train",
        node="gpu-1",
        user_name="li",
        gpu_instance="7",
        share="mig",
        cluster="east",
        labels='{"team":"a"}',
    )
    for hour in range(30):
        ledger.use(1, hour=hour, active=HOUR_MS // 4, idle=HOUR_MS // 2, ineffective=HOUR_MS // 8)
    ledger.record_until(29.5)
    first, second = export(ledger, 0, 29.5)
    assert list(first) == list(COLUMNS)
    assert (first["ChargePeriodStart"], first["ChargePeriodEnd"]) == ("2025-11-12T00:00:00Z", "2025-11-13T00:00:00Z")
    assert (second["ChargePeriodStart"], second["ChargePeriodEnd"]) == ("2025-11-13T00:00:00Z", "2025-11-13T05:30:00Z")
    assert (first["x_IsPartial"], second["x_IsPartial"]) == ("false", "true")
    assert (first["BillingPeriodStart"], first["BillingPeriodEnd"]) == ("2025-11-01T00:00:00Z", "2025-12-01T00:00:00Z")
    assert (first["BilledCost"], first["x_IdleCost"], first["BillingCurrency"]) == ("36.000000", "24.000000", "USD")
    assert (first["x_ActiveCost"], first["x_IneffectiveCost"]) == ("12.000000", "6.000000")
    assert (first["x_ActiveGpuSeconds"], first["x_IneffectiveGpuSeconds"]) == ("21600.000", "10800.000")
    assert (first["ConsumedQuantity"], first["ConsumedUnit"]) == ("64800.000", "GPU-Seconds")
    assert (first["PricingQuantity"], first["PricingUnit"]) == ("18.000000000", "GPU-Hours")
    assert (first["ResourceId"], first["ResourceName"], first["ResourceType"]) == ("GPU-1/7", "gpu-1/0", "MIG instance")
    assert (first["SubAccountId"], first["x_Team"], first["x_UserName"]) == ("east/vision", "perception", "li")
    assert (first["SubAccountName"], first["x_Cluster"], first["Tags"]) == ("vision", "east", '{"team":"a"}')
    assert (first["SkuId"], first["x_WorkloadKind"], first["x_WorkloadName"]) == (A100, "Job", "train")
    assert (first["ChargeCategory"], first["ChargeClass"]) == ("Usage", "")  # null: no correction
    assert (first["ServiceCategory"], first["ServiceSubcategory"]) == ("Compute", "Containers")


def test_unit_prices_match_costs_and_a_discount_is_not_in_the_list_cost(ledger: LedgerRows):
    ledger.hold(1, namespace="vision")
    ledger.hold(2, namespace="cheap")
    ledger.hold(3, namespace="before")
    ledger.hold(4, namespace="free", model="unknown")
    for number, price in ((1, 2_000_000), (2, 1_500_000), (3, 9_000_000), (4, 0)):
        ledger.use_all([make_usage(number, hour=0, idle=HOUR_MS // 2, price=price)])
    ledger.record_until(1)
    rows = {row["SubAccountId"]: row for row in export(ledger, 0, 1)}
    names = ("BilledCost", "ContractedUnitPrice", "ListCost", "ListUnitPrice")
    assert [rows["vision"][name] for name in names] == ["1.000000", "2.000000", "1.000000", "2.000000"]
    assert [rows["cheap"][name] for name in names] == ["0.750000", "1.500000", "1.000000", "2.000000"]
    # The price has changed since: its list price is unknown, and the list cost is then the billed cost.
    assert [rows["before"][name] for name in names] == ["4.500000", "9.000000", "4.500000", ""]
    assert [rows["free"][name] for name in names] == ["0.000000", "", "0.000000", ""]
    assert rows["free"]["x_UnpricedGpuSeconds"] == "1800.000"


def test_a_reader_gets_the_charges_of_visible_namespaces_only(ledger: LedgerRows):
    for number, namespace in ((1, "vision"), (2, "secret")):
        ledger.hold(number, namespace=namespace)
        ledger.use(number, hour=0, active=HOUR_MS)
    ledger.add_fleet(0, gpu_ms=9 * HOUR_MS)
    ledger.record_until(1)
    rows = export(ledger, 0, 1, visible=(("", "vision"),))
    assert {row["SubAccountName"] for row in rows} == {"vision"}
    assert "secret" not in str(rows)


def test_unallocated_time_is_not_billed_to_anyone(ledger: LedgerRows):
    ledger.hold(1, node="a")
    ledger.use(1, hour=0, active=HOUR_MS)
    ledger.add_fleet(0, node="a", gpu_ms=3 * HOUR_MS)
    ledger.record_until(1)
    (row,) = (row for row in export(ledger, 0, 1) if row["x_UnallocatedGpuSeconds"])
    assert (row["BilledCost"], row["ConsumedQuantity"], row["SubAccountId"]) == ("0.000000", "0.000", "")
    assert (row["x_UnallocatedCost"], row["x_UnallocatedGpuSeconds"]) == ("4.000000", "7200.000")
    assert (row["x_NodeName"], row["SkuId"]) == ("a", A100)
    assert len(export(ledger, 0, 1, namespaces=("team",))) == 1


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=ROWS,
    since=st.integers(min_value=0, max_value=60),
    length=st.integers(min_value=1, max_value=61),
    forgotten=st.sampled_from([0, 24, 48]),
)
def test_sums_equal_those_of_a_report(ledger: LedgerRows, rows: list, since: int, length: int, forgotten: int):
    fill(ledger, rows)
    ledger.delete_hours(before=forgotten)
    until = min(61, since + length)
    exported, total = export(ledger, since, until), report(ledger, since, until).total
    assert add(exported, "BilledCost") * 1_000_000 == (total.cost_micros or 0)
    assert add(exported, "x_IdleCost") * 1_000_000 == (total.idle_cost_micros or 0)
    assert add(exported, "x_IneffectiveCost") * 1_000_000 == (total.ineffective_cost_micros or 0)
    assert add(exported, "ConsumedQuantity") * 1000 == total.allocated_gpu_ms
    for name in ("Active", "Idle", "Unknown", "Unpriced", "Ineffective"):
        assert add(exported, f"x_{name}GpuSeconds") * 1000 == getattr(total, f"{name.lower()}_gpu_ms")
    for row in exported:
        assert all(row[name] for name in MANDATORY)
        assert {row["EffectiveCost"], row["ContractedCost"]} == {row["BilledCost"]}
        if row["ContractedUnitPrice"]:
            product = Decimal(row["ContractedUnitPrice"]) * Decimal(row["PricingQuantity"])
            assert product == pytest.approx(Decimal(row["ContractedCost"]), abs=Decimal("0.005"))


def test_costs_in_two_currencies_are_refused(ledger: LedgerRows):
    ledger.hold(1)
    ledger.use(1, hour=0, active=HOUR_MS)
    ledger.record_until(3)
    with ledger.engine.begin() as connection:
        rows = [{"since_ms": 0, "currency": "USD"}, {"since_ms": at(2), "currency": "CNY"}]
        connection.execute(currencies.insert(), rows)
    with pytest.raises(ConfigurationError, match="changed from USD to CNY at 2025-11-12 02:00"):
        export(ledger, 0, 3)
    assert len(export(ledger, 0, 2)) == 1


def test_names_are_never_formulas(ledger: LedgerRows):
    ledger.hold(1, namespace="=1+1", owner_name="@x", model=H100, node="-a")
    ledger.use(1, hour=0, active=HOUR_MS)
    ledger.record_until(1)
    (row,) = export(ledger, 0, 1)
    assert (row["SubAccountId"], row["x_WorkloadName"], row["x_NodeName"]) == ("'=1+1", "'@x", "'-a")


def test_rows_are_written_in_pieces(ledger: LedgerRows):
    for number in range(500):
        ledger.hold(number, model=T4)
    ledger.use_all([make_usage(number, hour=0, active=HOUR_MS) for number in range(500)])
    ledger.record_until(1)
    pieces = list(write_focus(read_charges(ledger.engine, ReportQuery(at(0), at(1)), now_ms=at(1))))
    assert len(pieces) > 2
    assert max(map(len, pieces)) < 100_000
