"""The path of one workload in the API, and the search for it in a result."""

from typing import Annotated

from fastapi import Path, Query

from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.judge.workloads import WorkloadTable
from gpusteward.core.containers import WorkloadKey
from gpusteward.messages.errors import api_errors

NO_NAME = "-"
"""Represents an empty part of a path; not a valid name in Kubernetes."""

Cluster = Annotated[
    str | None, Query(max_length=253, description="Needed if several clusters have a workload of this name.")
]
Part = Annotated[str, Path(max_length=253, description=f"`{NO_NAME}` for an empty name.")]


def find_workload(table: WorkloadTable, *, kind: str, namespace: str, name: str, cluster: str | None) -> int:
    """Raises a 404 problem, or a 409 problem if several clusters have it and none is chosen."""
    kind, namespace, name = ("" if part == NO_NAME else part for part in (kind, namespace, name))
    keys = [WorkloadKey(kind, namespace, name, each) for each in (table.clusters if cluster is None else [cluster])]
    found = {key.cluster: number for key in keys if (number := table.find(key)) is not None}
    if not found:
        raise ProblemError(404, "not-found", api_errors.WORKLOAD_NOT_FOUND)
    if len(found) > 1:
        raise ProblemError(409, "ambiguous", api_errors.SEVERAL_CLUSTERS, clusters=", ".join(sorted(found)))
    return next(iter(found.values()))
