"""GPUs, their processes and their holders as rows: of a machine from its agent's /snapshot, of a node of a cluster
through the analyzer."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from gpusteward.cli.api.client import Client
from gpusteward.cli.api.pagination import read_all
from gpusteward.cli.api.workloads import WorkloadReference
from gpusteward.cli.json_access import Row
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
        node=document.text("node"),
        taken_at=document.number("taken_at"),
        readings=document.objects("readings"),
        processes=document.objects("processes"),
        allocations=document.objects("allocations"),
        failures=[f"{each.text('collector')}: {each.text('reason')}" for each in document.objects("failures")],
        holders_are_processes=document.get("holders_are_processes") is True,
    )


def gpus_by_uuid(snapshot: NodeSnapshot) -> Mapping[str, Row]:
    return {reading.object("gpu").text("uuid"): reading.object("gpu") for reading in snapshot.readings}


def name_gpu(gpu: Row) -> str:
    """`3`, or `3/1g.10gb/7` for a MIG instance: profile and instance id."""
    mig = gpu.object("mig")
    index = str(gpu.count("index")) if gpu else ""
    return f"{index}/{mig.text('profile')}/{mig.count('gpu_instance_id')}" if mig else index


def owner_of(container: Row, place: str = "") -> WorkloadReference:
    """The workload; the pod if it has no owner; `place` for a process outside of pods."""
    workload = container.object("workload")
    if workload:
        return WorkloadReference(workload.text("kind"), container.text("namespace"), workload.text("name"))
    if container.text("pod"):
        return WorkloadReference("Pod", container.text("namespace"), container.text("pod"))
    return WorkloadReference(place or UNKNOWN, UNKNOWN, UNKNOWN)


def describe_use(process: Row) -> dict[str, Any]:
    """Its pid and name, and what it uses of its GPU."""
    return {
        "pid": process.count("pid"),
        "process": process.text("process"),
        "memory_bytes": process.number("memory_bytes"),
        "sm_ratio": process.number("sm_ratio"),
        "outside_allocation": process.get("outside_allocation") is True,
        "works_for": process.text("works_for"),
    }


def list_processes(snapshot: NodeSnapshot) -> Iterator[dict[str, Any]]:
    """One row per process on a GPU."""
    gpus = gpus_by_uuid(snapshot)
    for process in snapshot.processes:
        container, holder = process.object("container"), process.object("works_for")
        yield {
            **_describe_gpu(gpus.get(process.text("gpu_uuid"), Row()), process.text("gpu_uuid")),
            **_describe_container(container),
            "owned_by": owner_of(holder or container, process.text("place")),
            **describe_use(Row(process, process=process.get("name"), works_for=holder.get("pod"))),
            "place": process.text("place"),
        }


def list_holders_without_process(snapshot: NodeSnapshot) -> Iterator[dict[str, Any]]:
    """One row per container that holds a GPU on which neither it nor the other pod of its pair has a process."""
    gpus = gpus_by_uuid(snapshot)
    seen = {
        (one.text("gpu_uuid"), *_identity(one.object("works_for") or one.object("container")))
        for one in snapshot.processes
    }
    for allocation in snapshot.allocations:
        uuid, container = allocation.text("gpu_uuid"), allocation.object("container")
        if (uuid, *_identity(container)) not in seen:
            yield {
                **_describe_gpu(gpus.get(uuid, Row()), uuid),
                **_describe_container(container),
                "place": "container",
                "used_by": allocation.text("used_by"),
            }


def _identity(container: Row) -> tuple[str, str, str]:
    return container.text("namespace"), container.text("pod"), container.text("name")


def _describe_gpu(gpu: Row, uuid: str) -> dict[str, Any]:
    return {"gpu": name_gpu(gpu), "gpu_uuid": uuid, "model": gpu.text("model")}


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
    processes = answer.objects("processes")
    by_pod = {(one.text("namespace"), one.text("pod")): one for one in holders}
    models = {one.text("gpu").partition("/")[0]: one.text("model") for one in holders}
    rows = [_describe_node_process(one, by_pod, models) for one in processes]
    used = {(one.text("index"), one.text("namespace"), one.text("works_for")) for one in processes}
    unused = [one for one in holders if _identify(one)[:3] not in used]
    seen = {_identify(one) for one in processes}
    return rows + (list(_list_without_process(unused, seen)) if all_holders else [])


def _identify(row: Row) -> Identity:
    return row.text("index"), row.text("namespace"), row.text("pod"), row.text("container")


def _describe_node_process(
    row: Row, by_pod: Mapping[tuple[str, str], Row], models: Mapping[str, str]
) -> dict[str, Any]:
    holder = by_pod.get((row.text("namespace"), row.text("pod")), Row())
    model = models.get(row.text("gpu")) or holder.text("model")
    return {**_describe_holder(row, holder.object("workload")), **describe_use(row), "model": model}


def _list_without_process(holders: list[Row], seen: set[Identity]) -> Iterator[dict[str, Any]]:
    """MIG instances have other indexes in the two lists: their containers are compared without it."""
    on_any_gpu = {identity[1:] for identity in seen}
    for one in holders:
        is_instance = "/" in one.text("gpu")
        has_process = _identify(one)[1:] in on_any_gpu if is_instance else _identify(one) in seen
        if not has_process:
            yield {
                **_describe_holder(one, one.object("workload")),
                "model": one.text("model"),
                "used_by": one.text("used_by"),
            }


def _describe_holder(row: Row, workload: Row) -> dict[str, Any]:
    return {
        "node": row.text("node"),
        "gpu": row.text("index"),
        "gpu_uuid": row.text("gpu"),
        "namespace": row.text("namespace"),
        "pod": row.text("pod"),
        "container": row.text("container"),
        "workload": f"{workload.text('kind')}/{workload.text('name')}" if workload else "",
        "place": "container",
    }
