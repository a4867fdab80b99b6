"""Reports on real books, in SQLite and in PostgreSQL: every number is known beforehand, and the sums are exact."""

from collections.abc import Iterator
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpusteward.analyzer.ledger.db_engine import open_engine
from gpusteward.analyzer.ledger.periods import DAY_MS, HOUR_MS
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.reports.make_report import make_report
from gpusteward.analyzer.reports.report import Amounts, By, Report, ReportQuery
from gpusteward.core.errors import SourceError
from tests.analyzer.reports.ledger_rows import A100, GIB, H100, T4, Books, at, make_usage, open_books

ELECTRIC = PriceSettings(currency="EUR", electricity_per_kwh=0.3)
WATTS_200_FOR_AN_HOUR = 200 * 3_600_000  # millijoules


@pytest.fixture
def books(database_url: str) -> Iterator[Books]:
    with open_books(database_url) as opened:
        yield opened


def ask(books: Books, since: float, until: float, **query: object) -> Report:
    """Hours after the books begin; asked as soon as the time is over."""
    return make_report(books.engine, ReportQuery(at(since), at(until), **query), prices=ELECTRIC, now_ms=at(until))


def times(amounts: Amounts) -> tuple[float, ...]:
    """Allocated, active, idle, unknown in hours."""
    parts = (amounts.allocated_gpu_ms, amounts.active_gpu_ms, amounts.idle_gpu_ms, amounts.unknown_gpu_ms)
    return tuple(part / HOUR_MS for part in parts)


def two_teams(books: Books) -> None:
    """Vision works on an A100 for four hours, the lab lets a T4 lie idle for three."""
    books.hold(1, namespace="vision", owner_name="train", model=A100, node="a", user_name="li")
    books.hold(2, namespace="lab", owner_name="notebook", model=T4, node="b", user_name="wu")
    for hour in range(4):
        books.use(1, hour=hour, active=HOUR_MS, score_ms_sum=80 * HOUR_MS, scored_ms=HOUR_MS,
                  energy_mj=WATTS_200_FOR_AN_HOUR, energy_ms=HOUR_MS)  # fmt: skip
    for hour in range(3):
        books.use(2, hour=hour, idle=HOUR_MS // 2, unknown=HOUR_MS // 2)
    books.book_until(4)


def test_a_report_tells_hours_money_score_and_electricity_of_each_group(books: Books):
    two_teams(books)
    report = ask(books, 0, 4)
    lab, vision = report.groups
    assert (lab.name, times(lab.amounts)) == ("lab", (3.0, 0.0, 1.5, 1.5))
    assert (vision.name, times(vision.amounts)) == ("vision", (4.0, 4.0, 0.0, 0.0))
    assert (lab.amounts.idle_cost_micros, lab.amounts.unknown_cost_micros) == (600_000, 600_000)
    assert (vision.amounts.active_cost_micros, vision.amounts.mean_score) == (8_000_000, 80.0)
    assert vision.amounts.electricity_micros == 240_000  # 0.8 kWh
    assert (lab.amounts.energy_mj, lab.amounts.electricity_micros, lab.amounts.mean_score) == (None, None, None)
    assert times(report.total) == (7.0, 4.0, 1.5, 1.5)
    assert report.currency == "EUR"


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("namespace", ["lab", "vision"]),
        ("owner", ["notebook", "train"]),
        ("model", [T4, A100]),
        ("node", ["b", "a"]),
        ("user", ["wu", "li"]),
    ],
)
def test_rows_are_about_what_was_asked_for_the_dearest_waste_first(books: Books, by: By, names: list[str]):
    two_teams(books)
    assert [group.name for group in ask(books, 0, 4, by=by).groups] == names


def test_only_the_namespaces_asked_for_are_counted(books: Books):
    books.tell_fleet(0, gpu_ms=8 * HOUR_MS)
    two_teams(books)
    report = ask(books, 0, 4, namespaces=("lab",))
    assert [group.name for group in report.groups] == ["lab"]
    assert times(report.total) == (3.0, 0.0, 1.5, 1.5)
    assert sum(point.idle_gpu_ms for point in report.points) == report.total.idle_gpu_ms
    assert report.total.unallocated_gpu_ms is None  # what nobody holds is in no namespace


def test_groups_beyond_those_asked_for_are_one_row(books: Books):
    two_teams(books)
    report = ask(books, 0, 4, rows=1)
    assert [group.name for group in report.groups] == ["lab"]
    assert report.others is not None
    assert times(report.others.amounts) == (4.0, 4.0, 0.0, 0.0)
    assert report.others.amounts.mean_score == 80.0


def test_what_has_no_price_costs_an_unknown_amount_and_is_said(books: Books):
    books.hold(1, model="a model without a price")
    books.use(1, hour=0, idle=HOUR_MS)
    books.book_until(1)
    total = ask(books, 0, 1).total
    assert (total.idle_cost_micros, total.cost_micros, total.unpriced_gpu_ms) == (None, None, HOUR_MS)


