"""Rows of GPUs, workloads and tenants from the snapshot of a node."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from gpusteward.cli.api.snapshots import Snapshot, list_processes, name_gpu, owner_of
from gpusteward.cli.api.workloads import WorkloadName
from gpusteward.cli.json_access import Row, get_count, get_number, get_object, get_text
from gpusteward.cli.top.source_protocol import Item, ListRequest, View

UTILIZATION = ("utilization_ratio", "gr_engine_ratio")  # of a device, of a MIG instance
SIGNALS = ("memory_used_bytes", "memory_total_bytes", "power_watts", "temperature_celsius")
SORTS = {
    "gpu": "order",
    "util": "utilization_ratio",
    "temp": "temperature_celsius",
    "power": "power_watts",
    "sm": "sm_ratio",
}


def list_gpus(snapshot: Snapshot) -> list[dict[str, Any]]:
    holders: dict[str, list[Row]] = defaultdict(list)
    for allocation in snapshot.allocations:
        holders[get_text(allocation, "gpu_uuid")].append(get_object(allocation, "container"))
    return [_gpu(reading, holders[get_text(get_object(reading, "gpu"), "uuid")]) for reading in snapshot.readings]


def _gpu(reading: Row, holders: Sequence[Row]) -> dict[str, Any]:
    gpu, signals = get_object(reading, "gpu"), get_object(reading, "signals")
    return {
        **{name: get_number(signals, name) for name in SIGNALS},
        "utilization_ratio": get_number(signals, UTILIZATION[1] if get_object(gpu, "mig") else UTILIZATION[0]),
        "key": get_text(gpu, "uuid"),
        "id": get_text(gpu, "uuid"),
        "gpu": name_gpu(gpu),
        "order": (get_count(gpu, "index"), get_count(get_object(gpu, "mig"), "gpu_instance_id")),
        "model": get_text(gpu, "model"),
        "holders": holders,
        "namespaces": {get_text(one, "namespace") for one in holders},
        "workloads_held": [owner_of(one) for one in holders],
    }


def list_workloads(snapshot: Snapshot) -> list[dict[str, Any]]:
    """All that hold a GPU or have a process on one."""
    return [_workload(key, rows) for key, rows in _group(snapshot).items()]


def _group(snapshot: Snapshot) -> dict[WorkloadName, list[Item]]:
    groups: dict[WorkloadName, list[Item]] = defaultdict(list)
    for allocation in snapshot.allocations:
        groups[owner_of(get_object(allocation, "container"))].append({"held_uuid": get_text(allocation, "gpu_uuid")})
    for process in list_processes(snapshot):
        groups[process["owned_by"]].append(process)
    return groups


def _workload(name: WorkloadName, rows: Sequence[Item]) -> dict[str, Any]:
    processes = [row for row in rows if "pid" in row]
    return {
        "key": name,
        **name._asdict(),
        "gpus": len({row["held_uuid"] for row in rows if "held_uuid" in row}),
        "processes": len(processes),
        "sm_ratio": _sum(row["sm_ratio"] for row in processes),
        "memory_bytes": _sum(row["memory_bytes"] for row in processes),
    }


def list_tenants(snapshot: Snapshot) -> list[dict[str, Any]]:
    groups: dict[str, list[Item]] = defaultdict(list)
    for workload in list_workloads(snapshot):
        groups[workload["namespace"]].append(workload)
    return [_tenant(namespace, rows) for namespace, rows in groups.items()]


def _tenant(namespace: str, rows: Sequence[Item]) -> dict[str, Any]:
    return {
        "key": namespace,
        "namespace": namespace,
        "workloads": len(rows),
        "gpus": sum(row["gpus"] for row in rows),
        "processes": sum(row["processes"] for row in rows),
        "sm_ratio": _sum(row["sm_ratio"] for row in rows if row["processes"]),
        "memory_bytes": _sum(row["memory_bytes"] for row in rows if row["processes"]),
    }


def _sum(values: Iterable[float | None]) -> float | None:
    """Unknown if any value is; 0 without values."""
    known = list(values)
    return None if any(value is None for value in known) else sum(value for value in known if value is not None)


LISTS: dict[View, Callable[[Snapshot], list[dict[str, Any]]]] = {
    View.GPUS: list_gpus,
    View.WORKLOADS: list_workloads,
    View.TENANTS: list_tenants,
}


def list_rows(snapshot: Snapshot, request: ListRequest) -> list[dict[str, Any]]:
    """The requested rows in order; unknown values come last in both directions."""
    rows = [row for row in LISTS[request.view](snapshot) if _passes(row, request)]
    sort = request.sort.removeprefix("-")
    known = [row for row in rows if _sort_value(row, sort) is not None]
    unknown = [row for row in rows if _sort_value(row, sort) is None]
    known.sort(key=lambda row: (_sort_value(row, sort), row["key"]), reverse=request.sort.startswith("-"))
    return [*known, *unknown]


def _passes(row: Item, request: ListRequest) -> bool:
    if request.namespace and request.namespace not in (row.get("namespace"), *row.get("namespaces", ())):
        return False
    names = " ".join(_names(row)).lower()
    return all(word.lower() in names for word in request.words)


def _names(row: Item) -> Iterator[str]:
    yield str(row["key"])
    for key in ("gpu", "model"):
        yield get_text(row, key)
    for holder in row.get("holders", ()):
        yield f"{get_text(holder, 'namespace')}/{get_text(holder, 'pod')}"


def _sort_value(row: Item, sort: str) -> Any:
    if sort == "memory":
        return row.get("memory_used_bytes", row.get("memory_bytes"))
    return row.get(SORTS.get(sort, sort))
