"""/api/v1/workloads/.../processes and /api/v1/nodes/.../processes: GPU processes now, as the agents report them."""

import time
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import ApiDependencies, Dependencies, LastResult
from gpusteward.analyzer.api.http.concurrency_limits import query_source
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.api.http.responses import DocumentedRoute, send_json
from gpusteward.analyzer.api.v1.pagination import stamp
from gpusteward.analyzer.api.v1.workloads.workload_paths import Cluster, NamedWorkload, Part, find_workload
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.sources.live_readings import RunningProcess
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.core.api_rows import Process, Processes
from gpusteward.core.usages import AllocationKey
from gpusteward.messages.errors import api_errors

router = APIRouter(route_class=DocumentedRoute, prefix="/api/v1", dependencies=[Depends(may_read)], tags=["workloads"])

MOST_PODS = 256
MOST_PROCESSES = 1000


@router.get(
    "/workloads/{kind}/{namespace}/{name}/processes", summary="Processes of one workload", response_model=Processes
)
async def read_processes(
    published: LastResult,
    dependencies: Dependencies,
    *,
    path: NamedWorkload,
    cluster: Cluster = None,
    limit: Annotated[int, Query(ge=1, le=MOST_PODS, description="Maximum number of pods.")] = 16,
    offset: Annotated[int, Query(ge=0, le=100_000, description="Number of pods to skip.")] = 0,
) -> Response:
    """Processes with their GPU, memory and SM use at this moment, from gpusteward's agents."""
    result = published.result
    number = find_workload(result.workloads, path, cluster)
    held = [result.verdicts.usage.allocations[row] for row in result.workloads.rows(number).tolist()]
    return send_json(await _read(held, slice(offset, offset + limit), result, dependencies))


@router.get("/nodes/{node}/processes", summary="Processes of one node", response_model=Processes)
async def read_node_processes(
    published: LastResult,
    dependencies: Dependencies,
    *,
    node: Part,
    cluster: Cluster = None,
    limit: Annotated[int, Query(ge=1, le=MOST_PODS, description="Maximum number of pods.")] = MOST_PODS,
    offset: Annotated[int, Query(ge=0, le=100_000, description="Number of pods to skip.")] = 0,
) -> Response:
    """Processes of the pods that hold GPUs of the node, at this moment, from gpusteward's agents."""
    usage = published.result.verdicts.usage

    def is_meant(name: str, its_cluster: str) -> bool:
        return name == node and cluster in (None, its_cluster)

    held = [one for one in usage.allocations if is_meant(one.node, one.container.cluster)]
    if not held and not any(is_meant(each.node, each.cluster) for each in usage.fleet):
        raise ProblemError(404, "not-found", api_errors.NODE_NOT_FOUND)
    return send_json(await _read(held, slice(offset, offset + limit), published.result, dependencies))


async def _read(
    held: Sequence[AllocationKey], chosen: slice, result: Result, dependencies: ApiDependencies
) -> Processes:
    """The processes of the pods that hold these, and on the GPU of a pair those of its other pod."""
    pods = list(dict.fromkeys(map(_pod_of, held)))
    requested = dict.fromkeys(pods[chosen])
    holders = {  # by the other pod and the GPU: a pod is on one node
        (_pod_of(one)._replace(name=one.used_by), one.gpu_index, one.gpu_instance): one.container.pod
        for one in held
        if one.used_by and _pod_of(one) in requested
    }
    read = list(requested | dict.fromkeys(other for other, _, _ in holders))
    running = await query_source(
        lambda: dependencies.source.read_processes(read, time.time(), visible=dependencies.visible),
        dependencies.limits.processes,
        visible=dependencies.visible,
    )
    found = [(each, holders.get((each.pod, each.gpu_index, each.gpu_instance), "")) for each in running.processes]
    shown = [_describe(each, works_for) for each, works_for in found if works_for or each.pod in requested]
    return Processes(
        processes=shown[:MOST_PROCESSES],
        total=len(shown),
        untold=[pod.name for pod in requested if pod not in running.reported],
        pods=len(pods),
        result=stamp(result, dependencies),
    )


def _pod_of(held: AllocationKey) -> PodKey:
    return PodKey(held.container.namespace, held.container.pod, held.cluster)


def _describe(process: RunningProcess, works_for: str) -> Process:
    parts = (process.gpu_index, process.mig_profile, process.gpu_instance)
    return Process(
        cluster=process.pod.cluster,
        namespace=process.pod.namespace,
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
        works_for=works_for,
    )
