"""GPUs, their processes and their holders as rows: of a machine from its agent's /snapshot, of a node of a cluster
through the analyzer."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from gpusteward.cli.api.client import Client
from gpusteward.cli.api.pagination import read_all
from gpusteward.cli.api.workloads import WorkloadReference
from gpusteward.cli.json_access import Row
from gpusteward.cli.output.quantities import UNKNOWN

SNAPSHOT_PATH = "/snapshot"
"""Of an agent: its node at one moment."""


def list_failures(snapshot: Row) -> list[str]:
    """What the agent could not read, and why."""
    return [f"{each.text('collector')}: {each.text('reason')}" for each in snapshot.objects("failures")]


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


def list_processes(snapshot: Row) -> Iterator[Row]:
    """One row per process on a GPU."""
    gpus = _gpus_by_uuid(snapshot)
    for process in snapshot.objects("processes"):
        container, holder = process.object("container"), process.object("works_for")
        yield Row(
            _describe_claim(process, gpus),
            owned_by=owner_of(holder or container, process.text("place")),
            place=process.text("place"),
            **describe_use(Row(process, process=process.get("name"), works_for=holder.get("pod"))),
        )


def list_holders_without_process(snapshot: Row) -> Iterator[Row]:
    """One row per container that holds a GPU on which neither it nor the other pod of its pair has a process."""
    gpus = _gpus_by_uuid(snapshot)
    seen = {
        (one.text("gpu_uuid"), *_identity(one.object("works_for") or one.object("container")))
        for one in snapshot.objects("processes")
    }
    for allocation in snapshot.objects("allocations"):
        if (allocation.text("gpu_uuid"), *_identity(allocation.object("container"))) not in seen:
            yield Row(_describe_claim(allocation, gpus), place="container", used_by=allocation.text("used_by"))


def _gpus_by_uuid(snapshot: Row) -> Mapping[str, Row]:
    gpus = [reading.object("gpu") for reading in snapshot.objects("readings")]
    return {gpu.text("uuid"): gpu for gpu in gpus}


def _identity(container: Row) -> tuple[str, str, str]:
    return container.text("namespace"), container.text("pod"), container.text("name")


def _describe_claim(claim: Row, gpus: Mapping[str, Row]) -> dict[str, str]:
    """The GPU and the container of a process or an allocation."""
    gpu, owner = gpus.get(claim.text("gpu_uuid"), Row()), owner_of(claim.object("container"))
    namespace, pod, name = _identity(claim.object("container"))
    return {
        "gpu": name_gpu(gpu),
        "gpu_uuid": claim.text("gpu_uuid"),
        "model": gpu.text("model"),
        "namespace": namespace,
        "pod": pod,
        "container": name,
        "workload": f"{owner.kind}/{owner.name}" if pod else "",
    }


def list_node_rows(client: Client, node: str, *, all_holders: bool) -> list[Row]:
    """One row per process, and per container without one if wanted. Raises UnreachableError, StatusError.

    Processes without a pod are known to the agent of the node only.
    """
    processes = client.read(f"/api/v1/nodes/{quote(node, safe='')}/processes").objects("processes")
    holders = read_all(client, "/api/v1/allocations", [("node", node)]).rows
    by_pod = {(one.text("namespace"), one.text("pod")): one for one in holders}
    models = {one.text("gpu").partition("/")[0]: one.text("model") for one in holders}
    rows = []
    for one in processes:
        holder = by_pod.get((one.text("namespace"), one.text("pod")), Row())
        model = models.get(one.text("gpu")) or holder.text("model")
        rows.append(Row(_describe_holder(one, holder.object("workload")), model=model, **describe_use(one)))
    used = {(one.text("index"), one.text("namespace"), one.text("works_for")) for one in processes}
    seen = set(map(_identify, processes))
    on_any_gpu = {identity[1:] for identity in seen}
    for one in holders if all_holders else ():
        identity = _identify(one)
        # MIG instances have other indexes in the two lists: their containers are compared without it.
        has_process = identity[1:] in on_any_gpu if "/" in one.text("gpu") else identity in seen
        if not has_process and identity[:3] not in used:
            about = _describe_holder(one, one.object("workload"))
            rows.append(Row(about, model=one.text("model"), used_by=one.text("used_by")))
    return rows


def _identify(row: Row) -> tuple[str, str, str, str]:
    """A container on a GPU."""
    return row.text("index"), row.text("namespace"), row.text("pod"), row.text("container")


def _describe_holder(row: Row, workload: Row) -> dict[str, str]:
    return {
        **{key: row.text(key) for key in ("node", "namespace", "pod", "container")},
        "gpu": row.text("index"),
        "gpu_uuid": row.text("gpu"),
        "workload": f"{workload.text('kind')}/{workload.text('name')}" if workload else "",
        "place": "container",
    }
