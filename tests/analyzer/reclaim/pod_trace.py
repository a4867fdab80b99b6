"""Idle spells of the inference pods of a public trace (alibaba/clusterdata, cluster-trace-v2026-GenAI)."""

import csv
import gzip
from collections import defaultdict
from collections.abc import Collection, Iterator
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import numpy as np

from gpusteward.analyzer.spell_table import HeldTable, SpellTable
from gpusteward.core.idle_spells import SpellEnd
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.verdicts import Proof, Signature
from tests.analyzer.spells import IdleSpell, make_spell_table

FOLDER = Path(__file__).resolve().parents[4] / "shared/data/pod-trace"
STEP = 57.0
LONGEST_GAP = 600.0
"""More time between two samples is a gap in the data."""
Samples = list[tuple[float, float]]


def read_trace(folder: Path = FOLDER) -> dict[str, Samples]:
    """Time and duty cycle of every pod. The value is that of the time before the sample."""
    samples: dict[str, Samples] = defaultdict(list)
    with gzip.open(folder / "gpu_duty_cycle_percent.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            samples[row["pod"]].append((float(row["timestamp"]), float(row["value"])))
    return {pod: sorted(own) for pod, own in sorted(samples.items())}


def find_spells(samples: Samples, *, at: float) -> Iterator[tuple[float, float | None, SpellEnd | None]]:
    """Start, end and what ended it."""
    begun: float | None = samples[0][0]
    for (before, _), (now, value) in pairwise(samples):
        if now - before > LONGEST_GAP:
            if begun is not None and before > begun:
                yield begun, before, SpellEnd.LOST
            begun = now
        if value > 0:
            if begun is not None and now - STEP > begun:
                yield begun, now - STEP, SpellEnd.WORK
            begun = now
    last = samples[-1][0]
    if begun is not None and last > begun:
        yield (begun, None, None) if last > at - LONGEST_GAP else (begun, last, SpellEnd.RELEASED)


def make_trace_table(
    trace: dict[str, Samples], *, kind: str, is_pool: bool, least_seconds: float = 0.0, pods: Collection[str] = ()
) -> SpellTable:
    """All pods as replicas of one owner, or each pod as a workload of its own."""
    at = max(own[-1][0] for own in trace.values())
    chosen = {pod: own for pod, own in trace.items() if not pods or pod in pods}
    keys = {pod: WorkloadKey(kind, "genai", "service" if is_pool else pod) for pod in chosen}
    spells = [
        IdleSpell(keys[pod], crc32(pod.encode()), begun, ended, Proof.INTEGRATED, Signature.PARKED, by, 1.0, "GPU", pod)
        for pod, own in chosen.items()
        for begun, ended, by in find_spells(own, at=at)
        if (at if ended is None else ended) - begun >= least_seconds
    ]
    table = make_spell_table(spells, at=at)
    numbers = {key: number for number, key in enumerate(table.workloads)}
    names = {pod: number for number, pod in enumerate(table.pods)}
    known = [pod for pod in chosen if pod in names]
    ends = [np.inf if chosen[pod][-1][0] > at - LONGEST_GAP else chosen[pod][-1][0] for pod in known]
    held = HeldTable(
        workload=np.array([numbers[keys[pod]] for pod in known], np.intp),
        pod=np.array([names[pod] for pod in known], np.intp),
        allocation_id=np.array([crc32(pod.encode()) for pod in known], np.int64),
        began_at=np.array([chosen[pod][0][0] for pod in known]),
        ended_at=np.array(ends),
        gpus=np.ones(len(known)),
    )
    from dataclasses import replace

    return replace(table, held=held)
