"""Every screen and endpoint gives the same numbers of GPUs, on a simulated fleet with whole, MIG and shared GPUs."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.tables import NodeModel
from gpusteward.cli.main import main
from gpusteward.core.gpu_counts import format_gpus
from gpusteward.simulate.fleets import fleet as simulate_fleet
from tests.analyzer.api.server import Api, make_result, running_api
from tests.analyzer.usage_tables import AT, Sampled
from tests.cli.screens import run as run_screen
from tests.cli.screens import until_seen, watching

pytestmark = pytest.mark.slow

WORDS = ("active", "idle", "unknown")


@pytest.fixture(scope="module")
def result() -> Result:
    nodes = simulate_fleet(12, seed=7)
    table = Sampled(nodes).table(AT)
    fleet = dict.fromkeys((NodeModel(one.node, one.model) for one in table.allocations), 8)
    settings = Settings(prices=PriceSettings(per_gpu_hour={"*": 2.0}))
    return make_result(replace(table, fleet=fleet), settings=settings)


@pytest.fixture(scope="module")
def api(result: Result) -> Iterator[Api]:
    with running_api(result) as running:
        yield running


@pytest.fixture
def expected(result: Result) -> dict[str, float]:
    """GPUs by activity: the sum of the fractions of the allocations."""
    rows = zip(result.verdicts.activity.tolist(), result.workloads.fractions.tolist(), strict=True)
    sums = dict.fromkeys(WORDS, 0.0)
    for code, fraction in rows:
        sums[WORDS[code]] += fraction
    return sums


def read_metrics(api: Api) -> dict[str, float]:
    page = api.get("/metrics").body.decode()
    return {name: float(value) for name, value in re.findall(r"^(\w+(?:\{[^}]*\})?) (\S+)$", page, re.MULTILINE)}


def read_items(api: Api, path: str) -> list[dict[str, float]]:
    page = api.get(f"/api/v1/{path}?limit=1000").json
    assert page["next"] is None
    return list(page["items"])


def test_the_fleet_has_shares_of_gpus(result: Result) -> None:
    """Otherwise the other tests prove nothing."""
    assert (result.workloads.fractions < 1).sum() > 20
    assert (result.workloads.idle_gpus > 0).sum() > 5


def test_every_resource_and_metric_has_the_same_number_of_gpus(api: Api, expected: dict[str, float]) -> None:
    health, metrics = api.get("/api/v1/health").json, read_metrics(api)
    namespaces, workloads, gpus = (read_items(api, name) for name in ("namespaces", "workloads", "gpus"))
    allocations = read_items(api, "allocations")
    for word in WORDS:
        count = pytest.approx(expected[word], abs=1e-3)
        assert health[f"{word}_gpus"] == count
        assert metrics[f'gpusteward_analyzer_gpus{{activity="{word}"}}'] == count
        assert sum(row[f"{word}_gpus"] for row in namespaces) == count
        assert sum(row["gpu_fraction"] for row in allocations if row["activity"] == word) == count
    for word in ("idle", "unknown"):
        count = pytest.approx(expected[word], abs=1e-3)
        assert sum(row[f"{word}_gpus"] for row in workloads) == count
        assert sum(row[f"{word}_gpus"] for row in gpus) == count
    held = pytest.approx(sum(expected.values()), abs=1e-3)
    assert sum(row["gpus"] for row in workloads) == held
    assert sum(row["gpus"] for row in namespaces) == held
    assert sum(row["gpus"] for row in gpus if row["activity"] != "free") == held
    assert health["gpus"] == pytest.approx(sum(expected.values()) + health["unallocated_gpus"])


def test_allocations_are_counted_alike_under_their_own_name(api: Api, result: Result) -> None:
    health, metrics, stats = api.get("/api/v1/health").json, read_metrics(api), api.get("/results/stats").json
    total = len(result.verdicts)
    assert health["allocations"] == total
    assert sum(row["allocations"] for row in read_items(api, "workloads")) == total
    assert sum(row["allocations"] for row in read_items(api, "namespaces")) == total
    assert sum(metrics[f'gpusteward_analyzer_allocations{{activity="{word}"}}'] for word in WORDS) == total
    assert metrics["gpu_total_count"] == stats["total_gpus"] == len(api.get("/results").json)
    assert metrics["gpu_idle_count"] == stats["idle_count"] == stats["by_status"]["idle"]
    assert metrics["gpu_low_utilization_count"] == stats["low_utilization_count"]
    assert metrics['gpu_status_count{status="unknown"}'] == stats["unknown_count"]
    assert stats["total_gpus"] + stats["unknown_count"] == total
    for name, row in stats["by_namespace"].items():
        assert metrics[f'gpu_namespace_count{{namespace="{name}"}}'] == row["count"]


def test_idle_and_top_print_the_same_number_of_idle_gpus(
    api: Api, expected: dict[str, float], capsys: pytest.CaptureFixture[str]
) -> None:
    idle, held = format_gpus(expected["idle"]), format_gpus(sum(expected.values()))
    assert main(["idle", "--server", api.url, "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert sum(row["idle_gpus"] for row in rows) == pytest.approx(expected["idle"], abs=1e-3)
    assert main(["idle", "--server", api.url]) == 0
    assert f" {idle}/" in capsys.readouterr().out.splitlines()[-2]
    assert main(["top", "--server", api.url, "-o", "table"]) == 0
    assert f" {idle}/{held} " in capsys.readouterr().out.splitlines()[-2]
    assert main(["top", "--server", api.url, "--view", "tenants", "-o", "table"]) == 0
    assert capsys.readouterr().out.splitlines()[-2].split()[2:5:2] == [held, idle]


def test_the_head_of_top_names_all_gpus_and_the_idle_ones(api: Api, expected: dict[str, float]) -> None:
    total = api.get("/api/v1/health").json["gpus"]

    async def watch() -> None:
        async with watching("--server", api.url) as pilot:
            await until_seen(pilot, f"{total} GPUs: {format_gpus(expected['idle'])} idle")

    run_screen(watch())
