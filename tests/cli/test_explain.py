"""`gpusteward explain` against a real analyzer."""

import csv
import io
import json

import pytest

from gpusteward.cli.main import main
from gpusteward.core.containers import Workload
from tests.analyzer.api.sample_results import hold
from tests.analyzer.api.server import Api, make_result, running_api
from tests.analyzer.usage_tables import resting, table_of, working
from tests.cli.golden_files import assert_golden


@pytest.mark.parametrize(
    ("workload", "language", "golden"),
    [
        ("vision/trainer", "en", "explain.trainer.en.txt"),
        ("chat/server", "zh", "explain.server.zh.txt"),
        ("vision/unread", "en", "explain.unread.en.txt"),
    ],
)
def test_the_text_matches_the_golden_file(
    workload: str, language: str, golden: str, analyzer: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", workload, "--server", analyzer.url, "--language", language]) == 0
    assert_golden(golden, capsys.readouterr().out)


@pytest.mark.parametrize("name", ["trainer", "vision/trainer", "Job/vision/trainer", "job/vision/trainer"])
def test_a_workload_is_found_by_one_two_or_three_parts_of_its_name(
    name: str, analyzer: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", name, "--server", analyzer.url]) == 0
    assert capsys.readouterr().out.startswith("Job/vision/trainer\n")


@pytest.mark.parametrize(
    ("name", "near"),
    [("chat/servr", "'chat/server'"), ("trianer", "'trainer'"), ("Job/vision/trainr", "'Job/vision/trainer'")],
)
def test_an_unknown_name_is_reported_with_the_nearest_one(
    name: str, near: str, analyzer: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", name, "--server", analyzer.url]) == 1
    printed = capsys.readouterr().err
    assert printed == f"gpusteward: no workload {name!r} holds a GPU; did you mean {near}?\n"


def test_a_workload_of_another_kind_is_not_found(analyzer: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "Deployment/vision/trainer", "--server", analyzer.url]) == 1
    assert "did you mean" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a/b/c/d", "/", ""])
def test_an_invalid_name_is_a_usage_error(name: str, analyzer: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", name, "--server", analyzer.url]) == 2
    assert "write NAMESPACE/NAME or KIND/NAMESPACE/NAME" in capsys.readouterr().err


def test_an_ambiguous_name_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    owners = [Workload("Job", "a", "app"), Workload("Deployment", "a", "app"), Workload("Job", "b", "app")]
    allocations = [
        hold(f"GPU-{number}", one, namespace=one.namespace, pod=f"p{number}") for number, one in enumerate(owners)
    ]
    with running_api(make_result(table_of(*[working()] * 3, allocations=allocations))) as api:
        assert main(["explain", "app", "--server", api.url]) == 2
        printed = capsys.readouterr().err
        assert main(["explain", "a/app", "--server", api.url]) == 2
        assert main(["explain", "job/a/app", "--server", api.url]) == 0
    assert "3 workloads match 'app': write one of" in printed
    assert "Deployment/a/app" in printed


def test_a_name_with_special_characters_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    owner = Workload("Job", "team", "a b?c#d%2F")
    held = [hold("GPU-a", owner, namespace="team", pod="p")]
    with running_api(make_result(table_of(resting(), allocations=held))) as api:
        assert main(["explain", "team/a b?c#d%2F", "--server", api.url]) == 0
    assert "Job/team/a b?c#d%2F" in capsys.readouterr().out


def test_json_is_the_response_of_the_api(analyzer: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "chat/server", "--server", analyzer.url, "-o", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == analyzer.get("/api/v1/workloads/Deployment/chat/server?lang=en").json
    assert printed["allocations"][0]["opinion"]["reason"] == "显存占用但没有计算"


def test_csv_has_one_row_per_allocation(analyzer: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "trainer", "--server", analyzer.url, "-o", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["gpu"], row["activity"]) for row in rows] == [("GPU-a", "active"), ("GPU-b", "idle")]
    assert rows[0]["opinion_status"] == ""
    assert "No work: every activity signal" in rows[1]["reasons"]


@pytest.mark.parametrize(
    ("language", "verdict", "reason"),
    [
        ("en", "idle, parked; score 19.7 of 100", "low by itself"),
        ("zh", "空闲，仅占显存；评分 19.7（满分 100）", "仅看评分为偏低"),
    ],
)
def test_a_score_has_no_range_that_it_is_not_in(
    language: str, verdict: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Held memory gives an idle GPU a score above the range of idle."""
    owner = Workload("Deployment", "team", "app")
    held = [hold("GPU-a", owner, namespace="team", pod="p")]
    with running_api(make_result(table_of(resting(72), allocations=held))) as api:
        assert main(["explain", "app", "--server", api.url, "--language", language]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[1].split(maxsplit=1)[1] == verdict
    assert reason in printed
    assert "alone" not in printed
