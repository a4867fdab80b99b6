"""A verdict in plain words, with its numbers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from gpusteward.analyzer.judge.activity import SIGNALS
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.judge.signatures.evidence import MAY_HIDE_A_JOB
from gpusteward.analyzer.judge.texts import render
from gpusteward.analyzer.tables import ACTIVITIES, DOUBTS, SIGNATURES, STATES, STEPS, VerdictTable
from gpusteward.core.usages import Measure, Stat, Usage
from gpusteward.core.verdicts import Activity, Doubt, Signature, Verdict, WorkloadVerdict

GIB = 1 << 30
RATIO_STATS = (Stat.MEAN, Stat.PEAK, Stat.LAST)


@dataclass(frozen=True, slots=True)
class Reason:
    """A code of `texts.TEXTS` and the numbers it speaks of."""

    code: str
    values: Mapping[str, object] = field(default_factory=dict)


def make_verdict(verdicts: VerdictTable, row: int, *, rules: Rules, language: str = "en") -> Verdict:
    """One row as a value of its own. `language` is "en" or "zh"."""
    score, idle_since = float(verdicts.score[row]), float(verdicts.idle_since[row])
    signature = SIGNATURES[verdicts.signature[row]]
    return Verdict(
        verdicts.usage.usage(row),
        None if np.isnan(score) else score,
        STATES[verdicts.state[row]],
        ACTIVITIES[verdicts.activity[row]],
        signature,
        STEPS[verdicts.step[row]],
        None if np.isnan(idle_since) else idle_since,
        explain_row(verdicts, row, rules=rules, language=language),
    )


def explain_row(verdicts: VerdictTable, row: int, *, rules: Rules, language: str = "en") -> tuple[str, ...]:
    """Why a row was judged so. `language` is "en" or "zh"."""
    reasons = find_reasons(verdicts, row, rules=rules)
    return tuple(render(reason.code, reason.values, language=language) for reason in reasons)


def find_reasons(verdicts: VerdictTable, row: int, *, rules: Rules) -> tuple[Reason, ...]:
    """What was seen, what kind it is, what the score says, what a second opinion has against it."""
    usage = verdicts.usage.usage(row)
    return (
        *_explain_activity(verdicts, row, usage=usage, rules=rules),
        _explain_signature(verdicts, row, usage=usage, rules=rules),
        *_explain_owner(verdicts, row),
        *_explain_score(verdicts, row, rules=rules),
        *_explain_objection(verdicts, row),
    )


def explain_workload(verdict: WorkloadVerdict, *, language: str, doubted: int = 0) -> tuple[str, ...]:
    """Why a workload was judged so, in words. `doubted` counts its GPUs whose idleness a second opinion doubts."""
    active = verdict.gpus - verdict.idle_gpus - verdict.unknown_gpus
    values = {"gpus": verdict.gpus, "active": active, "unknown": verdict.unknown_gpus}
    reasons = [Reason(f"workload-{verdict.activity}", values)]
    if verdict.idle_since is not None:
        reasons.append(Reason("idle-since", {"idle_since": format_time(verdict.idle_since)}))
    if doubted:
        reasons.append(Reason("workload-objection", {"doubted": doubted, "gpus": verdict.gpus}))
    return tuple(render(reason.code, reason.values, language=language) for reason in reasons)


def render_finding(verdict: WorkloadVerdict, *, language: str) -> str:
    """What could be given back of a workload that is not idle as a whole; "" if nothing."""
    if verdict.activity is Activity.IDLE or not verdict.idle_gpus:
        return ""
    return render("finding", {"idle": verdict.idle_gpus, "gpus": verdict.gpus}, language=language)


def format_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _explain_activity(verdicts: VerdictTable, row: int, *, usage: Usage, rules: Rules) -> Iterator[Reason]:
    activity, minutes = ACTIVITIES[verdicts.activity[row]], usage.window_seconds / 60
    if activity is Activity.UNKNOWN:
        yield _explain_doubt(DOUBTS[verdicts.doubt[row]], usage, rules=rules)
    elif activity is Activity.IDLE:
        yield Reason("idle", {"minutes": minutes, "coverage": usage.coverage})
        yield Reason("idle-since", {"idle_since": format_time(float(verdicts.idle_since[row]))})
    elif verdicts.worked_at[row] == verdicts.usage.at:
        yield _explain_work(usage)
    else:
        yield Reason("paused", {"minutes": minutes, "worked_at": format_time(float(verdicts.worked_at[row]))})


def _explain_work(usage: Usage) -> Reason:
    mean, peak = usage.stats.get((Measure.CORE, Stat.MEAN)), usage.stats.get((Measure.CORE, Stat.PEAK))
    if mean is not None and peak is not None and max(mean, peak) > 0:
        return Reason("worked", {"mean": mean, "peak": peak, "minutes": usage.window_seconds / 60})
    highest = {signal: max(usage.stats.get((signal, stat), 0.0) for stat in RATIO_STATS) for signal in SIGNALS}
    signal = max(highest, key=lambda each: highest[each])
    return Reason("worked-elsewhere", {"signal": signal, "peak": highest[signal]})


def _explain_doubt(doubt: Doubt, usage: Usage, *, rules: Rules) -> Reason:
    values = {
        "minutes": usage.window_seconds / 60,
        "why": usage.unknown_reason,
        "coverage": usage.coverage,
        "samples": usage.stats.get((Measure.CORE, Stat.COUNT)),
        "least": rules.activity.least_samples,
        "needed": rules.activity.coverage,
        "power": usage.stats.get((Measure.POWER, Stat.MEAN)),
    }
    return Reason(f"doubt-{doubt}", values)


def _explain_signature(verdicts: VerdictTable, row: int, *, usage: Usage, rules: Rules) -> Reason:
    signature, stats = SIGNATURES[verdicts.signature[row]], usage.stats
    workload, started_at = usage.allocation.container.workload, usage.allocation.container.started_at
    memory = stats.get((Measure.MEMORY_USED, Stat.PEAK), stats.get((Measure.MEMORY_USED, Stat.MEAN)))
    worked_at = float(verdicts.worked_at[row])
    values = {
        "memory": None if memory is None else memory / GIB,
        "kind": workload.kind if workload else "",
        "worked_at": "" if np.isnan(worked_at) else format_time(worked_at),
        "mean": stats.get((Measure.CORE, Stat.MEAN)),
        "spread": stats.get((Measure.CORE, Stat.SPREAD)),
        "flat": rules.signatures.keep_alive.least_seconds / 60,
        "age": 0.0 if started_at is None else (verdicts.usage.at - started_at) / 60,
        "grace": rules.signatures.starting.grace_seconds / 60,
    }
    return Reason(_code_of(signature, has_memory=memory is not None, has_worked=not np.isnan(worked_at)), values)


def _explain_owner(verdicts: VerdictTable, row: int) -> Iterator[Reason]:
    if SIGNATURES[verdicts.signature[row]] is not Signature.PARKED:
        return
    workload = verdicts.usage.allocations[row].container.workload
    if workload is None:
        yield Reason("owner-unknown")
    elif workload.kind in MAY_HIDE_A_JOB:
        yield Reason("owner-of-a-job", {"kind": workload.kind})


def _code_of(signature: Signature, *, has_memory: bool, has_worked: bool) -> str:
    if signature is Signature.HUNG and not has_worked:
        return "hung-unseen"
    if signature is Signature.PARKED and not has_memory:
        return "parked-process"
    return signature.value


def _explain_score(verdicts: VerdictTable, row: int, *, rules: Rules) -> Iterator[Reason]:
    score = float(verdicts.score[row])
    if np.isnan(score):
        return
    if ACTIVITIES[verdicts.activity[row]] is Activity.IDLE and score >= rules.thresholds.idle:
        yield Reason("corrected", {"score": score})
    else:
        yield Reason("score", {"score": score, "state": STATES[verdicts.state[row]]})


def _explain_objection(verdicts: VerdictTable, row: int) -> Iterator[Reason]:
    if (objection := verdicts.objections.get(row)) is not None:
        values = {"status": objection.status, "confidence": objection.confidence, "why": objection.reason}
        yield Reason("objection", values)
