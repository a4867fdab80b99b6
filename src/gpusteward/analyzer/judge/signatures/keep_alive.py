"""Keep-alive: artificial load that keeps a GPU occupied. Its settings, and its proof at any level.

Such scripts are renamed, take fake arguments and use kernels of every type, so neither name nor level nor kernel tells.
What they share does: the level is constant over half a day and a night, memory is constant, there is one process, and
nothing goes in or out: no requests, no traffic over PCIe or NVLink, no bytes on disks and the network. The last needs
the counters of the host. Without them nobody is accused at a level that real work has.
"""

from datetime import datetime, time, timedelta
from fnmatch import fnmatchcase
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.activity import ActivityRule
from gpusteward.analyzer.judge.allocation_columns import Mask, find_owners
from gpusteward.analyzer.judge.signatures.evidence import Evidence, HeldLevel
from gpusteward.analyzer.judge.signatures.stalled import StalledRule, find_highest_watts, shows_traffic
from gpusteward.analyzer.judge.valid_values import first_known
from gpusteward.analyzer.setting_values import read_zone
from gpusteward.analyzer.tables import Column
from gpusteward.core.usages import Measure, Stat

NIGHT_BEGINS, NIGHT_ENDS = time(22), time(8)
DAY_SECONDS = 86_400.0


class KeepAliveRule(BaseModel):
    """Artificial load against reclaim: flat, low, without memory traffic, and constant for a long time.

    This blames a user, so the required evidence is strong and the action is never more than a notice. Public scripts
    of this kind hold 10 to 100 % of a GPU. Up to 45 % it is suspected by what a GPU shows; at any level it is proven by
    what all of them share, with the host as a witness.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    lowest_ratio: ClassVar[float] = 0.015
    """Mean core utilization below which it is never keep-alive: at 1 % the memory traffic of real work rounds to the
    same whole per cent as none."""
    highest_ratio: ClassVar[float] = 0.45
    """Mean core utilization up to which it is low."""
    spread_ratio: ClassVar[float] = 0.01
    """Standard deviation up to which it is flat: one step of NVML's whole per cents."""
    rise_ratio: ClassVar[float] = 0.02
    """How far the peak may be above the mean, and the mean from where it was: two such steps."""
    copy_to_core_ratio: ClassVar[float] = 0.05
    """Memory traffic over core utilization up to which there is no memory traffic. A loop over one small matrix stays
    in caches; a server under a low, even load reads its weights: about half. A guess between the two."""
    memory_swing_ratio: ClassVar[float] = 0.01
    """Part of its memory that may vary. Such a loop allocates once."""
    least_seconds: float = Field(
        default=1800,
        ge=0,
        description="How long all of this must hold without a break. A burst of requests is flat for a minute or two, "
        "an even load for a quarter of an hour; there is no hurry to accuse.",
    )
    least_samples: ClassVar[float] = 8
    """Samples a window needs, where they are counted: few samples may be equal by chance."""
    constant_seconds: float = Field(
        default=43200,
        ge=0,
        description="For proof at any level: how long level, power and memory must be constant without a break. Real "
        "work has an end, an evaluation or a checkpoint within half a day.",
    )
    night_seconds: float = Field(
        default=21600,
        ge=0,
        description="How much of that time must be between 22:00 and 08:00 (notify.time_zone), when people sleep.",
    )
    host_seconds: float = Field(
        default=90000,
        ge=3600,
        description="Over which time disk and network of its pods must have been still. 25 hours: a job may write "
        "once a day.",
    )
    still_disk_bytes: float = Field(
        default=1 << 20,
        ge=0,
        description="Bytes that a pod may read and write on disks in that time. Such a script reads its libraries when "
        "it starts, and nothing afterwards; a result of a day is more. A guess between the two.",
    )
    still_network_bytes_per_second: float = Field(
        default=200,
        ge=0,
        description="Network bytes of a pod up to this are probes and heartbeats. A guess.",
    )
    exempt_namespaces: tuple[str, ...] = Field(
        default=(), description="Never keep-alive: burn-in and acceptance tests. Names, or patterns such as burn-in-*."
    )
    exempt_nodes: tuple[str, ...] = Field(default=(), description="The same by the name of the node.")
    level_ratio: ClassVar[float] = 0.02
    """How far the mean of a window may be from the level: two steps of NVML. A checkpoint of 15 s in ten minutes is
    more."""
    full_ratio: ClassVar[float] = 0.995
    """Core utilization that NVML rounds to 100 %: in every sample, that may be one kernel."""
    power_ratio: ClassVar[float] = 0.05
    """The same of its power. The temperature of a day changes the power of a constant load by less."""


def find_held_level(evidence: Evidence, rule: KeepAliveRule, *, time_zone: str) -> HeldLevel:
    """A level is held on if this window overlaps the last one and is near the level where it began; else it begins with
    this window."""
    table, past = evidence.table, evidence.past
    is_constant = _is_constant(evidence, rule)
    if not is_constant.any():
        nothing = np.full(len(table), np.nan)
        return HeldLevel(nothing, nothing, nothing, is_constant, is_constant)
    begins = np.fmax(table.at - table.window_seconds, table.started_at)
    level, watts = evidence.stat(Measure.CORE, Stat.MEAN), evidence.stat(Measure.POWER, Stat.MEAN)
    is_near = np.abs(level - past.constant_ratio) <= rule.level_ratio
    is_near &= np.abs(watts - past.constant_watts) <= rule.power_ratio * past.constant_watts
    continues = (past.seen_at >= begins) & is_near & ~(evidence.growth.grew_at > past.constant_since)
    since = np.where(is_constant, np.where(continues, past.constant_since, begins), np.nan)
    is_proven = _is_long(since, table.at, rule, time_zone=time_zone) & _is_still_on_host(evidence, rule)
    is_proven &= ~is_exempt(evidence, is_proven, rule)
    return HeldLevel(
        since,
        np.where(is_constant, np.where(continues, past.constant_ratio, level), np.nan),
        np.where(is_constant, np.where(continues, past.constant_watts, watts), np.nan),
        is_proven,
        _may_hang(evidence, is_proven, rule),
    )


