"""Which pods wait for GPUs, and which idle workloads together would let them start (pure)."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpusteward.analyzer.reclaim.cluster import count_gpus
from gpusteward.analyzer.reclaim.decisions.workloads import ReclaimWorkload
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject

PRODUCT = "nvidia.com/gpu.product"
HOST = "kubernetes.io/hostname"
Place = tuple[str, str, str]
"""Node, resource, model."""


class PendingPod(NamedTuple):
    """A pod that waits for GPUs."""

    name: str
    resource: str
    gpus: int
    created: str  # RFC 3339: the oldest comes first
    model: str = ""  # it asks for; empty: any
    node: str = ""  # it asks for; empty: any


class Victim(NamedTuple):
    """An idle workload whose GPUs could be given to a pending pod."""

    number: int
    idle_since: float
    gpus: dict[Place, int]  # whole ones


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


def make_victim(one: ReclaimWorkload) -> Victim:
    """The whole GPUs that its pods ask for, by node."""
    models = {each.container.pod: each.model for each in one.allocations}
    gpus: dict[Place, int] = {}
    for pod in one.objects.found.pods if one.objects and one.objects.found else ():
        for resource, count in count_gpus(pod).items():
            place = (str(pod.spec.get("nodeName", "")), resource, normalize_model(models.get(pod.name, "")))
            gpus[place] = gpus.get(place, 0) + count
    return Victim(one.number, one.turn, gpus)


def normalize_model(name: str) -> str:
    """The label of a node has `-` for blanks."""
    return name.strip().replace(" ", "-")


def choose_victims(pending: Sequence[PendingPod], victims: Sequence[Victim]) -> set[int]:
    """The numbers of the longest idle workloads that together let pending pods start, the oldest pod first. A pod needs
    all its GPUs on one node; where no set of victims suffices for a pod, nothing is taken for it."""
    chosen: set[int] = set()
    spare: dict[Place, int] = {}  # freed and not yet used
    oldest = sorted(victims, key=lambda victim: victim.idle_since)
    for pod in sorted(pending, key=lambda each: each.created):
        best = _satisfy(pod, oldest, chosen=chosen, spare=spare)
        if best is None:
            continue
        place, taken = best
        for victim in taken:
            chosen.add(victim.number)
            for key, count in victim.gpus.items():
                spare[key] = spare.get(key, 0) + count
        spare[place] = spare.get(place, 0) - pod.gpus
    return chosen


def _satisfy(
    pod: PendingPod, oldest: Sequence[Victim], *, chosen: set[int], spare: dict[Place, int]
) -> tuple[Place, list[Victim]] | None:
    """The node that needs the fewest victims, and these; of equal ones the one with the longest idle."""
    places = {
        (node, resource, model): None
        for victim in oldest
        for node, resource, model in victim.gpus
        if resource == pod.resource and pod.node in ("", node) and pod.model in ("", model)
    }
    found: list[tuple[int, float, Place, list[Victim]]] = []
    for place in places:
        count, taken = spare.get(place, 0), list[Victim]()
        for victim in oldest:
            if count >= pod.gpus:
                break
            if victim.number not in chosen and place in victim.gpus:
                taken.append(victim)
                count += victim.gpus[place]
        if count >= pod.gpus:
            found.append((len(taken), max((victim.idle_since for victim in taken), default=0.0), place, taken))
    if not found:
        return None
    _, _, place, taken = min(found, key=lambda each: each[:3])
    return place, taken
