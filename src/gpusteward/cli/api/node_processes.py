"""The processes on the GPUs of one node of a cluster, through the analyzer, in the rows of `cli.api.snapshots`."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from gpusteward.cli.api.client import Client
from gpusteward.cli.api.pagination import read_all
from gpusteward.cli.json_access import Row, as_object, get_count, get_number, get_object, get_objects, get_text

Identity = tuple[str, str, str, str]  # of a container on a GPU


def list_node_rows(client: Client, node: str, *, all_holders: bool) -> list[dict[str, Any]]:
    """One row per process, and per container without one if wanted. Raises UnreachableError, StatusError.

    Processes without a pod are known to the agent of the node only.
    """
    answer = as_object(client.read(f"/api/v1/nodes/{quote(node, safe='')}/processes", []))
    holders = read_all(client, "/api/v1/allocations", [("node", node)], advance=lambda _done, _total: None).rows
    processes = get_objects(answer, "processes")
    by_pod = {(get_text(one, "namespace"), get_text(one, "pod")): one for one in holders}
    models = {get_text(one, "gpu").partition("/")[0]: get_text(one, "model") for one in holders}
    rows = [_describe_process(one, by_pod, models) for one in processes]
    seen = {_identify(one) for one in processes}
    return rows + (list(_list_without_process(holders, seen)) if all_holders else [])


def _identify(row: Row) -> Identity:
    return get_text(row, "index"), get_text(row, "namespace"), get_text(row, "pod"), get_text(row, "container")


def _describe_process(row: Row, by_pod: Mapping[tuple[str, str], Row], models: Mapping[str, str]) -> dict[str, Any]:
    holder = by_pod.get((get_text(row, "namespace"), get_text(row, "pod")), {})
    return {
        **_describe_holder(row, get_object(holder, "workload")),
        "model": models.get(get_text(row, "gpu")) or get_text(holder, "model"),
        "pid": get_count(row, "pid"),
        "process": get_text(row, "process"),
        "memory_bytes": get_number(row, "memory_bytes"),
        "sm_ratio": get_number(row, "sm_ratio"),
        "outside_allocation": row.get("outside_allocation") is True,
    }


def _list_without_process(holders: list[Row], seen: set[Identity]) -> Iterator[dict[str, Any]]:
    """MIG instances have other indexes in the two lists: their containers are compared without it."""
    on_any_gpu = {identity[1:] for identity in seen}
    for one in holders:
        is_instance = "/" in get_text(one, "gpu")
        has_process = _identify(one)[1:] in on_any_gpu if is_instance else _identify(one) in seen
        if not has_process:
            yield {**_describe_holder(one, get_object(one, "workload")), "model": get_text(one, "model")}


def _describe_holder(row: Row, workload: Row) -> dict[str, Any]:
    return {
        "node": get_text(row, "node"),
        "gpu": get_text(row, "index"),
        "gpu_uuid": get_text(row, "gpu"),
        "namespace": get_text(row, "namespace"),
        "pod": get_text(row, "pod"),
        "container": get_text(row, "container"),
        "workload": f"{get_text(workload, 'kind')}/{get_text(workload, 'name')}" if workload else "",
        "place": "container",
    }
