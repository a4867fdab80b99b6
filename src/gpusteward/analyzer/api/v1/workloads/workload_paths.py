"""The path of one workload in the API, and the search for it in a result."""

from typing import Annotated, NamedTuple

from fastapi import Depends, Path, Query

from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.judge.workloads import WorkloadTable
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.messages.errors import api_errors

NO_NAME = "-"
"""Represents an empty part of a path; not a valid name in Kubernetes."""

Cluster = Annotated[
    str | None, Query(max_length=253, description="Needed if several clusters have a workload of this name.")
]
Part = Annotated[str, Path(max_length=253, description=f"`{NO_NAME}` for an empty name.")]


class WorkloadPath(NamedTuple):
    """The parts of the path; empty where there is no name."""

    kind: str
    namespace: str
    name: str


async def _read_path(kind: Part, namespace: Part, name: Part) -> WorkloadPath:
    return WorkloadPath(*("" if part == NO_NAME else part for part in (kind, namespace, name)))


NamedWorkload = Annotated[WorkloadPath, Depends(_read_path)]


def find_workload(table: WorkloadTable, path: WorkloadPath, cluster: str | None) -> int:
    """Raises a 404 problem, or a 409 problem if several clusters have it and none is chosen."""
    keys = [WorkloadKey(*path, each) for each in (table.clusters if cluster is None else [cluster])]
    found = {key.cluster: number for key in keys if (number := table.find(key)) is not None}
    if not found:
        raise ProblemError(404, "not-found", api_errors.WORKLOAD_NOT_FOUND)
    if len(found) > 1:
        raise ProblemError(409, "ambiguous", api_errors.SEVERAL_CLUSTERS, clusters=", ".join(sorted(found)))
    return next(iter(found.values()))
