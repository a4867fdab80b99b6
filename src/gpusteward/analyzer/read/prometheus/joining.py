"""The rows of all dialects as one table."""

from collections.abc import Iterable, Sequence

import numpy as np

from gpusteward.analyzer.read.prometheus.blocks import Block
from gpusteward.analyzer.tables import Column, UsageTable
from gpusteward.core.usages import Measure, Stat


def join_blocks(blocks: Sequence[Block], *, at: float, window_seconds: float) -> UsageTable:
    """Dialects in the order of trust: a device that one speaks of is left out of the later ones."""
    kept = list(_trust_first(blocks))
    keys = dict.fromkeys(key for block, _ in kept for key in block.stats)
    stats = {key: _concatenate([_column(block, key, rows) for block, rows in kept]) for key in keys}
    holdings = [block.holdings[row] for block, rows in kept for row in rows]
    coverage = _concatenate([block.coverage[rows] for block, rows in kept])
    reasons = [block.unknown.get(row, "") for block, rows in kept for row in rows]
    unknown = {row: reason for row, reason in enumerate(reasons) if reason}
    return UsageTable(at, window_seconds, holdings, stats, coverage, unknown)


def _trust_first(blocks: Iterable[Block]) -> Iterable[tuple[Block, list[int]]]:
    told: set[str] = set()
    for block in blocks:
        yield block, [row for row, device in enumerate(block.devices) if device not in told]
        told.update(block.devices)


def _column(block: Block, key: tuple[Measure, Stat], rows: list[int]) -> Column:
    column = block.stats.get(key)
    if column is None:
        return np.full(len(rows), np.nan)
    return column if len(rows) == len(column) else column[rows]  # whole: no copy


def _concatenate(columns: Sequence[Column]) -> Column:
    return columns[0] if len(columns) == 1 else np.concatenate((np.empty(0), *columns))
