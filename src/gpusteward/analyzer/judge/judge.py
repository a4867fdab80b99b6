"""The whole story: usage in, verdicts out. `workloads.judge_workloads` joins them, `reasons.explain_row` tells why."""

import numpy as np

from gpusteward.analyzer.judge.activity import Activities, judge_activity
from gpusteward.analyzer.judge.capacities import find_capacities
from gpusteward.analyzer.judge.history import Memory, Past, find_positions, recall, remember
from gpusteward.analyzer.judge.keys import read_keys
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.judge.score import score_usage
from gpusteward.analyzer.judge.signatures.evidence import Evidence
from gpusteward.analyzer.judge.signatures.keep_alive import Streak, find_streaks
from gpusteward.analyzer.judge.signatures.table import find_steps, name_signatures
from gpusteward.analyzer.judge.states import name_states
from gpusteward.analyzer.tables import ACTIVITIES, Column, UsageTable, VerdictTable
from gpusteward.core.verdicts import Activity


@np.errstate(invalid="ignore", divide="ignore")  # nothing known divided by nothing known is NaN: unknown, as it should
def judge(table: UsageTable, rules: Rules, memory: Memory, *, now: float) -> tuple[VerdictTable, Memory]:
    """A verdict for every row, and what the next cycle should remember. `now` only tells how old the table is."""
    keys = read_keys(table.allocations)
    capacities = find_capacities(table, keys, defaults=rules.gpu_defaults)
    positions = find_positions(memory, keys.allocations)
    past = recall(memory, positions, started_at=table.started_at)
    is_stale = now - table.at > table.window_seconds
    activities = judge_activity(
        table, keys, capacities=capacities, rule=rules.activity, worked_at=past.worked_at, is_stale=is_stale
    )
    is_unknown, is_idle = (activities.codes == ACTIVITIES.index(each) for each in (Activity.UNKNOWN, Activity.IDLE))
    score = np.where(is_unknown, np.nan, score_usage(table, capacities, scoring=rules.scoring))
    state = name_states(score, activities.codes, thresholds=rules.thresholds)
    evidence = Evidence(table, keys, capacities, activities, past)
    streak = find_streaks(evidence, rules.signatures.keep_alive)
    signature = name_signatures(evidence, rules.signatures, streak=streak)
    present = _update_past(past, table, activities=activities, streak=streak)
    idle_since = np.where(is_idle, present.idle_since, np.nan)
    verdicts = VerdictTable(
        table,
        score,
        state,
        activities.codes,
        signature,
        idle_since,
        activities.doubt,
        present.worked_at,
        find_steps(evidence, signature),
    )
    return verdicts, remember(memory, keys.allocations, past=present, now=now, rule=rules.memory)


def _update_past(past: Past, table: UsageTable, *, activities: Activities, streak: Streak) -> Past:
    """The past as the next cycle will see it. A gap keeps what was known; idleness must join without one."""
    is_idle = activities.codes == ACTIVITIES.index(Activity.IDLE)
    is_active = activities.codes == ACTIVITIES.index(Activity.ACTIVE)
    at = np.full(len(table), table.at)
    return Past(
        seen_at=at,
        first_seen_at=np.fmin(past.first_seen_at, at),
        started_at=np.where(np.isnan(table.started_at), past.started_at, table.started_at),
        worked_at=np.where(activities.worked, at, past.worked_at),
        idle_since=np.where(is_idle, _idle_since(past, table), np.where(is_active, np.nan, past.idle_since)),
        idle_until=np.where(is_idle, at, np.where(is_active, np.nan, past.idle_until)),
        flat_since=streak.since,
        flat_ratio=streak.ratio,
    )


def _idle_since(past: Past, table: UsageTable) -> Column:
    """As before if this window begins before the last idle one ended; else since this window, or the pod, began."""
    begins = np.fmax(table.at - table.window_seconds, table.started_at)
    return np.where(past.idle_until >= begins, past.idle_since, begins)
