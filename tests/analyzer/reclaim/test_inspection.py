"""What the objects say about a workload, without a cluster. Pure."""

from typing import Any

from gpusteward.analyzer.reclaim.cluster import PodId, UnreadableClaimError
from gpusteward.analyzer.reclaim.decisions.workloads import find_incomplete
from gpusteward.analyzer.reclaim.execution.changes import check_replicas, find_other_pod
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject
from gpusteward.analyzer.reclaim.kinds.resource_claims import ClaimedDevice, UnknownClaimError, list_claimed_gpus
from gpusteward.analyzer.reclaim.kinds.targets import Chosen, WorkloadObjects
from gpusteward.core.kinds import KINDS
from gpusteward.core.node.containers import Container
from gpusteward.core.usages import AllocationKey
from gpusteward.kubernetes.owners import PAIR_LABEL
from gpusteward.messages import reclaim as messages

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
    return Chosen(KINDS["apps", "Deployment"], root), WorkloadObjects(
        root, pods, [[make("ReplicaSet", name), root] for name in names]
    )


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


def test_never_stops_a_pod_that_holds_its_gpu_for_another_one() -> None:
    """Of an llm-d pair, also where no agent has joined it: the label of one pod is enough to refuse."""
    _, objects = make_pool(make_pod("a"), make_pod("b", labels={PAIR_LABEL: "launcher-0"}))
    reason = find_other_pod(objects, None)
    assert reason is not None
    assert "pod b holds its GPU for pod launcher-0" in reason.en
    assert find_other_pod(objects, [PodId("b", "b")]) == reason
    assert find_other_pod(objects, [PodId("a", "a")]) is None, "of a pool only these go"
    assert find_other_pod(make_pool(make_pod("a"), make_pod("b"))[1], None) is None


class Claims:
    """Of one namespace."""

    def __init__(self, *claims: KubeObject) -> None:
        self._claims = {claim.name: claim for claim in claims}

    def list_claimed_gpus(self, pod: KubeObject) -> frozenset[ClaimedDevice]:
        try:
            return list_claimed_gpus(pod, self._claims)
        except UnknownClaimError as error:
            raise UnreadableClaimError(messages.CLAIM_UNKNOWN, pod=pod.name, claim=error.claim) from error


def find_unknown(*pods: KubeObject, known: dict[str, int], claims: Claims | None = None, containers: int = 1) -> str:
    """`known`: GPUs by pod, each in so many containers."""
    allocations = [
        AllocationKey(f"GPU-{pod}-{gpu}", "", Container("team", pod, "", f"c{number}"), "node", "0", "", "exclusive")
        for pod, count in known.items()
        for gpu in range(count)
        for number in range(containers)
    ]
    reason = find_incomplete(make_pool(*pods)[1], allocations, claims or Claims())  # type: ignore[arg-type]
    return "" if reason is None else reason.en


def test_a_pod_with_a_gpu_that_nobody_reports_is_not_complete() -> None:
    """Seven of eight GPUs are known, and idle. The eighth may be at work: its series are missing."""
    assert "pod a holds GPUs" in find_unknown(make_pod("a", gpus=8), known={"a": 7})
    assert find_unknown(make_pod("a", gpus=8), make_pod("b"), known={"a": 8, "b": 1}) == ""


def make_claim(name: str, devices: dict[str, str] | None) -> KubeObject:
    """`devices`: name -> driver; None: not allocated."""
    results = [{"driver": driver, "pool": "node", "device": name} for name, driver in (devices or {}).items()]
    status = {} if devices is None else {"allocation": {"devices": {"results": results}}}
    return KubeObject("resource.k8s.io/v1", "ResourceClaim", {"metadata": {"name": name}, "status": status})


def make_claiming(name: str, *claims: str, gpus: int = 0) -> KubeObject:
    """A pod with claims; those whose name begins with `made-` come from a template."""
    one = make_pod(name, gpus=gpus)
    one.spec["resourceClaims"] = [
        {"name": claim, "resourceClaimTemplateName": "x"}
        if claim.startswith("made-")
        else {"name": claim, "resourceClaimName": claim}
        for claim in claims
    ]
    made = [{"name": claim, "resourceClaimName": claim} for claim in claims if claim.startswith("made-")]
    one.json["status"] = {"resourceClaimStatuses": made}
    return one


FOUR = make_claim("four", {f"gpu-{number}": "gpu.nvidia.com" for number in range(4)})
NETWORK = make_claim("made-net", {"nic-0": "dra.net", "channel-0": "compute-domain.nvidia.com"})


def test_never_complete_with_one_of_four_claimed_devices_reported() -> None:
    pod = make_claiming("a", "four")
    assert "pod a holds GPUs" in find_unknown(pod, known={"a": 1}, claims=Claims(FOUR))
    assert "pod a holds GPUs" in find_unknown(pod, known={"a": 1}, containers=4, claims=Claims(FOUR))
    assert find_unknown(pod, known={"a": 4}, claims=Claims(FOUR)) == ""


def test_requests_and_claims_of_a_pod_add_up() -> None:
    pod = make_claiming("a", "four", gpus=1)
    assert "pod a holds GPUs" in find_unknown(pod, known={"a": 4}, claims=Claims(FOUR))
    assert find_unknown(pod, known={"a": 5}, claims=Claims(FOUR)) == ""


def test_a_nic_and_an_imex_channel_are_no_gpus() -> None:
    pod = make_claiming("a", "four", "made-net")
    assert find_unknown(pod, known={"a": 4}, claims=Claims(FOUR, NETWORK)) == ""


def test_a_claim_that_cannot_be_read_or_is_not_allocated_is_not_complete() -> None:
    pod = make_claiming("a", "four")
    assert "ResourceClaim four" in find_unknown(pod, known={"a": 4})
    assert "ResourceClaim four" in find_unknown(pod, known={"a": 4}, claims=Claims(make_claim("four", None)))
    template = make_claiming("a", "made-gpus")
    template.json["status"] = {}
    assert "ResourceClaim made-gpus" in find_unknown(template, known={"a": 4})


def test_a_sidecar_that_asks_for_a_gpu_counts() -> None:
    pod = make_pod("a")
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    pod.spec["initContainers"] = [{"name": "proxy", "restartPolicy": "Always", "resources": limits}]
    assert "pod a holds GPUs" in find_unknown(pod, known={"a": 1})
    pod.spec["initContainers"] = [{"name": "prepare", "resources": limits}]
    assert find_unknown(pod, known={"a": 1}) == ""
