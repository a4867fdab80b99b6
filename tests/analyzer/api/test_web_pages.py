"""What the pages of the web UI read: overview, map of GPUs, all workloads, nodes, settings; on a real ledger."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpusteward.analyzer.api.http.cached_reads import CachedReads
from gpusteward.analyzer.ledger_access import LedgerAccess
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.tables import NodeModel
from gpusteward.core.usages import AllocationKey
from tests.analyzer.api.sample_results import H100, small_result, suspicious_result
from tests.analyzer.api.server import Api, FakeLedger, FakeSource, make_result, running_api
from tests.analyzer.usage_tables import AT

NOW = AT
OPERATOR = "operator-" + "o" * 20


def priced() -> Settings:
    return Settings.model_validate(
        {"prices": {"per_gpu_hour": {"*": 2.0}, "currency": "EUR"}, "reports": {"teams": {"chat": "research"}}}
    )


def with_fleet(*, number: int = 1, at: float = AT) -> Result:
    """Five held GPUs on three nodes, and three free ones on the first."""
    result = small_result(settings=priced(), number=number, at=at)
    fleet = {NodeModel("n1", H100): 4, NodeModel("n2", H100): 2, NodeModel("n3", H100): 2}
    table = replace(result.verdicts.usage, fleet=fleet)
    return make_result(table, settings=priced(), number=number, opinions=result.opinions)


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LedgerAccess]:
    """A real one, with an hour before the result."""
    monkeypatch.setattr("time.time_ns", lambda: round(AT * 1e9))
    access = LedgerAccess(
        LedgerSettings(directory=tmp_path), lambda: PriceSettings(per_gpu_hour={"*": 2.0}, currency="EUR")
    )
    for minute in range(0, 61, 5):
        access.record(with_fleet(number=1 + minute, at=AT - 3600 + 60 * minute))
    yield access
    access.close()


@pytest.fixture
def api(ledger: LedgerAccess) -> Iterator[Api]:
    with running_api(with_fleet(), ledger=ledger) as running:
        yield running


def test_the_overview_counts_every_gpu_once(api: Api):
    gpus = api.get("/api/v1/overview").json["gpus"]
    assert gpus["total"] == 8
    assert gpus["allocated"] == pytest.approx(gpus["active"] + gpus["idle"] + gpus["unknown"])
    assert gpus["total"] == pytest.approx(gpus["allocated"] + gpus["free"])


@pytest.fixture
def suspicious(ledger: LedgerAccess) -> Iterator[Api]:
    with running_api(suspicious_result(settings=priced()), ledger=ledger) as running:
        yield running


def test_one_workload_has_one_verdict_in_every_list(suspicious: Api):
    expected = {"trainer": "suspicious", "server": "idle", "lonely": "active", "unread": "unknown"}
    rows = suspicious.get("/api/v1/workloads").json["items"]
    assert {row["name"]: row["verdict"] for row in rows} == expected
    table = suspicious.get("/api/v1/workloads/table").json
    names = [table["names"]["verdict"][code] for code in table["columns"]["verdict"]]
    assert dict(zip(table["columns"]["name"], names, strict=True)) == expected
    for row in rows:
        path = f"/api/v1/workloads/{row['kind']}/{row['namespace']}/{row['name']}"
        assert suspicious.get(path).json["workload"]["verdict"] == row["verdict"]
    for verdict in ("suspicious", "idle", "active", "unknown"):
        listed = suspicious.get(f"/api/v1/workloads?verdict={verdict}").json["items"]
        assert [row["name"] for row in listed] == [name for name, own in expected.items() if own == verdict]
    assert suspicious.get("/api/v1/workloads?verdict=low").status == 422


def test_the_suspicious_gpus_of_the_overview_are_those_of_the_lists(suspicious: Api):
    """The idle GPU of a suspicious workload is idle: a GPU counts once."""
    overview = suspicious.get("/api/v1/overview").json
    assert (overview["suspicious"]["workloads"], overview["suspicious"]["gpus"]) == (1, 1)
    assert overview["suspicious"]["cost_micros_per_hour"] == 2_000_000
    assert overview["starved"]["workloads"] == 1
    assert overview["gpus"]["suspicious"] == 1 <= overview["gpus"]["active"]
    rows = suspicious.get("/api/v1/workloads?verdict=suspicious").json["items"]
    assert sum(row["gpus"] - row["idle_gpus"] - row["unknown_gpus"] for row in rows) == 1
    fleet = suspicious.get("/api/v1/gpu-map").json
    verdicts = [fleet["verdicts"][code] for code in fleet["workloads"]["verdict"]]
    parts = [
        part
        for gpu in fleet["gpus"]["parts"]
        for part in gpu
        if fleet["activities"][part[1]] == "active" and verdicts[part[3]] == "suspicious"
    ]
    assert sum(part[0] for part in parts) == 1
    held = suspicious.get("/api/v1/gpus?verdict=suspicious").json["items"]
    every = suspicious.get("/api/v1/gpus").json["items"]
    assert held == [row for row in every if row["verdict"] == "suspicious"]
    assert [(row["uuid"], row["holders"][0]["verdict"], row["activity"]) for row in held] == [
        ("GPU-a", "suspicious", "active")
    ]
    own = suspicious.get("/api/v1/allocations").json["items"]
    assert {one["gpu"]: one["verdict"] for one in own if one["pod"] == "trainer-0"} == {
        "GPU-a": "suspicious",
        "GPU-b": "idle",
    }
    node = suspicious.get("/api/v1/nodes/n1").json
    assert [one["verdict"] for gpu in node["gpus"] for one in gpu["holders"]] == ["suspicious"]


def find_ineffective(result: Result, since: float) -> Result:
    """The trainer, whose first GPU works and whose second one is idle, is ineffective since then."""
    column = np.array([since, since, np.nan, np.nan, np.nan])
    verdicts = replace(result.verdicts, ineffective_since=column)
    return replace(result, verdicts=verdicts, workloads=replace(result.workloads, verdicts=verdicts))


def test_the_overview_has_what_is_left_of_all_gpus_from_total_to_effective(ledger: LedgerAccess):
    """A quarter of an hour before the hour is over, the trainer's work turns out to be of no use since its middle."""
    ledger.record(find_ineffective(with_fleet(number=100, at=AT + 300), AT - 1800))
    with running_api(find_ineffective(with_fleet(number=101, at=AT + 300), AT - 1800), ledger=ledger) as api:
        overview = api.get("/api/v1/overview?days=7").json
        report = api.get("/api/v1/reports?since=7d&by=namespace").json["total"]
    gpus, funnel = overview["gpus"], {each.pop("step"): each for each in overview["funnel"]}
    assert list(funnel) == ["total", "allocated", "active", "effective"]
    assert {name: each["gpus"] for name, each in funnel.items()} == {name: gpus[name] for name in funnel}
    assert (gpus["ineffective"], gpus["effective"]) == (1, pytest.approx(gpus["active"] - 1))
    hours = {name: each["gpu_hours"] for name, each in funnel.items()}
    assert hours["effective"] == pytest.approx(hours["active"] - 35 / 60, abs=0.001)
    assert hours["allocated"] == pytest.approx(report["allocated_gpu_ms"] / 3.6e6, abs=0.001)
    assert hours["total"] == pytest.approx(hours["allocated"] + report["unallocated_gpu_ms"] / 3.6e6, abs=0.001)
    costs = {name: each["cost_micros"] for name, each in funnel.items()}
    assert (costs["active"], costs["effective"]) == (report["active_cost_micros"], report["effective_cost_micros"])
    assert all(costs[name] == pytest.approx(2_000_000 * hours[name], abs=2000) for name in funnel)
    assert sum(day["ineffective"] for day in overview["days"]) == pytest.approx(35 / 60, abs=0.001)


