"""Reports on ledgers in SQLite and PostgreSQL with known rows: all numbers and sums are exact."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpusteward.analyzer.ledger.database.db_engine import open_engine
from gpusteward.analyzer.ledger.database.periods import DAY_MS, HOUR_MS
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.reports.make_report import make_report
from gpusteward.analyzer.reports.render.descriptions import write_token_cost
from gpusteward.analyzer.reports.render.json_text import read_report, render_json
from gpusteward.analyzer.reports.report import Amounts, Report
from gpusteward.analyzer.reports.report_query import GROUPINGS, ReportQuery, check_grouping
from gpusteward.core.errors import ConfigurationError, SourceError
from tests.analyzer.reports.ledger_rows import A100, GIB, H100, T4, LedgerRows, at, make_usage, open_ledger_rows

pytestmark = pytest.mark.slow

ELECTRIC = PriceSettings(
    currency="EUR", electricity_per_kwh=0.3, per_gpu_hour={"A100": 2, "T4": 0.4}, discount_percent={"vision": 50}
)
TEAMS = {"lab": "research", "team-*": "everyone", "team-1": "one"}
WATTS_200_FOR_AN_HOUR = 200 * 3_600_000  # millijoules


@pytest.fixture
def ledger(database_url: str) -> Iterator[LedgerRows]:
    with open_ledger_rows(database_url) as opened:
        yield opened


@pytest.fixture(scope="module")
def teams(kept_database_url: str) -> Iterator[LedgerRows]:
    """Two teams, for tests that only read."""
    with open_ledger_rows(kept_database_url) as opened:
        two_teams(opened)
        yield opened


def read(ledger: LedgerRows, since: float, until: float, **query: object) -> Report:
    """From and to in hours after the ledger begins; made when the period is over."""
    report = ReportQuery(at(since), at(until), **query)
    return make_report(ledger.engine, report, prices=ELECTRIC, teams=TEAMS, now_ms=at(until))


def test_cost_per_million_tokens_is_that_of_the_time_in_which_they_were_counted(ledger: LedgerRows):
    ledger.hold(1, namespace="serving", owner_name="chat", model=A100)
    ledger.hold(2, namespace="serving", owner_name="train", model=A100)
    ledger.hold(3, namespace="serving", owner_name="silent", model=A100)
    counted = {"served_ms": HOUR_MS, "served_cost": 2_000_000}
    ledger.use(1, hour=0, active=HOUR_MS, tokens=1_000_000, **counted)
    ledger.use(1, hour=1, active=HOUR_MS, tokens=3_000_000, **counted)
    ledger.use(1, hour=2, active=HOUR_MS)  # nobody counted
    ledger.use(2, hour=0, active=HOUR_MS)
    ledger.use(3, hour=0, idle=HOUR_MS, tokens=0, **counted)
    ledger.record_until(4)
    report = read(ledger, 0, 4, by="workload")
    found = {group.name: group.amounts for group in report.groups}
    costs = {name: amounts.cost_per_million_tokens_micros for name, amounts in found.items()}
    assert costs == {"chat": 1_000_000, "train": None, "silent": None}
    assert {name: amounts.tokens for name, amounts in found.items()} == {"chat": 4_000_000, "train": None, "silent": 0}
    assert report.total.cost_per_million_tokens_micros == 1_500_000  # a server that is kept ready costs too
    assert {name: write_token_cost(amounts, "en") for name, amounts in found.items()} == {
        "chat": "1.00",
        "train": "–",
        "silent": "no tokens",
    }
    assert read_report(json.loads(render_json(report))).total == report.total


def times(amounts: Amounts) -> tuple[float, ...]:
    """Allocated, active, idle, unknown in hours."""
    parts = (amounts.allocated_gpu_ms, amounts.active_gpu_ms, amounts.idle_gpu_ms, amounts.unknown_gpu_ms)
    return tuple(part / HOUR_MS for part in parts)


def two_teams(ledger: LedgerRows) -> None:
    """Vision works on an A100 for four hours, the lab has an idle T4 for three."""
    ledger.hold(1, namespace="vision", owner_name="train", model=A100, node="a", user_name="li")
    ledger.hold(2, namespace="lab", owner_name="notebook", model=T4, node="b", user_name="wu")
    for hour in range(4):
        ledger.use(1, hour=hour, active=HOUR_MS, score_ms_sum=80 * HOUR_MS, scored_ms=HOUR_MS,
                  energy_mj=WATTS_200_FOR_AN_HOUR, energy_ms=HOUR_MS)  # fmt: skip
    for hour in range(3):
        ledger.use(2, hour=hour, idle=HOUR_MS // 2, unknown=HOUR_MS // 2)
    ledger.record_until(4)


def test_a_report_has_hours_costs_score_and_electricity_of_each_group(teams: LedgerRows):
    report = read(teams, 0, 4)
    lab, vision = report.groups
    assert (lab.name, times(lab.amounts)) == ("lab", (3.0, 0.0, 1.5, 1.5))
    assert (vision.name, times(vision.amounts)) == ("vision", (4.0, 4.0, 0.0, 0.0))
    assert (lab.amounts.idle_cost_micros, lab.amounts.unknown_cost_micros) == (600_000, 600_000)
    assert (vision.amounts.active_cost_micros, vision.amounts.mean_score) == (8_000_000, 80.0)
    assert vision.amounts.electricity_micros == 240_000  # 0.8 kWh
    assert (lab.amounts.energy_mj, lab.amounts.electricity_micros, lab.amounts.mean_score) == (None, None, None)
    assert times(report.total) == (7.0, 4.0, 1.5, 1.5)
    assert report.currency == "EUR"


@pytest.mark.parametrize("by", GROUPINGS)
def test_a_reader_who_sees_one_namespace_gets_its_report(ledger: LedgerRows, by: str):
    """A namespace of the same name in another cluster is another one."""
    two_teams(ledger)
    ledger.hold(3, namespace="vision", cluster="prod", owner_name="secret", model=A100)
    ledger.use(3, hour=0, idle=HOUR_MS)
    ledger.add_fleet(0, 1, 2, 3, gpu_ms=9 * HOUR_MS)
    report = read(ledger, 0, 4, by=by, visible=(("", "vision"),))
    assert (times(report.total), report.total.unallocated_gpu_ms) == ((4.0, 4.0, 0.0, 0.0), None)
    assert (report.namespaces, report.wasters, report.others) == (("vision",), [], None)
    assert all(group.amounts.idle_gpu_ms == 0 for group in report.groups)
    assert read(ledger, 0, 4, by=by, visible=()).total.allocated_gpu_ms == 0


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("namespace", ["lab", "vision"]),
        ("workload", ["notebook", "train"]),
        ("model", [T4, A100]),
        ("node", ["b", "a"]),
        ("user", ["wu", "li"]),
        ("team", ["research", ""]),
        ("day", ["2025-11-12"]),
    ],
)
def test_rows_are_grouped_as_requested_with_the_highest_idle_cost_first(teams: LedgerRows, by: str, names: list[str]):
    assert [group.name for group in read(teams, 0, 4, by=by).groups] == names


def test_only_the_requested_namespaces_are_counted(ledger: LedgerRows):
    ledger.add_fleet(0, gpu_ms=8 * HOUR_MS)
    two_teams(ledger)
    report = read(ledger, 0, 4, namespaces=("lab",))
    assert [group.name for group in report.groups] == ["lab"]
    assert times(report.total) == (3.0, 0.0, 1.5, 1.5)
    assert sum(point.idle_gpu_ms for point in report.points) == report.total.idle_gpu_ms
    assert report.total.unallocated_gpu_ms is None  # unallocated time belongs to no namespace


def test_groups_beyond_the_limit_are_one_row(teams: LedgerRows):
    report = read(teams, 0, 4, rows=1)
    assert [group.name for group in report.groups] == ["lab"]
    assert report.others is not None
    assert times(report.others.amounts) == (4.0, 4.0, 0.0, 0.0)
    assert report.others.amounts.mean_score == 80.0


def test_time_without_a_price_has_an_unknown_cost_and_is_reported(ledger: LedgerRows):
    ledger.hold(1, model="a model without a price")
    ledger.use(1, hour=0, idle=HOUR_MS)
    ledger.record_until(1)
    total = read(ledger, 0, 1).total
    assert (total.idle_cost_micros, total.cost_micros, total.unpriced_gpu_ms) == (None, None, HOUR_MS)


def test_unallocated_is_existing_minus_allocated(ledger: LedgerRows):
    ledger.add_fleet(*range(4), node="a", model=A100, gpu_ms=2 * HOUR_MS)
    ledger.add_fleet(*range(4), node="c", model=H100, gpu_ms=HOUR_MS)
    two_teams(ledger)
    report = read(ledger, 0, 4, by="node")
    assert report.total.unallocated_gpu_ms == 8 * HOUR_MS
    assert {group.name: group.amounts.unallocated_gpu_ms for group in report.groups} == {
        "a": 4 * HOUR_MS,
        "b": None,  # the number of GPUs is unknown
        "c": 4 * HOUR_MS,  # none was allocated
    }
    assert read(ledger, 0, 4, by="namespace").total.unallocated_gpu_ms == 8 * HOUR_MS


def test_unallocated_is_unknown_where_the_number_of_gpus_is_unknown(teams: LedgerRows):
    report = read(teams, 0, 4)
    assert report.total.unallocated_gpu_ms is None
    assert report.unused is not None
    assert report.unused.unallocated is None


def test_a_model_spelled_differently_in_the_allocation_is_not_counted_as_unallocated(ledger: LedgerRows):
    ledger.hold(1, node="a", model="A100")
    ledger.use(1, hour=0, active=HOUR_MS)
    ledger.add_fleet(0, node="a", model=A100, gpu_ms=HOUR_MS)
    ledger.record_until(1)
    assert read(ledger, 0, 1).total.unallocated_gpu_ms == 0


def test_unused_gpus_are_idle_or_unallocated_in_the_last_full_hour(ledger: LedgerRows):
    for number in range(3):
        ledger.hold(number, gpu_uuid=f"GPU-{number}")
        ledger.use(number, hour=0, active=HOUR_MS // 2)
        ledger.use(number, hour=1, active=HOUR_MS if number else 0, idle=0 if number else HOUR_MS)
    ledger.add_fleet(0, 1, gpu_ms=8 * HOUR_MS)
    ledger.record_until(1.5)
    assert read(ledger, 0, 2).unused is None  # only a part of the first hour is in the ledger
    ledger.record_until(2.5)
    unused = read(ledger, 0, 3).unused
    assert unused is not None
    assert (unused.unused, unused.gpus, unused.idle, unused.unallocated) == (6, 8, 1, 5)


def test_the_trend_compares_with_the_previous_period_per_hour(ledger: LedgerRows):
    ledger.hold(1, namespace="vision")
    for hour in range(48):
        idle = HOUR_MS // 4 if hour < 24 else HOUR_MS // 2
        ledger.use(1, hour=hour, active=HOUR_MS - idle, idle=idle)
    ledger.record_until(48)
    report = read(ledger, 24, 48)
    assert report.trend is not None
    assert (report.trend.since_ms, report.trend.until_ms) == (at(0), at(24))
    assert report.trend.idle_change_ratio == pytest.approx(1.0)
    assert report.trend.allocated_change_ratio == pytest.approx(0.0)
    assert report.groups[0].idle_change_ratio == pytest.approx(1.0)


def test_an_unfinished_period_is_compared_by_the_part_that_is_over(ledger: LedgerRows):
    ledger.hold(1)
    for hour in range(24, 42):
        ledger.use(1, hour=hour, idle=HOUR_MS)
    for hour in range(24):
        ledger.use(1, hour=hour, idle=HOUR_MS)
    ledger.record_until(42)
    report = make_report(ledger.engine, ReportQuery(at(24), at(48)), now_ms=at(48))
    assert report.trend is not None
    assert report.trend.idle_change_ratio == pytest.approx(0.0)


def test_there_is_no_trend_if_the_ledger_does_not_reach_back_far_enough(teams: LedgerRows):
    assert read(teams, 2, 4).trend is not None
    assert read(teams, 1, 4).trend is None


def test_a_period_in_the_past_is_widened_to_full_hours(teams: LedgerRows):
    report = make_report(teams.engine, ReportQuery(at(1.4), at(2.4)), now_ms=at(10))
    assert (report.range.since_ms, report.range.until_ms) == (at(1), at(3))
    assert (report.range.asked_since_ms, report.range.asked_until_ms) == (at(1.4), at(2.4))
    assert times(report.total) == (4.0, 2.0, 1.0, 1.0)
    assert not report.range.is_widened
    assert not report.range.is_partial


def test_a_report_ends_now_and_an_unfinished_hour_is_partial(ledger: LedgerRows):
    two_teams(ledger)
    ledger.use(1, hour=4, idle=HOUR_MS // 4)
    ledger.record_until(4.25)
    report = make_report(ledger.engine, ReportQuery(at(2.3), at(4.3)), now_ms=at(4.3))
    assert (report.range.since_ms, report.range.until_ms) == (at(2), at(4.3))
    assert report.total.idle_gpu_ms == HOUR_MS * 3 // 4
    assert report.range.is_partial
    assert [point.is_partial for point in report.points] == [False, False, True]


def test_days_are_partial_at_both_ends_of_a_period(ledger: LedgerRows):
    ledger.hold(1)
    for hour in range(100):
        ledger.use(1, hour=hour, active=HOUR_MS)
    ledger.record_until(100)
    report = read(ledger, 14, 100, by="day")
    assert [(day.name, day.is_partial, times(day.amounts)[0]) for day in report.groups] == [
        ("2025-11-12", True, 10.0),
        ("2025-11-13", False, 24.0),
        ("2025-11-14", False, 24.0),
        ("2025-11-15", False, 24.0),
        ("2025-11-16", True, 4.0),
    ]
    assert [point.is_partial for point in report.points] == [True, False, False, False, True]
    few = read(ledger, 14, 100, by="day", rows=2)
    assert [day.name for day in few.groups] == ["2025-11-15", "2025-11-16"]
    assert few.others is not None
    assert (few.others.name, times(few.others.amounts)[0]) == ("3", 58.0)


def test_a_namespace_that_is_younger_than_the_ledger_is_not_partial(ledger: LedgerRows):
    ledger.hold(1, namespace="old")
    ledger.hold(2, namespace="young", first_ms=at(30))
    for hour in range(48):
        ledger.use(1, hour=hour, active=HOUR_MS)
    ledger.use(2, hour=30, active=HOUR_MS)
    ledger.record_until(48)
    report = read(ledger, 24, 48, namespaces=("young",))
    assert (report.range.first_ms, report.range.is_partial) == (at(24), False)


def test_unallocated_time_costs_the_list_price_of_its_model(ledger: LedgerRows):
    ledger.add_fleet(*range(4), node="a", model=A100, gpu_ms=2 * HOUR_MS)
    ledger.add_fleet(*range(4), node="c", model=H100, gpu_ms=HOUR_MS)  # has no price
    two_teams(ledger)
    report = read(ledger, 0, 4, by="model")
    assert report.total.unallocated_cost_micros == 8_000_000  # four hours at 2; vision's discount does not apply
    assert {group.name: group.amounts.unallocated_cost_micros for group in report.groups} == {
        A100: 8_000_000,
        H100: None,
        T4: None,
    }
    assert read(ledger, 0, 4, by="day").groups[0].amounts.unallocated_cost_micros == 8_000_000
    assert read(ledger, 0, 4, namespaces=("lab",)).total.unallocated_cost_micros is None


def test_teams_are_found_by_name_and_then_by_pattern(ledger: LedgerRows):
    for number, namespace in enumerate(["team-0", "team-1", "team-2", "other"]):
        ledger.hold(number, namespace=namespace)
        for hour in range(2):
            ledger.use(number, hour=hour, idle=HOUR_MS // (1 + hour))
    ledger.record_until(2)
    report = read(ledger, 1, 2, by="team")
    rows = [(group.name, times(group.amounts)[2], group.idle_change_ratio) for group in report.groups]
    assert rows == [("everyone", 1.0, -0.5), ("", 0.5, -0.5), ("one", 0.5, -0.5)]


@pytest.mark.parametrize(
    ("activity", "signature", "is_listed"),
    [
        ("active", "steady", True),
        ("idle", "parked", False),
        ("active", "keep-alive", False),
        ("active", "health-check", False),
        ("active", "stalled", False),
    ],
)
def test_right_sizing_leaves_out_what_is_idle_or_keep_alive(
    ledger: LedgerRows, activity: str, signature: str, is_listed: bool
):
    small = {"core_peak": 0.05, "memory_peak_bytes": 4 * GIB, "memory_total_bytes": 80 * GIB}
    ledger.hold(1, owner_name="small")
    ledger.use_all([make_usage(1, hour=hour, active=HOUR_MS, price=2_000_000, **small) for hour in range(30)])
    ledger.judge(at(2), owner_name="small", activity="active", signature="keep-alive")
    ledger.judge(at(20), owner_name="small", activity=activity, signature=signature)
    ledger.judge(at(31), owner_name="small", activity="idle", signature="parked")  # after the period
    ledger.record_until(30)
    assert bool(read(ledger, 0, 30).findings) is is_listed


def test_where_only_days_are_kept_the_range_is_widened_and_marked(ledger: LedgerRows):
    ledger.hold(1)
    for hour in range(96):
        ledger.use(1, hour=hour, active=HOUR_MS)
    ledger.record_until(96)
    ledger.delete_hours(before=48)
    report = read(ledger, 30, 96)
    assert report.range.is_widened
    assert report.range.since_ms == at(24)
    assert times(report.total)[0] == 72.0
    assert not read(ledger, 50, 96).range.is_widened


def test_a_report_contains_the_recorded_range(ledger: LedgerRows):
    ledger.hold(1, first_ms=at(5.5))
    ledger.use(1, hour=5, active=HOUR_MS // 2)
    ledger.use(1, hour=6, active=HOUR_MS // 4)
    ledger.record_until(6.25)
    report = make_report(ledger.engine, ReportQuery(at(-100), at(7)), now_ms=at(7))
    assert (report.range.first_ms, report.range.last_ms) == (at(5.5), at(6.25))


def test_an_empty_ledger_makes_an_empty_report(ledger: LedgerRows):
    report = read(ledger, 0, 24)
    assert (report.groups, report.points, report.wasters, report.trend, report.unused) == ([], [], [], None, None)
    assert report.total.allocated_gpu_ms == 0
    assert (report.range.first_ms, report.range.last_ms) == (None, None)


def test_a_short_period_is_charted_by_hour_a_long_one_by_day(teams: LedgerRows):
    short, long = read(teams, 0, 4), read(teams, 0, 72)
    assert (short.step_ms, len(short.points)) == (HOUR_MS, 4)
    assert (long.step_ms, len(long.points)) == (DAY_MS, 1)
    assert sum(point.idle_gpu_ms for point in short.points) == sum(point.idle_gpu_ms for point in long.points)


def test_wasters_are_workloads_with_their_gpus_models_and_user(ledger: LedgerRows):
    for number, (user, model) in enumerate([("li", A100), ("li", H100)]):
        ledger.hold(number, namespace="vision", owner_name="train", user_name=user, model=model)
        ledger.use(number, hour=0, idle=HOUR_MS)
    ledger.record_until(1)
    (waster,) = read(ledger, 0, 1).wasters
    assert (waster.kind, waster.namespace, waster.name, waster.user) == ("Job", "vision", "train", "li")
    assert (waster.gpus, waster.models) == (2, f"{A100} +1")
    assert waster.amounts.idle_cost_micros == 5_500_000


def test_workloads_with_one_whole_gpu_that_fit_into_a_part_are_findings(ledger: LedgerRows):
    small = {"core_peak": 0.05, "memory_peak_bytes": 4 * GIB, "memory_total_bytes": 80 * GIB}
    ledger.hold(1, owner_name="alone")
    ledger.hold(2, owner_name="instance", gpu_instance="7", share="mig")
    ledger.hold(3, owner_name="sliced", share="time-sliced")
    for number in (4, 5):  # two GPUs of one container
        ledger.hold(number, owner_name="pair", pod="pair", pod_uid="pair")
    for number in range(1, 6):
        ledger.use_all([make_usage(number, hour=hour, active=HOUR_MS, price=2_000_000, **small) for hour in range(30)])
    ledger.record_until(30)
    (finding,) = read(ledger, 0, 30).findings
    assert (finding.name, finding.profile) == ("alone", "1g.10gb")
    assert finding.saving_micros == int(60_000_000 * 6 / 7)


def test_a_ledger_that_cannot_be_read_is_a_source_error(tmp_path):
    engine = open_engine(f"sqlite:///{tmp_path / 'other.db'}")
    with pytest.raises(SourceError, match="the ledger cannot be read"):
        make_report(engine, ReportQuery(0, HOUR_MS))
    engine.dispose()


def test_active_time_is_divided_into_effective_and_ineffective(ledger: LedgerRows):
    ledger.hold(1, namespace="vision", owner_name="train", model=T4)
    for hour in range(30):  # over a day that is rolled up
        ledger.use(1, hour=hour, active=HOUR_MS, ineffective=HOUR_MS // 4)
    ledger.record_until(30)
    report = read(ledger, 0, 30)
    (group,) = report.groups
    for amounts in (group.amounts, report.total):
        assert (amounts.active_gpu_ms, amounts.active_cost_micros) == (30 * HOUR_MS, 12_000_000)
        assert (amounts.effective_gpu_ms, amounts.effective_cost_micros) == (int(22.5 * HOUR_MS), 9_000_000)
        assert (amounts.ineffective_gpu_ms, amounts.ineffective_cost_micros) == (int(7.5 * HOUR_MS), 3_000_000)
        assert amounts.cost_micros == 12_000_000


ROWS = st.lists(
    st.tuples(
        st.integers(min_value=0, max_value=7),  # allocation
        st.integers(min_value=0, max_value=60),  # hour
        *(st.integers(min_value=0, max_value=HOUR_MS // 3) for _ in range(3)),
        st.one_of(st.none(), st.integers(min_value=0, max_value=10**9)),  # energy
    ),
    max_size=40,
    unique_by=lambda row: row[:2],
)


def fill(ledger: LedgerRows, rows: list[tuple[int, int, int, int, int, int | None]]) -> None:
    ledger.wipe()
    for number in range(8):
        ledger.hold(
            number,
            namespace=f"team-{number % 3}",
            owner_name=f"job-{number % 4}",
            node=f"node-{number % 2}",
            model=(A100, H100, T4, "unpriced")[number % 4],
            user_name=f"user-{number % 5}",
        )
    prices = (2_000_001, 3_500_003, 400_007, 0)
    made = [
        make_usage(number, hour=hour, active=active, idle=idle, unknown=unknown, price=prices[number % 4],
                   ineffective=active * (hour % 4) // 3,
                   energy_mj=energy, energy_ms=0 if energy is None else active + idle + unknown)
        for number, hour, active, idle, unknown, energy in rows
    ]  # fmt: skip
    if made:
        ledger.use_all(made)
    for node, model in (("node-0", A100), ("node-9", T4)):  # their number became known later
        ledger.add_fleet(*range(20, 61), node=node, model=model, gpu_ms=3 * HOUR_MS)
    ledger.record_until(61)


SUMMED = Amounts.__dataclass_fields__.keys() - {"mean_score"}


def check_sums(report: Report) -> None:
    rows = [group.amounts for group in (*report.groups, *([report.others] if report.others else []))]
    for amounts in (*rows, report.total):
        parts = amounts.active_gpu_ms + amounts.idle_gpu_ms + amounts.unknown_gpu_ms
        assert amounts.allocated_gpu_ms == parts
        assert amounts.active_gpu_ms == amounts.effective_gpu_ms + amounts.ineffective_gpu_ms
        costs = (amounts.effective_cost_micros, amounts.ineffective_cost_micros)
        assert amounts.active_cost_micros == (None if None in costs else sum(costs))
    summed = SUMMED if report.by in ("node", "model") else SUMMED - {"unallocated_gpu_ms", "unallocated_cost_micros"}
    for name in summed - {"allocations"} if report.by == "day" else summed:
        assert sum(getattr(row, name) or 0 for row in rows) == (getattr(report.total, name) or 0), name
    for name in ("active", "idle", "unknown"):
        drawn = sum(getattr(point, f"{name}_gpu_ms") for point in report.points)
        assert drawn == getattr(report.total, f"{name}_gpu_ms")


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=ROWS,
    since=st.integers(min_value=0, max_value=60),
    length=st.integers(min_value=1, max_value=61),
    shown=st.integers(min_value=1, max_value=4),
    forgotten=st.sampled_from([0, 24, 48]),
)
def test_rows_add_up_to_the_total_and_parts_to_what_is_allocated(
    ledger: LedgerRows, rows: list, since: int, length: int, shown: int, forgotten: int
):
    fill(ledger, rows)
    ledger.delete_hours(before=forgotten)
    for by in GROUPINGS:
        report = read(ledger, since, min(61, since + length), by=by, rows=shown)
        check_sums(report)
    whole = read(ledger, 0, 61)
    assert whole.total.allocated_gpu_ms == sum(sum(row[2:5]) for row in rows)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, cut=st.integers(min_value=1, max_value=60))
def test_two_reports_side_by_side_count_every_hour_once(ledger: LedgerRows, rows: list, cut: int):
    fill(ledger, rows)
    one, other, both = read(ledger, 0, cut).total, read(ledger, cut, 61).total, read(ledger, 0, 61).total
    for name in ("allocated_gpu_ms", "idle_gpu_ms", "unpriced_gpu_ms"):
        assert getattr(one, name) + getattr(other, name) == getattr(both, name)


def test_there_is_no_trend_against_the_incomplete_first_day_of_the_ledger(ledger: LedgerRows):
    ledger.hold(1)
    for hour in range(15, 72):
        ledger.use(1, hour=hour, idle=HOUR_MS)
    ledger.record_until(72)
    assert read(ledger, 24, 48).trend is None
    assert read(ledger, 48, 72).trend is not None


def test_rows_are_grouped_by_a_label_and_those_without_it_are_one_row(ledger: LedgerRows):
    labels = ['{"team":"vision","org/cost-center":"42"}', '{"team":"视觉\\"\'"}', "{}", '{"team":"vision"}']
    for number, label in enumerate(labels):
        ledger.hold(number, labels=label)
        ledger.use(number, hour=0, idle=HOUR_MS)
        ledger.use(number, hour=1, idle=(4 - number) * HOUR_MS // 4)
    ledger.record_until(2)
    report = read(ledger, 1, 2, by="label:team")
    assert [(group.name, times(group.amounts)[2]) for group in report.groups] == [
        ("vision", 1.25),
        ("视觉\"'", 0.75),
        ("", 0.5),
    ]
    assert report.groups[0].idle_change_ratio == pytest.approx(-0.375)
    check_sums(report)
    check_sums(read(ledger, 0, 2, by="label:team", rows=1))
    named = read(ledger, 0, 2, by="label:org/cost-center").groups
    assert sorted(group.name for group in named) == ["", "42"]


@pytest.mark.parametrize("by", ["label:", "label:a b", 'label:"x', "labels:team", "team:x", "label:%s"])
def test_a_label_has_the_form_of_kubernetes(by: str):
    with pytest.raises(ConfigurationError, match="is not one of cluster, namespace"):
        check_grouping(by)


def test_a_label_that_is_not_recorded_names_those_that_are():
    check_grouping("label:team", ("team", "project"))
    with pytest.raises(ConfigurationError, match=r"'cost' is not recorded; .*: team, project"):
        check_grouping("label:cost", ("team", "project"))
