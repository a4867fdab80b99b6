"""`python -m bench.replay`: measures a replay of 30 days of 5,000 allocations, with comparison and frontier.

Writes bench/results/replay.md. Exits with 0 whether the limit holds or not.
"""

import sys
import time
from importlib.metadata import version

import numpy as np

from bench.measure import describe_run, name_command, print_progress
from bench.report import publish, render_head, render_table
from gpusteward.analyzer.reclaim.policies.example import EXAMPLE
from gpusteward.analyzer.reclaim.policies.file import parse_policies
from gpusteward.analyzer.reclaim.policies.policy import INTERCHANGEABLE
from gpusteward.analyzer.reclaim.policies.resolve import WorkloadMetadata, resolve_policy
from gpusteward.analyzer.reclaim.replay.replay import replay
from gpusteward.analyzer.spell_table import ENDS, STILL_IDLE, HeldTable, SpellTable
from gpusteward.analyzer.tables import PROOFS, SIGNATURES
from gpusteward.core.idle_spells import SpellEnd
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.verdicts import Proof, Signature

ALLOCATIONS, DAYS, SPELLS_PER_DAY = 5_000, 30, 4
LIMIT_SECONDS = 5.0
DAY = 86_400.0
KINDS = ("Notebook", "PyTorchJob", "Deployment", "Pod")
PODS_PER_POOL = 25


def make_month(seed: int = 1) -> SpellTable:
    """Allocations of notebooks, jobs, bare pods and pools; lengths of spells as on a real trace: most are short."""
    chance = np.random.default_rng(seed)
    count = ALLOCATIONS * DAYS * SPELLS_PER_DAY
    ids = np.repeat(np.arange(ALLOCATIONS), DAYS * SPELLS_PER_DAY)
    slots = np.tile(np.arange(DAYS * SPELLS_PER_DAY), ALLOCATIONS) * (DAY / SPELLS_PER_DAY)
    seconds = np.minimum(chance.lognormal(8.0, 1.2, count) + 600, DAY / SPELLS_PER_DAY - 600)
    started = slots + chance.random(count) * (DAY / SPELLS_PER_DAY - seconds - 300)
    ended_by = np.where(chance.random(count) < 0.97, ENDS.index(SpellEnd.WORK), ENDS.index(SpellEnd.LOST))
    is_last = slots == slots.max()
    numbers = np.arange(ALLOCATIONS)
    kind_of = numbers % len(KINDS)
    name_of = np.where(kind_of == KINDS.index("Deployment"), numbers // (PODS_PER_POOL * len(KINDS)), numbers)
    keys = [WorkloadKey(KINDS[kind], "team", f"w-{name}") for kind, name in zip(kind_of, name_of, strict=True)]
    workloads = list(dict.fromkeys(keys))
    positions = {key: number for number, key in enumerate(workloads)}
    workload_of = np.array([positions[key] for key in keys], np.intp)
    at = DAYS * DAY
    return SpellTable(
        at=at,
        workloads=workloads,
        models=["NVIDIA H100 80GB HBM3"],
        pods=[f"pod-{number}" for number in numbers.tolist()],
        workload=workload_of[ids],
        model=np.zeros(count, np.intp),
        pod=ids.astype(np.intp),
        allocation_id=ids.astype(np.int64),
        started_at=started,
        ended_at=np.where(is_last, at, started + seconds),
        ended_by=np.where(is_last, STILL_IDLE, ended_by).astype(np.int8),
        proof=np.full(count, PROOFS.index(Proof.INTEGRATED), np.int8),
        signature=np.full(count, SIGNATURES.index(Signature.PARKED), np.int8),
        gpus=np.ones(count),
        held=HeldTable(
            workload=workload_of,
            pod=numbers.astype(np.intp),
            allocation_id=numbers.astype(np.int64),
            began_at=np.zeros(ALLOCATIONS),
            ended_at=np.full(ALLOCATIONS, np.inf),
            gpus=np.ones(ALLOCATIONS),
        ),
    )


def measure() -> str:
    table, file = make_month(), parse_policies(EXAMPLE, where="example")
    policies = {
        key: resolve_policy(file, WorkloadMetadata(key, annotations={INTERCHANGEABLE: "true"}))
        for key in table.workloads
    }
    print_progress(f"  {len(table):,} spells of {len(table.workloads):,} workloads")
    wall, cpu = time.perf_counter(), time.process_time()
    found = replay(table, policies.__getitem__, policies.__getitem__, since=0.0, price_of=lambda _key, _model: 2.0)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    name, result = (
        f"replay of {DAYS} days of {ALLOCATIONS:,} allocations",
        "PASS" if wall <= LIMIT_SECONDS else "MISSED",
    )
    row = (name, f"{LIMIT_SECONDS:.0f} s", f"{wall:.2f} s", f"{cpu:.2f} s", result)
    return "\n".join(
        [
            render_head("Replay", describe_run(name_command("replay"), {"libraries": {"numpy": version("numpy")}})),
            render_table(("measurement", "limit", "wall-clock time", "CPU", "result"), [row]),
            f"{len(table):,} idle spells of {len(table.workloads):,} workloads. Replayed are the policy, the present "
            f"policy, four fixed windows and eleven windows of the frontier. {found.policy.releases:,} releases, "
            f"{found.policy.regretted:,} of them regretted.\n",
        ]
    )


if __name__ == "__main__":
    sys.exit(publish("replay", measure))
