"""The columns of workloads: how each is read from a result, and what it is in a row and in the table of all workloads.

`core.api_rows.WorkloadRow` says what each column means; a new one is a field there and a line in `COLUMNS` here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cached_property, lru_cache
from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusteward.analyzer.api.http.responses import format_utc
from gpusteward.analyzer.api.v1.compact import Dictionary
from gpusteward.analyzer.api.v1.workloads.snoozes import ActiveSnoozes
from gpusteward.analyzer.judge.gpu_fraction import GPU_DIGITS
from gpusteward.analyzer.judge.resumption import Resumption
from gpusteward.analyzer.ledger.identities import UserLabels
from gpusteward.analyzer.reports.report import Amounts
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import (
    ACTIVITIES,
    PROOFS,
    SIGNATURES,
    STATES,
    STEPS,
    VERDICTS,
    Codes,
    Column,
    Rows,
    VerdictTable,
)
from gpusteward.core.api_rows import MOST_NAMES, About, ChanceOfWork, ResumptionChances, ServerRequests, WorkloadRow
from gpusteward.core.node.containers import EVIDENCE_ORDER, OwnerEvidence, WorkloadKey
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity

HOUR_SECONDS = 3600


class WorkloadNames(NamedTuple):
    """Who and what a workload is about: different names, sorted."""

    users: list[str]
    models: list[str]
    nodes: list[str]


class WorkloadFacts:
    """What is computed for the workloads of one result when it is first asked for. Money is in millionths."""

    def __init__(self, result: Result) -> None:
        self._result = result
        self._find_user = lru_cache(maxsize=4096)(UserLabels(result.settings.ledger.user_labels).find_user)
        self.currency = result.settings.prices.currency

    def list_names(self, numbers: Iterable[int]) -> list[WorkloadNames]:
        return [self._name(number) for number in numbers]

    def _name(self, number: int) -> WorkloadNames:
        allocations, names = self._result.verdicts.usage.allocations, (set[str](), set[str](), set[str]())
        users, models, nodes = names
        for row in self._result.workloads.rows(number).tolist():
            one = allocations[row]
            users.add(one.container.user or self._find_user(one.container.pod_labels))
            models.add(one.model)
            nodes.add(one.node)
        return WorkloadNames(*(sorted(each - {""}) for each in names))

    @cached_property
    def cost_per_hour(self) -> Column:
        """Of everything it holds. NaN if the price of a part is unknown: a partial sum would be read as the total."""
        return self._sum(self._result.cost_micros_per_hour)

    @cached_property
    def idle_cost_per_hour(self) -> Column:
        """NaN also where nothing is idle, so that idle GPUs without a price come before these in a list."""
        return self._sum_idle(self._result.cost_micros_per_hour)

    @cached_property
    def idle_cost(self) -> Column:
        """Since the workload, or else each idle GPU of it, is idle: the current idle spell."""
        result, table = self._result, self._result.workloads
        own, whole = result.verdicts.idle_since, table.idle_since[table.codes]
        hours = (result.at - np.where(np.isnan(whole), own, whole)) / HOUR_SECONDS
        return self._sum_idle(self._result.cost_micros_per_hour * np.maximum(hours, 0.0))

    @cached_property
    def owner_evidence(self) -> Codes:
        """The weakest of the pods of each workload, as an index of `EVIDENCE_ORDER`."""
        order = {evidence: number for number, evidence in enumerate(EVIDENCE_ORDER)}
        owners = (one.container.workload for one in self._result.verdicts.usage.allocations)
        known = [order[OwnerEvidence.UNKNOWN if owner is None else owner.evidence] for owner in owners]
        weakest = np.full(len(self._result.workloads), len(EVIDENCE_ORDER) - 1, dtype=np.int8)
        np.minimum.at(weakest, self._result.workloads.codes, np.array(known, dtype=np.int8))
        return weakest

    def _sum_idle(self, column: Column) -> Column:
        is_idle = np.equal(self._result.verdicts.activity, ACTIVITIES.index(Activity.IDLE))
        return np.where(self._result.workloads.idle_gpus > 0, self._sum(np.where(is_idle, column, 0.0)), np.nan)

    def _sum(self, column: Column) -> Column:
        table = self._result.workloads
        return np.bincount(table.codes, weights=column, minlength=len(table)).astype(np.float64)


class ChosenWorkloads:
    """Some workloads of a result, and all that their columns are read from."""

    def __init__(
        self,
        result: Result,
        facts: WorkloadFacts,
        numbers: Sequence[int],
        snoozes: ActiveSnoozes,
        costs: Mapping[WorkloadKey, Amounts] | None = None,
    ) -> None:
        """`costs`: of the last days; None: not known."""
        self.result, self.facts, self.numbers, self.snoozes, self.costs = result, facts, numbers, snoozes, costs
        self.table, self.chosen = result.workloads, np.array(numbers, dtype=np.intp)
        self.keys = [result.workloads.keys[number] for number in numbers]

    @cached_property
    def names(self) -> list[WorkloadNames]:
        return self.facts.list_names(self.numbers)

    def list_costs(self) -> list[int | None]:
        found = [self.costs.get(key) if self.costs else None for key in self.keys]
        return [each.idle_cost_micros if each else None for each in found]

    def list_snoozes(self) -> list[float]:
        ends = [self.snoozes.find_end(key) for key in self.keys]
        return [np.nan if end is None else float(int(end)) for end in ends]


class _Kind(NamedTuple):
    """How values are shown: one by one in rows, all together in the table."""

    in_row: Callable[[Any], object]
    in_table: Callable[[Any], list[Any]]
    table_type: Any  # None: not in the table
    words: Sequence[str] = ()  # what the codes of a column stand for, where these are always the same


def _keep(value: Any) -> Any:
    return value


def _list(values: Any) -> list[Any]:
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def _whole(column: Any) -> list[int | None]:
    return [None if value != value else int(value) for value in np.round(column).tolist()]  # noqa: PLR0124 - NaN


def _count_gpus(column: Column) -> list[float]:
    """Whole numbers without a fraction: half the size."""
    return [int(value) if value == int(value) else value for value in np.round(column, GPU_DIGITS).tolist()]


def _coded(words: Sequence[Any]) -> _Kind:
    values = [each.value for each in words]
    return _Kind(values.__getitem__, _list, Index, values)


Index = Annotated[list[int], About("Indexes the list of the same name in `names`.")]
Indexes = Annotated[list[list[int]], About("Each indexes the list of the same name in `names`.")]
Money = Annotated[list[int | None], About("Millionths of `currency`; null: no price.")]
MoneyOfDays = Annotated[
    list[int | None], About("Of its idle GPU-hours in the last seven days; null: not recorded, or no price.")
]
Times = Annotated[list[int | None], About("Unix seconds.")]

_TEXT, _COUNT = _Kind(_keep, _list, list[str]), _Kind(_keep, _list, list[int])
_NAME, _NAMES = _Kind(_keep, _list, Index), _Kind(lambda names: names[:MOST_NAMES], _list, Indexes)
_SCORE = _Kind(
    lambda score: None if np.isnan(score) else round(score, 1),
    lambda scores: np.round(scores, 1).tolist(),  # NaN becomes null when it is encoded
    list[float | None],
)
_GPUS = _Kind(lambda gpus: round(gpus, GPU_DIGITS), _count_gpus, list[float])
_MONEY = _Kind(lambda micros: None if np.isnan(micros) else round(micros), _whole, Money)
_TIME = _Kind(format_utc, _whole, Times)
_ROW_ONLY = _Kind(_keep, _list, None)


class WorkloadColumn(NamedTuple):
    """One column: what it shows, and how it is read."""

    kind: _Kind
    read: Callable[[ChosenWorkloads], Any]


COLUMNS: Mapping[str, WorkloadColumn] = {
    "cluster": WorkloadColumn(_NAME, lambda of: [key.cluster for key in of.keys]),
    "kind": WorkloadColumn(_NAME, lambda of: [key.kind for key in of.keys]),
    "namespace": WorkloadColumn(_NAME, lambda of: [key.namespace for key in of.keys]),
    "name": WorkloadColumn(_TEXT, lambda of: [key.name for key in of.keys]),
    "score": WorkloadColumn(_SCORE, lambda of: of.table.score[of.chosen]),
    "state": WorkloadColumn(_coded(STATES), lambda of: of.table.state[of.chosen]),
    "activity": WorkloadColumn(_coded(ACTIVITIES), lambda of: of.table.activity[of.chosen]),
    "verdict": WorkloadColumn(_coded(VERDICTS), lambda of: of.table.verdict_names[of.chosen]),
    "signature": WorkloadColumn(_coded(SIGNATURES), lambda of: of.table.signature[of.chosen]),
    "highest_step": WorkloadColumn(_coded(STEPS), lambda of: of.table.step[of.chosen]),
    "proof": WorkloadColumn(_coded(PROOFS), lambda of: of.table.proof[of.chosen]),
    "gpus": WorkloadColumn(_GPUS, lambda of: of.table.gpus[of.chosen]),
    "idle_gpus": WorkloadColumn(_GPUS, lambda of: of.table.idle_gpus[of.chosen]),
    "unknown_gpus": WorkloadColumn(_GPUS, lambda of: of.table.unknown_gpus[of.chosen]),
    "idle_since": WorkloadColumn(_TIME, lambda of: of.table.idle_since[of.chosen]),
    "allocations": WorkloadColumn(_COUNT, lambda of: of.table.allocations[of.chosen]),
    "idle_allocations": WorkloadColumn(_COUNT, lambda of: of.table.idle_allocations[of.chosen]),
    "unknown_allocations": WorkloadColumn(_COUNT, lambda of: of.table.unknown_allocations[of.chosen]),
    "users": WorkloadColumn(_NAMES, lambda of: [each.users for each in of.names]),
    "models": WorkloadColumn(_NAMES, lambda of: [each.models for each in of.names]),
    "nodes": WorkloadColumn(_NAMES, lambda of: [each.nodes for each in of.names]),
    "nodes_total": WorkloadColumn(_COUNT, lambda of: [len(each.nodes) for each in of.names]),
    "currency": WorkloadColumn(_ROW_ONLY, lambda of: [of.facts.currency] * len(of.keys)),
    "cost_micros_per_hour": WorkloadColumn(_MONEY, lambda of: of.facts.cost_per_hour[of.chosen]),
    "idle_cost_micros_per_hour": WorkloadColumn(_MONEY, lambda of: of.facts.idle_cost_per_hour[of.chosen]),
    "idle_cost_micros": WorkloadColumn(_MONEY, lambda of: of.facts.idle_cost[of.chosen]),
    "idle_cost_micros_7d": WorkloadColumn(_Kind(_keep, _list, MoneyOfDays), ChosenWorkloads.list_costs),
    "owner_evidence": WorkloadColumn(_coded(EVIDENCE_ORDER), lambda of: of.facts.owner_evidence[of.chosen]),
    "owner_uid": WorkloadColumn(_ROW_ONLY, lambda of: [of.table.find_owner(number).uid for number in of.numbers]),
    "resumption": WorkloadColumn(
        _ROW_ONLY, lambda of: [show_resumption(of.result.estimate_resumption(number)) for number in of.numbers]
    ),
    "requests": WorkloadColumn(
        _ROW_ONLY, lambda of: [show_requests(of.result.verdicts, of.table.rows(number)) for number in of.numbers]
    ),
    "snoozed_until": WorkloadColumn(_TIME, ChosenWorkloads.list_snoozes),
}
TABLE_COLUMNS = {name: column for name, column in COLUMNS.items() if column.kind.table_type is not None}
"""Those of the table; a row has all fields of `WorkloadRow`."""
NAMED_COLUMNS = [
    name for each in (Index, Indexes) for name, column in TABLE_COLUMNS.items() if column.kind.table_type is each
]
"""Those that have indexes instead of names there."""
_OF_ROWS = [COLUMNS[field.name] for field in fields(WorkloadRow)]


def make_workloads(of: ChosenWorkloads) -> list[WorkloadRow]:
    columns = ([kind.in_row(value) for value in _list(read(of))] for kind, read in _OF_ROWS)
    return [WorkloadRow(*values) for values in zip(*columns, strict=True)]


def make_table(of: ChosenWorkloads) -> Mapping[str, object]:
    """All columns, with indexes instead of repeated names."""
    names: dict[str, Sequence[str]] = {}
    columns: dict[str, list[Any]] = {}
    for name, (kind, read) in TABLE_COLUMNS.items():
        values, codes = read(of), Dictionary[str]()
        if kind is _NAME:
            columns[name] = [codes.code(each) for each in values]
        elif kind is _NAMES:
            columns[name] = [[codes.code(one) for one in each[:MOST_NAMES]] for each in values]
        else:
            columns[name] = kind.in_table(values)
        names[name] = kind.words or codes.names
    return {"names": {name: names[name] for name in NAMED_COLUMNS}, "columns": columns}


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


def show_requests(verdicts: VerdictTable, rows: Rows) -> ServerRequests | None:
    """Of one workload: all its rows have the same values."""
    usage = verdicts.usage
    hours = usage.window_seconds / HOUR_SECONDS

    def read(measure: Measure, stat: Stat, divisor: float = 1.0) -> float | None:
        value = float(np.fmax.reduce(usage.column(measure, stat)[rows]))
        return None if np.isnan(value) else round(value / divisor, 1)

    if read(Measure.SILENT, Stat.LOWEST) is None:
        return None
    return ServerRequests(
        per_hour=read(Measure.REQUESTS, Stat.COUNT, hours),
        tokens_per_hour=read(Measure.TOKENS, Stat.COUNT, hours),
        most_running=read(Measure.RUNNING, Stat.PEAK),
        most_waiting=read(Measure.WAITING, Stat.PEAK),
        last_at=format_utc(float(np.fmax.reduce(verdicts.requested_at[rows]))),
        silent_since=format_utc(float(np.max(verdicts.silent_since[rows]))),
    )
