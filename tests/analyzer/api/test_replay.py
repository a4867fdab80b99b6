"""/api/v1/replay and /api/v1/lendable."""

import time
from collections.abc import Iterator

import pytest

from tests.analyzer.api.server import Api, FakeLedger, make_result, running_api
from tests.analyzer.reclaim.spell_tables import HOUR, spell, table_of
from tests.analyzer.usage_tables import resting
from tests.analyzer.usage_tables import table_of as table_of_usage

POLICY = "policies: [{name: quick, action: suspend, window: 60m, grace: 30m, highest_chance: 1}]"


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    ledger = FakeLedger()
    start = time.time() / HOUR - 12
    spells = [spell(start + 1, start + 5), spell(start + 6, start + 8.1)]
    ledger.spells = table_of(spells, at=start + 12, began=start)
    with running_api(ledger=ledger) as running:
        running.publish(make_result(table_of_usage(resting(), resting())))
        yield running


def test_a_policy_file_is_replayed_beside_the_present_policy_and_fixed_windows(api: Api):
    response = api.post("/api/v1/replay", body={"policy": POLICY, "since": "1d"})
    assert response.status == 200
    page = response.json
    assert page["spells"] == 2
    assert (page["policy"]["releases"], page["policy"]["regretted"]) == (2, 0)
    assert page["policy"]["gpu_hours"] == pytest.approx(2.5 + 0.6)
    assert {each["name"]: each["releases"] for each in page["compared"]}["fixed 300 min"] == 0
    assert [each["name"] for each in page["compared"]][:2] == ["present policy", "fixed 30 min"]
    assert len(page["frontier"]) == 11
    assert page["notes"]


def test_the_policies_in_effect_are_replayed_without_a_file(api: Api):
    response = api.get("/api/v1/replay?since=14d&frontier=false&language=zh")
    assert (response.status, response.json["frontier"]) == (200, [])
    assert response.json["notes"][0].startswith("预算")


def test_a_bad_policy_is_refused_with_its_line(api: Api):
    response = api.post("/api/v1/replay", body={"policy": "policies:\n  - name: a\n    windw: 1h\n"})
    assert response.status == 422
    assert response.json["type"].endswith("invalid-policy")
    assert "policy line 3" in response.json["detail"]
    assert "did you mean window?" in response.json["detail"]


def test_a_bad_time_is_refused(api: Api):
    assert api.get("/api/v1/replay?since=yesterdayish").status == 422


def test_lendable_gpus_are_listed_for_each_horizon(api: Api):
    response = api.get("/api/v1/lendable")
    assert response.status == 200
    items = response.json["items"]
    assert {each["horizon"] for each in items} <= {"1h", "4h", "morning"}
    for each in items:
        assert each["gpus"] >= 0
        assert each["workloads_total"] >= len(each["workloads"])
    assert api.get("/api/v1/lendable?horizon=2h").status == 422