def _is_constant(evidence: Evidence, rule: KeepAliveRule) -> Mask:
    """One window: one process at work, constant memory, and nothing goes in or out of the GPU. All must be known."""
    held, used = evidence.memory_held_bytes, evidence.stat(Measure.MEMORY_USED, Stat.MEAN)
    is_alone = (evidence.stat(Measure.PROCESSES, Stat.PEAK) == 1) & ~evidence.has_other_processes
    is_seen = (evidence.table.coverage >= ActivityRule().coverage) & ~(evidence.samples < rule.least_samples)
    serves = ~np.isnan(evidence.stat(Measure.RUNNING, Stat.LOWEST))
    moves = shows_traffic(evidence) | evidence.uses_video | serves
    works = evidence.columns.is_whole & (evidence.stat(Measure.CORE, Stat.MEAN) >= rule.lowest_ratio)
    is_constant: Mask = held - used <= rule.memory_swing_ratio * held
    found: Mask = works & is_alone & is_seen & is_constant & ~moves
    return found


def _may_hang(evidence: Evidence, is_proven: Mask, rule: KeepAliveRule) -> Mask:
    """A kernel runs in every sample, and nothing shows that it computes: power at the level of a GPU that waits, no
    Tensor Cores, no memory traffic. Of one GPU nothing tells a kernel that never ends from a small one. The GPUs of a
    workload with several may be ranks that wait for each other, or for a request."""
    if not is_proven.any():
        return is_proven
    mean, spread = evidence.stat(Measure.CORE, Stat.MEAN), evidence.stat(Measure.CORE, Stat.SPREAD)
    lowest = mean - spread * np.sqrt(np.fmax(evidence.samples - 1, 0))
    draws_more = evidence.stat(Measure.POWER, Stat.MEAN) > find_highest_watts(evidence)
    moves = first_known(*(evidence.stat(each, Stat.MEAN) for each in (Measure.DRAM, Measure.MEMORY_COPY)))
    computes = evidence.stat(Measure.TENSOR, Stat.PEAK) > StalledRule.tensor_ratio
    allocations = evidence.table.allocations
    _, codes = find_owners([each.container for each in allocations])
    gpus = {(code, one.gpu_uuid) for code, one in zip(codes.tolist(), allocations, strict=True)}
    has_others = np.bincount([code for code, _ in gpus])[codes] > 1
    least = np.where(has_others, StalledRule.lowest_ratio, rule.full_ratio)
    return is_proven & (lowest >= least) & ~draws_more & ~(moves >= ActivityRule.dram_floor_ratio) & ~computes


def _is_long(since: Column, at: float, rule: KeepAliveRule, *, time_zone: str) -> Mask:
    is_long: Mask = at - since >= rule.constant_seconds
    for row in np.flatnonzero(is_long).tolist():
        is_long[row] = count_night_seconds(float(since[row]), at, time_zone) >= rule.night_seconds
    return is_long


def count_night_seconds(since: float, at: float, time_zone: str) -> float:
    """How much of this time is night there. More than three days are not looked at: they have enough of it."""
    zone, since = read_zone(time_zone), max(since, at - 3 * DAY_SECONDS)
    day, total = datetime.fromtimestamp(since, zone).date() - timedelta(days=1), 0.0
    while (begin := datetime.combine(day, NIGHT_BEGINS, zone).timestamp()) < at:
        day += timedelta(days=1)
        end = datetime.combine(day, NIGHT_ENDS, zone).timestamp()
        total += max(0.0, min(end, at) - max(begin, since))
    return total


def _is_still_on_host(evidence: Evidence, rule: KeepAliveRule) -> Mask:
    """A row that has stood still was read over a shorter time (`host_witnesses.py`)."""
    disk, network = (evidence.stat(each, Stat.MEAN) for each in (Measure.DISK, Measure.NETWORK))
    is_still = (disk <= rule.still_disk_bytes / rule.host_seconds) & (network <= rule.still_network_bytes_per_second)
    was_frozen = ~np.isnan(evidence.past.frozen_since)
    return is_still & ~was_frozen


def works_on_host(evidence: Evidence, rule: KeepAliveRule) -> Mask:
    """A pod of its workload is known to read or write; False where nothing is known."""
    disk, network = (evidence.stat(each, Stat.PEAK) for each in (Measure.DISK, Measure.NETWORK))
    return (disk > rule.still_disk_bytes / rule.host_seconds) | (network > rule.still_network_bytes_per_second)


def is_exempt(evidence: Evidence, rows: Mask, rule: KeepAliveRule) -> Mask:
    """Which of these rows a setting names."""
    found, allocations = np.zeros(len(rows), dtype=bool), evidence.table.allocations
    if not (rule.exempt_namespaces or rule.exempt_nodes):
        return found
    for row in np.flatnonzero(rows).tolist():
        one = allocations[row]
        found[row] = any(fnmatchcase(one.container.namespace, each) for each in rule.exempt_namespaces)
        found[row] |= any(fnmatchcase(one.node, each) for each in rule.exempt_nodes)
    return found
