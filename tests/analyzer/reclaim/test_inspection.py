"""What the objects say about a candidate, without a cluster. Pure."""

from types import SimpleNamespace
from typing import Any

from gpusteward.analyzer.reclaim.decisions.inspection import check_replicas, find_partly_known
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject
from gpusteward.analyzer.reclaim.kinds.registry import Chosen, WorkloadObjects
from gpusteward.analyzer.reclaim.kinds.replicated import DEPLOYMENT
from gpusteward.core.containers import Container
from gpusteward.core.usages import AllocationKey

READY = [{"type": "Ready", "status": "True"}]


def make(kind: str, name: str, *, spec: Any = None, conditions: Any = (), **metadata: Any) -> KubeObject:
    about = {"name": name, "namespace": "team", "uid": name, **metadata}
    return KubeObject("apps/v1", kind, {"metadata": about, "spec": spec or {}, "status": {"conditions": conditions}})


def make_pod(name: str, *, gpus: int = 1, conditions: Any = READY, **metadata: Any) -> KubeObject:
    containers = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}]
    return make("Pod", name, spec={"nodeName": "node", "containers": containers}, conditions=conditions, **metadata)


def make_pool(*pods: KubeObject, sets: tuple[str, ...] = ()) -> tuple[Chosen, WorkloadObjects]:
    root = make("Deployment", "pool", spec={"replicas": len(pods)})
    names = sets or ("pool-1",) * len(pods)
    return Chosen(DEPLOYMENT, root), WorkloadObjects(root, pods, [[make("ReplicaSet", name), root] for name in names])


def refuse(*pods: KubeObject, sets: tuple[str, ...] = ()) -> str:
    reason = check_replicas(*make_pool(*pods, sets=sets))
    return "" if reason is None else reason.en


def test_a_pool_whose_replicas_are_ready_and_of_one_set_may_be_lowered() -> None:
    assert refuse(make_pod("a"), make_pod("b")) == ""


def test_never_lowers_a_pool_with_a_replica_that_is_not_ready() -> None:
    """It would go first, whatever the deletion costs are; and it may be the one that works."""
    assert "a is not ready" in refuse(make_pod("a", conditions=[]), make_pod("b"))
    assert "b is not ready" in refuse(make_pod("a"), make_pod("b", deletionTimestamp="2026-01-01T00:00:00Z"))


def test_never_lowers_a_pool_during_a_rollout() -> None:
    """Both ReplicaSets shrink, each by itself."""
    assert "several ReplicaSets" in refuse(make_pod("a"), make_pod("b"), sets=("pool-1", "pool-2"))


def find_unknown(*pods: KubeObject, known: dict[str, int]) -> str:
    allocations = [
        AllocationKey(f"GPU-{pod}-{number}", "", Container("team", pod), "node", str(number), "H100", "exclusive")
        for pod, count in known.items()
        for number in range(count)
    ]
    return find_partly_known(make_pool(*pods)[1], SimpleNamespace(allocations=allocations))  # type: ignore[arg-type]


def test_a_pod_with_a_gpu_that_nobody_reports_is_not_complete() -> None:
    """Seven of eight GPUs are known, and idle. The eighth may be at work: its series are missing."""
    assert find_unknown(make_pod("a", gpus=8), known={"a": 7}) == "a"
    assert find_unknown(make_pod("a", gpus=8), make_pod("b"), known={"a": 8, "b": 1}) == ""
