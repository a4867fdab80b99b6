"""`gpusteward snooze` against a real analyzer."""

import json
from collections.abc import Iterator

import pytest

from gpusteward.cli.main import main
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import Api, FakeLedger, running_api

CapturedText = pytest.CaptureFixture[str]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    with running_api(small_result(), ledger=FakeLedger()) as running:
        monkeypatch.setenv("GPUSTEWARD_SERVER", running.url)
        yield running


def listed(capsys: CapturedText) -> list[dict[str, str]]:
    capsys.readouterr()
    assert main(["snooze", "--list", "-o", "json"]) == 0
    rows: list[dict[str, str]] = json.loads(capsys.readouterr().out)
    return rows


def test_a_workload_is_snoozed_listed_and_ended(api: Api, capsys: CapturedText):
    assert main(["snooze", "chat/server", "--for", "8h", "--reason", "a demo at noon"]) == 0
    printed = capsys.readouterr().out
    assert "chat/Deployment/server" in printed
    assert "a demo at noon" in printed
    (row,) = listed(capsys)
    assert (row["kind"], row["namespace"], row["name"], row["reason"]) == (
        "Deployment",
        "chat",
        "server",
        "a demo at noon",
    )
    assert main(["snooze", "server", "--end"]) == 0
    assert listed(capsys) == []


@pytest.mark.parametrize("words", [["chat/server"], ["Deployment/server"], ["-n", "chat", "server"], ["server"]])
def test_a_snooze_is_ended_by_any_form_of_the_name(api: Api, capsys: CapturedText, words: list[str]):
    assert main(["snooze", "chat/server", "--for", "1d", "--reason", "x"]) == 0
    assert main(["snooze", *words, "--end"]) == 0
    assert listed(capsys) == []


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["server"],
        ["server", "--for", "8h"],
        ["server", "--reason", "x"],
        ["server", "--for", "soon", "--reason", "x"],
        ["--for", "8h", "--reason", "x"],
        ["--end"],
        ["--list", "--end"],
        ["server", "--list"],
    ],
    ids=" ".join,
)
def test_what_is_missing_is_an_error_of_usage(api: Api, capsys: CapturedText, words: list[str]):
    assert main(["snooze", *words]) == 2
    assert capsys.readouterr().err.startswith("gpusteward: ")


def test_a_snooze_that_is_too_long_or_of_nobody_is_refused(api: Api, capsys: CapturedText):
    assert main(["snooze", "server", "--for", "5w", "--reason", "x"]) == 2
    assert main(["snooze", "nobody", "--for", "1h", "--reason", "x"]) == 1
    assert main(["snooze", "server", "--end"]) == 1
    assert listed(capsys) == []
