"""Which pods wait for GPUs, and what idle workloads could give them (pure)."""

from collections.abc import Iterable

from gpusteward.analyzer.reclaim.cluster import count_gpus
from gpusteward.analyzer.reclaim.decisions.candidates import CandidateFacts
from gpusteward.analyzer.reclaim.decisions.decide import PendingPod, Victim
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject
from gpusteward.analyzer.reclaim.kinds.registry import WorkloadObjects

PRODUCT = "nvidia.com/gpu.product"
HOST = "kubernetes.io/hostname"


def list_pending_pods(pods: Iterable[KubeObject]) -> list[PendingPod]:
    """Pods that could not be placed. One whose choice of nodes is not understood here is left out: whether freed GPUs
    would help it is not known."""
    pending = []
    for pod in pods:
        counts, selector = count_gpus(pod), pod.spec.get("nodeSelector") or {}
        affinity = (pod.spec.get("affinity") or {}).get("nodeAffinity") or {}
        is_understood = len(counts) == 1 and set(selector) <= {PRODUCT, HOST}
        if not is_understood or affinity.get("requiredDuringSchedulingIgnoredDuringExecution"):
            continue
        ((resource, gpus),) = counts.items()
        created = str(pod.metadata.get("creationTimestamp", ""))
        model = normalize_model(selector.get(PRODUCT, ""))
        pending.append(PendingPod(pod.name, resource, gpus, created, model, selector.get(HOST, "")))
    return pending


def make_victim(found: CandidateFacts, objects: WorkloadObjects) -> Victim:
    """The whole GPUs that its pods ask for, by node."""
    models = {one.container.pod: one.model for one in found.allocations}
    gpus: dict[tuple[str, str, str], int] = {}
    for pod in objects.pods:
        for resource, count in count_gpus(pod).items():
            place = (str(pod.spec.get("nodeName", "")), resource, normalize_model(models.get(pod.name, "")))
            gpus[place] = gpus.get(place, 0) + count
    return Victim(found.number, found.facts.idle_since or found.facts.now, gpus)


def normalize_model(name: str) -> str:
    """The label of a node has `-` for blanks."""
    return name.strip().replace(" ", "-")
