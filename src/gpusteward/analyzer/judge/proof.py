"""How each row was proven: by a signal that includes all of the time, or by samples only."""

from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.allocation_columns import Mask
from gpusteward.analyzer.judge.history import Past
from gpusteward.analyzer.judge.valid_values import lacks_kernels, valid_ratio
from gpusteward.analyzer.tables import PROOFS, Codes, Column, UsageTable
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Proof
from gpusteward.messages import unknown_reasons

SOONER = 0.9
"""Samples must follow each other within this part of the time that DCGM averages over. With equal intervals a scrape
can skip an average: their phases are independent, a collection every 30 s takes place every 29.97 s, and a scrape is
late by its own jitter. A tenth, 3 s of 30, is more than both: scrapes start on time, and dcgm-exporter answers within
one or two seconds."""
EARLY = 1.1
"""New values may come by this part more often than collected: one at each end of the window."""


class ProofRule(BaseModel):
    """When engine activity of DCGM includes all of the time."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dcgm_interval_seconds: float = Field(
        default=30,
        gt=0,
        description="How often DCGM is read: dcgm-exporter's `-c` or `DCGM_EXPORTER_INTERVAL`, 30 s by default. DCGM "
        "averages engine activity over this time, so activity proves idleness only where it is scraped clearly more "
        "often, such as every 15 s, and at the latest after nine tenths of this time: at equal intervals a scrape can "
        "skip an average. "
        "Other clients of the same hostengine can shorten it; no page shows it, but where power or energy have new "
        "values more often than this, engine activity proves nothing.",
    )
    video_seconds: ClassVar[float] = 3600
    """How long an allocation must have been observed before engine activity of DCGM, or the last kernel of HAMi, proves
    idleness: video engines are not in it, and their gauges miss work. 20 s of encoding every 10 minutes are in two of
    three samples every 30 s; in one hour of a thousand no sample shows any."""


def find_video_at(table: UsageTable, past: Past) -> Column:
    """When a gauge last showed a video engine at work that no counter includes. Engine activity is that of the core.

    On a GPU that HAMi shares, nobody knows whose work of a video engine it was: it may have been that of each row.
    """
    worked = np.zeros(len(table), dtype=bool)
    worked[[row for row, why in table.unknown.items() if why == unknown_reasons.UNATTRIBUTED]] = True
    worked &= np.isnan(table.column(Measure.BUSY, Stat.MEAN))  # the agent counts for each container
    for measure in (Measure.ENCODER, Measure.DECODER, Measure.VIDEO):
        worked |= table.column(measure, Stat.PEAK) > 0
    is_counted = table.column(Measure.VIDEO, Stat.MEAN) > 0
    return np.where(worked & ~is_counted, table.at, past.video_at)


def judge_proof(
    table: UsageTable, *, is_idle: Mask, past: Past, video_at: Column, rule: ProofRule, cycle_seconds: float
) -> Codes:
    """The last kernel can only prove that there was no work. Where no video signal is exported, or a pod used a video
    engine that is only sampled, the time of the core proves nothing: a video engine may work between two samples. The
    agent counts that; of DCGM and HAMi the gauges must have been watched for a while."""
    is_busy = ~np.isnan(valid_ratio(table, Measure.BUSY, Stat.MEAN))
    is_agent = is_busy & np.isnan(table.column(Measure.ENGINE, Stat.STEP))
    is_busy &= ~(is_agent & leaves_out_time(table, cycle_seconds))
    is_watched = is_agent | (table.at - np.fmin(past.first_seen_at, table.at) >= rule.video_seconds)
    is_counted = (is_busy & ~has_gaps(table, rule)) | (is_idle & lacks_kernels(table))
    is_proven = is_counted & is_watched & np.isnan(video_at) & ~lacks_video(table)
    codes = np.where(is_proven, PROOFS.index(Proof.INTEGRATED), PROOFS.index(Proof.SAMPLED))
    return codes.astype(np.int8)


def leaves_out_time(table: UsageTable, cycle_seconds: float) -> Mask:
    """Rows whose windows do not overlap by a scrape interval. The increase of a counter begins with the first sample of
    its window: work between that and the sample before is in neither window."""
    expected = table.column(Measure.CORE, Stat.COUNT) / table.coverage
    return cycle_seconds + table.window_seconds / expected > table.window_seconds


def has_gaps(table: UsageTable, rule: ProofRule) -> Mask:
    """Rows whose engine activity may be averaged over less than the time between two samples."""
    seconds = rule.dcgm_interval_seconds
    is_late = table.column(Measure.ENGINE, Stat.STEP) > SOONER * seconds
    # How often the exporter has new values, never less than it is scraped; 0 where that was not read.
    collected = np.fmin(table.column(Measure.ENERGY, Stat.STEP), table.column(Measure.POWER, Stat.STEP))
    return is_late | (collected * EARLY < seconds)


def lacks_video(table: UsageTable) -> Mask:
    """Rows whose use of video engines is not reported."""
    return np.equal(table.column(Measure.VIDEO, Stat.COUNT), 0.0)