def test_an_effective_share_of_one_cluster_is_its_own(ledger: LedgerAccess):
    def name_cluster(one: AllocationKey) -> AllocationKey:
        return replace(one, container=replace(one.container, cluster="east" if one.node == "n1" else "west"))

    result = with_fleet()
    usage = replace(result.verdicts.usage, allocations=[name_cluster(one) for one in result.verdicts.usage.allocations])
    result = find_ineffective(make_result(usage, settings=priced()), AT - 60)
    with running_api(result, ledger=ledger) as api:
        numbers = {name: api.get(f"/api/v1/overview?cluster={name}").json["gpus"] for name in ("east", "west")}
    assert (numbers["east"]["ineffective"], numbers["west"]["ineffective"]) == (1, 0)
    assert numbers["west"]["effective"] == numbers["west"]["active"] > 0


def test_the_overview_has_the_waste_of_the_ledger(api: Api):
    overview = api.get("/api/v1/overview?days=7").json
    waste = overview["waste"]
    report = api.get("/api/v1/reports?since=7d&by=namespace").json
    assert waste["idle_gpu_hours"] == pytest.approx(report["total"]["idle_gpu_ms"] / 3.6e6, abs=0.001)
    assert waste["idle_cost_micros"] == report["total"]["idle_cost_micros"] > 0
    assert (waste["previous_idle_gpu_hours"], waste["change_ratio"]) == (None, None)
    assert overview["currency"] == "EUR"
    (day,) = overview["days"]
    assert day["allocated"] == pytest.approx(day["active"] + day["idle"] + day["unknown"], abs=0.002)
    groups = {group["name"]: group["idle_cost_micros"] for group in overview["namespaces"]}
    assert groups == {group["name"]: group["amounts"]["idle_cost_micros"] for group in report["groups"]}
    assert {team["name"] for team in overview["teams"]} == {"research", ""}


