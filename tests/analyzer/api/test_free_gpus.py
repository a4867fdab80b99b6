"""How many GPUs are free, in /api/v1/health and /api/v1/gpus."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gpusteward.analyzer.tables import NodeModel
from tests.analyzer.api.sample_results import H100, hold
from tests.analyzer.api.server import Api, make_result, running_api
from tests.analyzer.usage_tables import resting, table_of, working

A10 = "NVIDIA A10"
FLEET = {("n1", H100): 8, ("n2", H100): 2, ("n2", A10): 4, ("n3", "H100, otherwise spelled"): 1}


def serving(fleet: Mapping[tuple[str, str], int], *, is_held: bool = True) -> Any:
    """Two holders share GPU-a, one holds a slice of GPU-b, one all there is on n3."""
    allocations = (
        hold("GPU-a", None, namespace="ml", pod="one"),
        hold("GPU-a", None, namespace="ml", pod="two"),
        hold("GPU-b", None, namespace="ml", pod="three", node="n2", instance="7"),
        hold("GPU-c", None, namespace="ml", pod="four", node="n3"),
    )
    rows = (working(0.5, 1.0), resting(0.0), working(0.5, 1.0), resting(0.0))
    table = table_of(*rows, allocations=allocations) if is_held else table_of()
    return running_api(make_result(replace(table, fleet={NodeModel(*key): gpus for key, gpus in fleet.items()})))


def totals(api: Api) -> tuple[object, object]:
    health = api.get("/api/v1/health").json
    return health["gpus"], health["free_gpus"]


def free(api: Api, query: str = "") -> list[tuple[object, ...]]:
    rows = api.get(f"/api/v1/gpus?activity=free{query}").json["items"]
    return [(row["node"], row["model"], row["gpus"]) for row in rows]


def test_free_gpus_are_counted_and_listed_by_node_and_model():
    with serving(FLEET) as api:
        assert totals(api) == (15, 12)
        assert free(api) == [("n1", H100, 7), ("n2", H100, 1), ("n2", A10, 4)]
        assert api.get("/api/v1/gpus").json["total"] == 6


def test_without_allocations_all_gpus_are_free():
    with serving({("box", A10): 1}, is_held=False) as api:
        assert totals(api) == (1, 1)
        (row,) = api.get("/api/v1/gpus").json["items"]
        assert row == {
            "id": f"box/{A10}/free",
            "cluster": "",
            "uuid": "",
            "instance": "",
            "index": "",
            "node": "box",
            "model": A10,
            "gpus": 1,
            "score": None,
            "state": "free",
            "activity": "free",
            "verdict": "free",
            "holders": [],
            "idle_gpus": 0,
            "unknown_gpus": 0,
            "hidden_holders": 0,
        }


def test_where_the_source_does_not_count_gpus_the_number_of_free_ones_is_unknown_and_not_0():
    with serving({}) as api:
        assert totals(api) == (None, None)
        assert free(api) == []


def test_a_held_gpu_that_was_not_counted_yet_does_not_make_the_number_of_free_ones_negative():
    with serving({("n1", H100): 1, ("n2", H100): 1}) as api:
        assert totals(api) == (3, 0)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("&node=n2", [("n2", H100, 1), ("n2", A10, 4)]),
        (f"&model={A10.replace(' ', '%20')}", [("n2", A10, 4)]),
        ("&q=n1", [("n1", H100, 7)]),
        ("&namespace=ml", []),
        ("&state=unknown", []),
        ("&sort=-node", [("n2", H100, 1), ("n2", A10, 4), ("n1", H100, 7)]),
    ],
)
def test_free_gpus_pass_filters_like_others(query: str, found: list[tuple[object, ...]]):
    with serving(FLEET) as api:
        assert free(api, query) == found


def test_every_order_lists_every_row_once():
    with serving(FLEET) as api:
        for sort in ("id", "-id", "node", "model", "score", "-score", "holders", "-holders"):
            pages = [api.get(f"/api/v1/gpus?sort={sort}").json["items"]]
            ids = [row["id"] for page in pages for row in page]
            assert len(ids) == len(set(ids)) == 6
