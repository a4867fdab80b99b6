"""What this process saw of workloads in earlier cycles, what the journal says about them, and which warnings count."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from gpusteward.analyzer.reclaim.cluster import PodId
from gpusteward.analyzer.reclaim.decisions.workloads import Facts, ReclaimWorkload
from gpusteward.analyzer.reclaim.execution.journal import (
    OPEN_STATES,
    UNDONE_STATES,
    Action,
    ActionState,
    Journal,
    Warned,
)
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject
from gpusteward.analyzer.reclaim.policies.policy import Policy
from gpusteward.core.messages import Message
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.verdicts import Proof
from gpusteward.kubernetes.api import parse_time
from gpusteward.messages import reclaim as messages

HOUR = 3600.0
REVERT_SECONDS = 30 * 86_400.0
"""For so long it is remembered that something else has changed an object back."""
ROUNDING_SECONDS = 1.0
"""The ledger keeps milliseconds; an idle time that was restored from it differs by less."""


@dataclass(slots=True)
class Sighting:
    """Of a workload in consecutive cycles."""

    uid: str
    cycles: int = 0  # in which it was idle, with these pods
    any_cycles: int = 0  # with any pods: those of a pool come and go
    sampled_at: float | None = None  # when its idleness was last proven by sampled gauges only
    pods: frozenset[PodId] = frozenset()


class Sightings:
    """Of the thread that runs cycles. Not stored: a new process has seen nothing yet, and is careful for a while."""

    def __init__(self) -> None:
        self._seen: dict[WorkloadKey, Sighting] = {}
        self._last_at: float | None = None

    def update(self, workloads: Iterable[ReclaimWorkload], *, at: float) -> None:
        """A workload that is not among them, or has another uid, starts again, and is seen for the first time if it has
        new pods. The same result twice counts once."""
        if at == self._last_at:
            return
        self._last_at = at
        seen: dict[WorkloadKey, Sighting] = {}
        for one in workloads:
            before, pods = self._seen.get(one.key), frozenset(one.pods)
            sighting = before if before is not None and before.uid == one.uid else Sighting(one.uid)
            sighting.any_cycles += 1
            sighting.cycles = sighting.cycles + 1 if pods <= sighting.pods else 1
            sighting.pods = pods
            if one.verdict.proof is not Proof.INTEGRATED:
                sighting.sampled_at = at
            seen[one.key] = sighting
        self._seen = seen

    def find(self, key: WorkloadKey) -> Sighting:
        return self._seen.get(key) or Sighting("")


class StartTimes:
    """How long replicas take from creation to Ready, by the last pods of each pool."""

    MOST_PODS, QUANTILE, LONGEST_SECONDS = 20, 0.9, 1800.0

    def __init__(self) -> None:
        self._seconds: dict[WorkloadKey, dict[str, float]] = {}  # by the uid of the pod

    def add(self, key: WorkloadKey, pods: Iterable[KubeObject]) -> None:
        known = self._seconds.setdefault(key, {})
        for pod in pods:
            created = parse_time(str(pod.metadata.get("creationTimestamp") or ""))
            ready: Mapping[str, str] = next(
                (each for each in pod.status.get("conditions") or () if each.get("type") == "Ready"), {}
            )
            since = parse_time(str(ready.get("lastTransitionTime") or ""))
            if ready.get("status") != "True" or created is None or since is None or pod.uid in known:
                continue
            if 0 <= since - created <= self.LONGEST_SECONDS:  # later it was not ready for a while, and is again
                known[pod.uid] = since - created
        for uid in [*known][: -self.MOST_PODS]:
            del known[uid]

    def find(self, key: WorkloadKey) -> float | None:
        """The 90th percentile; None: not known."""
        known = sorted(self._seconds.get(key, {}).values())
        return known[ceil(self.QUANTILE * len(known)) - 1] if known else None

    def forget(self, keys: Iterable[WorkloadKey]) -> None:
        """All others."""
        kept = set(keys)
        self._seconds = {key: each for key, each in self._seconds.items() if key in kept}


@dataclass(frozen=True)
class PastActions:
    """What the journal says about workloads: by kind, namespace and name. The journal is that of one API server,
    whatever the series call its cluster."""

    waiting: Mapping[tuple[WorkloadKey, str], Action]  # planned or warned, by workload and uid
    open: Mapping[WorkloadKey, Action]
    left_alone: Mapping[WorkloadKey, float]  # until when
    reverts: Counter[tuple[WorkloadKey, str]]
    last_hour: int  # objects changed
    hour_ends: tuple[float, ...] = ()  # when each of them does not count any more

    @classmethod
    def read(cls, journal: Journal, opened: Sequence[Action], *, now: float, cool_down: float) -> "PastActions":
        """`opened`: the actions that are open now. Raises SourceError."""
        since = now - max(REVERT_SECONDS, cool_down)
        past = journal.list_past(since, acted_since=now - HOUR)
        left_alone: dict[WorkloadKey, float] = {}
        reverts: Counter[tuple[WorkloadKey, str]] = Counter()
        for action in past:
            # What a pool gets back because it is needed it may give back again: its patience begins anew.
            if action.state in UNDONE_STATES and action.ended_at is not None and not action.was_needed:
                until = action.ended_at + cool_down
                key = action.workload.without_cluster
                left_alone[key] = max(until, left_alone.get(key, 0.0))
            reverts[action.workload.without_cluster, action.uid] += action.state is ActionState.REVERTED
        waiting = {(each.workload.without_cluster, each.uid): each for each in opened if each.state not in OPEN_STATES}
        changed = {
            each.workload.without_cluster: each
            for each in opened
            if each.state in OPEN_STATES and each.ended_at is None
        }
        ends = sorted(each.acted_at + HOUR for each in past if each.acted_at is not None and each.acted_at > now - HOUR)
        return cls(waiting, changed, left_alone, reverts, len(ends), tuple(ends))


def find_end(action: Action, facts: Facts | None) -> Message | None:
    """Why what was warned about will not happen any more. `facts`: of its workload; None: it is not idle."""
    if facts is None or not _is_of_spell(action.created_at, facts.idle_since, facts.policy):
        return messages.SPELL_ENDED
    if not action.pod_uids.issuperset(facts.pods):
        return messages.PODS_REPLACED
    if facts.policy is not None and facts.policy.action is not action.action:
        return messages.POLICY_CHANGED.fill(before=action.action.value, now=facts.policy.action.value)
    return None


def select_warnings(
    action: Action | None, since: float | None, policy: Policy, pods: Collection[str]
) -> tuple[Warned, ...]:
    """Those of this idle spell, of these pods, and of what the policy does now: who was warned that some replicas go
    was not warned that all of them do."""
    if action is None or action.action is not policy.action or not action.pod_uids.issuperset(pods):
        return ()
    return tuple(each for each in action.warnings if _is_of_spell(each.sent_at, since, policy))


def _is_of_spell(sent_at: float, since: float | None, policy: Policy | None) -> bool:
    """Whether a warning belongs to the spell that began then: it was sent after the window of the policy had passed.
    One that is earlier was about a spell before."""
    window = policy.window_seconds if policy else 0.0
    return since is not None and sent_at >= since + window - ROUNDING_SECONDS