def test_the_most_expensive_idle_workloads_come_first_with_who_and_since_when(api: Api):
    overview = api.get("/api/v1/overview").json
    assert [row["name"] for row in overview["top"]] == ["server", "trainer"]
    server, trainer = overview["top"]
    assert (server["idle_gpus"], server["idle_since"] is not None) == (1, True)
    assert (trainer["gpus"], trainer["idle_gpus"], trainer["idle_since"]) == (2, 1, None)
    assert server["idle_cost_micros"] > 0
    assert overview["potential"]["workloads"] == 1
    assert overview["potential"]["gpus"] == 1


@pytest.mark.parametrize(("language", "word"), [("en", "could not be judged"), ("zh", "无法判断")])
def test_the_overview_says_in_plain_words_what_is_missing(api: Api, language: str, word: str):
    data = api.get(f"/api/v1/overview?language={language}").json["data"]
    texts = {problem["code"]: problem["text"] for problem in data["problems"]}
    assert word in texts["unknown-gpus"]
    assert "ledger-short" in texts
    assert data["status"] == "healthy"


def test_a_failing_source_is_the_first_problem_and_changes_the_etag(api: Api):
    before = api.get("/api/v1/overview")
    api.cycles.stats.last_error = "the engine does not respond"
    after = api.get("/api/v1/overview", If_None_Match=before.headers["etag"])
    assert after.status == 200
    problem = after.json["data"]["problems"][0]
    assert (problem["level"], problem["code"]) == ("critical", "source-failed")
    assert "the engine does not respond" in problem["text"]


class NoLedger(FakeLedger):
    def read_report(self, query: Any, **visible: Any) -> Any:
        from gpusteward.core.errors import SourceError

        raise SourceError("the database is down")


def test_without_a_ledger_the_overview_still_shows_what_is_known_now():
    with running_api(with_fleet(), ledger=NoLedger()) as api:
        overview = api.get("/api/v1/overview").json
        assert overview["gpus"]["total"] == 8
        assert [step["gpus"] for step in overview["funnel"]][:2] == [8, overview["gpus"]["allocated"]]
        assert {step[name] for step in overview["funnel"] for name in ("gpu_hours", "cost_micros")} == {None}
        assert (overview["waste"]["idle_gpu_hours"], overview["days"], overview["namespaces"]) == (None, [], [])
        assert (
            "the database is down"
            in {each["code"]: each["text"] for each in overview["data"]["problems"]}["ledger-failed"]
        )
        table = api.get("/api/v1/workloads/table").json
        assert (table["has_ledger"], set(table["columns"]["idle_cost_micros_7d"])) == (False, {None})


def test_the_map_has_every_gpu_with_the_parts_of_its_holders(api: Api):
    response = api.get("/api/v1/gpu-map").json
    gpus, nodes, workloads = response["gpus"], response["nodes"], response["workloads"]
    assert {len(column) for column in gpus.values()} == {8}
    by_uuid = dict(zip(gpus["uuid"], range(len(gpus["uuid"])), strict=True))
    number = by_uuid["GPU-c"]
    assert nodes["name"][gpus["node"][number]] == "n2"
    assert response["models"][gpus["model"][number]] == H100
    ((fraction, activity, signature, workload, score),) = gpus["parts"][number]
    assert fraction == 1
    assert (response["activities"][activity], response["signatures"][signature]) == ("idle", "parked")
    assert workloads["name"][workload] == "server"
    assert response["namespaces"][workloads["namespace"][workload]] == "chat"
    assert score is not None
    ((fraction, *_),) = gpus["parts"][by_uuid["GPU-d"]]
    assert 0 < fraction < 1
    assert gpus["uuid"].count("") == sum(not parts for parts in gpus["parts"]) > 0


def test_a_table_has_the_same_values_as_the_list(api: Api):
    table, rows = api.get("/api/v1/workloads/table").json, api.get("/api/v1/workloads").json["items"]
    columns, names = table["columns"], table["names"]
    assert (table["total"], table["currency"], table["has_ledger"]) == (len(rows), "EUR", True)
    for number, row in enumerate(rows):
        for field in ("cluster", "kind", "namespace", "state", "activity", "signature", "proof", "highest_step"):
            assert names[field][columns[field][number]] == row[field], field
        for field in ("users", "models", "nodes"):
            assert [names[field][code] for code in columns[field][number]] == row[field]
        for field in ("name", "score", "gpus", "idle_gpus", "unknown_gpus", "allocations", "nodes_total"):
            assert columns[field][number] == row[field], field
        for field in ("cost_micros_per_hour", "idle_cost_micros_per_hour", "idle_cost_micros"):
            assert columns[field][number] == row[field], field
    assert columns["idle_cost_micros_7d"][0] > 0


