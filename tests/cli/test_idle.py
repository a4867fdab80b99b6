"""`gpusteward idle` against a real analyzer."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from gpusteward.analyzer.reports.report import Amounts, Group, Range, Report
from gpusteward.cli.api.client import make_client
from gpusteward.cli.api.errors import Peer
from gpusteward.cli.api.pagination import read_all
from gpusteward.cli.main import main
from gpusteward.core.containers import Workload
from tests.analyzer.api.sample_results import hold, small_result
from tests.analyzer.api.server import Api, FakeLedger, make_result, running_api
from tests.analyzer.usage_tables import AT, DAY, large_table, resting, table_of
from tests.cli.golden_files import assert_golden

pytestmark = pytest.mark.slow

NOTHING = "No idle or suspicious workloads.\n"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_table_matches_the_golden_file(language: str, analyzer: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["idle", "--server", analyzer.url, "--language", language]) == 0
    assert_golden(f"idle.{language}.txt", capsys.readouterr().out)


def test_the_language_comes_from_the_environment(
    analyzer: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert main(["idle", "--server", analyzer.url]) == 0
    assert "命名空间" in capsys.readouterr().out


def test_the_server_comes_from_the_environment(
    analyzer: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUSTEWARD_SERVER", analyzer.url)
    assert main(["idle"]) == 0
    assert "Job/trainer" in capsys.readouterr().out


def test_json_has_null_for_unknown_values(analyzer: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["idle", "--server", analyzer.url, "-o", "json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["server"]["finding"] == "idle"
    assert rows["server"]["idle_seconds"] == 600
    assert rows["server"]["idle_cost_7d"] is None
    assert rows["trainer"]["finding"] == "partly-idle"
    assert (rows["trainer"]["idle_gpus"], rows["trainer"]["gpus"]) == (1, 2)


def test_csv_has_the_same_columns_as_json(analyzer: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["idle", "--server", analyzer.url, "-o", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["name"] for row in rows] == ["server", "trainer"]
    assert rows[0]["idle_since"] == "2026-09-21T14:03:20Z"
    assert rows[1]["idle_since"] == ""


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (["--namespace", "chat"], ["server"]),
        (["-n", "chat", "-n", "vision"], ["server", "trainer"]),
        (["--longer-than", "10m"], ["server"]),
        (["--longer-than", "1h"], []),
        (["-n", "missing"], []),
    ],
)
def test_rows_are_filtered_by_namespace_and_duration(
    flags: list[str], names: list[str], analyzer: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["idle", "--server", analyzer.url, "-o", "json", *flags]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == names


def test_with_the_flag_the_exit_code_is_3_if_a_workload_is_listed(
    analyzer: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["idle", "--server", analyzer.url, "--exit-code"]) == 3
    assert main(["idle", "--server", analyzer.url, "--exit-code", "-n", "missing"]) == 0
    assert capsys.readouterr().err == NOTHING


def test_an_invalid_duration_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["idle", "--longer-than", "soon"]) == 2
    assert "--longer-than: 'soon' is not a duration: write 90s, 30m, 2h, 7d or 1w" in capsys.readouterr().err


def test_names_are_never_interpreted_as_markup_or_formulas(capsys: pytest.CaptureFixture[str]) -> None:
    owner = Workload("Job", "[red]x[/red]", "=cmd|' /C calc'!A0\x1b[31m")
    held = [hold("GPU-a", owner, namespace="[red]x[/red]", pod="p")]
    result = make_result(table_of(resting(), allocations=held))
    with running_api(result) as api:
        assert main(["idle", "--server", api.url]) == 0
        table = capsys.readouterr().out
        assert main(["idle", "--server", api.url, "-o", "csv"]) == 0
        rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert "[red]x[/red]" in table
    assert "\x1b" not in table
    assert rows[0]["name"].startswith("'=cmd|")


def test_of_fifty_thousand_gpus_every_idle_workload_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    result = make_result(large_table(50_000))
    with running_api(result) as api:
        assert main(["idle", "--server", api.url, "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) > 1000, "more than one page"
    assert sum(row["idle_gpus"] for row in rows) == int(result.workloads.idle_gpus.sum())


def test_a_cycle_between_two_pages_restarts_the_list() -> None:
    """The cursor of the old result is refused with 410; no row is missing or repeated."""
    result = make_result(large_table(40_000))
    pages: list[int] = []

    def advance(done: int, _total: int) -> None:
        pages.append(done)
        if len(pages) == 1:
            api.publish(replace(result, number=2))

    with running_api(result) as api:
        listed = read_all(make_client(Peer.ANALYZER, api.url), "/api/v1/workloads", (), advance=advance)
    names = [(row["namespace"], row["name"]) for row in listed.rows]
    assert pages == [1000, 1000, 2000, 2500]
    assert len(names) == len(set(names)) == len(result.workloads)


def report_of(*groups: Group) -> Report:
    span = Range(0, 1, 0, 1, 0, 1, is_widened=False)
    total = amounts(0)
    return Report(0, "CNY", "owner", (), span, total, groups, None, (), (), None, 1, (), None)


def amounts(idle_cost_micros: int | None) -> Amounts:
    return Amounts(1, 5, 0, 5, 0, None, 0, idle_cost_micros, 0, 0, None, 0, None, None)


def test_the_cost_of_the_last_week_is_shown_if_the_ledger_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    priced = Group("server", "Deployment", "chat", amounts(1_234_560_000), None)
    unpriced = Group("trainer", "Job", "vision", amounts(None), None)
    with running_api(small_result(), ledger=FakeLedger(report_of(priced, unpriced))) as api:
        assert main(["idle", "--server", api.url]) == 0
        table = capsys.readouterr().out
        assert main(["idle", "--server", api.url, "-o", "json"]) == 0
        rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert_golden("idle.costs.txt", table)
    assert (rows["server"]["idle_cost_7d"], rows["server"]["currency"]) == (1234.56, "CNY")
    assert rows["trainer"]["idle_cost_7d"] is None, "without a price it is unknown, not free"


def test_rows_are_sorted_by_idle_gpus_then_duration_then_cost(capsys: pytest.CaptureFixture[str]) -> None:
    prices = {"unpriced": None, "cheap": 1_000_000, "dear": 9_000_000, "long": None, "large": None}
    held = [
        hold(f"GPU-{number}", Workload("Deployment", "ns", name), namespace="ns", pod=f"pod-{number}")
        for number, name in enumerate((*prices, "large"))
    ]
    groups = [Group(name, "Deployment", "ns", amounts(price), None) for name, price in prices.items()]
    result = make_result(table_of(*[resting(1.0)] * len(held), allocations=held))
    began = np.array([AT - DAY if name == "long" else AT - 600 for _, _, name in result.workloads.keys])
    result = replace(result, workloads=replace(result.workloads, idle_since=began))
    with running_api(result, ledger=FakeLedger(report_of(*groups))) as api:
        assert main(["idle", "--server", api.url, "-o", "json"]) == 0
        listed = api.get("/api/v1/workloads").json["items"]
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == [
        "large",
        "long",
        "dear",
        "cheap",
        "unpriced",
    ]
    assert [row["name"] for row in listed] == ["large", "long", "unpriced", "cheap", "dear"]


def test_an_empty_cluster_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    with running_api(make_result(table_of(), number=1)) as api:
        assert main(["idle", "--server", api.url]) == 0
        assert main(["idle", "--server", api.url, "-o", "json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == NOTHING
    assert json.loads(printed.out) == []
