"""Stalled: busy, and does nothing. A server whose requests stand still, or a gang whose GPUs wait for each other.

The idea: a kernel that waits shows the same utilization as one that computes, so utilization proves nothing here. What
tells them apart is what work cannot do without: power, memory traffic, SMs, links, the host. Each of them has its own
way to mislead (counters that read 0 after a fault, small kernels, models in caches), so two must agree, none may
contradict, and all of it must last longer than every watchdog.

- **Frozen server**: requests run in every sample, and no token comes. A long prefill has no tokens either, but draws
  power.
- **Frozen gang**: at least two whole GPUs. Each spins or is silent, none works, no pod reads or writes. One GPU alone
  is never enough: nothing tells its waiting kernel from a small one.

The ranks of a server that nobody asks wait in the same way, for rank 0 to send them something. Nobody is stuck: where
its counters prove that there was no request, it is `no-requests`, and without them nothing is said.

What must never be called stalled has a test each in `tests/analyzer/judge/test_stalled.py`. Processor time of the host
is no witness: threads that wait for a GPU turn at 100 %, and those of a healthy job may use less than 2 %.
"""

from typing import ClassVar, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.activity import ActivityRule
from gpusteward.analyzer.judge.allocation_columns import Mask, find_owners
from gpusteward.analyzer.judge.signatures.evidence import Evidence, Freeze
from gpusteward.analyzer.judge.signatures.loaded_idle import LoadedIdle
from gpusteward.analyzer.judge.valid_values import first_known
from gpusteward.analyzer.tables import Column
from gpusteward.core.kinds import BATCH, find_kind
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity

_PEOPLE_WAIT = ("Notebook",)
"""Kinds that neither run through nor serve. Not a bare pod or a RayCluster: they may serve."""


LEAST_BUSY_RATIO = 0.5
"""Of the time, by core utilization: a kernel that never ends."""


