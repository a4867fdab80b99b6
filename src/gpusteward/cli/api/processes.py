"""GPUs, their processes and their holders as rows: of a machine from its agent's /snapshot, of a node of a cluster
through the analyzer."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from gpusteward.cli.api.client import Client
from gpusteward.cli.api.pagination import read_all
from gpusteward.cli.api.workloads import WorkloadReference
from gpusteward.cli.json_access import Row, get_count, get_number, get_object, get_objects, get_text
from gpusteward.cli.output.quantities import UNKNOWN

PATH = "/snapshot"


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """A node at one moment."""

    node: str
    taken_at: float | None
    readings: list[Row]
    processes: list[Row]
    allocations: list[Row]
    failures: list[str]
    holders_are_processes: bool = False


def read_snapshot(client: Client) -> NodeSnapshot:
    """Raises UnreachableError, StatusError."""
    document = client.read(PATH)
    return NodeSnapshot(
        node=get_text(document, "node"),
        taken_at=get_number(document, "taken_at"),
        readings=get_objects(document, "readings"),
        processes=get_objects(document, "processes"),
        allocations=get_objects(document, "allocations"),
        failures=[
            f"{get_text(each, 'collector')}: {get_text(each, 'reason')}" for each in get_objects(document, "failures")
        ],
        holders_are_processes=document.get("holders_are_processes") is True,
    )


def gpus_by_uuid(snapshot: NodeSnapshot) -> Mapping[str, Row]:
    return {get_text(get_object(reading, "gpu"), "uuid"): get_object(reading, "gpu") for reading in snapshot.readings}


def name_gpu(gpu: Row) -> str:
    """`3`, or `3/1g.10gb/7` for a MIG instance: profile and instance id."""
    mig = get_object(gpu, "mig")
    index = str(get_count(gpu, "index")) if gpu else ""
    return f"{index}/{get_text(mig, 'profile')}/{get_count(mig, 'gpu_instance_id')}" if mig else index


def owner_of(container: Row, place: str = "") -> WorkloadReference:
    """The workload; the pod if it has no owner; `place` for a process outside of pods."""
    workload = get_object(container, "workload")
    if workload:
        return WorkloadReference(
            get_text(workload, "kind"), get_text(container, "namespace"), get_text(workload, "name")
        )
    if get_text(container, "pod"):
        return WorkloadReference("Pod", get_text(container, "namespace"), get_text(container, "pod"))
    return WorkloadReference(place or UNKNOWN, UNKNOWN, UNKNOWN)


def describe_use(process: Row) -> dict[str, Any]:
    """Its pid and name, and what it uses of its GPU."""
    return {
        "pid": get_count(process, "pid"),
        "process": get_text(process, "process"),
        "memory_bytes": get_number(process, "memory_bytes"),
        "sm_ratio": get_number(process, "sm_ratio"),
        "outside_allocation": process.get("outside_allocation") is True,
        "works_for": get_text(process, "works_for"),
    }


def list_processes(snapshot: NodeSnapshot) -> Iterator[dict[str, Any]]:
    """One row per process on a GPU."""
    gpus = gpus_by_uuid(snapshot)
    for process in snapshot.processes:
        container, holder = get_object(process, "container"), get_object(process, "works_for")
        yield {
            **_describe_gpu(gpus.get(get_text(process, "gpu_uuid"), {}), get_text(process, "gpu_uuid")),
            **_describe_container(container),
            "owned_by": owner_of(holder or container, get_text(process, "place")),
            **describe_use({**process, "process": process.get("name"), "works_for": holder.get("pod")}),
            "place": get_text(process, "place"),
        }


def list_holders_without_process(snapshot: NodeSnapshot) -> Iterator[dict[str, Any]]:
    """One row per container that holds a GPU on which neither it nor the other pod of its pair has a process."""
    gpus = gpus_by_uuid(snapshot)
    seen = {
        (get_text(one, "gpu_uuid"), *_identity(get_object(one, "works_for") or get_object(one, "container")))
        for one in snapshot.processes
    }
    for allocation in snapshot.allocations:
        uuid, container = get_text(allocation, "gpu_uuid"), get_object(allocation, "container")
        if (uuid, *_identity(container)) not in seen:
            yield {
                **_describe_gpu(gpus.get(uuid, {}), uuid),
                **_describe_container(container),
                "place": "container",
                "used_by": get_text(allocation, "used_by"),
            }


def _identity(container: Row) -> tuple[str, str, str]:
    return get_text(container, "namespace"), get_text(container, "pod"), get_text(container, "name")


def _describe_gpu(gpu: Row, uuid: str) -> dict[str, Any]:
    return {"gpu": name_gpu(gpu), "gpu_uuid": uuid, "model": get_text(gpu, "model")}


def _describe_container(container: Row) -> dict[str, str]:
    namespace, pod, name = _identity(container)
    owner = owner_of(container)
    return {
        "namespace": namespace,
        "pod": pod,
        "container": name,
        "workload": f"{owner.kind}/{owner.name}" if pod else "",
    }


Identity = tuple[str, str, str, str]  # of a container on a GPU


def list_node_rows(client: Client, node: str, *, all_holders: bool) -> list[dict[str, Any]]:
    """One row per process, and per container without one if wanted. Raises UnreachableError, StatusError.

    Processes without a pod are known to the agent of the node only.
    """
    answer = client.read(f"/api/v1/nodes/{quote(node, safe='')}/processes", [])
    holders = read_all(client, "/api/v1/allocations", [("node", node)]).rows
    processes = get_objects(answer, "processes")
    by_pod = {(get_text(one, "namespace"), get_text(one, "pod")): one for one in holders}
    models = {get_text(one, "gpu").partition("/")[0]: get_text(one, "model") for one in holders}
    rows = [_describe_node_process(one, by_pod, models) for one in processes]
    used = {(get_text(one, "index"), get_text(one, "namespace"), get_text(one, "works_for")) for one in processes}
    unused = [one for one in holders if _identify(one)[:3] not in used]
    seen = {_identify(one) for one in processes}
    return rows + (list(_list_without_process(unused, seen)) if all_holders else [])


def _identify(row: Row) -> Identity:
    return get_text(row, "index"), get_text(row, "namespace"), get_text(row, "pod"), get_text(row, "container")


def _describe_node_process(
    row: Row, by_pod: Mapping[tuple[str, str], Row], models: Mapping[str, str]
) -> dict[str, Any]:
    holder = by_pod.get((get_text(row, "namespace"), get_text(row, "pod")), {})
    model = models.get(get_text(row, "gpu")) or get_text(holder, "model")
    return {**_describe_holder(row, get_object(holder, "workload")), **describe_use(row), "model": model}


def _list_without_process(holders: list[Row], seen: set[Identity]) -> Iterator[dict[str, Any]]:
    """MIG instances have other indexes in the two lists: their containers are compared without it."""
    on_any_gpu = {identity[1:] for identity in seen}
    for one in holders:
        is_instance = "/" in get_text(one, "gpu")
        has_process = _identify(one)[1:] in on_any_gpu if is_instance else _identify(one) in seen
        if not has_process:
            yield {
                **_describe_holder(one, get_object(one, "workload")),
                "model": get_text(one, "model"),
                "used_by": get_text(one, "used_by"),
            }


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
