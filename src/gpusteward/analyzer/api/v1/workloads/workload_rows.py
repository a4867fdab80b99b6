"""The row of a workload in the API, and the rows of one result as a list."""

from dataclasses import dataclass, replace

import numpy as np

from gpusteward.analyzer.api.http.responses import format_utc
from gpusteward.analyzer.api.result_store import PublishedResult
from gpusteward.analyzer.api.v1.listing import Listing, TextColumn, filter_codes, filter_groups, known_value
from gpusteward.analyzer.api.v1.workloads.snooze_state import ActiveSnoozes
from gpusteward.analyzer.api.v1.workloads.workload_facts import WorkloadFacts
from gpusteward.analyzer.judge.gpu_fraction import GPU_DIGITS
from gpusteward.analyzer.judge.resumption import Resumption
from gpusteward.analyzer.judge.workloads import WorkloadTable
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import ACTIVITIES, PROOFS, SIGNATURES, STATES, STEPS, Column
from gpusteward.core.api_rows import (
    ChanceOfWork,
    ResumptionChances,
    Workload,
)
from gpusteward.core.containers import WorkloadKey

LISTING = "workloads"


def show_resumption(found: Resumption | None) -> ResumptionChances | None:
    if found is None:
        return None
    chances = (found.within_30_minutes, found.within_2_hours, found.until_morning)
    return ResumptionChances(
        *(
            ChanceOfWork(None if each.probability is None else round(each.probability, 3), each.spells, each.of)
            for each in chances
        )
    )


class WorkloadView:
    """The workloads of one result as a list. `row` knows no snoozes: `SnoozedView` adds them."""

    def __init__(self, result: Result) -> None:
        self._result, self._table = result, result.workloads
        self._facts = WorkloadFacts(result)
        self.listing = _make_listing(result, self._facts)

    def row(self, number: int) -> Workload:
        table = self._table
        key = table.keys[number]
        facts, nodes = self._facts, self._facts.nodes(number)
        owner = table.find_owner(number)
        return Workload(
            cluster=key.cluster,
            kind=key.kind,
            namespace=key.namespace,
            name=key.name,
            score=known_value(table.score, number, digits=1),
            state=STATES[table.state[number]].value,
            activity=ACTIVITIES[table.activity[number]].value,
            signature=SIGNATURES[table.signature[number]].value,
            highest_step=STEPS[table.step[number]].value,
            proof=PROOFS[table.proof[number]].value,
            gpus=round(float(table.gpus[number]), GPU_DIGITS),
            idle_gpus=round(float(table.idle_gpus[number]), GPU_DIGITS),
            unknown_gpus=round(float(table.unknown_gpus[number]), GPU_DIGITS),
            idle_since=format_utc(float(table.idle_since[number])),
            allocations=int(table.allocations[number]),
            idle_allocations=int(table.idle_allocations[number]),
            unknown_allocations=int(table.unknown_allocations[number]),
            users=facts.users(number).shown,
            models=facts.models(number).shown,
            nodes=nodes.shown,
            nodes_total=nodes.total,
            currency=facts.currency,
            cost_micros_per_hour=_micros(facts.cost_per_hour, number),
            idle_cost_micros_per_hour=_micros(facts.idle_cost_per_hour, number),
            idle_cost_micros=_micros(facts.idle_cost, number),
            owner_evidence=owner.evidence.value,
            owner_uid=owner.uid,
            resumption=show_resumption(self._result.estimate_resumption(number)),
            snoozed_until=None,
        )

    def sum_idle_cost(self) -> int | None:
        """Per hour, of all workloads whose idle GPUs have a price."""
        known = self._facts.idle_cost_per_hour[~np.isnan(self._facts.idle_cost_per_hour)]
        return round(float(known.sum())) if len(known) else None


@dataclass(frozen=True, slots=True)
class SnoozedView:
    """The workloads of one result with their snoozes."""

    view: WorkloadView
    snoozes: ActiveSnoozes

    @property
    def listing(self) -> Listing:
        return self.view.listing

    def row(self, number: int) -> Workload:
        row = self.view.row(number)
        until = self.snoozes.find_end(WorkloadKey(row.kind, row.namespace, row.name, row.cluster))
        return row if until is None else replace(row, snoozed_until=format_utc(until))


def _micros(column: Column, number: int) -> int | None:
    amount = known_value(column, number, digits=0)
    return None if amount is None else int(amount)


def _make_listing(result: Result, facts: WorkloadFacts) -> Listing:
    table, allocations = result.workloads, result.verdicts.usage.allocations
    kind, namespace, name, cluster = (_part_of_key(table, part) for part in range(4))
    node = TextColumn(lambda: [one.node for one in allocations])
    model = TextColumn(lambda: [one.model for one in allocations])
    size = len(table)
    return Listing(
        size,
        tie_breakers=("-idle_gpus", "idle_since"),  # the most idle GPUs first, then the longest idle
        sorts={
            "idle_gpus": lambda: table.idle_gpus,
            "gpus": lambda: table.gpus,
            "score": lambda: table.score,
            "idle_since": lambda: table.idle_since,
            "namespace": namespace.sort,
            "name": name.sort,
            "kind": kind.sort,
            "idle_cost": lambda: facts.idle_cost,
            "idle_cost_per_hour": lambda: facts.idle_cost_per_hour,
        },
        filters={
            "namespace": namespace.is_any_of,
            "kind": kind.is_any_of,
            "cluster": cluster.is_any_of,
            "state": filter_codes(table.state, STATES),
            "activity": filter_codes(table.activity, ACTIVITIES),
            "signature": filter_codes(table.signature, SIGNATURES),
            "proof": filter_codes(table.proof, PROOFS),
            "node": filter_groups(node.is_any_of, table.codes, size=size),
            "model": filter_groups(model.is_any_of, table.codes, size=size),
            "q": TextColumn(lambda: [f"{key.cluster} {key.path}" for key in table.keys]).contains_all,
        },
    )


def _part_of_key(table: WorkloadTable, part: int) -> TextColumn:
    return TextColumn(lambda: [key[part] for key in table.keys])


def view_workloads(published: PublishedResult) -> WorkloadView:
    return published.once(LISTING, WorkloadView)
