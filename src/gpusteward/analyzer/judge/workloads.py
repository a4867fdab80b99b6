"""Verdicts of workloads: the root owner with all GPUs of all its pods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gpusteward.analyzer.judge.allocation_columns import Counts, find_owners
from gpusteward.analyzer.judge.gpu_fraction import compute_gpu_fractions
from gpusteward.analyzer.judge.reasons import (
    Reason,
    explain_signature,
    explain_stalled_workload,
    explain_workload,
    render_finding,
)
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.judge.score import name_states
from gpusteward.analyzer.tables import (
    ACTIVITIES,
    PROOFS,
    SIGNATURES,
    STATES,
    STEPS,
    VERDICTS,
    Codes,
    Column,
    VerdictTable,
)
from gpusteward.core.messages import Language
from gpusteward.core.node.containers import EVIDENCE_ORDER, OwnerEvidence, Workload, WorkloadKey
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity, Signature, VerdictName, WorkloadVerdict, name_verdict

_RANKS = np.array([signature.rank for signature in SIGNATURES], dtype=np.int8)
_BY_RANK = np.zeros(_RANKS.max() + 1, dtype=np.int8)
_BY_RANK[_RANKS] = np.arange(len(SIGNATURES))
_VERDICTS = np.array(
    [[VERDICTS.index(name_verdict(activity, signature)) for signature in SIGNATURES] for activity in ACTIVITIES],
    dtype=np.int8,
)
"""By activity and signature."""


@dataclass(frozen=True)
class WorkloadTable:
    """Every workload, one array per column; `verdict` makes the value of one of them."""

    verdicts: VerdictTable
    keys: Sequence[WorkloadKey]
    codes: Counts  # which workload each row of `verdicts` belongs to
    fractions: Column  # the fraction of a GPU that each row of `verdicts` holds
    allocations: Counts
    idle_allocations: Counts
    unknown_allocations: Counts
    gpus: Column  # sums of fractions, as all numbers of GPUs
    idle_gpus: Column
    unknown_gpus: Column
    activity: Codes
    state: Codes
    signature: Codes
    step: Codes  # indexes `STEPS`
    proof: Codes  # of the weakest row
    score: Column  # mean of the rows that have one
    idle_since: Column  # since when all of it is idle; NaN: it is not
    rules: Rules

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def _order(self) -> tuple[Counts, Counts]:
        """Rows sorted by workload, and the position where each workload begins."""
        return np.argsort(self.codes, kind="stable"), np.concatenate(([0], np.cumsum(self.allocations)))

    @cached_property
    def _numbers(self) -> Mapping[WorkloadKey, int]:
        return {key: number for number, key in enumerate(self.keys)}

    @cached_property
    def verdict_names(self) -> Codes:
        """Of each workload; indexes `VERDICTS`."""
        return _VERDICTS[self.activity, self.signature]

    @cached_property
    def row_verdicts(self) -> Codes:
        """Of each row of `verdicts`, in the verdict of its workload: what is active of a suspicious one is suspicious.
        So the GPUs of the rows that are suspicious are those of the workloads that are."""
        is_suspicious = self.verdict_names == VERDICTS.index(VerdictName.SUSPICIOUS)
        own = _VERDICTS[self.verdicts.activity, SIGNATURES.index(Signature.STEADY)]
        is_active = self.verdicts.activity == ACTIVITIES.index(Activity.ACTIVE)
        return np.where(is_active & is_suspicious[self.codes], VERDICTS.index(VerdictName.SUSPICIOUS), own).astype(
            np.int8
        )

    @cached_property
    def clusters(self) -> Sequence[str]:
        """Of the workloads; empty where it is not known."""
        return list(dict.fromkeys(key.cluster for key in self.keys))

    def find(self, key: WorkloadKey) -> int | None:
        """The number of a workload; None if there is none."""
        return self._numbers.get(key)

    def rows(self, number: int) -> Counts:
        """The rows of `verdicts` that belong to a workload."""
        order, begins = self._order
        return order[begins[number] : begins[number + 1]]

    def find_least(self, column: Column) -> Column:
        """The smallest value of the rows of each workload."""
        order, begins = self._order
        return np.minimum.reduceat(column[order], begins[:-1]) if len(self) else np.zeros(0)

    def find_owner(self, number: int) -> Workload:
        """The workload with the weakest evidence of its pods; with a uid if all of them name the same one."""
        held = (self.verdicts.usage.allocations[row].container.workload for row in self.rows(number).tolist())
        evidence = {(OwnerEvidence.UNKNOWN, "") if one is None else (one.evidence, one.uid) for one in held}
        uids = {uid for _, uid in evidence}
        weakest = min((each for each, _ in evidence), key=EVIDENCE_ORDER.index)
        return Workload(*self.keys[number], evidence=weakest, uid=uids.pop() if len(uids) == 1 else "")

    def explain_stall(self, number: int) -> Sequence[Reason]:
        """Since when, what it has cost, which ranks differ; empty if it is not stalled."""
        if SIGNATURES[self.signature[number]] is not Signature.STALLED:
            return ()
        rows = self.rows(number)
        lost = (self.verdicts.usage.at - self.verdicts.ineffective_since[rows]) * self.fractions[rows]
        return explain_stalled_workload(self.verdicts, rows.tolist(), gpu_hours=float(np.nansum(lost)) / 3600)

    def _explain_signature(self, number: int) -> Sequence[Reason]:
        """Why it is suspicious, or advice for one that waits for its data; empty for others. What is said of a stalled
        one begins with the same."""
        signature = SIGNATURES[self.signature[number]]
        is_suspicious = VERDICTS[self.verdict_names[number]] is VerdictName.SUSPICIOUS
        is_starved = self.activity[number] == ACTIVITIES.index(Activity.ACTIVE) and signature is Signature.STARVED
        if signature is Signature.STALLED or not (is_suspicious or is_starved):
            return ()
        own = [row for row in self.rows(number).tolist() if SIGNATURES[self.verdicts.signature[row]] is signature]
        return (explain_signature(self.verdicts, own[0], rules=self.rules),)

    def verdict(self, number: int, *, language: Language = "en") -> WorkloadVerdict:
        """The verdict on one workload, with its reasons."""
        gpus, idle, unknown = (float(counts[number]) for counts in (self.gpus, self.idle_gpus, self.unknown_gpus))
        score, idle_since = float(self.score[number]), float(self.idle_since[number])
        rows = self.rows(number)
        draft = WorkloadVerdict(
            self.find_owner(number),
            ACTIVITIES[self.activity[number]],
            STATES[self.state[number]],
            None if np.isnan(score) else score,
            SIGNATURES[self.signature[number]],
            STEPS[self.step[number]],
            gpus,
            idle,
            unknown,
            PROOFS[self.proof[number]],
            None if np.isnan(idle_since) else idle_since,
        )
        allocations, objections = self.verdicts.usage.allocations, self.verdicts.objections
        doubted = sum(float(self.fractions[row]) for row in rows.tolist() if row in objections)
        return replace(
            draft,
            finding=render_finding(draft, language=language),
            reasons=explain_workload(
                draft,
                language=language,
                doubted=doubted,
                why=self._explain_signature(number),
                stall=self.explain_stall(number),
            ),
            nodes=tuple(sorted({allocations[row].node for row in rows} - {""})),
            evidence=_sum_up(self.verdicts, rows),
        )


def judge_workloads(verdicts: VerdictTable, rules: Rules, fractions: Column | None = None) -> WorkloadTable:
    """A workload is idle only if every allocation is idle; an unknown one is not idle.

    `fractions`: of a GPU that each row holds, where not all rows of a shared GPU are here to compute them from.
    """
    keys, codes = find_owners([allocation.container for allocation in verdicts.usage.allocations])
    fractions = compute_gpu_fractions(verdicts.usage) if fractions is None else fractions
    rows = [verdicts.activity == ACTIVITIES.index(each) for each in (Activity.ACTIVE, Activity.IDLE, Activity.UNKNOWN)]
    active, idle, unknown = (np.bincount(codes[chosen], minlength=len(keys)) for chosen in rows)
    _, idle_gpus, unknown_gpus = (_sum_of(fractions[chosen], codes[chosen], size=len(keys)) for chosen in rows)
    names = [ACTIVITIES.index(each) for each in (Activity.ACTIVE, Activity.UNKNOWN, Activity.IDLE)]
    activity = np.select([active > 0, unknown > 0], names[:2], names[2]).astype(np.int8)
    is_scored = ~np.isnan(verdicts.score)
    scored = np.bincount(codes[is_scored], minlength=len(keys))
    with np.errstate(invalid="ignore"):  # without a scored row it is unknown
        score = _sum_of(verdicts.score[is_scored], codes[is_scored], size=len(keys)) / scored
    ranks = _lowest(_RANKS[verdicts.signature], codes, size=len(keys))
    idle_since = np.full(len(keys), np.nan)
    np.fmax.at(idle_since, codes, verdicts.idle_since)  # all of it is idle since the last of them is
    return WorkloadTable(
        verdicts,
        keys,
        codes,
        fractions,
        active + idle + unknown,
        idle,
        unknown,
        _sum_of(fractions, codes, size=len(keys)),
        idle_gpus,
        unknown_gpus,
        activity,
        name_states(score, activity, thresholds=rules.thresholds),
        _BY_RANK[ranks],
        _lowest(verdicts.step, codes, size=len(keys)),
        _lowest(verdicts.proof, codes, size=len(keys)),
        score,
        np.where(activity == ACTIVITIES.index(Activity.IDLE), idle_since, np.nan),
        rules,
    )


def _sum_of(column: Column, codes: Counts, *, size: int) -> Column:
    return np.bincount(codes, weights=column, minlength=size).astype(np.float64)


def _lowest(column: Codes, codes: Counts, *, size: int) -> Codes:
    lowest = np.full(size, np.iinfo(np.int8).max, dtype=np.int8)
    np.minimum.at(lowest, codes, column)
    return lowest


def _sum_up(verdicts: VerdictTable, rows: Counts) -> Mapping[str, float]:
    """The evidence of a workload: means of ratios, sums of amounts, the lowest coverage. Unknown values are omitted."""
    table = verdicts.usage
    numbers = {
        "core_mean_ratio": np.mean(table.column(Measure.CORE, Stat.MEAN)[rows]),
        "core_peak_ratio": np.max(table.column(Measure.CORE, Stat.PEAK)[rows]),
        "memory_used_bytes": np.sum(table.column(Measure.MEMORY_USED, Stat.MEAN)[rows]),
        "power_watts": np.sum(table.column(Measure.POWER, Stat.MEAN)[rows]),
        "coverage": np.min(table.coverage[rows]),
        "window_seconds": np.float64(table.window_seconds),
    }
    return {name: float(number) for name, number in numbers.items() if not np.isnan(number)}
