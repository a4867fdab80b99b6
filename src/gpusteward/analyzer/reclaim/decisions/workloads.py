"""The workloads of a cycle, idle ones and pools with idle replicas: the facts of their verdict, their pods and their
owner as read now. Reads the cluster, changes nothing.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

import numpy as np

from gpusteward.analyzer.judge.resumption import Chance
from gpusteward.analyzer.ledger.identities import make_allocation_id
from gpusteward.analyzer.pool_minutes import PoolMinutes
from gpusteward.analyzer.reclaim.cluster import PodId, Reading, UnreadableClaimError, count_gpus
from gpusteward.analyzer.reclaim.decisions.host_use import HostReading
from gpusteward.analyzer.reclaim.execution.changes import Change, Inspection, plan_changes
from gpusteward.analyzer.reclaim.execution.journal import Action, Warned
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject
from gpusteward.analyzer.reclaim.kinds.targets import WorkloadObjects
from gpusteward.analyzer.reclaim.policies.policy import KEEP, PREFIX, Policy, read_keep
from gpusteward.analyzer.reclaim.policies.resolve import WatchedPolicies, WorkloadMetadata
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.analyzer.tables import ACTIVITIES, PROOFS, SIGNATURES, STEPS
from gpusteward.core.errors import SourceError
from gpusteward.core.kinds import find_kind
from gpusteward.core.messages import Message
from gpusteward.core.node.containers import OwnerEvidence, Workload, WorkloadKey
from gpusteward.core.usages import AllocationKey
from gpusteward.core.verdicts import Activity, Proof, Signature, Step
from gpusteward.messages import reclaim as messages

QUIET_SECONDS = 120.0
"""A replica of a pool that goes has not worked for so long: two samples at least, which are a minute apart at most."""
_PLAIN_WORK = [SIGNATURES.index(each) for each in (Signature.STEADY, Signature.BURSTY)]


class Pool(NamedTuple):
    """The replicas of an owner whose replicas are interchangeable."""

    replicas: int  # that there are now
    keep: int  # what the rule keeps of them
    surplus: int = 0  # that would go, since they have nothing to do at this moment
    has_lasted: bool = False  # for as long as the rule says


class Counts(NamedTuple):
    """Actions so far, against which the limits of a policy count."""

    cycle: int = 0
    namespace: int = 0  # of this workload, in this cycle
    hour: int = 0
    hour_ends: tuple[float, ...] = ()  # when each action of the last hour does not count any more, the oldest first


class Facts(NamedTuple):
    """All that the guards ask about one workload; of a pool only about its surplus replicas. A plan keeps nothing else
    of it."""

    now: float
    workload: Workload
    activity: Activity
    signature: Signature
    highest_step: Step
    proof: Proof
    gpus: float
    idle_gpus: float
    idle_since: float | None  # since when all of it is idle and no GPU worked, proven by integrating signals
    coverage: float
    result_at: float
    cycles_seen: int
    least_coverage: float = 0.9
    max_age_seconds: float = 600.0
    policy: Policy | None = None
    chance: Chance = Chance()
    snoozed_until: float | None = None
    is_left_out: bool = False  # its namespace, by the setting `reclaim.namespaces`
    is_protected: bool = False
    has_pressure: bool = False
    counts: Counts = Counts()
    reverts: int = 0
    left_alone_until: float | None = None  # the end of a cool-down
    open_action: Action | None = None
    warnings: tuple[Warned, ...] = ()  # for this idle spell
    pods: tuple[str, ...] = ()  # uids of the pods with GPUs that would stop; empty: not read
    unknown_pod: str = ""  # one of them whose uid or start is not known
    pool: Pool | None = None
    leader: Message | None = None  # why this analyzer may not act; None: it may
    switch: Message | None = None  # why nobody may act
    policy_problem: Message | None = None  # why there are no policies
    inspection: Inspection | None = None  # None: not looked at
    host: HostReading | None = None  # None: not read
    is_usage_read: bool = False  # once more, right before the action
    usage: Message | None = None  # why it forbids the action; None: it does not
    silent_since: float | None = None  # since when its servers had no request while it was idle; None: not proven
    step_by_silence: Step = Step.NOTHING  # the highest one where a person lets that stand for idle time
    counts_silence: bool = False  # the policy does: `idle_since` is that of the silence

    @property
    def idle_seconds(self) -> float:
        return 0.0 if self.idle_since is None else max(0.0, self.now - self.idle_since)


class PoolReplica(NamedTuple):
    """One pod of a workload."""

    pod: PodId
    rows: tuple[int, ...]
    is_quiet: bool  # it may go: what it does is measured without gaps, and no suspicious pattern forbids it
    worked_at: float  # the last work that was seen; 0: none
    gpus: float


@dataclass
class ReclaimWorkload:
    """One workload in one cycle."""

    number: int  # in the result
    key: WorkloadKey
    rows: tuple[int, ...]  # of its allocations, in the verdicts
    allocations: tuple[AllocationKey, ...]
    pods: tuple[PodId, ...]
    verdict: Facts  # without what its objects say
    facts: Facts
    objects: "ReadObjects | None" = None
    changes: Sequence[Change] = ()  # what is done to it when it is acted on
    surplus: Sequence[PoolReplica] = ()  # of a pool
    action: Action | None = None  # that was warned about, or is planned
    lowered: Action | None = None  # that has lowered this pool
    lacks_only_time: bool = False  # as far as is known without its objects
    read_at: float = 0.0  # when reading all this began, by the monotonic clock
    tried_at: float = 0.0  # when an action was tried last that was held back or refused

    @property
    def uid(self) -> str:
        return self.facts.workload.uid

    @property
    def can_be_pool(self) -> bool:
        return find_kind(self.key.kind).has_deletion_cost and len(self.pods) > 1

    @property
    def turn(self) -> float:
        """The lowest is the first to be acted on: the longest idle. One that was held back or refused counts as idle
        since then, so that it does not keep the others from their turn in every cycle."""
        return max(self.facts.idle_since or 0.0, self.tried_at)

    def list_stopped_pods(self) -> list[PodKey]:
        """All pods that its action stops, with GPUs and without; of a pool the surplus ones. Empty while its objects
        are not read."""
        found, inspection = self.objects.found if self.objects else None, self.facts.inspection
        if found is None or inspection is None or inspection.refusal is not None:
            return []
        going = [each.pod.name for each in self.surplus] or [pod.name for pod in found.pods]
        names = dict.fromkeys([*going, *(pod.name for pod in inspection.other_pods)])
        return [PodKey(self.key.namespace, name, self.key.cluster) for name in names]

    @property
    def is_unread_pool(self) -> bool:
        """Whether it was warned about, and nobody knows in this cycle which of its replicas are surplus."""
        return self.action is not None and self.facts.policy is None and self.facts.idle_since is None


class WorkloadFinder:
    """Reads one result."""

    def __init__(self, result: Result) -> None:
        self._result = result
        self._coverage = result.verdicts.usage.coverage
        self._least_coverage = result.workloads.find_least(self._coverage)

    def list_numbers(self) -> list[int]:
        """Of workloads that are idle, and of possible pools; the longest idle first."""
        table = self._result.workloads
        is_idle = table.activity == ACTIVITIES.index(Activity.IDLE)
        numbers = np.flatnonzero(is_idle).tolist()
        numbers.sort(key=lambda number: float(table.idle_since[number]))
        pools = (number for number, key in enumerate(table.keys) if key in self._result.pools and not is_idle[number])
        return numbers + [number for number in pools if find_kind(table.keys[number].kind).has_deletion_cost]

    def make_workload(self, number: int, *, now: float) -> ReclaimWorkload:
        """With the facts of all its allocations."""
        table, result = self._result.workloads, self._result
        rows = tuple(table.rows(number).tolist())
        allocations = tuple(result.verdicts.usage.allocations[row] for row in rows)
        since = self._find_quiet(rows, float(table.idle_since[number]))
        facts = Facts(
            now=now,
            workload=table.find_owner(number),
            activity=ACTIVITIES[table.activity[number]],
            signature=SIGNATURES[table.signature[number]],
            highest_step=STEPS[table.step[number]],
            proof=PROOFS[table.proof[number]],
            gpus=float(table.gpus[number]),
            idle_gpus=float(table.idle_gpus[number]),
            idle_since=None if np.isnan(since) else since,
            coverage=float(self._least_coverage[number]),
            result_at=result.at,
            cycles_seen=0,
            least_coverage=result.settings.judge.activity.coverage,
            max_age_seconds=result.settings.max_result_age_seconds,
            silent_since=self._find_silent(rows, float(table.idle_since[number])),
            step_by_silence=STEPS[int(np.min(result.verdicts.step_by_silence[list(rows)]))],
        )
        pods = [PodId(one.container.pod, one.container.pod_uid) for one in allocations]
        return ReclaimWorkload(
            number=number,
            key=table.keys[number],
            rows=rows,
            allocations=allocations,
            pods=tuple(dict.fromkeys(pods)),
            verdict=facts,
            facts=facts,
        )

    def _find_quiet(self, rows: Sequence[int], idle_since: float) -> float:
        """Since when no GPU of these rows worked either: idle time of a server without requests may have some work in
        it, such as health checks, and only a policy may count it."""
        return float(np.fmax(idle_since, np.fmax.reduce(self._result.verdicts.unused_work_at[list(rows)])))

    def _find_silent(self, rows: Sequence[int], idle_since: float) -> float | None:
        """Since when its servers had no request and it was idle, whatever its GPUs did now and then."""
        since = float(np.max(self._result.verdicts.silent_since[list(rows)]))
        return None if np.isnan(since) or np.isnan(idle_since) else max(since, idle_since)

    def list_replicas(self, one: ReclaimWorkload, minutes: PoolMinutes) -> list[PoolReplica]:
        """Its pods; what has worked longest ago first, what may not go last."""
        by_pod: dict[PodId, list[int]] = {}
        for row, allocation in zip(one.rows, one.allocations, strict=True):
            by_pod.setdefault(PodId(allocation.container.pod, allocation.container.pod_uid), []).append(row)
        verdicts, now = self._result.verdicts, self._result.at
        replicas = []
        for pod, rows in by_pod.items():
            worked_at = minutes.worked_at.get(pod.name, 0.0)
            # A replica that worked in this window, and does nothing now, may go: the load goes to others.
            may_go = (verdicts.step[rows] == STEPS.index(Step.RECLAIM)) | np.isin(verdicts.signature[rows], _PLAIN_WORK)
            may_go &= verdicts.proof[rows] == PROOFS.index(Proof.INTEGRATED)
            may_go &= self._coverage[rows] >= self._result.settings.judge.activity.coverage
            is_quiet = bool(may_go.all()) and now - worked_at >= QUIET_SECONDS
            gpus = float(np.sum(self._result.workloads.fractions[rows]))
            replicas.append(PoolReplica(pod, tuple(rows), is_quiet, worked_at, gpus))
        return sorted(replicas, key=lambda each: (not each.is_quiet, each.worked_at, each.pod))

    def limit_to(self, facts: Facts, surplus: Sequence[PoolReplica], pool: Pool, *, since: float) -> Facts:
        """The facts of a pool: those of its surplus replicas only. `since`: since when some are surplus."""
        if not surplus:
            return facts._replace(pool=pool, activity=Activity.ACTIVE, idle_since=None)
        verdicts = self._result.verdicts
        rows = [row for each in surplus for row in each.rows]
        gpus = sum(each.gpus for each in surplus)
        return facts._replace(
            pool=pool,
            activity=Activity.IDLE,
            signature=min((SIGNATURES[code] for code in verdicts.signature[rows]), key=lambda each: each.rank),
            highest_step=Step.RECLAIM,  # of what may go
            proof=PROOFS[int(np.min(verdicts.proof[rows]))],
            gpus=gpus,
            idle_gpus=gpus,
            idle_since=since,
            coverage=float(np.min(self._coverage[rows])),
        )


def list_roots(result: Result) -> dict[str, str]:
    """The uids of pods, each with the uid of its root owner, where that was read from the API server."""
    return {
        one.container.pod_uid: owner.uid
        for one in result.verdicts.usage.allocations
        if one.container.pod_uid
        and (owner := one.container.workload) is not None
        and owner.evidence is OwnerEvidence.READ
        and owner.uid
    }


def list_evidence(one: ReclaimWorkload, result: Result, rows: Collection[int] = ()) -> dict[str, object]:
    """What the verdict is based on, for the journal. `rows`: those that are acted on; empty: all."""
    verdict = result.workloads.verdict(one.number)
    chinese = result.workloads.verdict(one.number, language="zh").reasons
    return {
        "signature": verdict.signature.value,
        "proof": verdict.proof.value,
        "idle_since": verdict.idle_since,
        "result_at": result.at,
        "window_seconds": result.verdicts.usage.window_seconds,
        "numbers": dict(verdict.evidence),
        "reasons": [Message(en, zh) for en, zh in zip(verdict.reasons, chinese, strict=True)],
        "allocations": [
            {
                "pod": each.container.pod,
                "pod_uid": each.container.pod_uid,
                "container": each.container.name,
                "gpu": each.gpu_uuid,
                "instance": each.gpu_instance,
                "node": each.node,
                "model": each.model,
                "allocation_id": make_allocation_id(each),
            }
            for row, each in zip(one.rows, one.allocations, strict=True)
            if not rows or row in rows
        ],
    }


@dataclass
class ReadObjects:
    """The objects of a workload as they were read, and what was last found out about them."""

    found: WorkloadObjects | None  # None: they could not be read
    metadata: WorkloadMetadata | None
    incomplete: Message | None = None  # why not all of its GPUs are known to be in the verdict
    error: Message | None = None  # why they could not be read
    _policy: tuple[object, Policy] | None = field(default=None, repr=False)
    _changes: tuple[Policy, tuple[Inspection, list[Change]]] | None = field(default=None, repr=False)

    def find_policy(self, policies: WatchedPolicies) -> Policy:
        """Looked up again when the policies have changed."""
        assert self.metadata is not None
        if self._policy is None or self._policy[0] is not policies.current:
            self._policy = policies.current, policies.find_policy(self.metadata)
        return self._policy[1]

    def plan_changes(self, policy: Policy, reading: Reading, *, now: float) -> tuple[Inspection, list[Change]]:
        """For the whole workload; planned again when its policy has changed, and after a refusal, which may be over."""
        if self._changes is not None and self._changes[0] is policy:
            return self._changes[1]
        assert self.found is not None
        changes = plan_changes(self.found, policy, reading, incomplete=self.incomplete, surplus=(), now=now)
        self._changes = (policy, changes) if changes[0].refusal is None else None
        return changes


def read_objects(one: ReclaimWorkload, reading: Reading) -> ReadObjects:
    """Never raises: what cannot be read is a reason to refuse."""
    namespace = one.key.namespace
    try:
        objects = reading.read_workload_objects(namespace, one.pods)
        annotations = reading.read_namespace(namespace)
        known = {pod.uid for pod in objects.pods}
        others = [pod for pod in reading.list_pods_below(namespace, [objects.root.uid]) if pod.uid not in known]
        incomplete = (
            messages.INCOMPLETE.fill(pod=others[0].name)
            if others
            else find_incomplete(objects, one.allocations, reading)
        )
    except SourceError as error:
        return ReadObjects(None, None, error=error.as_message())
    models = [each.model for each in one.allocations]
    metadata = make_metadata(one.key, objects, models=models, namespace_annotations=annotations)
    return ReadObjects(objects, metadata, incomplete=incomplete)


def make_metadata(
    key: WorkloadKey, objects: WorkloadObjects, *, models: Iterable[str], namespace_annotations: Mapping[str, str]
) -> WorkloadMetadata:
    """Of several annotations of one name, that of the pod wins over that of its owner; of `keep` the longest one."""
    nearest_last = [*reversed(objects.owners), *objects.pods]
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    for one in nearest_last:
        annotations |= {name: value for name, value in one.annotations.items() if name.startswith(PREFIX)}
        labels |= one.labels
    if keeps := [one.annotations[KEEP] for one in nearest_last if KEEP in one.annotations]:
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


def find_incomplete(
    objects: WorkloadObjects, allocations: Collection[AllocationKey], reading: Reading
) -> Message | None:
    """Why a pod may hold a GPU that the verdict does not know of: it may be at work. Raises SourceError."""
    held = Counter(one.container.pod for one in allocations)
    gpus = Counter(pod for pod, *_ in {(one.container.pod, one.gpu_uuid, one.gpu_instance) for one in allocations})
    for pod in objects.pods:
        asked = sum(count_gpus(pod).values())
        try:
            claimed = reading.list_claimed_gpus(pod)
        except UnreadableClaimError as error:
            return error.as_message()
        # Containers may share a claimed device: each of them counts as one allocation, and the device is still one.
        if (gpus if claimed else held)[pod.name] < asked + len(claimed):
            return messages.INCOMPLETE.fill(pod=pod.name)
    return None


def add_pods(facts: Facts, pods: Sequence[KubeObject]) -> Facts:
    """The pods as they were read: idle never begins before the newest of them started. Metrics may have neither uid nor
    start, and a pod that was created again under the same name looks like the one before."""
    starts = [pod.started_at for pod in pods]
    unknown = next((pod.name for pod, start in zip(pods, starts, strict=True) if not pod.uid or start is None), "")
    known = [start for start in starts if start is not None]
    since, silent = (
        None if begin is None else max([begin, *known]) for begin in (facts.idle_since, facts.silent_since)
    )
    uids = tuple(sorted(pod.uid for pod in pods))
    return facts._replace(pods=uids, unknown_pod=unknown, idle_since=since, silent_since=silent)


def count_silence(facts: Facts, policy: Policy) -> tuple[Facts, Policy]:
    """Facts and policy with the time without requests instead of idle time, where a person has said that it stands for
    it, it is proven, and it is over sooner. Nothing else of the two changes."""
    seconds, since = policy.no_requests_seconds, facts.silent_since
    if seconds is None or since is None or facts.step_by_silence is not Step.RECLAIM or facts.idle_since is None:
        return facts, policy
    if facts.highest_step is Step.RECLAIM and facts.idle_since + policy.window_seconds <= since + seconds:
        return facts, policy
    origins = {**policy.origins, "window": policy.origins.get("no_requests_for", "")}
    return (
        facts._replace(highest_step=Step.RECLAIM, idle_since=since, counts_silence=True),
        replace(policy, window_seconds=seconds, origins=origins),
    )
