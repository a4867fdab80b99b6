"""What an agent's /snapshot says, as rows: GPUs, the processes on them, and who holds them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpusteward.cli.api.client import Client
from gpusteward.cli.api.workloads import WorkloadName
from gpusteward.cli.json_access import Row, count, each, inner, number, text
from gpusteward.cli.output.quantities import UNKNOWN

PATH = "/snapshot"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A node at one moment, as its agent tells it."""

    node: str
    taken_at: float | None
    readings: list[Row]
    processes: list[Row]
    allocations: list[Row]
    failures: list[str]
    holders_are_processes: bool = False


def read_snapshot(client: Client) -> Snapshot:
    """Raises UnreachableError, StatusError."""
    answer = client.read(PATH)
    told = answer if isinstance(answer, dict) else {}
    return Snapshot(
        node=text(told, "node"),
        taken_at=number(told, "taken_at"),
        readings=each(told, "readings"),
        processes=each(told, "processes"),
        allocations=each(told, "allocations"),
        failures=[f"{text(one, 'collector')}: {text(one, 'reason')}" for one in each(told, "failures")],
        holders_are_processes=told.get("holders_are_processes") is True,
    )


def gpus_by_uuid(snapshot: Snapshot) -> Mapping[str, Row]:
    return {text(inner(reading, "gpu"), "uuid"): inner(reading, "gpu") for reading in snapshot.readings}


def name_gpu(gpu: Row) -> str:
    """`3`, or `3/1g.10gb/7` for a MIG instance: profile and instance id."""
    mig = inner(gpu, "mig")
    index = str(count(gpu, "index")) if gpu else ""
    return f"{index}/{text(mig, 'profile')}/{count(mig, 'gpu_instance_id')}" if mig else index


def owner_of(container: Row, place: str = "") -> WorkloadName:
    """The workload; of a pod nobody owns, the pod; of a process in no pod, the place it lives in."""
    workload = inner(container, "workload")
    if workload:
        return WorkloadName(text(workload, "kind"), text(container, "namespace"), text(workload, "name"))
    if text(container, "pod"):
        return WorkloadName("Pod", text(container, "namespace"), text(container, "pod"))
    return WorkloadName(place or UNKNOWN, UNKNOWN, UNKNOWN)


def list_processes(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    """One row a process on a GPU."""
    gpus = gpus_by_uuid(snapshot)
    for process in snapshot.processes:
        container = inner(process, "container")
        yield {
            **_place(gpus.get(text(process, "gpu_uuid"), {}), text(process, "gpu_uuid")),
            **_names(container),
            "owned_by": owner_of(container, text(process, "place")),
            "pid": count(process, "pid"),
            "process": text(process, "name"),
            "place": text(process, "place"),
            "memory_bytes": number(process, "memory_bytes"),
            "sm_ratio": number(process, "sm_ratio"),
            "outside_allocation": process.get("outside_allocation") is True,
        }


def list_silent_holders(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    """One row a container that holds a GPU and has no process on it."""
    gpus = gpus_by_uuid(snapshot)
    seen = {(text(one, "gpu_uuid"), *_identity(inner(one, "container"))) for one in snapshot.processes}
    for allocation in snapshot.allocations:
        uuid, container = text(allocation, "gpu_uuid"), inner(allocation, "container")
        if (uuid, *_identity(container)) not in seen:
            yield {**_place(gpus.get(uuid, {}), uuid), **_names(container), "place": "container"}


def _identity(container: Row) -> tuple[str, str, str]:
    return text(container, "namespace"), text(container, "pod"), text(container, "name")


def _place(gpu: Row, uuid: str) -> dict[str, Any]:
    return {"gpu": name_gpu(gpu), "gpu_uuid": uuid, "model": text(gpu, "model")}


def _names(container: Row) -> dict[str, str]:
    namespace, pod, name = _identity(container)
    owner = owner_of(container)
    return {
        "namespace": namespace,
        "pod": pod,
        "container": name,
        "workload": f"{owner.kind}/{owner.name}" if pod else "",
    }
