"""`gpusteward idle` against a real analyzer."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.reports.report import Amounts, Group, Range, Report
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.cli.api.client import Peer, make_client
from gpusteward.cli.api.pagination import read_all
from gpusteward.cli.main import main
from gpusteward.cli.output.terminal_text import measure
from gpusteward.core.node.containers import Workload
from gpusteward.core.usages import Measure, Stat
from tests.analyzer.api.sample_results import H100, hold, small_result
from tests.analyzer.api.server import Api, FakeLedger, make_result, running_api
from tests.analyzer.usage_tables import AT, DAY, large_table, resting, table_of, working
from tests.cli.golden_files import assert_golden

pytestmark = pytest.mark.slow

NOTHING = "No idle or suspicious workloads.\nas of 14:13:20\n"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_table_matches_the_golden_file(language: str, analyzer: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["idle", "--server", analyzer.url, "--language", language]) == 0
    assert_golden(f"idle.{language}.txt", capsys.readouterr().out)


def test_the_language_comes_from_the_environment(
    analyzer: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert main(["idle", "--server", analyzer.url]) == 0
    assert "工作负载" in capsys.readouterr().out


def test_the_server_comes_from_the_environment(
    analyzer: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUSTEWARD_SERVER", analyzer.url)
    assert main(["idle"]) == 0
    assert "vision/Job/trainer" in capsys.readouterr().out


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
    assert main(["idle", "--server", analyzer.url, "--exit-code", "--longer-than", "1h"]) == 0
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
    return Report(0, "CNY", "workload", (), span, total, groups, None, (), (), None, 1, (), None)


def amounts(idle_cost_micros: int | None) -> Amounts:
    return Amounts(1, 5, 0, 0, 0, 5, 0, None, 0, 0, 0, idle_cost_micros, 0, 0, None, 0, None, None)


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


def five_workloads() -> tuple[Result, FakeLedger]:
    """`dear` and `cheap` have prices; `long` has been idle for a day; `large` holds two GPUs."""
    names = ("cheap", "dear", "long", "unpriced", "large", "large")
    models = {"cheap": "NVIDIA A100-SXM4-80GB", "dear": H100}
    held = [
        replace(
            hold(f"GPU-{number}", Workload("Deployment", "ns", name), namespace="ns", pod=f"pod-{number}"),
            model=models.get(name, "GPU of tomorrow"),
        )
        for number, name in enumerate(names)
    ]
    prices = PriceSettings(per_gpu_hour={"A100": 1.0, "H100": 9.0})
    result = make_result(table_of(*[resting(1.0)] * len(held), allocations=held), settings=Settings(prices=prices))
    began = np.array([AT - DAY if name == "long" else AT - 600 for name in (key.name for key in result.workloads.keys)])
    result = replace(result, workloads=replace(result.workloads, idle_since=began))
    return result, FakeLedger(report_of(Group("cheap", "Deployment", "ns", amounts(5_000_000), None)))


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ([], ["dear", "cheap", "large", "long", "unpriced"]),
        (["--sort", "rate"], ["dear", "cheap", "large", "long", "unpriced"]),
        (["--sort", "cost-7d"], ["cheap", "large", "long", "dear", "unpriced"]),
        (["--sort", "gpus"], ["large", "long", "cheap", "dear", "unpriced"]),
        (["--sort", "since"], ["long", "large", "cheap", "dear", "unpriced"]),
        (["--sort", "name"], ["cheap", "dear", "large", "long", "unpriced"]),
    ],
)
def test_rows_are_sorted_by_cost_or_as_chosen(
    flags: list[str], names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Unknown costs come last; there, the most idle GPUs first, then the longest idle."""
    result, ledger = five_workloads()
    with running_api(result, ledger=ledger) as api:
        assert main(["idle", "--server", api.url, "-o", "json", *flags]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == names


def test_this_spell_and_the_last_week_are_two_amounts_with_a_total(capsys: pytest.CaptureFixture[str]) -> None:
    result, ledger = five_workloads()
    with running_api(result, ledger=ledger) as api:
        assert main(["idle", "--server", api.url]) == 0
        table = capsys.readouterr().out
        assert main(["idle", "--server", api.url, "-o", "wide"]) == 0
        wide = capsys.readouterr().out
        assert main(["idle", "--server", api.url, "-o", "json"]) == 0
        rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert_golden("idle.spells.txt", table)
    assert_golden("idle.wide.txt", wide)
    assert (rows["dear"]["idle_cost_per_hour"], rows["dear"]["idle_cost"]) == (9.0, 1.5)
    assert (rows["cheap"]["idle_cost"], rows["cheap"]["idle_cost_7d"]) == (pytest.approx(1 / 6, abs=1e-5), 5.0)
    assert rows["unpriced"]["idle_cost"] is None, "without a price it is unknown, not free"
    assert rows["dear"]["workload"] == "ns/Deployment/dear"


class Terminal(io.StringIO):
    """Standard output that is a terminal."""

    def isatty(self) -> bool:
        return True


def run_at_terminal(words: list[str], *, columns: int, monkeypatch: pytest.MonkeyPatch) -> str:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    assert main(words) == 0
    return terminal.getvalue()


@pytest.mark.parametrize("width", [80, 100, 250])
def test_on_a_terminal_of_any_width_names_are_whole_and_lines_fit(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is broken cannot be pasted."""
    result, ledger = five_workloads()
    owner = Workload("StatefulSet", "a-namespace-of-a-team", "a-workload-with-quite-a-long-name-0123456789")
    held = [hold("GPU-a", owner, namespace="a-namespace-of-a-team", pod="p")]
    result = make_result(table_of(resting(), allocations=held), settings=result.settings)
    with running_api(result, ledger=ledger) as api:
        printed = run_at_terminal(["idle", "--server", api.url], columns=width, monkeypatch=monkeypatch)
    lines = printed.splitlines()
    assert any(
        "a-namespace-of-a-team/StatefulSet/a-workload-with-quite-a-long-name-0123456789" in line for line in lines
    )
    assert all(measure(line) <= width for line in lines), printed
    for word in ("USER", "IDLE GPUS", "FOR", "USD/HOUR", "THIS SPELL", "LAST 7 DAYS", "1 workload"):
        assert word in printed


@pytest.mark.parametrize("output", ["table", "json"])
def test_an_unknown_namespace_is_a_usage_error(output: str, analyzer: Api, capsys: pytest.CaptureFixture[str]) -> None:
    """Not "all clear"; for scripts neither."""
    assert main(["idle", "--server", analyzer.url, "-n", "visoin", "-o", output]) == 2
    printed = capsys.readouterr()
    assert printed.err == "gpusteward: no namespace 'visoin' holds or held a GPU; did you mean 'vision'?\n"
    assert printed.out == ""


def test_a_known_namespace_without_idle_gpus_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    held = [hold("GPU-a", Workload("Job", "busy", "job"), namespace="busy", pod="p")]
    past = Group("gone", "", "", amounts(None), None)
    with running_api(make_result(table_of(working(), allocations=held)), ledger=FakeLedger(report_of(past))) as api:
        assert main(["idle", "--server", api.url, "-n", "busy"]) == 0
        assert main(["idle", "--server", api.url, "-n", "gone"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        *("No idle or suspicious workloads in busy.", "as of 14:13:20"),
        *("No GPUs are held in gone now.", "as of 14:13:20"),
    ]


def test_an_empty_cluster_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    with running_api(make_result(table_of(), number=1)) as api:
        assert main(["idle", "--server", api.url]) == 0
        assert main(["idle", "--server", api.url, "-o", "json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == NOTHING
    assert json.loads(printed.out) == []


def test_a_wide_table_has_the_requests_of_servers_where_there_are_some(capsys: pytest.CaptureFixture[str]) -> None:
    silent = {
        (Measure.REQUESTS, Stat.COUNT): 0.0,
        (Measure.TOKENS, Stat.COUNT): 0.0,
        (Measure.SILENT, Stat.LOWEST): 1.0,
    }
    with running_api(make_result(table_of(resting() | silent))) as api:
        assert main(["idle", "--server", api.url, "--output", "wide"]) == 0
        wide = capsys.readouterr().out
        assert main(["idle", "--server", api.url, "--output", "json"]) == 0
    assert "REQUESTS/HOUR" in wide
    assert "no requests" in wide
    [row] = json.loads(capsys.readouterr().out)
    assert (row["requests_per_hour"], row["last_request_at"]) == (0, None)
    assert row["silent_since"] == "2026-09-21T14:03:20Z"
