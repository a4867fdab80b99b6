"""/api/v1/nodes: the nodes with their GPUs, and the state of the GPUs of one node now."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import Dependencies, LastResult
from gpusteward.analyzer.api.http.concurrency_limits import query_source
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.api.http.responses import DocumentedRoute, send_json
from gpusteward.analyzer.api.result_store import PublishedResult
from gpusteward.analyzer.api.v1.compact import SelectedCluster, send_compact
from gpusteward.analyzer.api.v1.gpus.node_rows import NodeGpu, NodeRow, make_gpus, view_nodes
from gpusteward.analyzer.api.v1.pagination import stamp
from gpusteward.analyzer.api.v1.workloads.workload_paths import Cluster, Part
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.sources.live_readings import ReportedGpu
from gpusteward.core.api_rows import ResultStamp
from gpusteward.core.messages import Language
from gpusteward.messages.errors import api_errors

router = APIRouter(route_class=DocumentedRoute, prefix="/api/v1", dependencies=[Depends(may_read)], tags=["gpus"])


@dataclass(frozen=True, slots=True)
class NodeList:
    """All nodes with GPUs, by cluster and name."""

    currency: str
    items: list[NodeRow]
    result: ResultStamp


@dataclass(frozen=True, slots=True)
class NodeDetail:
    """The GPUs of a node now."""

    node: NodeRow
    gpus: list[NodeGpu]
    uncounted_free_gpus: Annotated[
        int, Field(description="Free GPUs that are counted, but that no exporter describes.")
    ]
    readings_error: Annotated[str, Field(description="Why the exporters could not be read; empty if they could.")]
    result: ResultStamp


@router.get("/nodes", summary="Nodes", response_model=NodeList)
def list_nodes(request: Request, published: LastResult, cluster: SelectedCluster = None) -> Response:
    """Every node that has GPUs, with the numbers of its GPUs by activity."""

    def make(result: Result) -> Mapping[str, object]:
        rows = [row for row in view_nodes(published).values() if cluster in (None, row.cluster)]
        return {"currency": result.settings.prices.currency, "items": rows}

    return send_compact(request, published, "nodes", cluster, make)


@router.get("/nodes/{node}", summary="One node", response_model=NodeDetail)
async def show_node(
    published: LastResult,
    dependencies: Dependencies,
    *,
    node: Part,
    cluster: Cluster = None,
    language: Annotated[Language, Query(description="The language of errors.")] = "en",
) -> Response:
    """The GPUs of a node with temperature, power, clocks, memory and errors as their exporters report them now, and
    with their holders from the last result. Where exporters cannot be read, the values of the last result remain."""
    row = _find_node(published, node, cluster)
    # What the client sees; None: everything.
    held = None if dependencies.visible is None else published.result.verdicts.usage.allocations
    readings, error = list[ReportedGpu](), ""
    try:
        readings += await query_source(
            lambda: dependencies.source.read_gpus(row.node, row.cluster, dependencies.clock(), held=held),
            dependencies.limits.gpus,
            visible=dependencies.visible,
        )
    except ProblemError as problem:
        if problem.kind == "busy":
            raise
        error = problem.text(language)
    gpus = make_gpus(published, row, readings, language=language)
    described = sum(one.is_free for one in gpus)
    return send_json(
        NodeDetail(
            node=row,
            gpus=gpus,
            uncounted_free_gpus=max(0, (row.free_gpus or 0) - described),
            readings_error=error,
            result=stamp(published.result, dependencies),
        )
    )


def _find_node(published: PublishedResult, node: str, cluster: str | None) -> NodeRow:
    """Raises a 404 problem, or a 409 problem if several clusters have it and none is chosen."""
    rows = [one for one in view_nodes(published).values() if one.node == node and cluster in (None, one.cluster)]
    if not rows:
        raise ProblemError(404, "not-found", api_errors.NODE_NOT_FOUND)
    if len(rows) > 1:
        clusters = ", ".join(sorted(one.cluster for one in rows))
        raise ProblemError(409, "ambiguous", api_errors.SEVERAL_CLUSTERS, clusters=clusters)
    return rows[0]
