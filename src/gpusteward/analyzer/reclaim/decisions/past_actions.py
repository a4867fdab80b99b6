"""What the journal says about the past of workloads, and which warnings still count."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from gpusteward.analyzer.reclaim.actions import OPEN_STATES, Action, Warned
from gpusteward.analyzer.reclaim.decisions.facts import Facts
from gpusteward.analyzer.reclaim.journal import UNDONE_STATES, Journal
from gpusteward.analyzer.reclaim.plan import ActionState
from gpusteward.analyzer.reclaim.policies.policy import Policy
from gpusteward.core.containers import WorkloadKey
from gpusteward.core.messages import Message
from gpusteward.messages import reclaim as messages

HOUR = 3600.0
REVERT_SECONDS = 30 * 86_400.0
"""For so long it is remembered that something else has changed an object back."""
ROUNDING_SECONDS = 1.0
"""The ledger keeps milliseconds; an idle time that was restored from it differs by less."""


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
            if action.state in UNDONE_STATES and action.ended_at is not None:
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