class StalledRule(BaseModel):
    """Busy without doing anything. This blames nobody, but it says that somebody's job is dead: the evidence must be
    strong, and the action is never more than a notice."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    witnessed_seconds: float = Field(
        default=1800,
        ge=0,
        description="How long it must last where disk and network of all its pods are measured and still. Watchdogs of "
        "PyTorch and of servers end a hang after 5 to 30 minutes: what lasts longer, none will end.",
    )
    unwitnessed_seconds: float = Field(
        default=7200,
        ge=0,
        description="The same where they are not measured: downloads of models and preparations of data sets take up "
        "to 90 minutes, while other GPUs wait in a barrier.",
    )
    uses_memory_copy: bool = Field(
        default=True,
        description="Whether a memory copy utilization of 0 in every sample is one of the two signs that a gang needs. "
        "Inferred from how the kernels work: no published nvidia-smi output of a stuck GPU shows this value.",
    )
    spinning_power_ratio: float = Field(
        default=0.1,
        gt=0,
        le=1,
        description="A GPU that waits in a kernel draws at most its loaded idle power plus this part of what is left "
        "up to its power limit. Published values are 10 to 40 W above loaded idle: 1 to 7 % of it.",
    )
    still_disk_bytes_per_second: float = Field(
        default=1024,
        ge=0,
        description="Disk bytes of a pod up to this are none: the log of a heartbeat or of a system monitor. One "
        "checkpoint of 2 MB in half an hour is more. A guess between the two.",
    )
    still_network_bytes_per_second: float = Field(
        default=20_000,
        ge=0,
        description="The same of the network: scrapes of metrics (100 kB every 15 s are 7 kB/s), heartbeats of a "
        "rendezvous or of Ray, the socket of a notebook. A data set that is streamed is hundreds of times more. A "
        "guess between the two.",
    )
    lowest_ratio: ClassVar[float] = 0.95
    """Core utilization of a waiting kernel in every sample. It runs all the time; a reading may be cut at the edges."""
    spread_ratio: ClassVar[float] = 0.01
    """Standard deviation of it: 2 points from the lowest sample to the highest are at most this."""
    least_samples: ClassVar[float] = 8
    """Samples a window needs: few may be equal by chance."""
    least_spinning_watts: ClassVar[float] = 20
    """By which the level is above loaded idle at least: 10 % of what a small GPU has left is less than it varies."""
    flat_power_ratio: ClassVar[float] = 0.03
    """Part of the power limit by which power may vary: in a window, and between windows."""
    sm_active_ratio: ClassVar[float] = 0.25
    """SM activity below which few SMs have a kernel. NCCL takes one per channel: 16 of 108 on an A100, 16 to 32 of 132
    on an H100."""
    tensor_ratio: ClassVar[float] = 0.001
    """Tensor activity up to which there is none: the mark of DLRover."""
    engine_ratio: ClassVar[float] = 0.5
    """Engine activity below which profiling is broken on a GPU that always runs a kernel: after an XID all its fields
    can read 0 while the GPU works (NVIDIA/DCGM issue 303)."""
    memory_swing_ratio: ClassVar[float] = 0.01
    """Part of its memory that may vary."""


def find_spinning_watts(evidence: Evidence, loaded_idle: LoadedIdle, rule: StalledRule) -> Column:
    """The highest power of a GPU that waits; NaN where its loaded idle power is not known. Where a freeze goes on, it
    is at least the power at which it began: what varies about the level would begin anew in every other window."""
    idle, limit = loaded_idle.find_watts(evidence.columns), evidence.capacities.power_limit_watts
    level = idle + np.fmax(rule.spinning_power_ratio * (limit - idle), rule.least_spinning_watts)
    own = evidence.past.frozen_watts + rule.flat_power_ratio * limit
    may_go_on = (evidence.past.seen_at >= _begins(evidence)) & (own > level)
    return np.where(may_go_on, own, level)


def learn_loaded_idle(evidence: Evidence, known: LoadedIdle, *, nothing_bytes: float) -> LoadedIdle:
    return known.learn(
        evidence.columns,
        watts=evidence.stat(Measure.POWER, Stat.MEAN),
        hertz=first_known(*(evidence.stat(Measure.SM_CLOCK, each) for each in (Stat.MEAN, Stat.LAST))),
        is_loaded_idle=evidence.has(Activity.IDLE) & (evidence.memory_held_bytes > nothing_bytes),
        is_busy=evidence.activities.worked & (evidence.stat(Measure.CORE, Stat.MEAN) > 0.5),
    )


def find_freeze(evidence: Evidence, rule: StalledRule, *, nothing_bytes: float) -> Freeze:
    """A freeze continues if this window overlaps the last one, at the same power where that is known; else it begins
    with this window."""
    gang, is_server = _find_gangs(evidence, rule, nothing_bytes), _is_frozen_server(evidence)
    is_frozen, table, past = gang.is_frozen | is_server, evidence.table, evidence.past
    if not is_frozen.any():
        nothing = np.full(len(table), np.nan)
        return Freeze(nothing, nothing, is_frozen)
    begins, watts = _begins(evidence), _mean_watts(evidence)
    swing = rule.flat_power_ratio * evidence.capacities.power_limit_watts
    is_same = is_server | ~(np.abs(watts - past.frozen_watts) > swing)
    continues = (past.seen_at >= begins) & (past.frozen_since > 0) & is_same
    since = np.where(is_frozen, np.where(continues, past.frozen_since, begins), np.nan)
    _, works = _find_host_use(evidence, rule)
    since = np.where(gang.is_frozen & works, table.at, since)  # a gang that waits for its host stands still from now on
    first = np.where(is_frozen, np.where(continues, first_known(past.frozen_watts, watts), watts), np.nan)
    for rows in gang.members:  # all of it stands still since the last of them does
        since[rows] = np.where(is_server[rows], since[rows], since[rows].max())
    return Freeze(since, first, is_server | gang.is_spinning)


def is_stalled(evidence: Evidence, rule: StalledRule) -> Mask:
    """Of a gang the GPUs that spin; those that are silent are idle. A server is never still on the network, as its
    clients ask again: there it only decides how long."""
    lasts = evidence.table.at - evidence.freeze.since
    is_still, works = _find_host_use(evidence, rule)
    is_long = lasts >= np.where(is_still, rule.witnessed_seconds, rule.unwitnessed_seconds)
    may_be = _is_frozen_server(evidence) | ~works
    return evidence.activities.worked & evidence.freeze.is_busy & is_long & may_be & ~evidence.is_silent


def waits_for_requests(evidence: Evidence, rule: StalledRule) -> Mask:
    """Ranks of a server that had no request: each of its GPUs spins or does nothing."""
    _, works = _find_host_use(evidence, rule)
    return evidence.activities.worked & evidence.freeze.is_busy & evidence.is_silent & ~works


def _begins(evidence: Evidence) -> Column:
    """The window of each row, and not before its pod."""
    return np.fmax(evidence.table.at - evidence.table.window_seconds, evidence.table.started_at)


class _Gangs(NamedTuple):
    is_frozen: Mask
    is_spinning: Mask  # the members that run a kernel
    members: list[list[int]]  # rows of each


def _find_gangs(evidence: Evidence, rule: StalledRule, nothing_bytes: float) -> _Gangs:
    """Workloads of which every row spins or is silent. Only those with a row that spins are looked at: few."""
    spins = _spins(evidence, rule, nothing_bytes)
    gangs = _Gangs(np.zeros(len(spins), dtype=bool), np.zeros(len(spins), dtype=bool), [])
    if not spins.any():
        return gangs
    allocations = evidence.table.allocations
    is_silent = evidence.has(Activity.IDLE) | evidence.activities.paused
    is_member = (spins | is_silent) & evidence.columns.is_whole & _may_be_gang(evidence)
    _, codes = find_owners([each.container for each in allocations])
    has_others = np.zeros(int(codes.max()) + 1, dtype=bool)
    has_others[codes[~is_member]] = True
    spinning = np.bincount(codes, weights=spins, minlength=len(has_others))
    for code in np.flatnonzero((spinning > 0) & ~has_others).tolist():
        rows = np.flatnonzero(codes == code)
        if len({allocations[row].gpu_uuid for row in rows.tolist()}) >= 2:
            gangs.is_frozen[rows] = True
            gangs.members.append(rows.tolist())
    return gangs._replace(is_spinning=gangs.is_frozen & spins)


def _may_be_gang(evidence: Evidence) -> Mask:
    """Not a kind that serves: ranks of an idle server spin, too. Where requests are counted, the counters decide."""
    is_counted = ~np.isnan(evidence.stat(Measure.RUNNING, Stat.LOWEST))
    return (evidence.columns.owner_kinds.where(_runs_ranks) & ~is_counted) | evidence.is_silent


def _runs_ranks(kind: str) -> bool:
    return find_kind(kind).use is BATCH or kind.endswith("Job") or kind in _PEOPLE_WAIT


def _spins(evidence: Evidence, rule: StalledRule, nothing_bytes: float) -> Mask:
    """A kernel runs in every sample, at least two signs say that it waits, and none that it works."""
    mean, spread = evidence.stat(Measure.CORE, Stat.MEAN), evidence.stat(Measure.CORE, Stat.SPREAD)
    lowest = mean - spread * np.sqrt(evidence.samples - 1)  # no sample is below
    is_busy = (lowest >= rule.lowest_ratio) & (spread <= rule.spread_ratio) & (evidence.samples >= rule.least_samples)
    is_busy &= evidence.columns.is_whole & (evidence.table.coverage >= ActivityRule().coverage)
    held, used = evidence.memory_held_bytes, evidence.stat(Measure.MEMORY_USED, Stat.MEAN)
    is_constant = held - used <= rule.memory_swing_ratio * held
    # After a collective was killed, a GPU can read 100 % until it is reset: without a process that is nobody's.
    is_constant &= (held > nothing_bytes) & ~(evidence.processes == 0)
    if not (is_busy & is_constant).any():
        return is_busy & is_constant
    at_level, is_above = _compare_power(evidence, is_busy, rule)
    engine, sm = evidence.stat(Measure.ENGINE, Stat.MEAN), evidence.stat(Measure.SM_ACTIVE, Stat.PEAK)
    is_alive = (engine >= rule.engine_ratio) | (sm > 0) | at_level  # profiling, by itself or by power that agrees
    is_alive &= ~(engine < rule.engine_ratio)
    dram, tensor = evidence.stat(Measure.DRAM, Stat.PEAK), evidence.stat(Measure.TENSOR, Stat.PEAK)
    copy = evidence.stat(Measure.MEMORY_COPY, Stat.PEAK)
    has_no_copies = np.isnan(dram) & (copy == 0) & rule.uses_memory_copy
    has_no_traffic = (evidence.past.traffic_at > 0) & ~shows_traffic(evidence)
    signs = (
        at_level,
        has_no_copies | ((dram < ActivityRule.dram_floor_ratio) & is_alive),
        (sm < rule.sm_active_ratio) & (tensor <= rule.tensor_ratio) & is_alive,
        has_no_traffic & is_alive,
    )
    works = (
        is_above
        | (tensor > rule.tensor_ratio)
        | (dram >= ActivityRule.dram_floor_ratio)
        | (np.isnan(dram) & (copy > 0))
        | shows_traffic(evidence)
        | evidence.uses_video
    )
    waits: Mask = np.add.reduce(signs, dtype=np.int8) >= 2
    return is_busy & is_constant & ~works & waits


def shows_traffic(evidence: Evidence) -> Mask:
    """Over NVLink or PCIe. Sources report what is above their floor only: absent is either none or not measured, and
    that it was measured on this GPU before tells which."""
    return (evidence.stat(Measure.NVLINK, Stat.PEAK) > ActivityRule.nvlink_floor_bytes_per_second) | (
        evidence.stat(Measure.PCIE, Stat.PEAK) > ActivityRule.pcie_floor_bytes_per_second
    )


def _compare_power(evidence: Evidence, is_busy: Mask, rule: StalledRule) -> tuple[Mask, Mask]:
    """Which rows draw, evenly, what a GPU that waits draws; and which draw more.

    The level is that of a cool board, and boards of one model differ by a tenth. In a collective all of them run the
    same kernel, so their mean must be at the level, and a hot one may be above it by as much as power varies.
    """
    limit, mean = evidence.capacities.power_limit_watts, _mean_watts(evidence)
    swing, excess = rule.flat_power_ratio * limit, mean - evidence.spinning_watts
    is_flat = evidence.stat(Measure.POWER, Stat.PEAK) - mean <= swing
    allocations, of_gang = evidence.table.allocations, np.full(len(excess), np.nan)
    if len(rows := np.flatnonzero(is_busy & ~np.isnan(excess))):
        _, codes = find_owners([allocations[row].container for row in rows.tolist()])
        of_gang[rows] = (np.bincount(codes, weights=excess[rows]) / np.bincount(codes))[codes]
    highest = first_known(evidence.spinning_watts + swing, find_highest_watts(evidence))
    return is_flat & (excess <= swing) & (of_gang <= 0), mean > highest


def find_highest_watts(evidence: Evidence) -> Column:
    """Power above it is that of a working GPU; where the loaded idle power is not known, by the typical idle power."""
    idle, limit = evidence.capacities.idle_watts, evidence.capacities.power_limit_watts
    return first_known(evidence.spinning_watts, idle + ActivityRule.power_ratio * (limit - idle))


def _mean_watts(evidence: Evidence) -> Column:
    return np.where(evidence.columns.is_whole, evidence.stat(Measure.POWER, Stat.MEAN), np.nan)


def _is_frozen_server(evidence: Evidence) -> Mask:
    """On a MIG instance and on a shared GPU without power, which is that of others too."""
    waits = (evidence.stat(Measure.RUNNING, Stat.LOWEST) > 0) & (evidence.stat(Measure.TOKENS, Stat.COUNT) == 0)
    draws_little = evidence.stat(Measure.POWER, Stat.PEAK) <= evidence.spinning_watts
    # After its clients have gone, the gauge of an engine that has stopped stepping says for ever that requests run
    # (vLLM issue 29928). A frozen engine runs a kernel; one that nobody asks does not.
    runs_kernel = evidence.stat(Measure.CORE, Stat.MEAN) >= LEAST_BUSY_RATIO
    frozen: Mask = waits & runs_kernel & (draws_little | ~evidence.columns.is_whole)
    return frozen


def _find_host_use(evidence: Evidence, rule: StalledRule) -> tuple[Mask, Mask]:
    """Whether its pods are known to be still, and whether one is known to read or write."""
    least = {
        Measure.DISK: rule.still_disk_bytes_per_second,
        Measure.NETWORK: rule.still_network_bytes_per_second,
    }
    is_still, works = np.ones(len(evidence.table), dtype=bool), np.zeros(len(evidence.table), dtype=bool)
    for measure, limit in least.items():
        is_still &= evidence.stat(measure, Stat.MEAN) <= limit
        works |= evidence.stat(measure, Stat.PEAK) > limit
    return is_still, works
