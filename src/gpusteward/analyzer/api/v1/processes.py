"""/api/v1/workloads/.../processes: the GPU processes of a workload now, as the agents of its nodes report them."""

import time
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from pydantic import Field

from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import Dependencies, LastResult
from gpusteward.analyzer.api.http.concurrency_limits import query_source
from gpusteward.analyzer.api.http.responses import send_json
from gpusteward.analyzer.api.v1.pagination import ClusterName, ResultStamp, stamp
from gpusteward.analyzer.api.v1.workloads import Cluster, Part, find_workload
from gpusteward.analyzer.sources.pod_processes import Pod, RunningProcess

router = APIRouter(prefix="/api/v1", dependencies=[Depends(may_read)], tags=["workloads"])

MOST_PODS = 256
MOST_PROCESSES = 1000


@dataclass(frozen=True, slots=True)
class Process:
    """A process on one GPU. Unknown is null, never zero."""

    cluster: ClusterName
    pod: str
    container: str
    node: str
    gpu: Annotated[str, Field(description="UUID; of a MIG instance its own.")]
    index: Annotated[str, Field(description="Of the GPU on its node; of a MIG instance with profile and instance id.")]
    pid: Annotated[int, Field(description="On the node.")]
    process: Annotated[str, Field(description="Its name.")]
    memory_bytes: float | None
    sm_ratio: float | None
    outside_allocation: Annotated[bool, Field(description="Whether it is on a GPU that its pod does not hold.")]


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes of the pods of a workload."""

    processes: list[Process]
    total: Annotated[int, Field(description="Number of processes; not all may be listed.")]
    untold: Annotated[list[str], Field(description="Pods that no agent reports: their processes are unknown.")]
    pods: Annotated[int, Field(description="How many pods of the workload hold GPUs.")]
    result: ResultStamp


@router.get(
    "/workloads/{kind}/{namespace}/{name}/processes", summary="Processes of one workload", response_model=Processes
)
async def read_processes(
    published: LastResult,
    dependencies: Dependencies,
    *,
    kind: Part,
    namespace: Part,
    name: Part,
    cluster: Cluster = None,
    limit: Annotated[int, Query(ge=1, le=MOST_PODS, description="Maximum number of pods.")] = 16,
    offset: Annotated[int, Query(ge=0, le=100_000, description="Number of pods to skip.")] = 0,
) -> Response:
    """Processes with their GPU, memory and SM use at this moment, from gpusteward's agents."""
    result = published.result
    number = find_workload(result.workloads, kind=kind, namespace=namespace, name=name, cluster=cluster)
    containers = (result.verdicts.usage.allocations[row].container for row in result.workloads.rows(number).tolist())
    pods = list(dict.fromkeys(Pod(one.namespace, one.pod, one.cluster) for one in containers))
    requested = pods[offset : offset + limit]
    running = await query_source(
        lambda: dependencies.source.read_processes(requested, time.time()), dependencies.limits.processes
    )
    return send_json(
        Processes(
            processes=[_describe(each) for each in running.processes[:MOST_PROCESSES]],
            total=len(running.processes),
            untold=[pod.name for pod in requested if pod not in running.reported],
            pods=len(pods),
            result=stamp(result),
        )
    )


def _describe(process: RunningProcess) -> Process:
    parts = (process.gpu_index, process.mig_profile, process.gpu_instance)
    return Process(
        cluster=process.pod.cluster,
        pod=process.pod.name,
        container=process.container,
        node=process.node,
        gpu=process.gpu_uuid,
        index="/".join(part for part in parts if part),
        pid=process.pid,
        process=process.name,
        memory_bytes=process.memory_bytes,
        sm_ratio=process.sm_ratio,
        outside_allocation=process.outside_allocation,
    )
