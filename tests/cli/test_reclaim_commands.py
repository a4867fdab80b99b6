"""`plan`, `actions`, `restore` and `reclaim` against a real analyzer with a fake cluster behind it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import time_machine

from gpusteward.analyzer.reclaim.execution.journal import Action, ActionState
from gpusteward.cli.api.client import Peer, make_client
from gpusteward.cli.api.workloads import WorkloadReference
from gpusteward.cli.commands import restore
from gpusteward.cli.main import main
from gpusteward.cli.top.cluster_source import ClusterSource
from gpusteward.core.node.containers import Workload
from tests.analyzer.api.fake_reclaim import FakeReclaim
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import Api, running_api
from tests.analyzer.usage_tables import AT
from tests.cli.golden_files import assert_golden

pytestmark = pytest.mark.slow

TRAINER, SERVER = Workload("Job", "vision", "trainer"), Workload("Deployment", "vision", "server")


@pytest.fixture(autouse=True)
def clock() -> Iterator[None]:
    with time_machine.travel(AT, tick=False):
        yield


@pytest.fixture
def reclaim() -> FakeReclaim:
    return FakeReclaim([TRAINER, SERVER])


@pytest.fixture
def analyzer(reclaim: FakeReclaim) -> Iterator[Api]:
    with running_api(small_result(), reclaim=reclaim) as api:
        yield api


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("command", ["plan", "plan trainer", "actions", "reclaim status"])
def test_the_output_matches_the_golden_file(
    language: str, command: str, analyzer: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--server", analyzer.url, "--language", language]) == 0
    assert_golden(f"{command.replace(' ', '.')}.{language}.txt", capsys.readouterr().out)


def test_plan_has_every_guard_for_programs(analyzer: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--server", analyzer.url, "-o", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [each["guard"] for each in plan["items"][0]["answers"]] == ["idle", "warned"]
    assert main(["plan", "--guards", "--server", analyzer.url]) == 0
    assert capsys.readouterr().out.count("the grace period is not over") == 2


def test_idle_shows_what_will_happen_when(analyzer: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["idle", "--server", analyzer.url]) == 0
    assert "suspend in 30m" in capsys.readouterr().out
    assert main(["idle", "--server", analyzer.url, "-o", "json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert (rows["trainer"]["next_action"], rows["trainer"]["next_outcome"]) == ("suspend", "wait")


def test_restore_takes_a_workload_an_action_or_all(
    analyzer: Api, reclaim: FakeReclaim, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["vision/Job/trainer"], ["a2"], ["server"]):
        assert main(["restore", *words, "--server", analyzer.url]) == 0
    assert [words[1] for words in reclaim.asked] == ["a1", "a2", "a2"]
    assert "vision/Job/trainer: restored" in capsys.readouterr().err
    assert main(["restore", "--all", "--server", analyzer.url]) == 0
    assert [words[1] for words in reclaim.asked[3:]] == ["a1", "a2"]


class ForgetfulReclaim(FakeReclaim):
    """What was restored is not open any more."""

    @property
    def actions(self) -> list[Action]:
        restored = {words[1] for words in self.asked if words[0] == "restore"}
        return [each for each in super().actions if each.id not in restored]

    def read_action(self, action_id: str, **visible: Any) -> Action | None:
        return FakeReclaim(self.workloads).read_action(action_id, **visible)


def test_restore_all_takes_more_than_one_answer_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(restore, "RESTORABLE", [*restore.RESTORABLE[:-1], ("limit", "1")])
    reclaim = ForgetfulReclaim([Workload("Job", "vision", f"job-{number}") for number in range(3)])
    with running_api(small_result(), reclaim=reclaim) as api:
        assert main(["restore", "--all", "--server", api.url]) == 0
    assert [words[1] for words in reclaim.asked] == ["a1", "a2", "a3"]
    assert "vision/Job/job-2: restored" in capsys.readouterr().err


def test_restore_also_takes_what_was_interrupted(
    analyzer: Api, reclaim: FakeReclaim, capsys: pytest.CaptureFixture[str]
) -> None:
    reclaim.state = ActionState.ACTING
    assert main(["restore", "trainer", "--server", analyzer.url]) == 0
    assert "vision/Job/trainer: restored" in capsys.readouterr().err


def test_restore_says_what_is_missing(analyzer: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restore", "nothing", "--server", analyzer.url]) == 1
    assert capsys.readouterr().err == "nothing to restore\n"
    assert main(["restore", "--server", analyzer.url]) == 2
    assert main(["restore", "x", "--all", "--server", analyzer.url]) == 2


def test_one_that_is_refused_does_not_keep_the_others_back(
    analyzer: Api, reclaim: FakeReclaim, capsys: pytest.CaptureFixture[str]
) -> None:
    reclaim.refusal = "somebody else changed it"
    assert main(["restore", "--all", "--server", analyzer.url]) == 1
    errors = capsys.readouterr().err
    assert errors.count("somebody else changed it") == 2


def test_reclaim_is_switched_off_and_on(
    analyzer: Api, reclaim: FakeReclaim, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reclaim", "off", "--reason", "maintenance", "--server", analyzer.url]) == 0
    printed = capsys.readouterr().out
    assert "maintenance" in printed
    assert "gpusteward reclaim on" in printed
    assert reclaim.asked[-1] == ("off", "anonymous operator", "maintenance")
    assert main(["reclaim", "on", "--server", analyzer.url]) == 0
    assert "switched on again" in capsys.readouterr().out


def test_in_mode_off_every_command_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with running_api(small_result()) as api:
        assert main(["plan", "--server", api.url]) == 0
        assert "reclaim is off" in capsys.readouterr().err
        assert main(["actions", "--server", api.url]) == 0
        assert capsys.readouterr().err == "no actions\n"
        assert main(["reclaim", "status", "--server", api.url]) == 0
        assert "reclaim is off" in capsys.readouterr().out
        assert main(["reclaim", "off", "--server", api.url]) == 1
        assert "reclaim is off" in capsys.readouterr().err


def test_top_shows_what_will_happen_when_beside_the_verdict(analyzer: Api) -> None:
    client = make_client(Peer.ANALYZER, analyzer.url)
    lines = ClusterSource(client, "en").read_detail(WorkloadReference("Job", "vision", "trainer")).lines
    assert (lines[0].name, lines[0].text) == ("next", "suspend in 30m")
