"""`gpusteward replay` and `gpusteward lend` against an analyzer's API."""

import json
from collections.abc import Iterator

import pytest

from gpusteward.cli.main import main
from tests.analyzer.api.server import Api, FakeLedger, make_result, running_api
from tests.analyzer.reclaim.spell_tables import HOUR, spell, table_of
from tests.analyzer.usage_tables import resting
from tests.analyzer.usage_tables import table_of as usage_table_of

POLICY = "policies: [{name: quick, action: suspend, window: 60m, grace: 30m, highest_chance: 1}]"


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    import time

    now = time.time() / HOUR
    ledger = FakeLedger()
    ledger.spells = table_of([spell(now - 48, now - 40), spell(now - 30, now - 28.3)], at=now - 1, began=now - 60)
    with running_api(ledger=ledger) as running:
        running.publish(make_result(usage_table_of(resting(), resting())))
        yield running


@pytest.fixture
def policy(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return str(path)


def test_a_replay_lists_savings_and_every_regret(api, policy, capsys):
    assert main(["replay", "--server", api.url, "--policy", policy]) == 0
    out = capsys.readouterr().out
    assert "fixed 30 min" in out
    assert "team/Notebook/nb" in out  # resumed 12 minutes after its release
    assert main(["replay", "--server", api.url, "--policy", policy, "--language", "zh"]) == 0
    assert "后悔" in capsys.readouterr().out


def test_a_replay_as_json_and_as_a_page(api, policy, capsys):
    assert main(["replay", "--server", api.url, "--policy", policy, "-o", "json"]) == 0
    page = json.loads(capsys.readouterr().out)
    assert (page["policy"]["releases"], page["policy"]["regretted"]) == (2, 1)
    assert main(["replay", "--server", api.url, "--policy", policy, "-o", "html"]) == 0
    html = capsys.readouterr().out
    assert html.startswith("<!doctype html>")
    assert "<script" not in html
    assert "team/Notebook/nb" in html


def test_a_bad_policy_is_an_error_with_its_line(api, tmp_path, capsys):
    path = tmp_path / "bad.yaml"
    path.write_text("policies:\n  - name: a\n    windw: 1h\n")
    assert main(["replay", "--server", api.url, "--policy", str(path)]) != 0
    assert "line 3" in capsys.readouterr().err
    assert main(["replay", "--server", api.url, "--policy", str(tmp_path / "none.yaml")]) == 2


def test_lendable_gpus_are_shown(api, capsys):
    assert main(["lend", "--server", api.url]) == 0
    assert main(["lend", "--server", api.url, "-o", "json"]) == 0
    out = capsys.readouterr().out
    assert "items" in out


def test_the_example_can_be_replayed(api, capsys):
    assert main(["replay", "--server", api.url, "--example", "-o", "json"]) == 0
    page = json.loads(capsys.readouterr().out)
    assert page["policy"]["releases"] == 0, "its chance is unknown here"
    assert [each["releases"] for each in page["frontier"]] != [], "and the windows are those of the example"