@pytest.mark.parametrize("path", ["/api/v1/overview", "/api/v1/gpu-map", "/api/v1/workloads/table", "/api/v1/nodes"])
def test_a_large_response_is_compressed_and_repeated_only_when_it_changed(api: Api, path: str):
    first = api.get(path, Accept_Encoding="gzip")
    assert first.headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(first.body)) == api.get(path).json
    assert api.get(path, If_None_Match=first.headers["etag"]).status == 304
    api.publish(with_fleet(number=2, at=AT + 300))
    assert api.get(path, If_None_Match=first.headers["etag"]).status == 200


@pytest.mark.parametrize("path", ["/api/v1/gpu-map", "/api/v1/workloads/table", "/api/v1/overview", "/api/v1/nodes"])
def test_another_cluster_is_empty_and_not_remembered(api: Api, path: str):
    assert api.get(f"{path}?cluster=").status == 200
    for number in range(5):
        assert api.get(f"{path}?cluster=nowhere-{number}").status == 200
    published = api.dependencies.results.published
    assert published is not None
    assert not any("nowhere" in str(key) for key in published._derived)


def test_a_node_counts_its_gpus(api: Api):
    rows = {row["node"]: row for row in api.get("/api/v1/nodes").json["items"]}
    assert [(row["gpus"], row["free_gpus"], row["allocated_gpus"]) for row in rows.values()][:2] == [
        (4, 3, 1),
        (2, 0, 2),
    ]
    assert rows["n2"]["idle_cost_micros_per_hour"] == 4_000_000
    assert "mig" in rows["n3"]["shares"]


def test_one_node_has_what_its_exporters_report_and_who_holds_its_gpus(api: Api):
    node = api.get("/api/v1/nodes/n1").json
    (gpu,) = node["gpus"]
    assert (gpu["temperature_celsius"], gpu["power_watts"], gpu["is_up"]) == (41, 70, True)
    assert gpu["memory_total_bytes"] == 80 * 2**30
    assert [holder["workload"]["name"] for holder in gpu["holders"]] == ["trainer"]
    assert [(error["level"], error["code"], error["count"]) for error in gpu["errors"]] == [("critical", "xid-79", 2)]
    assert "fallen off the bus" in gpu["errors"][0]["text"]
    assert "掉卡" in api.get("/api/v1/nodes/n1?language=zh").json["gpus"][0]["errors"][0]["text"]
    assert node["uncounted_free_gpus"] == 3
    assert api.get("/api/v1/nodes/nowhere").status == 404


def test_a_node_whose_exporters_fail_is_shown_from_the_last_result():
    with running_api(with_fleet(), source=FakeSource(processes_failure="no route")) as api:
        node = api.get("/api/v1/nodes/n1").json
        assert "no route" in node["readings_error"]
        assert (node["gpus"][0]["temperature_celsius"], node["gpus"][0]["memory_total_bytes"]) == (None, 80 * 2**30)


def test_settings_are_for_operators_and_without_secrets():
    tokens = f"viewer: {'v' * 20}\noperator: {OPERATOR}\n"
    settings = Settings.model_validate({"server": {"tokens": tokens}})
    with running_api(with_fleet(), settings=settings) as api:
        assert (api.get("/api/v1/settings").status, api.get("/api/v1/settings", token="v" * 20).status) == (401, 403)
        response = api.get("/api/v1/settings", token=OPERATOR)
        rows = {row["path"]: row for row in response.json["items"]}
        assert rows["scheduler.interval"]["value"] == 300
        assert (rows["server.address"]["needs_restart"], rows["scheduler.interval"]["needs_restart"]) == (True, False)
        assert OPERATOR.encode() not in response.body


def test_a_failed_read_of_the_ledger_is_not_repeated_by_every_request():
    class Counting(NoLedger):
        reads = 0

        def read_report(self, query: Any, **visible: Any) -> Any:
            self.reads += 1
            return super().read_report(query, **visible)

    ledger = Counting()
    with running_api(with_fleet(), ledger=ledger, reads=CachedReads()) as api:
        for _ in range(5):
            assert api.get("/api/v1/workloads/table").status == 200
    assert ledger.reads == 1
