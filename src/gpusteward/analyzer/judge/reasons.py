"""The reasons of a verdict: what was measured, what the signature means, the score, a second opinion."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from gpusteward.analyzer.judge.activity import WORK_MEASURES, WORK_PROOFS
from gpusteward.analyzer.judge.proof import EARLY, SOONER
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.judge.score import name_states
from gpusteward.analyzer.tables import ACTIVITIES, DOUBTS, PROOFS, SIGNATURES, STATES, STEPS, VerdictTable
from gpusteward.core.gpu_counts import format_gpus
from gpusteward.core.kinds import MAY_HIDE_A_JOB, may_be_job
from gpusteward.core.messages import Language, Message
from gpusteward.core.usages import AllocationKey, Measure, Stat, Usage
from gpusteward.core.verdicts import Activity, Doubt, Proof, Signature, Step, Verdict, WorkloadVerdict
from gpusteward.messages import verdicts as texts

GIB = 1 << 30
RATIO_STATS = (Stat.MEAN, Stat.PEAK, Stat.LAST)


@dataclass(frozen=True, slots=True)
class Reason:
    """A message and the values of its fields."""

    message: Message
    values: Mapping[str, object] = field(default_factory=dict)

    def text(self, language: Language) -> str:
        return self.message.text(language, **self.values)


def make_verdict(verdicts: VerdictTable, row: int, *, rules: Rules, language: Language = "en") -> Verdict:
    """The verdict on one row."""
    score, idle_since = float(verdicts.score[row]), float(verdicts.idle_since[row])
    signature = SIGNATURES[verdicts.signature[row]]
    return Verdict(
        verdicts.usage.usage(row),
        None if np.isnan(score) else score,
        STATES[verdicts.state[row]],
        ACTIVITIES[verdicts.activity[row]],
        signature,
        STEPS[verdicts.step[row]],
        PROOFS[verdicts.proof[row]],
        None if np.isnan(idle_since) else idle_since,
        explain_row(verdicts, row, rules=rules, language=language),
    )


def explain_row(verdicts: VerdictTable, row: int, *, rules: Rules, language: Language = "en") -> tuple[str, ...]:
    """The reasons of the verdict on one row."""
    reasons = find_reasons(verdicts, row, rules=rules)
    return tuple(reason.text(language) for reason in reasons)


def find_reasons(verdicts: VerdictTable, row: int, *, rules: Rules) -> tuple[Reason, ...]:
    """Activity, signature, owner, score, and the objection of a second opinion, in this order."""
    usage = verdicts.usage.usage(row)
    return (
        *_explain_activity(verdicts, row, usage=usage, rules=rules),
        *([Reason(texts.LATE_SAMPLES, {"seconds": lag})] if (lag := verdicts.usage.lag_seconds) else ()),
        explain_signature(verdicts, row, usage=usage, rules=rules),
        *_explain_stall(verdicts, row, usage=usage, rules=rules),
        *_explain_requests(verdicts, row, usage=usage),
        *_explain_owner(verdicts, row),
        *_explain_score(verdicts, row, rules=rules),
        *_explain_objection(verdicts, row),
    )


def explain_workload(
    verdict: WorkloadVerdict,
    *,
    language: Language,
    doubted: float = 0,
    why: Sequence[Reason] = (),
    stall: Sequence[Reason] = (),
) -> tuple[str, ...]:
    """The reasons of the verdict on a workload, first of all why it is suspicious. `doubted`: its GPUs whose idleness a
    second opinion doubts. `why`, `stall`: what its signature says."""
    active = max(0.0, verdict.gpus - verdict.idle_gpus - verdict.unknown_gpus)
    counts = {"gpus": verdict.gpus, "active": active, "unknown": verdict.unknown_gpus, "doubted": doubted}
    values = {name: format_gpus(count) for name, count in counts.items()}
    reasons = [*why, *stall, Reason(texts.WORKLOADS[verdict.name], values)]
    if verdict.idle_since is not None:
        reasons.append(Reason(texts.IDLE_SINCE, {"idle_since": format_time(verdict.idle_since)}))
    if verdict.activity is Activity.IDLE:
        reasons.append(Reason(texts.PROVEN[verdict.proof]))
    if doubted:
        reasons.append(Reason(texts.WORKLOAD_OBJECTION, values))
    return tuple(reason.text(language) for reason in reasons)


RANKS_SHOWN = 4


def explain_stalled_workload(verdicts: VerdictTable, rows: Sequence[int], *, gpu_hours: float) -> Sequence[Reason]:
    """Since when, what it has cost, which ranks differ from the others, and how to look at one. `rows`: all of them."""
    is_stalled = [SIGNATURES[verdicts.signature[row]] is Signature.STALLED for row in rows]
    spinning = [row for row, stalled in zip(rows, is_stalled, strict=True) if stalled]
    if len(spinning) == 0:
        return ()
    silent = [row for row, stalled in zip(rows, is_stalled, strict=True) if not stalled]
    since = max(float(verdicts.ineffective_since[row]) for row in spinning)
    values = {"spinning": len(spinning), "silent": len(silent)}
    fewer = min(spinning, silent, key=len) if silent else []
    ranks = ", ".join(_name_rank(verdicts.usage.allocations[row]) for row in fewer[:RANKS_SHOWN])
    ranks += f" (+{len(fewer) - RANKS_SHOWN})" if len(fewer) > RANKS_SHOWN else ""
    one = verdicts.usage.allocations[(fewer or spinning)[0]].container
    namespace, pod, name = map(shlex.quote, (one.namespace, one.pod, one.name))  # labels: somebody will paste it
    command = f"kubectl exec -n {namespace} {pod} -c {name} -- py-spy dump --pid PID"
    reasons = [Reason(texts.STALLED_SINCE, {"since": format_time(since), "hours": gpu_hours})]
    if len(rows) > 1:
        reasons.append(
            Reason(texts.STALLED_ODD, {**values, "ranks": ranks}) if fewer else Reason(texts.STALLED_NO_ODD, values)
        )
    return [*reasons, Reason(texts.STALLED_COMMAND, {"command": command})]


def _name_rank(allocation: AllocationKey) -> str:
    return f"{allocation.container.pod} on {allocation.node} GPU {allocation.gpu_index or allocation.gpu_uuid}"


def render_finding(verdict: WorkloadVerdict, *, language: Language) -> str:
    """The unused GPUs of a workload that is not idle as a whole; "" if there are none."""
    if verdict.activity is Activity.IDLE or not verdict.idle_gpus:
        return ""
    return texts.FINDING.text(language, idle=format_gpus(verdict.idle_gpus), gpus=format_gpus(verdict.gpus))


def format_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _explain_activity(verdicts: VerdictTable, row: int, *, usage: Usage, rules: Rules) -> Iterator[Reason]:
    activity, minutes = ACTIVITIES[verdicts.activity[row]], usage.window_seconds / 60
    if activity is Activity.UNKNOWN:
        yield _explain_doubt(DOUBTS[verdicts.doubt[row]], usage, rules=rules)
    elif activity is Activity.IDLE:
        yield _explain_idle(verdicts, row, usage=usage)
        yield Reason(texts.IDLE_SINCE, {"idle_since": format_time(float(verdicts.idle_since[row]))})
        yield from _explain_proof(PROOFS[verdicts.proof[row]], usage, at=verdicts.usage.at, rules=rules)
    elif verdicts.worked_at[row] == verdicts.usage.at:
        yield _explain_work(usage)
    else:
        yield Reason(texts.PAUSED, {"minutes": minutes, "worked_at": format_time(float(verdicts.worked_at[row]))})


def _explain_idle(verdicts: VerdictTable, row: int, *, usage: Usage) -> Reason:
    minutes, worked_at = usage.window_seconds / 60, float(verdicts.worked_at[row])
    if verdicts.unused_work_at[row] == verdicts.usage.at:
        return Reason(texts.IDLE_BUT_WORKED, {"busy": usage.stats[Measure.BUSY, Stat.MEAN], "minutes": minutes})
    if verdicts.unused_work_at[row] > verdicts.usage.at - usage.window_seconds:
        return Reason(texts.IDLE_BUT_PAUSED, {"worked_at": format_time(worked_at)})
    return Reason(texts.IDLE, {"minutes": minutes, "coverage": usage.coverage})


def _explain_requests(verdicts: VerdictTable, row: int, *, usage: Usage) -> Iterator[Reason]:
    """What its inference server says, where it has one."""
    requests, waiting = usage.stats.get((Measure.REQUESTS, Stat.COUNT)), usage.stats.get((Measure.WAITING, Stat.PEAK))
    if requests is not None:
        yield Reason(texts.REQUESTS, {"requests": requests, "minutes": usage.window_seconds / 60})
        if not np.isnan(since := float(verdicts.silent_since[row])):
            yield Reason(texts.SILENT_SINCE, {"silent_since": format_time(since)})
        elif not requests and not np.isnan(at := float(verdicts.requested_at[row])):
            yield Reason(texts.LAST_REQUEST, {"requested_at": format_time(at)})
    if ACTIVITIES[verdicts.activity[row]] is not Activity.IDLE:
        return
    if requests or usage.stats.get((Measure.TOKENS, Stat.COUNT)):
        yield Reason(texts.REQUESTED)
    elif waiting:
        yield Reason(texts.WAITING_REQUESTS, {"waiting": waiting})


def _explain_proof(proof: Proof, usage: Usage, *, at: float, rules: Rules) -> Iterator[Reason]:
    launched_at = usage.stats.get((Measure.CONTAINER_KERNEL, Stat.LAST), np.inf)
    is_by_kernel = (Measure.BUSY, Stat.MEAN) not in usage.stats and launched_at <= at - usage.window_seconds
    if proof is Proof.SAMPLED:
        yield from _explain_sampled(usage, is_by_kernel=is_by_kernel, rules=rules)
    elif is_by_kernel:
        yield Reason(texts.PROVEN_BY_KERNEL, {"launched_at": format_time(launched_at)})
    else:
        yield Reason(texts.PROVEN[proof])


def _explain_sampled(usage: Usage, *, is_by_kernel: bool, rules: Rules) -> Iterator[Reason]:
    """Every reason why nothing proves it, or that only samples are read."""
    stats, collected = usage.stats, rules.proof.dcgm_interval_seconds
    has_video = stats.get((Measure.VIDEO, Stat.COUNT)) != 0
    is_counted = (Measure.BUSY, Stat.MEAN) in stats or is_by_kernel
    step = stats.get((Measure.ENGINE, Stat.STEP), 0.0)
    renewed = min(stats.get((measure, Stat.STEP), np.inf) for measure in (Measure.ENERGY, Measure.POWER))
    if not is_counted:
        yield Reason(texts.PROVEN[Proof.SAMPLED])
        if (Measure.ENERGY, Stat.STEP) in stats:
            yield Reason(texts.NOT_PROVEN_BY_ENERGY)
    elif step > SOONER * collected:
        yield Reason(texts.SCRAPED_TOO_RARELY, {"step": step, "collected": collected, "advised": collected / 2})
    elif renewed == 0:
        yield Reason(texts.COLLECTION_UNKNOWN)
    elif renewed * EARLY < collected:
        yield Reason(texts.COLLECTED_TOO_OFTEN, {"renewed": renewed, "collected": collected})
    elif (Measure.ENGINE, Stat.STEP) not in stats and _leaves_out_time(usage, rules):
        yield Reason(texts.WINDOWS_APART, {"minutes": usage.window_seconds / 60, "cycle": rules.cycle_seconds / 60})
    elif has_video:
        yield Reason(texts.VIDEO_IS_SAMPLED, {"minutes": rules.proof.video_seconds / 60})
    if not has_video:
        yield Reason(texts.NO_VIDEO_SIGNAL)


def _leaves_out_time(usage: Usage, rules: Rules) -> bool:
    """As `proof.leaves_out_time`."""
    expected = usage.stats.get((Measure.CORE, Stat.COUNT), 0.0) / usage.coverage
    return expected > 0 and rules.cycle_seconds + usage.window_seconds / expected > usage.window_seconds


def _explain_work(usage: Usage) -> Reason:
    mean, peak = usage.stats.get((Measure.CORE, Stat.MEAN)), usage.stats.get((Measure.CORE, Stat.PEAK))
    if mean is not None and peak is not None and max(mean, peak) > 0:
        return Reason(texts.WORKED, {"mean": mean, "peak": peak, "minutes": usage.window_seconds / 60})
    highest = {
        signal: max(usage.stats.get((signal, stat), 0.0) for stat in RATIO_STATS)
        for signal in (*WORK_MEASURES, *WORK_PROOFS)
    }
    traffic = {signal: highest.pop(signal) for signal in (Measure.NVLINK, Measure.PCIE)}
    signal = max(highest, key=lambda each: highest[each])
    if highest[signal] > 0:
        peak = min(highest[signal], 1.0)
        return Reason(texts.WORKED_ELSEWHERE, {"signal": texts.WORK_SIGNALS[signal], "peak": peak})
    signal = max(traffic, key=lambda each: traffic[each])
    launched_at = usage.stats.get((Measure.LAST_KERNEL, Stat.LAST))
    if not traffic[signal] and launched_at is not None:
        return Reason(texts.LAUNCHED_KERNEL, {"launched_at": format_time(launched_at)})
    return Reason(texts.MOVED_DATA, {"signal": texts.WORK_SIGNALS[signal], "rate": traffic[signal] / 1e6})


def _explain_doubt(doubt: Doubt, usage: Usage, *, rules: Rules) -> Reason:
    values = {
        "minutes": usage.window_seconds / 60,
        "why": usage.unknown_reason,
        "coverage": usage.coverage,
        "samples": usage.stats.get((Measure.CORE, Stat.COUNT)),
        "least": rules.activity.least_samples,
        "needed": rules.activity.coverage,
        "power": usage.stats.get((Measure.POWER, Stat.MEAN)),
        "excess": usage.stats.get((Measure.ENERGY, Stat.PEAK)),
    }
    return Reason(texts.DOUBTS[doubt], values)


def explain_signature(verdicts: VerdictTable, row: int, *, rules: Rules, usage: Usage | None = None) -> Reason:
    """What the signature of a row means. `usage`: that of the row, where it was read already."""
    usage = usage or verdicts.usage.usage(row)
    signature, stats = SIGNATURES[verdicts.signature[row]], usage.stats
    workload, started_at = usage.allocation.container.workload, usage.allocation.container.started_at
    memory = stats.get((Measure.MEMORY_USED, Stat.PEAK), stats.get((Measure.MEMORY_USED, Stat.MEAN)))
    shared = stats.get((Measure.MEMORY_SHARED, Stat.PEAK))
    worked_at, idle_since = float(verdicts.worked_at[row]), float(verdicts.idle_since[row])
    values: dict[str, object] = {
        "memory": None if memory is None else memory / GIB,
        "kind": workload.kind if workload else "",
        "worked_at": "" if np.isnan(idle_since) else format_time(idle_since),
        "mean": stats.get((Measure.CORE, Stat.MEAN)),
        "spread": stats.get((Measure.CORE, Stat.SPREAD)),
        "flat": rules.signatures.keep_alive.least_seconds / 60,
        "age": 0.0 if started_at is None else (verdicts.usage.at - started_at) / 60,
        "grace": rules.signatures.starting.grace_seconds / 60,
        "busy": stats.get((Measure.BUSY, Stat.MEAN)),
        "blips": rules.signatures.health_check.least_seconds / 60,
    }
    since = float(verdicts.ineffective_since[row])
    if not np.isnan(since):
        values |= {"since": format_time(since), "frozen": (verdicts.usage.at - since) / 60}
    is_young = started_at is not None and verdicts.usage.at - started_at < rules.signatures.starting.grace_seconds
    if signature is Signature.KEEP_ALIVE and not np.isnan(since):
        return Reason(texts.KEEP_ALIVE_HELD, values)
    if signature is Signature.NO_REQUESTS and not np.isnan(since):
        return Reason(texts.NO_REQUESTS_SPINNING, values)
    if signature is Signature.STEADY and not np.isnan(since):
        return Reason(texts.MAY_HANG, values | {"power": stats.get((Measure.POWER, Stat.MEAN))})
    if signature is Signature.STARTING and not is_young:
        return Reason(texts.STARTING_LOADS)
    if signature is Signature.PARKED and stats.get((Measure.PROCESSES, Stat.PEAK)) == 0:
        return Reason(texts.PARKED_OTHERS)
    if signature in (Signature.PARKED, Signature.HUNG) and memory is None and shared is not None:
        return Reason(texts.PARKED_SHARED, {"memory": shared / GIB})
    if signature is Signature.PARKED and memory is None:
        return Reason(texts.PARKED_PROCESS, values)
    if signature is Signature.ASLEEP and memory is None:
        return Reason(texts.PARKED_PROCESS, values)
    if signature is Signature.HUNG and np.isnan(worked_at):
        return Reason(texts.HUNG_UNSEEN, values)
    return Reason(texts.SIGNATURE_REASONS[signature], values)


def _explain_stall(verdicts: VerdictTable, row: int, *, usage: Usage, rules: Rules) -> Iterator[Reason]:
    """What was seen of it, or of ranks that wait for requests: each signal that is known."""
    is_stalled = SIGNATURES[verdicts.signature[row]] is Signature.STALLED
    spins = SIGNATURES[verdicts.signature[row]] is Signature.NO_REQUESTS and not np.isnan(
        verdicts.ineffective_since[row]
    )
    if not is_stalled and not spins:
        return
    stats, rule = usage.stats, rules.signatures.stalled
    running, tokens = stats.get((Measure.RUNNING, Stat.LOWEST)), stats.get((Measure.TOKENS, Stat.COUNT))
    if running and tokens == 0:
        yield Reason(texts.STALLED_SERVER, {"running": running, "minutes": usage.window_seconds / 60})
    elif is_stalled:
        yield Reason(texts.STALLED_GANG)
    power, limit = stats.get((Measure.POWER, Stat.MEAN)), stats.get((Measure.POWER_LIMIT, Stat.LAST))
    if power is not None and limit is not None:
        yield Reason(texts.STALLED_POWER, {"power": power, "limit": limit})
    for signal in (Measure.MEMORY_COPY, Measure.DRAM, Measure.SM_ACTIVE, Measure.TENSOR):
        if (peak := stats.get((signal, Stat.PEAK))) is not None:
            yield Reason(texts.STALLED_SIGNAL, {"signal": texts.WORK_SIGNALS[signal], "peak": peak})
    disk, network = (stats.get((signal, Stat.MEAN)) for signal in (Measure.DISK, Measure.NETWORK))
    if spins:
        return
    if disk is not None and network is not None:
        yield Reason(texts.STALLED_HOST, {"disk": disk / 1000, "network": network / 1000})
    else:
        yield Reason(texts.STALLED_HOST_UNKNOWN, {"hours": rule.unwitnessed_seconds / 3600})


def _explain_owner(verdicts: VerdictTable, row: int) -> Iterator[Reason]:
    """What the owner limits: a job that has never worked may still load, one that has worked may hang."""
    signature, workload = SIGNATURES[verdicts.signature[row]], verdicts.usage.allocations[row].container.workload
    kind = workload.kind if workload else ""
    if signature.highest_step is not Step.RECLAIM or not may_be_job(kind):
        return
    if np.isnan(verdicts.worked_at[row]):
        yield Reason(texts.NEVER_WORKED, {"kind": kind}) if kind else Reason(texts.NEVER_WORKED_UNKNOWN)
    elif signature is Signature.PARKED and (not kind or kind in MAY_HIDE_A_JOB):
        yield Reason(texts.OWNER_OF_A_JOB, {"kind": kind}) if kind else Reason(texts.OWNER_UNKNOWN)


def _explain_score(verdicts: VerdictTable, row: int, *, rules: Rules) -> Iterator[Reason]:
    score = float(verdicts.score[row])
    if np.isnan(score):
        return
    if ACTIVITIES[verdicts.activity[row]] is Activity.IDLE and score >= rules.thresholds.idle:
        # The state of the score by itself, without the correction by activity.
        active = np.array([ACTIVITIES.index(Activity.ACTIVE)], dtype=np.int8)
        (code,) = name_states(np.array([score]), active, thresholds=rules.thresholds).tolist()
        yield Reason(texts.SCORE_CORRECTED, {"score": score, "range": texts.STATES[STATES[code]]})
    else:
        yield Reason(texts.SCORE, {"score": score, "state": texts.STATES[STATES[verdicts.state[row]]]})


def _explain_objection(verdicts: VerdictTable, row: int) -> Iterator[Reason]:
    if (objection := verdicts.objections.get(row)) is not None:
        status = texts.WORDS.get(objection.status, objection.status)
        values = {"status": status, "confidence": objection.confidence, "why": objection.reason}
        yield Reason(texts.OBJECTION, values)
