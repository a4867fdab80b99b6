"""A machine's snapshot as rows of GPUs, workloads and tenants."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from gpusteward.cli.api.snapshots import Snapshot, list_processes, name_gpu, owner_of
from gpusteward.cli.api.workloads import WorkloadName
from gpusteward.cli.json_access import Row, count, inner, number, text
from gpusteward.cli.top.source_protocol import Asked, Item, View

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
        holders[text(allocation, "gpu_uuid")].append(inner(allocation, "container"))
    return [_gpu(reading, holders[text(inner(reading, "gpu"), "uuid")]) for reading in snapshot.readings]


def _gpu(reading: Row, holders: Sequence[Row]) -> dict[str, Any]:
    gpu, signals = inner(reading, "gpu"), inner(reading, "signals")
    return {
        **{name: number(signals, name) for name in SIGNALS},
        "utilization_ratio": number(signals, UTILIZATION[1] if inner(gpu, "mig") else UTILIZATION[0]),
        "key": text(gpu, "uuid"),
        "id": text(gpu, "uuid"),
        "gpu": name_gpu(gpu),
        "order": (count(gpu, "index"), count(inner(gpu, "mig"), "gpu_instance_id")),
        "model": text(gpu, "model"),
        "holders": holders,
        "namespaces": {text(one, "namespace") for one in holders},
        "workloads_held": [owner_of(one) for one in holders],
    }


def list_workloads(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Everybody who holds a GPU or runs on one."""
    return [_workload(key, rows) for key, rows in _group(snapshot).items()]


def _group(snapshot: Snapshot) -> dict[WorkloadName, list[Item]]:
    groups: dict[WorkloadName, list[Item]] = defaultdict(list)
    for allocation in snapshot.allocations:
        groups[owner_of(inner(allocation, "container"))].append({"held_uuid": text(allocation, "gpu_uuid")})
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
    """Unknown as soon as a part of it is; nothing at all is nothing."""
    known = list(values)
    return None if any(value is None for value in known) else sum(value for value in known if value is not None)


LISTS: dict[View, Callable[[Snapshot], list[dict[str, Any]]]] = {
    View.GPUS: list_gpus,
    View.WORKLOADS: list_workloads,
    View.TENANTS: list_tenants,
}


def list_rows(snapshot: Snapshot, asked: Asked) -> list[dict[str, Any]]:
    """What was asked for, in its order; the unknown comes last either way."""
    rows = [row for row in LISTS[asked.view](snapshot) if _passes(row, asked)]
    sort = asked.sort.removeprefix("-")
    known = [row for row in rows if _sort_value(row, sort) is not None]
    unknown = [row for row in rows if _sort_value(row, sort) is None]
    known.sort(key=lambda row: (_sort_value(row, sort), row["key"]), reverse=asked.sort.startswith("-"))
    return [*known, *unknown]


def _passes(row: Item, asked: Asked) -> bool:
    if asked.namespace and asked.namespace not in (row.get("namespace"), *row.get("namespaces", ())):
        return False
    names = " ".join(_names(row)).lower()
    return all(word.lower() in names for word in asked.words)


def _names(row: Item) -> Iterator[str]:
    yield str(row["key"])
    for key in ("gpu", "model"):
        yield text(row, key)
    for holder in row.get("holders", ()):
        yield f"{text(holder, 'namespace')}/{text(holder, 'pod')}"


def _sort_value(row: Item, sort: str) -> Any:
    if sort == "memory":
        return row.get("memory_used_bytes", row.get("memory_bytes"))
    return row.get(SORTS.get(sort, sort))
