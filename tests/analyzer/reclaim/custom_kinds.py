"""Small custom resources in place of those that no registry has, and a controller for them.

A definition allows everything, except where a test wants the server to drop a field. `run_controller` does what the
real one does as far as reclaim sees it: it deletes the pods of an object that is suspended, and makes them when it is
not.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from gpusteward.analyzer.reclaim.kinds.objects import read_pointer
from tests.kubernetes.cluster import ApiError, Cluster, Json, path_of, pod, wait_for


def define(cluster: Cluster, group: str, kind: str, version: str = "v1", *, schema: Json | None = None) -> None:
    """A custom resource definition; returns when objects can be made."""
    plural = f"{kind.lower()}s"
    everything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [
                {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema or everything}}
            ],
        },
    }
    cluster.apply(definition)

    def is_served() -> bool:
        try:
            cluster.request("GET", f"/apis/{group}/{version}/namespaces/default/{plural}")
        except ApiError:
            return False
        return True

    wait_for(is_served)


def create(cluster: Cluster, item: Json) -> Json:
    """Create an object as its user would, without server-side apply."""
    path = path_of(item)
    return cluster.request("POST", path.rpartition("/")[0], item)


def custom(version: str, kind: str, name: str, namespace: str, spec: Json, **metadata: Any) -> Json:
    about = {"name": name, "namespace": namespace, **metadata}
    return {"apiVersion": version, "kind": kind, "metadata": about, "spec": copy.deepcopy(spec)}


def reference_to(item: Json) -> Json:
    about = item["metadata"]
    return {
        "apiVersion": item["apiVersion"],
        "kind": item["kind"],
        "name": about["name"],
        "uid": about["uid"],
        "controller": True,
    }


def add_pods(cluster: Cluster, owner: Json, *, count: int = 2, gpus: int = 1, **metadata: Any) -> list[Json]:
    """Pods of an object, Running."""
    about = owner["metadata"]
    pods = [
        pod(
            f"{about['name']}-{number}",
            about["namespace"],
            gpus=gpus,
            ownerReferences=[reference_to(owner)],
            **metadata,
        )
        for number in range(count)
    ]
    return cluster.apply(*pods)


def run_controller(
    cluster: Cluster, owner: Json, *, suspended: Mapping[str, Any], is_suspended: Callable[[Json], bool] | None = None
) -> None:
    """Once: delete the pods of an object that is suspended, or make them again. `suspended`: JSON pointer -> value."""
    current = cluster.request("GET", path_of(owner))
    is_so = is_suspended or (lambda item: all(read_pointer(item, key) == value for key, value in suspended.items()))
    if not is_so(current):
        add_pods(cluster, current)
        return
    for each in cluster.list_pods(owner["metadata"]["namespace"]):
        owners = each["metadata"].get("ownerReferences") or ()
        if any(one["uid"] == owner["metadata"]["uid"] for one in owners):
            cluster.delete({"apiVersion": "v1", "kind": "Pod", **each})
