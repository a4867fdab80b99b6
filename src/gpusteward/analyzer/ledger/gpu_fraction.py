"""How much of a GPU an allocation is: the parts of one device never add up to more than the device."""

import re
from collections.abc import Sequence

import numpy as np

from gpusteward.analyzer.judge.keys import encode
from gpusteward.analyzer.judge.models import MIB, find_model
from gpusteward.analyzer.tables import Column, UsageTable
from gpusteward.core.usages import AllocationKey, Measure, Stat

SMALLEST_INSTANCE = 1 / 7
"""Of an instance of which nothing is known but that it is one: no GPU has more than seven."""
_PROFILE = re.compile(r"\b[1-7]g\.(\d+)gb\b", re.IGNORECASE)
_GIB_AS_SOLD = 1024 * MIB


def compute_gpu_fractions(table: UsageTable) -> Column:
    """A whole GPU is 1, a MIG instance its part of the board's memory; holders of the same thing have equal parts."""
    allocations = table.allocations
    devices = encode([one.gpu_uuid or f"{one.node}/{one.gpu_index}" for one in allocations]).codes
    places = encode([f"{device}/{one.gpu_instance}" for device, one in zip(devices, allocations, strict=True)]).codes
    holders = np.bincount(places, minlength=1)[places]
    weights = _parts_of_boards(table) / holders
    taken = np.bincount(devices, weights=weights, minlength=1)[devices]
    return weights / np.maximum(taken, 1.0)


def _parts_of_boards(table: UsageTable) -> Column:
    parts = np.ones(len(table))
    instances = [row for row, one in enumerate(table.allocations) if one.gpu_instance]
    if instances:
        memory = _memory(table)[instances]
        boards = {one.model: _board_bytes(one.model) for one in (table.allocations[row] for row in instances)}
        parts[instances] = _parts_of_instances([table.allocations[row] for row in instances], memory, boards=boards)
    return parts


def _parts_of_instances(allocations: Sequence[AllocationKey], memory: Column, *, boards: dict[str, float]) -> Column:
    board = np.array([boards[one.model] for one in allocations])
    named = np.array([_profile_bytes(one) for one in allocations])
    parts = np.where(np.isnan(named), memory, named) / board
    return np.where(np.isnan(parts), SMALLEST_INSTANCE, np.clip(parts, 0.0, 1.0))


def _memory(table: UsageTable) -> Column:
    column = table.column(Measure.MEMORY_TOTAL, Stat.LAST)
    for stat in (Stat.PEAK, Stat.MEAN):
        column = np.where(np.isnan(column), table.column(Measure.MEMORY_TOTAL, stat), column)
    return np.where(column > 0, column, np.nan)


def _board_bytes(model: str) -> float:
    facts = find_model(_PROFILE.sub("", model).replace("MIG", ""))
    return np.nan if facts is None else facts.memory_mib * MIB


def _profile_bytes(allocation: AllocationKey) -> float:
    """`NVIDIA A100-SXM4-80GB MIG 1g.10gb`: some exporters name the profile in the model."""
    found = _PROFILE.search(allocation.model)
    return float(found[1]) * _GIB_AS_SOLD if found else np.nan
