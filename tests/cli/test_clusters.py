"""Names of workloads where an analyzer has several clusters: printed with the cluster, and accepted with it."""

import json
from collections.abc import Iterator

import pytest

from gpusteward.cli.main import main
from tests.analyzer.api.server import Api, running_api
from tests.analyzer.notify.notifier_setup import IDLE
from tests.analyzer.test_clusters import result_in


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with running_api(result_in("east", "west", rows=[IDLE, IDLE])) as api:
        yield api


def run(api: Api, *arguments: str) -> int:
    return main([*arguments, "--server", api.url, "--language", "en"])


def test_idle_prints_names_with_the_cluster_and_can_be_limited_to_one(api: Api, capsys: pytest.CaptureFixture[str]):
    assert run(api, "idle") == 0
    table = capsys.readouterr().out
    assert "east/ml/Deployment/web" in table
    assert "west/ml/Deployment/web" in table
    assert run(api, "idle", "--cluster", "west") == 0
    table = capsys.readouterr().out
    assert "west/ml/Deployment/web" in table
    assert "east" not in table
    assert run(api, "idle", "-o", "json") == 0
    assert sorted(row["cluster"] for row in json.loads(capsys.readouterr().out)) == ["east", "west"]


@pytest.mark.parametrize(
    "words",
    [["west/ml/Deployment/web"], ["west/web"], ["web", "--cluster", "west"], ["west/deploy/web"], ["west/ml/web-pod"]],
)
def test_explain_accepts_the_cluster(api: Api, words: list[str], capsys: pytest.CaptureFixture[str]):
    assert run(api, "explain", *words, "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["workload"]["cluster"] == "west"


def test_a_name_that_two_clusters_have_is_ambiguous(api: Api, capsys: pytest.CaptureFixture[str]):
    assert run(api, "explain", "ml/web") == 2
    assert "east/ml/Deployment/web, west/ml/Deployment/web" in capsys.readouterr().err


def test_top_shows_the_cluster_of_every_row(api: Api, capsys: pytest.CaptureFixture[str]):
    for view in ("workloads", "gpus", "tenants"):
        assert run(api, "top", "--view", view, "-o", "table") == 0
        table = capsys.readouterr().out
        assert "east/" in table, view
        assert "west/" in table, view
        assert run(api, "top", "--view", view, "-o", "table", "--cluster", "east") == 0
        assert "west" not in capsys.readouterr().out


def test_a_single_cluster_is_not_printed(capsys: pytest.CaptureFixture[str]):
    with running_api(result_in("east")) as api:
        for command in (["idle"], ["explain", "web"], ["top", "-o", "table"]):
            assert run(api, *command) == 0
            assert "east" not in capsys.readouterr().out, command
