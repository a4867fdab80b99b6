"""Memory and power limit of each row: measured, else typical of its GPU model, else as configured.

Memory and limits are those of the boards as sold and as nvidia-smi shows them; a site may have lowered a limit, and
drivers differ by some MiB. Idle watts are typical of a GPU without a process; boards of one model differ by a third.
No action depends on the last digit: these numbers are part of the score and separate "draws power" from "does not".
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.allocation_columns import AllocationColumns
from gpusteward.analyzer.judge.valid_values import first_known
from gpusteward.analyzer.tables import Column, UsageTable
from gpusteward.core.usages import Measure, Stat

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Typical values of a model."""

    words: tuple[str, ...]  # the name contains all of them
    memory_mib: float
    power_limit_watts: float
    idle_watts: float


def _model(words: str, memory_mib: int, power_limit_watts: float, idle_watts: float) -> ModelFacts:
    return ModelFacts(tuple(words.split()), memory_mib, power_limit_watts, idle_watts)


MODELS: tuple[ModelFacts, ...] = (
    _model("GB200", 189471, 1200, 150),
    _model("GB10", 124610, 140, 4),  # memory and power are shared with the CPU
    _model("B300", 275040, 1400, 160),
    _model("B200", 183359, 1000, 142),
    _model("GH200 144G", 147456, 900, 95),
    _model("GH200", 97871, 900, 95),
    _model("H200 NVL", 143771, 600, 74),
    _model("H200", 143771, 700, 76),
    _model("H100 NVL", 95830, 400, 62),
    _model("H100 PCIE", 81559, 350, 48),
    _model("H100", 81559, 700, 71),
    _model("H800 PCIE", 81559, 350, 48),
    _model("H800", 81559, 700, 71),
    _model("H20", 97871, 500, 72),
    _model("A100 PCIE 40GB", 40960, 250, 36),
    _model("A100 PCIE", 81920, 300, 45),
    _model("A100 40GB", 40960, 400, 46),
    _model("A100", 81920, 400, 62),
    _model("A800 PCIE", 81920, 300, 45),
    _model("A800", 81920, 400, 62),
    _model("A40", 46068, 300, 32),
    _model("A30", 24576, 165, 30),
    _model("A16", 15356, 62, 15),
    _model("A10G", 23028, 300, 24),
    _model("A10", 23028, 150, 16),
    _model("A2", 15356, 60, 8),
    _model("L40S", 46068, 350, 33),
    _model("L40", 46068, 300, 33),
    _model("L20", 49140, 275, 32),
    _model("L4", 23034, 72, 12),
    _model("V100S", 32768, 250, 26),
    _model("V100 PCIE 16GB", 16384, 250, 25),
    _model("V100 PCIE", 32768, 250, 26),
    _model("V100 16GB", 16384, 300, 40),
    _model("V100", 32768, 300, 42),
    _model("P100", 16384, 250, 30),
    _model("P40", 24576, 250, 10),
    _model("P4", 7680, 75, 7),
    _model("T4", 15360, 70, 9.5),
    _model("RTX PRO 6000", 97887, 600, 20),
    _model("RTX 6000 ADA", 49140, 300, 20),
    _model("RTX A6000", 49140, 300, 20),
    _model("RTX A5000", 24564, 230, 18),
    _model("RTX A4000", 16376, 140, 12),
    _model("RTX 5090", 32607, 575, 22),
    _model("RTX 4090 D", 24564, 425, 18),
    _model("RTX 4090", 24564, 450, 18),
    _model("RTX 3090", 24576, 350, 22),
    _model("RTX 2080 TI", 11264, 250, 15),
)
"""The first match counts: longer names stand before those they contain."""


def find_model(name: str, models: Sequence[ModelFacts] = MODELS) -> ModelFacts | None:
    """The facts of a model by its name as NVML, DCGM, a node label or HAMi spells it; None for an unknown one."""
    words = set(split_words(name))
    return next((facts for facts in models if words.issuperset(facts.words)), None)


def split_words(name: str) -> list[str]:
    """`Tesla V100-SXM2-32GB`, `NVIDIA-A100-80GB-PCIe` and `NVIDIA A100 80GB PCIe` are split in the same way."""
    return re.split(r"[\s_-]+", name.upper())


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
