"""The rows of all dialects as one table."""

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from gpusteward.analyzer.sources.usage.blocks import Block
from gpusteward.analyzer.tables import Column, UsageTable
from gpusteward.core.usages import Measure, Stat

Places = Collection[int]


def join_blocks(
    blocks: Sequence[Block], chosen: Sequence[list[int]], *, at: float, window_seconds: float
) -> UsageTable:
    """The chosen rows of each block."""
    kept = list(zip(blocks, chosen, strict=True))
    keys = dict.fromkeys(key for block, _ in kept for key in block.stats)
    stats = {key: _concatenate([_column(block, key, rows) for block, rows in kept]) for key in keys}
    allocations = [block.allocations[row] for block, rows in kept for row in rows]
    coverage = _concatenate([block.coverage[rows] for block, rows in kept])
    reasons = [block.unknown.get(row, "") for block, rows in kept for row in rows]
    unknown = {row: reason for row, reason in enumerate(reasons) if reason}
    return UsageTable(at, window_seconds, allocations, stats, coverage, unknown)


def choose_rows(blocks: Sequence[Block], unseen: Sequence[Places]) -> list[list[int]]:
    """Dialects in the order of trust: a device that one speaks of is left out of the later ones.

    `unseen`: rows of each block that are only awaited. They give way to whoever speaks of the device.
    """
    if len(blocks) == 1:
        return [list(range(len(blocks[0].allocations)))]
    # Who is silent does not say any more which GPU its MIG instance is of: the holding knows it from before.
    devices = [[allocation.gpu_uuid for allocation in block.allocations] for block in blocks]
    spoken_of = set(_list_spoken_of(devices, unseen)) if any(unseen) else set[str]()
    told: set[str] = set()
    chosen: list[list[int]] = []
    for mine, awaited in zip(devices, unseen, strict=True):
        left_out = {row for row in awaited if mine[row] in spoken_of}
        chosen.append([row for row, device in enumerate(mine) if device not in told and row not in left_out])
        told.update(mine[row] for row in chosen[-1])
    return chosen


def _list_spoken_of(devices: Iterable[list[str]], unseen: Iterable[Places]) -> Iterable[str]:
    for mine, awaited in zip(devices, unseen, strict=True):
        yield from (device for row, device in enumerate(mine) if row not in awaited)


def _column(block: Block, key: tuple[Measure, Stat], rows: list[int]) -> Column:
    column = block.stats.get(key)
    if column is None:
        return np.full(len(rows), np.nan)
    return column if len(rows) == len(column) else column[rows]  # whole: no copy


def _concatenate(columns: Sequence[Column]) -> Column:
    return columns[0] if len(columns) == 1 else np.concatenate((np.empty(0), *columns))
