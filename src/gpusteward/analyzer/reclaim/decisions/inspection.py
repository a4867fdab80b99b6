"""Reads the objects behind a candidate, and plans what would change on them."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

from gpusteward.analyzer.reclaim.changes import LOWEST_COST, Planned, format_time
from gpusteward.analyzer.reclaim.cluster import PodName, Reading, UnreadableClaimError, count_gpus
from gpusteward.analyzer.reclaim.decisions.candidates import CandidateFacts, CandidatePod
from gpusteward.analyzer.reclaim.decisions.facts import Inspection
from gpusteward.analyzer.reclaim.kinds.objects import ACTION, KubeObject
from gpusteward.analyzer.reclaim.kinds.registry import Chosen, WorkloadObjects, choose_targets, list_stopped
from gpusteward.analyzer.reclaim.kinds.resource_claims import Device
from gpusteward.analyzer.reclaim.policies.policy import KEEP, PREFIX, Policy, ReclaimAction, read_keep
from gpusteward.analyzer.reclaim.policies.resolve import WatchedPolicies, WorkloadMetadata
from gpusteward.core.containers import WorkloadKey
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.messages import reclaim as messages


@dataclass
class Inspected:
    """The objects of a candidate as they were read, and what was last found out about them."""

    objects: WorkloadObjects | None
    metadata: WorkloadMetadata | None
    incomplete: Message | None = None  # why not all of its GPUs are known to be in the verdict
    error: Message | None = None  # why they could not be read
    _policy: tuple[object, Policy] | None = field(default=None, repr=False)
    _changes: tuple[Policy, "Changes"] | None = field(default=None, repr=False)

    def find_policy(self, policies: WatchedPolicies) -> Policy:
        """Looked up again when the policies have changed."""
        assert self.metadata is not None
        if self._policy is None or self._policy[0] is not policies.current:
            self._policy = policies.current, policies.find_policy(self.metadata)
        return self._policy[1]

    def plan_changes(self, policy: Policy, reading: Reading, *, now: float) -> "Changes":
        """For the whole workload; planned again when its policy has changed, and after a refusal, which may be over."""
        if self._changes is not None and self._changes[0] is policy:
            return self._changes[1]
        changes = plan_changes(self, policy, reading, surplus=(), now=now)
        self._changes = (policy, changes) if changes[0].refusal is None else None
        return changes


Changes = tuple[Inspection, Sequence[Planned]]


def read_objects(found: CandidateFacts, reading: Reading) -> Inspected:
    """Never raises: what cannot be read is a reason to refuse."""
    namespace = found.workload.namespace
    try:
        objects = reading.read_workload_objects(namespace, found.pods)
        annotations = reading.read_namespace(namespace)
        known = {pod.uid for pod in objects.pods}
        others = [pod for pod in reading.list_pods_below(namespace, [objects.root.uid]) if pod.uid not in known]
        incomplete = (
            messages.INCOMPLETE.fill(pod=others[0].name) if others else find_incomplete(objects, found, reading)
        )
    except SourceError as error:
        return Inspected(None, None, error=error.as_message())
    models = [one.model for one in found.allocations]
    metadata = make_metadata(found.key, objects, models=models, namespace_annotations=annotations)
    return Inspected(objects, metadata, incomplete=incomplete)


def make_metadata(
    key: WorkloadKey, objects: WorkloadObjects, *, models: Iterable[str], namespace_annotations: Mapping[str, str]
) -> WorkloadMetadata:
    """Of several annotations of one name, that of the pod wins over that of its owner; of `keep` the longest one."""
    nearest_last = [*reversed(objects.owners), *objects.pods]
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    keeps = [one.annotations[KEEP] for one in nearest_last if KEEP in one.annotations]
    for one in nearest_last:
        annotations |= {name: value for name, value in one.annotations.items() if name.startswith(PREFIX)}
        labels |= one.labels
    if keeps:
        annotations[KEEP] = max(keeps, key=_rank_keep)
    classes = {str(pod.spec.get("priorityClassName") or "") for pod in objects.pods}
    return WorkloadMetadata(
        key,
        sorted(set(models) - {""}),
        labels,
        classes.pop() if len(classes) == 1 else "",
        annotations,
        namespace_annotations,
    )


def _rank_keep(value: str) -> float:
    """Until when it keeps; one that cannot be read keeps for ever."""
    try:
        return read_keep(value.strip())
    except (ValueError, OverflowError):
        return inf


class ClaimReader(Protocol):
    """Implemented by `cluster.Reading`."""

    def list_claimed_gpus(self, pod: KubeObject) -> frozenset[Device]:
        """Raises SourceError: UnreadableClaimError."""


def find_incomplete(objects: WorkloadObjects, found: CandidateFacts, claims: ClaimReader) -> Message | None:
    """Why a pod may hold a GPU that the verdict does not know of: it may be at work. Raises SourceError."""
    held = Counter(one.container.pod for one in found.allocations)
    gpus = Counter(
        pod for pod, *_ in {(one.container.pod, one.gpu_uuid, one.gpu_instance) for one in found.allocations}
    )
    for pod in objects.pods:
        asked = sum(count_gpus(pod).values())
        try:
            claimed = claims.list_claimed_gpus(pod)
        except UnreadableClaimError as error:
            return error.as_message()
        # Containers may share a claimed device: each of them counts as one allocation, and the device is still one.
        if (gpus if claimed else held)[pod.name] < asked + len(claimed):
            return messages.INCOMPLETE.fill(pod=pod.name)
    return None


def plan_changes(
    inspected: Inspected, policy: Policy, reading: Reading, *, surplus: Sequence[CandidatePod], now: float
) -> Changes:
    """What would change, and why it must not. Never raises."""
    objects = inspected.objects
    if objects is None:
        return Inspection(refusal=inspected.error), []
    about = Inspection(uid=objects.root.uid, incomplete=inspected.incomplete, pods=len(objects.pods))
    about = about._replace(kind=objects.root.kind, name=objects.root.name)
    try:
        chosen, refusal = choose_targets(objects, policy.action, reading.list_objects)
    except SourceError as error:
        return about._replace(refusal=error.as_message()), []
    if refusal is None and policy.action is ReclaimAction.SCALE_TO_KEEP:
        refusal = check_replicas(chosen[0], objects)
    if refusal is not None:
        return about._replace(refusal=refusal), []
    others: list[PodName] = []
    if policy.action is not ReclaimAction.SCALE_TO_KEEP:  # of a pool only replicas with GPUs go
        try:
            others = reading.list_others_below(list_stopped(objects, chosen))
        except SourceError as error:
            return about._replace(refusal=error.as_message()), []
    about = about._replace(other_pods=tuple(others))
    planned = [_plan_one(one, policy, objects, surplus=surplus, now=now) for one in chosen]
    text = "; ".join(each.change.text for each in planned)
    return about._replace(text=text, kind=chosen[0].object.kind, name=chosen[0].object.name), planned


def check_replicas(chosen: Chosen, objects: WorkloadObjects) -> Message | None:
    """Why lowering the replicas could remove others than the surplus ones. Kubernetes removes pods that are not ready
    first, whatever their deletion cost is, and compares costs only among the pods of one ReplicaSet."""
    replicas = chosen.object.read(chosen.kind.replicas)
    if replicas != len(objects.pods):
        return messages.REPLICAS_DIFFER.fill(replicas=replicas, pods=len(objects.pods))
    if len({chain[0].uid for chain in objects.chains if chain}) > 1:
        return messages.POOL_ROLLS_OUT
    unready = next((pod for pod in objects.pods if pod.is_deleted or not pod.has_condition("Ready")), None)
    return None if unready is None else messages.REPLICA_NOT_READY.fill(pod=unready.name)


def _plan_one(
    chosen: Chosen, policy: Policy, objects: WorkloadObjects, *, surplus: Sequence[CandidatePod], now: float
) -> Planned:
    kind = chosen.kind
    if policy.action is not ReclaimAction.SCALE_TO_KEEP:
        return Planned(chosen, kind.make_fields(format_time(now)), {})
    pods: Mapping[str, KubeObject] = {pod.uid: pod for pod in objects.pods}
    costs: dict[str, tuple[KubeObject, int]] = {}
    for number, replica in enumerate(surplus):
        pod = pods.get(replica.pod.uid) or next(one for one in objects.pods if one.name == replica.pod.name)
        costs[pod.name] = (pod, LOWEST_COST + number)
    fields: dict[str, Any] = {kind.replicas: len(objects.pods) - len(costs)}
    return Planned(chosen, fields, costs)


class InspectionCache:
    """Objects of candidates from earlier cycles, for plans only: before a warning and an action they are read again."""

    SECONDS = 1800.0
    BRIEF_SECONDS = 60.0
    MOST = 3000

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: dict[tuple[object, ...], tuple[float, Inspected]] = {}

    def has(self, found: CandidateFacts) -> bool:
        """Whether `read` would cost no request."""
        entry = self._entries.get(_name(found))
        return entry is not None and entry[0] > self._clock()

    def read(self, found: CandidateFacts, reading: Reading) -> Inspected:
        now, key = self._clock(), _name(found)
        entry = self._entries.get(key)
        if entry is not None and entry[0] > now:
            return entry[1]
        return self.renew(found, reading)

    def renew(self, found: CandidateFacts, reading: Reading) -> Inspected:
        now, key = self._clock(), _name(found)
        inspected = read_objects(found, reading)
        self._entries.pop(key, None)
        if len(self._entries) >= self.MOST:
            del self._entries[next(iter(self._entries))]  # the oldest one
        # An error may be over soon, and so may an action that changes the object at this moment.
        is_brief = inspected.objects is None or ACTION in inspected.objects.root.annotations
        self._entries[key] = (now + (self.BRIEF_SECONDS if is_brief else self.SECONDS), inspected)
        return inspected

    def forget(self) -> None:
        self._entries.clear()


def _name(found: CandidateFacts) -> tuple[object, ...]:
    return found.key, found.workload.uid, found.pods
