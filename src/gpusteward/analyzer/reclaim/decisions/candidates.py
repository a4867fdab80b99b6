"""Result -> candidates: idle workloads, and pools with idle replicas, with the facts of their verdict (pure)."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gpusteward.analyzer.ledger.identities import make_allocation_id
from gpusteward.analyzer.reclaim.cluster import PodName
from gpusteward.analyzer.reclaim.decisions.facts import Facts, Pool
from gpusteward.analyzer.reclaim.decisions.sightings import Candidate
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import ACTIVITIES, PROOFS, SIGNATURES, STEPS
from gpusteward.core.containers import OwnerEvidence, Workload, WorkloadKey
from gpusteward.core.kinds import find_kind
from gpusteward.core.messages import Message
from gpusteward.core.usages import AllocationKey
from gpusteward.core.verdicts import Activity, Proof, Signature, Step


@dataclass(frozen=True, slots=True)
class CandidatePod:
    """One pod of a workload."""

    pod: PodName
    rows: tuple[int, ...]
    is_idle: bool  # proven: every allocation idle, covered, integrated, and may be reclaimed
    idle_since: float
    gpus: float


class CandidateFacts(NamedTuple):
    """One workload of a result, with its rows."""

    number: int
    workload: Workload
    facts: Facts
    rows: tuple[int, ...]
    pods: tuple[PodName, ...]
    allocations: tuple[AllocationKey, ...]
    key: WorkloadKey
    sampled_pods: frozenset[PodName]  # with an allocation whose verdict no integrating signal proves

    @property
    def sighting(self) -> Candidate:
        is_sampled = self.facts.proof is not Proof.INTEGRATED
        return Candidate(self.key, self.workload.uid, is_sampled, frozenset(self.pods), self.sampled_pods)

    @property
    def can_be_pool(self) -> bool:
        return find_kind(self.workload.kind).has_deletion_cost and len(self.pods) > 1


class CandidateFinder:
    """Reads one result."""

    def __init__(self, result: Result) -> None:
        self._result = result
        self._coverage = result.verdicts.usage.coverage
        self._least_coverage = result.workloads.find_least(self._coverage)
        self._working: dict[str, frozenset[PodName]] = {}  # pods at work, by namespaces that were asked for

    def find_all(self) -> list[int]:
        """Workloads that are idle, and possible pools with at least one idle allocation; the longest idle first."""
        table = self._result.workloads
        is_idle = table.activity == ACTIVITIES.index(Activity.IDLE)
        numbers = np.flatnonzero(is_idle).tolist()
        numbers.sort(key=lambda number: float(table.idle_since[number]))
        has_idle = np.flatnonzero(~is_idle & (table.idle_allocations > 0)).tolist()
        return numbers + [number for number in has_idle if find_kind(table.keys[number].kind).has_deletion_cost]

    def describe(self, number: int, *, now: float) -> CandidateFacts:
        """The facts of all its allocations."""
        table, result = self._result.workloads, self._result
        rows = tuple(table.rows(number).tolist())
        allocations = tuple(result.verdicts.usage.allocations[row] for row in rows)
        workload = table.find_owner(number)
        facts = Facts(
            now=now,
            workload=workload,
            activity=ACTIVITIES[table.activity[number]],
            signature=SIGNATURES[table.signature[number]],
            highest_step=STEPS[table.step[number]],
            proof=PROOFS[table.proof[number]],
            gpus=float(table.gpus[number]),
            idle_gpus=float(table.idle_gpus[number]),
            idle_since=_known(float(table.idle_since[number])),
            coverage=float(self._least_coverage[number]),
            result_at=result.at,
            cycles_seen=0,
            least_coverage=result.settings.judge.activity.coverage,
            max_age_seconds=result.settings.max_result_age_seconds,
        )
        names = [PodName(one.container.pod, one.container.pod_uid) for one in allocations]
        proofs = result.verdicts.proof[list(rows)] == PROOFS.index(Proof.INTEGRATED)
        sampled = frozenset(name for name, is_integrated in zip(names, proofs, strict=True) if not is_integrated)
        pods = tuple(dict.fromkeys(names))
        return CandidateFacts(number, workload, facts, rows, pods, allocations, table.keys[number], sampled)

    def list_replicas(self, found: CandidateFacts) -> list[CandidatePod]:
        """Its pods; the longest idle first, those that are not idle last."""
        by_pod: dict[PodName, list[int]] = {}
        for row, allocation in zip(found.rows, found.allocations, strict=True):
            pod = PodName(allocation.container.pod, allocation.container.pod_uid)
            by_pod.setdefault(pod, []).append(row)
        replicas = [self._make_replica(pod, rows) for pod, rows in by_pod.items()]
        return sorted(replicas, key=lambda one: (not one.is_idle, one.idle_since, one.pod))

    def list_working_pods(self, namespace: str) -> frozenset[PodName]:
        """Pods of all workloads that use a GPU now; without uid where it is not known."""
        if namespace not in self._working:
            verdicts = self._result.verdicts
            rows = np.flatnonzero(verdicts.activity == ACTIVITIES.index(Activity.ACTIVE)).tolist()
            containers = (verdicts.usage.allocations[row].container for row in rows)
            self._working[namespace] = frozenset(
                PodName(one.pod, one.pod_uid) for one in containers if one.namespace == namespace
            )
        return self._working[namespace]

    def limit_to(self, found: CandidateFacts, replicas: list[CandidatePod], pool: Pool) -> CandidateFacts:
        """The facts of a pool: those of these surplus replicas only."""
        if not replicas:
            return found._replace(facts=found.facts._replace(pool=pool, activity=Activity.ACTIVE))
        verdicts = self._result.verdicts
        rows = [row for one in replicas for row in one.rows]
        ranked = min((SIGNATURES[code] for code in verdicts.signature[rows]), key=lambda each: each.rank)
        facts = found.facts._replace(
            pool=pool,
            activity=Activity.IDLE,
            signature=ranked,
            highest_step=_lowest_step(ranked, [STEPS[code] for code in verdicts.step[rows]]),
            proof=PROOFS[int(np.min(verdicts.proof[rows]))],
            gpus=sum(one.gpus for one in replicas),
            idle_gpus=sum(one.gpus for one in replicas),
            idle_since=max(one.idle_since for one in replicas),
            coverage=float(np.min(self._coverage[rows])),
        )
        return found._replace(facts=facts)

    def _make_replica(self, pod: PodName, rows: list[int]) -> CandidatePod:
        verdicts, table = self._result.verdicts, self._result.workloads
        codes = verdicts.activity[rows]
        least = self._result.settings.judge.activity.coverage
        is_proven = (
            bool(np.all(codes == ACTIVITIES.index(Activity.IDLE)))
            and bool(np.all(verdicts.proof[rows] == PROOFS.index(Proof.INTEGRATED)))
            and bool(np.all(verdicts.step[rows] == STEPS.index(Step.RECLAIM)))
            and bool(np.all(self._coverage[rows] >= least))
        )
        since = float(np.max(verdicts.idle_since[rows])) if is_proven else np.inf
        gpus = float(np.sum(table.fractions[rows]))
        return CandidatePod(pod, tuple(rows), is_proven, since, gpus)


def list_roots(result: Result) -> dict[str, str]:
    """The uids of pods, each with the uid of its root owner, where that was read from the API server."""
    return {
        one.container.pod_uid: owner.uid
        for one in result.verdicts.usage.allocations
        if one.container.pod_uid and (owner := one.container.workload) is not None and is_read(owner)
    }


def is_read(owner: Workload) -> bool:
    return owner.evidence is OwnerEvidence.READ and bool(owner.uid)


def list_evidence(found: CandidateFacts, result: Result, rows: Collection[int] = ()) -> dict[str, object]:
    """What the verdict is based on, for the journal. `rows`: those that are acted on; empty: all."""
    verdict = result.workloads.verdict(found.number)
    chinese = result.workloads.verdict(found.number, language="zh").reasons
    return {
        "signature": verdict.signature.value,
        "proof": verdict.proof.value,
        "idle_since": verdict.idle_since,
        "result_at": result.at,
        "window_seconds": result.verdicts.usage.window_seconds,
        "numbers": dict(verdict.evidence),
        "reasons": [Message(en, zh) for en, zh in zip(verdict.reasons, chinese, strict=True)],
        "allocations": [
            {
                "pod": one.container.pod,
                "pod_uid": one.container.pod_uid,
                "container": one.container.name,
                "gpu": one.gpu_uuid,
                "instance": one.gpu_instance,
                "node": one.node,
                "model": one.model,
                "allocation_id": make_allocation_id(one),
            }
            for row, one in zip(found.rows, found.allocations, strict=True)
            if not rows or row in rows
        ],
    }


def _lowest_step(signature: Signature, steps: list[Step]) -> Step:
    order = tuple(Step)
    return min([signature.highest_step, *steps], key=order.index)


def _known(number: float) -> float | None:
    return None if np.isnan(number) else number
