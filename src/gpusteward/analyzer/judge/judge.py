"""Usage table -> verdict table. `workloads.judge_workloads` joins verdicts, `reasons.explain_row` gives the reasons."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpusteward.analyzer.judge.activity import judge_activity
from gpusteward.analyzer.judge.allocation_columns import Mask, read_allocation_columns
from gpusteward.analyzer.judge.gpu_models import find_capacities
from gpusteward.analyzer.judge.history import Past, VerdictHistory
from gpusteward.analyzer.judge.proof import find_video_at, judge_proof
from gpusteward.analyzer.judge.requests import (
    disregard_work,
    find_requested,
    find_silent,
    find_unused_work,
    follow_requests,
)
from gpusteward.analyzer.judge.rules import Rules, SignatureRules
from gpusteward.analyzer.judge.score import name_states, score_usage
from gpusteward.analyzer.judge.signatures.active import ACTIVE_SIGNATURES, find_streaks
from gpusteward.analyzer.judge.signatures.evidence import Evidence
from gpusteward.analyzer.judge.signatures.idle import IDLE_SIGNATURES, find_growth, is_starting
from gpusteward.analyzer.judge.signatures.keep_alive import find_held_level
from gpusteward.analyzer.judge.signatures.stalled import (
    find_freeze,
    find_spinning_watts,
    learn_loaded_idle,
    shows_traffic,
)
from gpusteward.analyzer.tables import (
    ACTIVITIES,
    SIGNATURES,
    STEPS,
    Codes,
    Column,
    UsageTable,
    VerdictTable,
    repeat_value,
)
from gpusteward.core.verdicts import Activity, Signature, Step

_STEPS = np.array([STEPS.index(signature.highest_step) for signature in SIGNATURES], dtype=np.int8)


@np.errstate(invalid="ignore", divide="ignore")  # NaN is unknown
def judge(
    table: UsageTable, rules: Rules, history: VerdictHistory, *, now: float
) -> tuple[VerdictTable, VerdictHistory]:
    """A verdict for every row, and the history for the next cycle. `now` is only used for the age of the table."""
    columns = read_allocation_columns(table.allocations)
    capacities = find_capacities(table, columns, defaults=rules.gpu_defaults)
    past = history.find(columns.hashes, started_at=table.started_at)
    is_stale = now - table.at > table.window_seconds
    activities = judge_activity(
        table, columns, capacities=capacities, rule=rules.activity, worked_at=past.worked_at, is_stale=is_stale
    )
    is_silent = find_silent(table, columns)
    unused_work = find_unused_work(table, activities, is_silent=is_silent, past=past)
    activities = disregard_work(activities, unused_work)
    is_unknown, is_idle = (activities.codes == ACTIVITIES.index(each) for each in (Activity.UNKNOWN, Activity.IDLE))
    score = np.where(is_unknown, np.nan, score_usage(table, capacities, scoring=rules.scoring))
    state = name_states(score, activities.codes, thresholds=rules.thresholds)
    video_at = find_video_at(table, past)
    proof = judge_proof(
        table, is_idle=is_idle, past=past, video_at=video_at, rule=rules.proof, cycle_seconds=rules.cycle_seconds
    )
    evidence = Evidence(table, columns, capacities, activities, past, proof, is_silent)
    evidence = replace(
        evidence,
        streak=find_streaks(evidence, rules.signatures),
        growth=find_growth(evidence, rules.signatures.starting),
        spinning_watts=find_spinning_watts(evidence, history.loaded_idle, rules.signatures.stalled),
    )
    nothing_bytes = rules.signatures.holding.nothing_bytes
    evidence = replace(
        evidence,
        freeze=find_freeze(evidence, rules.signatures.stalled, nothing_bytes=nothing_bytes),
        level=find_held_level(evidence, rules.signatures.keep_alive, time_zone=rules.time_zone),
    )
    signature = _classify(evidence, rules.signatures)
    present = _update_past(evidence, video_at=video_at, unused_work=unused_work)
    idle_since = np.where(is_idle, present.idle_since, np.nan)
    steps, unused_at = _find_highest_steps(evidence, signature), present.unused_work_at
    # Only a person may say that silence of the counters is enough.
    has_worked = unused_at > table.at - table.window_seconds
    verdicts = VerdictTable(
        table,
        score,
        state,
        activities.codes,
        signature,
        idle_since,
        activities.doubt,
        present.worked_at,
        np.where(has_worked, np.minimum(steps, STEPS.index(Step.NOTICE)), steps).astype(np.int8),
        proof,
        requested_at=present.requested_at,
        silent_since=np.where(is_silent, present.silent_since, np.nan),
        unused_work_at=np.where(unused_at > present.idle_since, unused_at, np.nan),
        step_by_silence=steps,
        ineffective_since=_find_ineffective_since(evidence, signature),
    )
    loaded_idle = learn_loaded_idle(evidence, history.loaded_idle, nothing_bytes=nothing_bytes)
    return verdicts, history.update(columns.hashes, past=present, loaded_idle=loaded_idle, now=now)


def _classify(evidence: Evidence, rules: SignatureRules) -> Codes:
    """The first signature that matches. Active and no match: steady; idle and nothing known of its memory: unknown."""
    matches: Sequence[tuple[Signature, Mask]] = (
        (Signature.STARTING, is_starting(evidence, rules)),
        (Signature.UNKNOWN, evidence.has(Activity.UNKNOWN)),
        *((signature, find(evidence, rules)) for signature, find in IDLE_SIGNATURES.items()),
        *((signature, find(evidence, rules)) for signature, find in ACTIVE_SIGNATURES.items()),
        (Signature.STEADY, evidence.has(Activity.ACTIVE)),
    )
    codes = [SIGNATURES.index(signature) for signature, _ in matches]
    return np.select([found for _, found in matches], codes, SIGNATURES.index(Signature.UNKNOWN)).astype(np.int8)


def _find_highest_steps(evidence: Evidence, signature: Codes) -> Codes:
    """The highest step of each row. A notice at most: a parked allocation of unknown owner, which may be a hung job; a
    job that has never worked, which may still load data; what only samples show, since work between two of them is not
    seen; a workload whose server had requests; and ranks of a server that wait for some, which are active."""
    steps = _STEPS[signature]
    may_hang = (signature == SIGNATURES.index(Signature.PARKED)) & ~evidence.is_owned
    may_load = evidence.may_be_job & ~evidence.has_worked
    is_limited = may_hang | may_load | ~evidence.is_integrated | find_requested(evidence.table)
    is_limited |= evidence.has(Activity.ACTIVE)
    return np.where(is_limited, np.minimum(steps, STEPS.index(Step.NOTICE)), steps).astype(np.int8)


def _find_ineffective_since(evidence: Evidence, signature: Codes) -> Column:
    """Since the freeze began, or the level of a keep-alive that is proven, or of what may be a kernel that never ends
    instead. A keep-alive that is only suspected is effective."""
    codes = map(SIGNATURES.index, (Signature.STALLED, Signature.KEEP_ALIVE, Signature.NO_REQUESTS))
    is_stalled, is_held, is_silent = (signature == code for code in codes)
    is_proven = (is_held & evidence.level.is_proven) | evidence.level.may_hang
    held_since = np.where(is_proven, evidence.level.since, np.nan)
    return np.where(is_stalled | (is_silent & evidence.has(Activity.ACTIVE)), evidence.freeze.since, held_since)


def _update_past(evidence: Evidence, *, video_at: Column, unused_work: Mask) -> Past:
    """The past for the next cycle. A gap keeps what was known, but ends consecutive windows without work."""
    past, table, activities = evidence.past, evidence.table, evidence.activities
    is_quiet = evidence.has(Activity.IDLE) | activities.paused
    at = repeat_value(table.at, len(table))
    return Past(
        seen_at=at,
        first_seen_at=np.fmin(past.first_seen_at, at),
        started_at=np.where(np.isnan(table.started_at), past.started_at, table.started_at),
        worked_at=np.where(activities.worked, at, past.worked_at),
        idle_since=np.where(is_quiet, _idle_since(past, table), np.where(activities.worked, np.nan, past.idle_since)),
        idle_until=np.where(is_quiet, at, np.where(activities.worked, np.nan, past.idle_until)),
        flat_since=evidence.streak.since,
        flat_ratio=evidence.streak.ratio,
        memory_bytes=evidence.growth.bytes,
        grew_at=evidence.growth.grew_at,
        video_at=video_at,
        frozen_since=evidence.freeze.since,
        frozen_watts=evidence.freeze.watts,
        constant_since=evidence.level.since,
        constant_ratio=evidence.level.ratio,
        constant_watts=evidence.level.watts,
        traffic_at=np.where(shows_traffic(evidence), at, past.traffic_at),
        unused_work_at=np.where(unused_work & activities.worked, at, past.unused_work_at),
        **follow_requests(table, past, is_silent=evidence.is_silent)._asdict(),
    )


def _idle_since(past: Past, table: UsageTable) -> Column:
    """As before if this window overlaps the last one without work; else the start of this window, or of the pod.

    The last work lies within the cycle before the first window without work: the window before had some. Time that
    nobody measured is not claimed.
    """
    begins = np.fmax(table.at - table.window_seconds, table.started_at)
    return np.where(past.idle_until >= begins, past.idle_since, begins)