def test_unallocated_is_what_exists_less_what_is_held(books: Books):
    books.tell_fleet(*range(4), node="a", model=A100, gpu_ms=2 * HOUR_MS)
    books.tell_fleet(*range(4), node="c", model=H100, gpu_ms=HOUR_MS)
    two_teams(books)
    report = ask(books, 0, 4, by="node")
    assert report.total.unallocated_gpu_ms == 8 * HOUR_MS
    assert {group.name: group.amounts.unallocated_gpu_ms for group in report.groups} == {
        "a": 4 * HOUR_MS,
        "b": None,  # nobody told how many GPUs there are
        "c": 4 * HOUR_MS,  # nobody held one
    }
    assert ask(books, 0, 4, by="namespace").total.unallocated_gpu_ms == 8 * HOUR_MS


def test_unallocated_is_unknown_where_nobody_told_how_many_gpus_there_are(books: Books):
    two_teams(books)
    report = ask(books, 0, 4)
    assert report.total.unallocated_gpu_ms is None
    assert report.unused is not None
    assert report.unused.unallocated is None


def test_a_model_spelled_otherwise_by_its_holder_is_not_counted_as_unallocated(books: Books):
    books.hold(1, node="a", model="A100")
    books.use(1, hour=0, active=HOUR_MS)
    books.tell_fleet(0, node="a", model=A100, gpu_ms=HOUR_MS)
    books.book_until(1)
    assert ask(books, 0, 1).total.unallocated_gpu_ms == 0


