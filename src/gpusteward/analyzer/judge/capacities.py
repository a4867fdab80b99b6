"""The memory and power limit of each row: measured, else typical of its GPU model, else as configured."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.allocation_columns import AllocationColumns
from gpusteward.analyzer.judge.gpu_models import MIB, ModelFacts, find_model
from gpusteward.analyzer.judge.valid_ratios import first_known
from gpusteward.analyzer.tables import Column, UsageTable
from gpusteward.core.usages import Measure, Stat


class GpuDefaults(BaseModel):
    """For GPUs whose memory or power limit is neither measured nor in the table of GPU models."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    memory_mb: float = Field(
        default=32000, gt=0, description="Memory of a GPU of unknown model, in MiB as DCGM counts."
    )
    power_w: float = Field(default=250, gt=0, description="Power limit of a GPU of unknown model, in watts.")


@dataclass(frozen=True)
class Capacities:
    """NaN where unknown: a MIG instance has neither the memory nor the power of its board."""

    memory_bytes: Column
    power_limit_watts: Column
    idle_watts: Column  # typical of the GPU model; it is not measured


def find_capacities(table: UsageTable, columns: AllocationColumns, *, defaults: GpuDefaults) -> Capacities:
    default = ModelFacts((), defaults.memory_mb, defaults.power_w, np.nan)
    models = [find_model(name) or default for name in columns.models.names]
    memory = _of_devices(columns, [facts.memory_mib * MIB for facts in models])
    power = _of_devices(columns, [facts.power_limit_watts for facts in models])
    return Capacities(
        first_known(read_capacity(table, Measure.MEMORY_TOTAL), memory),
        first_known(read_capacity(table, Measure.POWER_LIMIT), power),
        _of_devices(columns, [facts.idle_watts for facts in models]),
    )


def read_capacity(table: UsageTable, measure: Measure) -> Column:
    """The newest value; a total of 0 is unknown."""
    column = first_known(*(table.column(measure, stat) for stat in (Stat.LAST, Stat.PEAK, Stat.MEAN)))
    return np.where(column > 0, column, np.nan)


def _of_devices(columns: AllocationColumns, by_model: Sequence[float]) -> Column:
    values = np.array(by_model, dtype=np.float64)[columns.models.codes]
    return np.where(columns.is_device, values, np.nan)
