"""What every signature may look at."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpusteward.analyzer.judge.activity import SIGNALS, Activities
from gpusteward.analyzer.judge.capacities import Capacities
from gpusteward.analyzer.judge.clamped_ratios import first_known, ratio_of
from gpusteward.analyzer.judge.history import Past
from gpusteward.analyzer.judge.keys import Keys, Mask
from gpusteward.analyzer.tables import ACTIVITIES, Column, UsageTable
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity

RUN_THROUGH_KINDS: Sequence[str] = (
    *("Job", "CronJob", "JobSet", "Workflow", "CronWorkflow", "TaskRun", "PipelineRun", "AppWrapper"),
    *("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "MXJob", "JAXJob", "TrainJob"),
    *("RayJob", "SparkApplication", "ScheduledSparkApplication", "VolcanoJob", "KaiwoJob"),
)
"""Owners whose pods are expected to work from start to end. Not Notebook, Deployment or StatefulSet: they wait for
somebody, and standing still is their nature."""


MAY_HIDE_A_JOB: Sequence[str] = ("RayCluster",)
"""Owners that people wait at, and that jobs bring along: where only pods can be read, a RayJob's looks like this."""


@dataclass(frozen=True)
class Evidence:
    """One cycle, row by row."""

    table: UsageTable
    keys: Keys
    capacities: Capacities
    activities: Activities
    past: Past  # before this cycle

    def has(self, activity: Activity) -> Mask:
        return np.equal(self.activities.codes, ACTIVITIES.index(activity))

    def stat(self, measure: Measure, stat: Stat) -> Column:
        return ratio_of(self.table, measure, stat) if measure in SIGNALS else self.table.column(measure, stat)

    def runs_through(self, kinds: Sequence[str]) -> Mask:
        return self.keys.owner_kinds.among(kinds)

    @property
    def is_owned(self) -> Mask:
        """Whether it is known for certain who owns it; a pod of its own is known to be one."""
        return ~self.keys.owner_kinds.among(["", *MAY_HIDE_A_JOB])

    @property
    def samples(self) -> Column:
        """How many of core utilization the window held; NaN where nobody counted."""
        return self.table.column(Measure.CORE, Stat.COUNT)

    @property
    def age_seconds(self) -> Column:
        return self.table.at - self.table.started_at

    @property
    def memory_held_bytes(self) -> Column:
        """The most it held in the window, as far as anybody said."""
        return first_known(*(self.stat(Measure.MEMORY_USED, stat) for stat in (Stat.PEAK, Stat.LAST, Stat.MEAN)))

    @property
    def memory_held_ratio(self) -> Column:
        return self.memory_held_bytes / self.capacities.memory_bytes

    @property
    def processes(self) -> Column:
        """The most that were seen at once."""
        return first_known(*(self.stat(Measure.PROCESSES, stat) for stat in (Stat.PEAK, Stat.LAST, Stat.MEAN)))
