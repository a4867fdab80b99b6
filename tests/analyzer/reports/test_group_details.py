"""The groups of a report over time, on ledgers in SQLite and PostgreSQL with known rows."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import SecretStr

from gpusteward.analyzer.ledger.database.periods import DAY_MS, HOUR_MS
from gpusteward.analyzer.ledger_access import LedgerAccess
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.reports.group_details import read_group_details
from gpusteward.analyzer.reports.report import GroupDetails
from gpusteward.analyzer.reports.report_query import GROUPINGS, ReportQuery
from gpusteward.analyzer.settings.ledger import LedgerSettings
from tests.analyzer.reports.ledger_rows import A100, T4, LedgerRows, at, open_ledger_rows

pytestmark = pytest.mark.slow

TEAMS = {"lab": "research", "vision-*": "sight"}


@pytest.fixture(scope="module")
def ledger(kept_database_url: str) -> Iterator[LedgerRows]:
    """Two namespaces of one team, and the lab with two idle notebooks."""
    with open_ledger_rows(kept_database_url) as opened:
        opened.hold(1, namespace="vision-a", owner_name="train", model=A100, user_name="li")
        opened.hold(2, namespace="vision-b", owner_name="serve", model=A100, user_name="wu")
        opened.hold(3, namespace="lab", owner_name="notebook", model=T4, user_name="wu")
        opened.hold(4, namespace="lab", owner_name="draft", model=A100, user_name="li")
        for hour in range(72):
            opened.use(1, hour=hour, active=HOUR_MS)
            opened.use(2, hour=hour, active=HOUR_MS // 2, idle=HOUR_MS // 2)
            opened.use(3, hour=hour, idle=HOUR_MS)
        opened.use(4, hour=0, idle=HOUR_MS, unknown=0)
        opened.record_until(72)
        yield opened


def read(ledger: LedgerRows, since: float, until: float, **query: object) -> GroupDetails:
    return read_group_details(ledger.engine, ReportQuery(at(since), at(until), **query), teams=TEAMS, now_ms=at(until))


def test_a_short_period_has_hours_and_a_long_one_days(ledger: LedgerRows):
    short, long = read(ledger, 0, 4), read(ledger, 0, 72)
    assert (short.step_ms, len(short.at_ms)) == (HOUR_MS, 4)
    assert (long.step_ms, list(long.at_ms)) == (DAY_MS, [at(0), at(24), at(48)])


def test_each_group_has_its_time_by_step_and_the_highest_idle_cost_is_first(ledger: LedgerRows):
    vision, lab, train = read(ledger, 0, 72).groups
    assert (vision.name, lab.name, train.name) == ("vision-b", "lab", "vision-a")
    assert list(lab.idle_gpu_ms) == [25 * HOUR_MS, 24 * HOUR_MS, 24 * HOUR_MS]
    assert list(vision.active_gpu_ms) == list(vision.idle_gpu_ms) == [12 * HOUR_MS] * 3
    assert (list(train.idle_gpu_ms), list(train.workloads)) == ([0, 0, 0], [])


def test_each_group_has_its_workloads_in_order_of_idle_cost(ledger: LedgerRows):
    (lab,) = (group for group in read(ledger, 0, 72).groups if group.name == "lab")
    assert [(each.name, each.user, each.idle_gpu_ms // HOUR_MS, each.idle_cost_micros) for each in lab.workloads] == [
        ("notebook", "wu", 72, 72 * 400_000),
        ("draft", "li", 1, 2_000_000),
    ]
    assert [[each.name for each in group.workloads] for group in read(ledger, 0, 72, top=1).groups] == [
        ["serve"],
        ["notebook"],
        [],
    ]


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("namespace", ["vision-b", "lab", "vision-a"]),
        ("team", ["sight", "research"]),
        ("user", ["wu", "li"]),
        ("workload", ["serve", "notebook", "draft", "train"]),
        ("day", []),
    ],
)
def test_groups_are_those_of_the_report(ledger: LedgerRows, by: str, names: list[str]):
    assert [group.name for group in read(ledger, 0, 72, by=by).groups] == names


@pytest.mark.parametrize("by", GROUPINGS)
def test_a_reader_who_sees_one_namespace_gets_its_groups(ledger: LedgerRows, by: str):
    details = read(ledger, 0, 72, by=by, visible=(("", "vision-a"),))
    assert sum(sum(group.active_gpu_ms) for group in details.groups) == (0 if by == "day" else 72 * HOUR_MS)
    assert sum(sum(group.idle_gpu_ms) for group in details.groups) == 0
    assert read(ledger, 0, 72, by=by, visible=()).groups == []


def test_people_can_be_grouped_by_teams_and_labels_where_there_are_some(tmp_path: Path):
    url = SecretStr(f"sqlite:///{tmp_path / 'ledger.db'}")
    query = ReportQuery(at(0), at(1))
    with closing(LedgerAccess(LedgerSettings(url=url), PriceSettings)) as plain:
        assert plain.read_group_details(query, visible=None).groupings == ["namespace", "user"]
    labelled = LedgerSettings(url=url, labels=("cost-center",))
    with closing(LedgerAccess(labelled, PriceSettings, lambda: TEAMS)) as access:
        assert access.read_group_details(query, visible=None).groupings == [
            "namespace",
            "team",
            "user",
            "label:cost-center",
        ]


def test_only_the_requested_number_of_groups_is_returned(ledger: LedgerRows):
    assert [group.name for group in read(ledger, 0, 72, rows=1).groups] == ["vision-b"]
