"""The fraction of a GPU that each allocation holds: the unit of every number of GPUs.

The fractions of one device never sum to more than 1.
"""

import re

import numpy as np

from gpusteward.analyzer.judge.allocation_columns import encode
from gpusteward.analyzer.judge.gpu_models import MIB, find_model, read_capacity
from gpusteward.analyzer.judge.valid_values import first_known
from gpusteward.analyzer.tables import Column, UsageTable, repeat_value
from gpusteward.core.usages import AllocationKey, Measure

GPU_DIGITS = 6  # of numbers of GPUs: fractions such as 1/7 must still add up
SMALLEST_INSTANCE = 1 / 7
"""The fraction of a MIG instance of unknown size: no GPU has more than seven instances."""
_PROFILE = re.compile(r"\b[1-7]g\.(\d+)gb\b", re.IGNORECASE)
_NOMINAL_GIB = 1024 * MIB


def compute_gpu_fractions(table: UsageTable) -> Column:
    """1 for a whole GPU, its share of the board's memory for a MIG instance; divided equally if several allocations
    share the device."""
    allocations = table.allocations
    uuids = {one.gpu_uuid for one in allocations if one.gpu_uuid and not one.gpu_instance}
    if len(uuids) == len(allocations):  # each certainly has a device of its own: the common case, and quickly found
        return repeat_value(1.0, len(allocations))
    names = [f"{one.cluster}/{one.gpu_uuid or f'{one.node}/{one.gpu_index}'}" for one in allocations]
    devices = encode(names).codes
    instances = encode([f"{device}/{one.gpu_instance}" for device, one in zip(devices, allocations, strict=True)]).codes
    sharing = np.bincount(instances, minlength=1)[instances]
    fractions = _sizes(table) / sharing
    device_sums = np.bincount(devices, weights=fractions, minlength=1)[devices]
    return fractions / np.maximum(device_sums, 1.0)


def _sizes(table: UsageTable) -> Column:
    """The size of the GPU or MIG instance of each row, as a fraction of the board."""
    sizes = np.ones(len(table))
    rows = [row for row, one in enumerate(table.allocations) if one.gpu_instance]
    if rows:
        instances = [table.allocations[row] for row in rows]
        boards = {model: _board_bytes(model) for model in {one.model for one in instances}}
        board = np.array([boards[one.model] for one in instances])
        nominal = np.array([_profile_bytes(one) for one in instances])
        known = first_known(nominal, read_capacity(table, Measure.MEMORY_TOTAL)[rows]) / board
        sizes[rows] = np.where(np.isnan(known), SMALLEST_INSTANCE, np.clip(known, 0.0, 1.0))
    return sizes


def _board_bytes(model: str) -> float:
    facts = find_model(_PROFILE.sub("", model).replace("MIG", ""))
    return np.nan if facts is None else facts.memory_mib * MIB


def _profile_bytes(allocation: AllocationKey) -> float:
    """Some exporters name the profile in the model: `NVIDIA A100-SXM4-80GB MIG 1g.10gb`."""
    found = _PROFILE.search(allocation.model)
    return float(found[1]) * _NOMINAL_GIB if found else np.nan