def test_unused_gpus_are_those_idle_and_those_not_held_in_the_last_full_hour(books: Books):
    for number in range(3):
        books.hold(number, gpu_uuid=f"GPU-{number}")
        books.use(number, hour=0, active=HOUR_MS // 2)
        books.use(number, hour=1, active=HOUR_MS if number else 0, idle=0 if number else HOUR_MS)
    books.tell_fleet(0, 1, gpu_ms=8 * HOUR_MS)
    books.book_until(1.5)
    assert ask(books, 0, 2).unused is None  # only a part of the first hour is in the books
    books.book_until(2.5)
    unused = ask(books, 0, 3).unused
    assert unused is not None
    assert (unused.unused, unused.gpus, unused.idle, unused.unallocated) == (6, 8, 1, 5)


def test_the_trend_compares_with_the_period_before_per_hour(books: Books):
    books.hold(1, namespace="vision")
    for hour in range(48):
        idle = HOUR_MS // 4 if hour < 24 else HOUR_MS // 2
        books.use(1, hour=hour, active=HOUR_MS - idle, idle=idle)
    books.book_until(48)
    report = ask(books, 24, 48)
    assert report.trend is not None
    assert (report.trend.since_ms, report.trend.until_ms) == (at(0), at(24))
    assert report.trend.idle_change_ratio == pytest.approx(1.0)
    assert report.trend.allocated_change_ratio == pytest.approx(0.0)
    assert report.groups[0].idle_change_ratio == pytest.approx(1.0)


def test_a_period_under_way_is_compared_by_the_part_that_is_over(books: Books):
    books.hold(1)
    for hour in range(24, 42):
        books.use(1, hour=hour, idle=HOUR_MS)
    for hour in range(24):
        books.use(1, hour=hour, idle=HOUR_MS)
    books.book_until(42)
    report = make_report(books.engine, ReportQuery(at(24), at(48)), now_ms=at(48))
    assert report.trend is not None
    assert report.trend.idle_change_ratio == pytest.approx(0.0)


def test_without_books_that_far_back_there_is_no_trend(books: Books):
    two_teams(books)
    assert ask(books, 2, 4).trend is not None
    assert ask(books, 1, 4).trend is None


def test_the_range_is_rounded_to_full_hours_and_keeps_its_length(books: Books):
    two_teams(books)
    report = ask(books, 0.4, 3.4)
    assert (report.range.since_ms, report.range.until_ms) == (at(1), at(4))
    assert (report.range.asked_since_ms, report.range.asked_until_ms) == (at(0.4), at(3.4))
    assert times(report.total) == (5.0, 3.0, 1.0, 1.0)
    assert not report.range.is_widened


def test_where_only_days_are_kept_the_range_is_widened_to_them_and_says_so(books: Books):
    books.hold(1)
    for hour in range(96):
        books.use(1, hour=hour, active=HOUR_MS)
    books.book_until(96)
    books.forget_hours(before=48)
    report = ask(books, 30, 96)
    assert report.range.is_widened
    assert report.range.since_ms == at(24)
    assert times(report.total)[0] == 72.0
    assert not ask(books, 50, 96).range.is_widened


def test_the_books_say_from_when_to_when_they_reach(books: Books):
    books.hold(1, first_ms=at(5.5))
    books.use(1, hour=5, active=HOUR_MS // 2)
    books.use(1, hour=6, active=HOUR_MS // 4)
    books.book_until(6.25)
    report = make_report(books.engine, ReportQuery(at(-100), at(7)), now_ms=at(7))
    assert (report.range.first_ms, report.range.last_ms) == (at(5.5), at(6.25))


def test_empty_books_make_an_empty_report(books: Books):
    report = ask(books, 0, 24)
    assert (report.groups, report.points, report.wasters, report.trend, report.unused) == ([], [], [], None, None)
    assert report.total.allocated_gpu_ms == 0
    assert (report.range.first_ms, report.range.last_ms) == (None, None)


def test_a_short_period_is_drawn_by_the_hour_a_long_one_by_the_day(books: Books):
    two_teams(books)
    short, long = ask(books, 0, 4), ask(books, 0, 72)
    assert (short.step_ms, len(short.points)) == (HOUR_MS, 4)
    assert (long.step_ms, len(long.points)) == (DAY_MS, 1)
    assert sum(point.idle_gpu_ms for point in short.points) == sum(point.idle_gpu_ms for point in long.points)


def test_wasters_are_workloads_with_their_gpus_models_and_user(books: Books):
    for number, (user, model) in enumerate([("li", A100), ("li", H100)]):
        books.hold(number, namespace="vision", owner_name="train", user_name=user, model=model)
        books.use(number, hour=0, idle=HOUR_MS)
    books.book_until(1)
    (waster,) = ask(books, 0, 1).wasters
    assert (waster.kind, waster.namespace, waster.name, waster.user) == ("Job", "vision", "train", "li")
    assert (waster.gpus, waster.models) == (2, f"{A100} +1")
    assert waster.amounts.idle_cost_micros == 5_500_000


def test_who_holds_one_whole_gpu_and_would_fit_into_a_part_is_told(books: Books):
    small = {"core_peak": 0.05, "memory_peak_bytes": 4 * GIB, "memory_total_bytes": 80 * GIB}
    books.hold(1, owner_name="alone")
    books.hold(2, owner_name="instance", gpu_instance="7", share="mig")
    books.hold(3, owner_name="sliced", share="time-sliced")
    for number in (4, 5):  # two GPUs of one container
        books.hold(number, owner_name="pair", pod="pair", pod_uid="pair")
    for number in range(1, 6):
        books.use_all([make_usage(number, hour=hour, active=HOUR_MS, price=2_000_000, **small) for hour in range(30)])
    books.book_until(30)
    (finding,) = ask(books, 0, 30).findings
    assert (finding.name, finding.profile) == ("alone", "1g.10gb")
    assert finding.saving_micros == int(60_000_000 * 6 / 7)


def test_a_ledger_that_cannot_be_read_is_a_source_error(tmp_path):
    engine = open_engine(f"sqlite:///{tmp_path / 'other.db'}")
    with pytest.raises(SourceError, match="the ledger cannot be read"):
        make_report(engine, ReportQuery(0, HOUR_MS))
    engine.dispose()


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


def fill(books: Books, rows: list[tuple[int, int, int, int, int, int | None]]) -> None:
    books.wipe()
    for number in range(8):
        books.hold(
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
                   energy_mj=energy, energy_ms=0 if energy is None else active + idle + unknown)
        for number, hour, active, idle, unknown, energy in rows
    ]  # fmt: skip
    if made:
        books.use_all(made)
    for node, model in (("node-0", A100), ("node-9", T4)):  # how many there are became known later
        books.tell_fleet(*range(20, 61), node=node, model=model, gpu_ms=3 * HOUR_MS)
    books.book_until(61)


SUMMED = Amounts.__dataclass_fields__.keys() - {"mean_score"}


def check_sums(report: Report) -> None:
    rows = [group.amounts for group in (*report.groups, *([report.others] if report.others else []))]
    for amounts in (*rows, report.total):
        parts = amounts.active_gpu_ms + amounts.idle_gpu_ms + amounts.unknown_gpu_ms
        assert amounts.allocated_gpu_ms == parts
    for name in SUMMED if report.by in ("node", "model") else SUMMED - {"unallocated_gpu_ms"}:
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
    books: Books, rows: list, since: int, length: int, shown: int, forgotten: int
):
    fill(books, rows)
    books.forget_hours(before=forgotten)
    for by in get_args(By):
        report = ask(books, since, min(61, since + length), by=by, rows=shown)
        check_sums(report)
    whole = ask(books, 0, 61)
    assert whole.total.allocated_gpu_ms == sum(sum(row[2:5]) for row in rows)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, cut=st.integers(min_value=1, max_value=60))
def test_two_reports_side_by_side_count_every_hour_once(books: Books, rows: list, cut: int):
    fill(books, rows)
    one, other, both = ask(books, 0, cut).total, ask(books, cut, 61).total, ask(books, 0, 61).total
    for name in ("allocated_gpu_ms", "idle_gpu_ms", "unpriced_gpu_ms"):
        assert getattr(one, name) + getattr(other, name) == getattr(both, name)


def test_there_is_no_trend_against_a_day_in_the_middle_of_which_the_books_begin(books: Books):
    books.hold(1)
    for hour in range(15, 72):
        books.use(1, hour=hour, idle=HOUR_MS)
    books.book_until(72)
    assert ask(books, 24, 48).trend is None
    assert ask(books, 48, 72).trend is not None
