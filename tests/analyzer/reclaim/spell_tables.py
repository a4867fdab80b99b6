"""Spell tables for tests."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpusteward.analyzer.spell_table import HeldTable, SpellTable
from gpusteward.core.idle_spells import SpellEnd
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.verdicts import Proof, Signature
from tests.analyzer.spells import IdleSpell, make_spell_table

NOTEBOOK = WorkloadKey("Notebook", "team", "nb")
POOL = WorkloadKey("Deployment", "team", "llm")
HOUR = 3600.0


def spell(
    started: float,
    ended: float | None,
    by: SpellEnd | None = SpellEnd.WORK,
    *,
    key: WorkloadKey = NOTEBOOK,
    allocation: int = 1,
    pod: str = "",
    proof: Proof = Proof.INTEGRATED,
    signature: Signature = Signature.PARKED,
) -> IdleSpell:
    """Times in hours."""
    return IdleSpell(
        workload=key,
        allocation_id=allocation,
        started_at=started * HOUR,
        ended_at=None if ended is None else ended * HOUR,
        proof=proof,
        signature=signature,
        ended_by=None if ended is None else by,
        gpus=1.0,
        model="H100",
        pod=pod or f"pod-{allocation}",
    )


def table_of(
    spells: Sequence[IdleSpell],
    *,
    at: float,
    began: float = 0.0,
    held: Sequence[tuple[WorkloadKey, int, str]] = (),
    ended: dict[int, float] | None = None,
) -> SpellTable:
    """All allocations are held from `began` on, those of `ended` until then; `held`: allocations without a spell."""
    table = make_spell_table(spells, at=at * HOUR)
    workloads, pods = list(table.workloads), list(table.pods)
    rows = {each.allocation_id: (each.workload, each.allocation_id, each.pod) for each in spells}
    rows |= {each[1]: each for each in held}
    for key, _, pod in rows.values():
        if key not in workloads:
            workloads.append(key)
        if pod not in pods:
            pods.append(pod)
    return replace(
        table,
        workloads=workloads,
        pods=pods,
        held=HeldTable(
            workload=np.array([workloads.index(key) for key, _, _ in rows.values()], np.intp),
            pod=np.array([pods.index(pod) for _, _, pod in rows.values()], np.intp),
            allocation_id=np.array(list(rows), np.int64),
            began_at=np.full(len(rows), began * HOUR),
            ended_at=np.array([(ended or {}).get(each, np.inf) * HOUR for each in rows]),
            gpus=np.ones(len(rows)),
        ),
    )
