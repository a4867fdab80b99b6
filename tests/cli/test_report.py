"""`gpusteward report`: from a ledger and from an analyzer, as table, CSV, JSON and HTML."""

import csv
import io
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from gpusteward.analyzer.ledger.database.db_engine import open_engine
from gpusteward.analyzer.ledger.database.periods import HOUR_MS
from gpusteward.analyzer.ledger_access import LedgerAccess
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.reports.make_report import make_report
from gpusteward.analyzer.reports.render.json_text import read_report
from gpusteward.analyzer.reports.report import Report
from gpusteward.analyzer.reports.report_query import ReportQuery
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.cli.main import main
from gpusteward.cli.output.report_table import print_report
from gpusteward.cli.output.terminal_text import measure
from gpusteward.cli.program import find_language
from gpusteward.core.messages import Language
from tests.analyzer.api.server import FakeLedger, running_api
from tests.analyzer.reports.example_reports import example_report
from tests.analyzer.reports.ledger_rows import A100, GIB, H100, T4, make_usage, open_ledger_rows
from tests.cli.golden_files import assert_golden

TIME = ("--since", "2d", "--until", "2025-11-14T16:00Z")  # the hours from 16 to 64
SMALL = {"core_peak": 0.05, "memory_peak_bytes": 4 * GIB, "memory_total_bytes": 80 * GIB}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty-four hours of four workloads."""
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    with open_ledger_rows(f"sqlite:///{path}") as ledger:
        ledger.hold(1, namespace="vision", owner_name="train", model=H100, node="gpu-1", user_name="li.na")
        ledger.hold(2, namespace="notebooks", owner_kind="StatefulSet", owner_name="jupyter-zhang-wei-with-a-long-name")
        ledger.hold(3, namespace="推荐系统", owner_kind="Deployment", owner_name="特征服务", user_name="王伟")
        ledger.hold(4, namespace="search\x1b[31m", owner_name="[bold]=embed", model=T4, node="gpu-2")
        for hour in range(64):
            quarter = HOUR_MS // 4
            ledger.use_all(
                [
                    make_usage(
                        1, hour=hour, active=HOUR_MS, price=3_500_000, score_ms_sum=90 * HOUR_MS, scored_ms=HOUR_MS
                    ),
                    make_usage(2, hour=hour, idle=HOUR_MS, price=2_000_000, score_ms_sum=HOUR_MS, scored_ms=HOUR_MS),
                    make_usage(3, hour=hour, active=3 * quarter, idle=quarter, price=2_000_000, **SMALL),
                    make_usage(4, hour=hour, active=quarter, idle=2 * quarter, unknown=quarter, price=400_000),
                ]
            )
        ledger.add_fleet(*range(64), gpu_ms=8 * HOUR_MS, node="node-1", model=A100)
        ledger.record_until(64)
    return path


def run(capsys: pytest.CaptureFixture[str], *flags: str, code: int = 0) -> str:
    assert main(["report", *flags]) == code
    printed = capsys.readouterr()
    return printed.out if code == 0 else printed.err


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("report.txt", ()),
        ("report_workload.txt", ("--by", "workload", "--rows", "2", "--top", "2")),
        ("report_day.txt", ("--by", "day", "--top", "1")),
        ("report_zh.txt", ("--by", "model", "--language", "zh")),
    ],
)
def test_the_table_matches_the_golden_file(
    ledger: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    flags: tuple[str, ...],
):
    monkeypatch.setenv("COLUMNS", "80")
    text = run(capsys, "--ledger", str(ledger), *TIME, *flags)
    assert max(measure(line.rstrip()) for line in text.splitlines()) <= 80
    assert_golden(name, text)


def test_a_pipe_has_every_column_and_unwrapped_names(
    ledger: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("COLUMNS", raising=False)
    text = run(capsys, "--ledger", str(ledger), *TIME)
    titles = ("Allocated", "Active", "Idle", "Unknown", "Unallocated", "Idle %", "Cost", "Idle cost", "Score")
    (header,) = [line for line in text.splitlines() if line.startswith("Namespace ")]
    assert all(title in header for title in titles)
    assert "notebooks/StatefulSet/jupyter-zhang-wei-with-a-long-name" in text


@pytest.mark.parametrize(
    ("language", "words"),
    [
        (
            "en",
            ("Effective 140.0 GPU-hours", " Effective  Ineffective ", " 140.0         25.0 ", "It is an upper bound"),
        ),
        ("zh", ("有效 140.0 GPU 小时", " 有效  无效 ", "它是上限")),
    ],
)
def test_ineffective_time_is_shown_beside_active_time(
    language: Language, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("COLUMNS", raising=False)
    out = io.StringIO()
    print_report(example_report(), language, out)
    for word in words:
        assert word in out.getvalue()


@pytest.mark.parametrize("width", [100, 120])
def test_where_the_table_is_narrow_effective_time_is_left_out_after_cost_and_score(
    monkeypatch: pytest.MonkeyPatch, width: int
):
    monkeypatch.setenv("COLUMNS", str(width))
    out = io.StringIO()
    print_report(example_report(), "en", out)
    (header,) = [line for line in out.getvalue().splitlines() if line.startswith("Namespace ")]
    assert "Ineffective" in header
    assert "Effective 140.0 GPU-hours" in out.getvalue()


def test_a_period_before_the_ledger_has_no_current_values(ledger: Path, capsys: pytest.CaptureFixture[str]):
    text = run(capsys, "--ledger", str(ledger), "--since", "2020-01-01", "--until", "2020-01-02")
    assert "The ledger has no records for this period" in text
    assert "unused" not in text
    assert "no source tells" not in text


def test_unused_gpus_are_of_the_last_requested_hour(ledger: Path, capsys: pytest.CaptureFixture[str]):
    whole = json.loads(run(capsys, "--ledger", str(ledger), *TIME, "--format", "json"))
    until = ("--until", "2025-11-13T16:00:00Z")
    part = json.loads(run(capsys, "--ledger", str(ledger), "--since", "1d", *until, "--format", "json"))
    assert whole["unused"]["hour_ms"] - part["unused"]["hour_ms"] == 24 * 3_600_000


def test_names_are_never_interpreted_as_escapes_or_markup(ledger: Path, capsys: pytest.CaptureFixture[str]):
    text = run(capsys, "--ledger", str(ledger), *TIME, "--by", "workload")
    assert "\x1b" not in text
    assert "[bold]=embed" in text.replace("\n", "")


def test_csv_json_and_html_have_the_same_values(ledger: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    flags = ("--ledger", f"sqlite:///{ledger}", *TIME)
    rows = list(csv.DictReader(io.StringIO(run(capsys, *flags, "--format", "csv"))))
    report = json.loads(run(capsys, *flags, "-o", "json"))
    assert int(rows[-1]["idle_gpu_ms"]) == report["total"]["idle_gpu_ms"] == 84 * HOUR_MS
    page = tmp_path / "report.html"
    assert run(capsys, *flags, "--format", "html", "--output-file", str(page)) == ""
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert "推荐系统" in page.read_text("utf-8")


def test_a_focus_export_is_the_same_from_an_analyzer_and_from_its_ledger(
    ledger: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    flags = (*TIME, "--format", "focus")
    exported = run(capsys, "--ledger", str(ledger), *flags)
    rows = list(csv.DictReader(io.StringIO(exported)))
    report = json.loads(run(capsys, "--ledger", str(ledger), *TIME, "-o", "json"))
    costs = sum(Decimal(row["BilledCost"]) for row in rows) * 1_000_000
    assert costs == sum(report["total"][f"{name}_cost_micros"] for name in ("active", "idle", "unknown"))
    access = LedgerAccess(LedgerSettings(url=SecretStr(f"sqlite:///{ledger}")), PriceSettings)
    with running_api(ledger=access) as api:
        assert run(capsys, "--server", api.url, *flags) == exported
        assert "responded 422" in run(capsys, "--server", api.url, "--since", "soon", "-o", "focus", code=2)
    file = tmp_path / "focus.csv"
    assert run(capsys, "--ledger", str(ledger), *flags, "--output-file", str(file)) == ""
    assert file.read_text("utf-8").splitlines() == exported.splitlines()


def test_an_analyzer_and_its_ledger_give_the_same_report(ledger: Path, capsys: pytest.CaptureFixture[str]):
    engine = open_engine(f"sqlite:///{ledger}")

    class OpenLedger(FakeLedger):
        def read_report(self, query: ReportQuery, **_: Any) -> Report:
            return make_report(engine, query, prices=PriceSettings())

    with running_api(ledger=OpenLedger()) as api:
        flags = (*TIME, "--by", "workload", "--namespace", "vision", "--namespace", "notebooks")
        served = run(capsys, "--server", api.url, *flags)
        served_csv = run(capsys, "--server", api.url, *flags, "--format", "csv")
    engine.dispose()
    assert served == run(capsys, "--ledger", str(ledger), *flags)
    assert served_csv == run(capsys, "--ledger", str(ledger), *flags, "--format", "csv")


def test_prices_and_the_ledger_url_come_from_the_settings(
    ledger: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    config = tmp_path / "config.yaml"
    config.write_text(f"ledger:\n  url: sqlite:///{ledger}\nprices:\n  currency: CNY\n")
    assert json.loads(run(capsys, "--ledger", "--config", str(config), *TIME, "-o", "json"))["currency"] == "CNY"
    assert Settings().prices.currency == "USD"


def test_rows_are_grouped_by_labels_and_teams_of_the_settings(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    with open_ledger_rows(f"sqlite:///{tmp_path / 'labels.db'}") as rows:
        rows.hold(1, namespace="vision-a", labels='{"team":"v\\u001b[31m"}')
        rows.use(1, hour=0, idle=HOUR_MS)
        rows.record_until(1)
    config = tmp_path / "config.yaml"
    config.write_text(
        f"ledger: {{url: 'sqlite:///{tmp_path}/labels.db', labels: [team]}}\nreports: {{teams: {{vision-*: seeing}}}}\n"
    )
    flags = ("--ledger", "--config", str(config), "--since", "2025-11-12", "--until", "2025-11-13")
    by_label = run(capsys, *flags, "--by", "label:team")
    assert "GPU report by label team" in by_label
    assert "v\ufffd[31m" in by_label
    assert "seeing" in run(capsys, *flags, "--by", "team")
    assert "recorded labels (ledger.labels): team" in run(capsys, *flags, "--by", "label:user", code=2)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--ledger", "/nowhere/ledger.db"), "there is no ledger at /nowhere/ledger.db"),
        (("--ledger", "mysql://root:geheim@host/db"), "--ledger is not the address of a database"),
        (("--since", "soon", "--ledger", "x.db"), "--since, --until: use a duration"),
        (("--rows", "0"), "is not a number from 1 to 1000"),
        (("--by", "pod"), "'pod' is not one of"),
        (("--formt", "csv"), "unknown flag '--formt'"),
    ],
)
def test_an_error_is_one_line_without_secrets(capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], words: str):
    printed = run(capsys, *flags, code=2)
    assert words in printed
    assert len(printed.splitlines()) == 1
    assert "geheim" not in printed


def test_a_file_that_is_not_a_ledger_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    other = tmp_path / "other.db"
    other.write_bytes(b"")
    assert "the ledger cannot be read" in run(capsys, "--ledger", str(other), code=1)


def test_an_output_file_that_cannot_be_written_is_reported(
    ledger: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    flags = ("--ledger", str(ledger), *TIME, "--output-file", str(tmp_path / "no" / "report.csv"), "--format", "csv")
    assert "--output-file" in run(capsys, *flags, code=2)


def test_the_error_detail_of_the_analyzer_is_shown(capsys: pytest.CaptureFixture[str]):
    with running_api() as api:
        assert "USD" in run(capsys, "--server", api.url)
        assert "responded 422: since, until" in run(capsys, "--server", api.url, "--since", "soon", code=2)


def test_a_report_of_a_server_needs_no_library(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """The archive of the kubectl plugin has none that is compiled."""
    with running_api() as api:
        assert "USD" in run(capsys, "--server", api.url)  # the server has loaded it
        monkeypatch.setitem(sys.modules, "pydantic", None)
        assert "USD" in run(capsys, "--server", api.url)


@pytest.mark.parametrize(
    ("name", "value"), [("made_ms", "x"), ("range", 3), ("groups", [{}]), ("total", None), ("trend", [])]
)
def test_a_report_of_another_shape_is_refused(name: str, value: object):
    with running_api() as api:
        report = api.get("/api/v1/reports?format=json").json
    assert read_report({**report, "new": 1}).made_ms == report["made_ms"]
    with pytest.raises(ValueError, match=name):
        read_report({**report, name: value})


def test_a_long_report_begins_where_the_ledger_begins(ledger: Path, capsys: pytest.CaptureFixture[str]):
    text = run(capsys, "--ledger", str(ledger), "--since", "2020-01-01", "--until", "2025-11-14T16:00Z")
    assert "The ledger begins at 2025-11-12 00:00 UTC." in text


class ClosedPipe(io.StringIO):
    """The reader has closed it, as `head -0` does."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_broken_pipe_is_left_to_main():
    with pytest.raises(BrokenPipeError):
        print_report(example_report(), find_language("en", {}), ClosedPipe())
