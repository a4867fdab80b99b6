"""`Evidence`: the input of the signature rules."""

from dataclasses import dataclass, field

import numpy as np

from gpusteward.analyzer.judge.activity import WORK_MEASURES, Activities
from gpusteward.analyzer.judge.allocation_columns import AllocationColumns, Mask
from gpusteward.analyzer.judge.gpu_models import Capacities
from gpusteward.analyzer.judge.history import Past
from gpusteward.analyzer.judge.valid_values import first_known, valid_ratio
from gpusteward.analyzer.tables import ACTIVITIES, PROOFS, Codes, Column, UsageTable
from gpusteward.core.kinds import MAY_HIDE_A_JOB, RUN_THROUGH_KINDS, SERVING_KINDS, may_be_job
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity, Proof


@dataclass(frozen=True)
class Streak:
    """Consecutive overlapping windows of constant load at one level; NaN where this window is not one of them."""

    since: Column  # unix seconds
    ratio: Column  # share of time with work in the first of them


@dataclass(frozen=True)
class MemoryGrowth:
    """The memory of each row in comparison with earlier cycles."""

    bytes: Column  # lowest peak since it last grew
    grew_at: Column  # unix seconds; NaN: never


@dataclass(frozen=True)
class Freeze:
    """Rows that are busy without doing anything in this window; NaN elsewhere."""

    since: Column  # unix seconds: the start of the consecutive overlapping windows
    watts: Column  # mean power in the first of them
    is_busy: Mask  # by a kernel or by requests; the others of a gang are silent


@dataclass(frozen=True)
class HeldLevel:
    """Rows with one process at a constant level; NaN elsewhere."""

    since: Column  # unix seconds: the start of the consecutive overlapping windows
    ratio: Column  # share of time with work in the first of them
    watts: Column  # and mean power
    is_proven: Mask  # for so long, and with such witnesses, that it is artificial
    may_hang: Mask  # or else a kernel that never ends, for all that is known


@dataclass(frozen=True)
class Evidence:
    """The facts of one cycle, one entry per row of the usage table."""

    table: UsageTable
    columns: AllocationColumns
    capacities: Capacities
    activities: Activities
    past: Past  # before this cycle
    proof: Codes
    is_silent: Mask  # its server is proven to have had no request
    streak: Streak = Streak(np.empty(0), np.empty(0))
    growth: MemoryGrowth = MemoryGrowth(np.empty(0), np.empty(0))
    spinning_watts: Column = field(default_factory=lambda: np.empty(0))  # the highest of a stalled GPU; NaN: not known
    freeze: Freeze = Freeze(np.empty(0), np.empty(0), np.empty(0, dtype=bool))
    level: HeldLevel = HeldLevel(
        np.empty(0), np.empty(0), np.empty(0), np.empty(0, dtype=bool), np.empty(0, dtype=bool)
    )

    def has(self, activity: Activity) -> Mask:
        return np.equal(self.activities.codes, ACTIVITIES.index(activity))

    @property
    def is_integrated(self) -> Mask:
        """Whether all work in the window was seen, also between two samples."""
        return np.equal(self.proof, PROOFS.index(Proof.INTEGRATED))

    def stat(self, measure: Measure, stat: Stat) -> Column:
        return valid_ratio(self.table, measure, stat) if measure in WORK_MEASURES else self.table.column(measure, stat)

    @property
    def runs_through(self) -> Mask:
        return self.columns.owner_kinds.among(RUN_THROUGH_KINDS)

    @property
    def serves(self) -> Mask:
        return self.columns.owner_kinds.among(SERVING_KINDS)

    @property
    def may_be_job(self) -> Mask:
        return self.columns.owner_kinds.where(may_be_job)

    @property
    def has_worked(self) -> Mask:
        """Worked in an earlier window of this pod's life."""
        return self.past.worked_at > 0

    @property
    def is_owned(self) -> Mask:
        """Whether the owner is known for certain; a pod without an owner is known to be one."""
        return ~self.columns.owner_kinds.among(["", *MAY_HIDE_A_JOB])

    @property
    def uses_video(self) -> Mask:
        """Whether an encoder, a decoder or another video engine worked."""
        found = np.zeros(len(self.table), dtype=bool)
        for measure in (Measure.ENCODER, Measure.DECODER, Measure.VIDEO):
            found |= self.table.column(measure, Stat.PEAK) > 0
        return found

    @property
    def samples(self) -> Column:
        """Samples of core utilization in the window; NaN where they are not counted."""
        return self.table.column(Measure.CORE, Stat.COUNT)

    @property
    def age_seconds(self) -> Column:
        return self.table.at - self.table.started_at

    @property
    def memory_held_bytes(self) -> Column:
        """The most memory held in the window; NaN where unknown."""
        return first_known(*(self.stat(Measure.MEMORY_USED, stat) for stat in (Stat.PEAK, Stat.LAST, Stat.MEAN)))

    @property
    def memory_bytes(self) -> dict[Stat, Column]:
        """Mean and peak of the memory that it holds; of all holders of the GPU, where nothing says whose it is."""
        both = (Measure.MEMORY_USED, Measure.MEMORY_SHARED)
        return {stat: first_known(*(self.stat(each, stat) for each in both)) for stat in (Stat.MEAN, Stat.PEAK)}

    @property
    def memory_held_ratio(self) -> Column:
        return self.memory_held_bytes / self.capacities.memory_bytes

    @property
    def processes(self) -> Column:
        """The most processes seen at once."""
        return first_known(*(self.stat(Measure.PROCESSES, stat) for stat in (Stat.PEAK, Stat.LAST, Stat.MEAN)))

    @property
    def has_other_processes(self) -> Mask:
        """Whether somebody who does not hold the GPU has a process on it."""
        return self.table.column(Measure.OTHER_PROCESSES, Stat.PEAK) > 0
