"""The groups of a report one by one: their GPU-hours over time, and their workloads with the highest idle cost."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, RowMapping, Select, func, literal, select

from gpusteward.analyzer.ledger.database.periods import Period
from gpusteward.analyzer.ledger.database.schema import allocations, time_column
from gpusteward.analyzer.reports.ledger_sums.amounts import COSTS, read_currencies
from gpusteward.analyzer.reports.ledger_sums.grouping import WORKLOAD, Grouping, GroupKey, make_grouping
from gpusteward.analyzer.reports.ledger_sums.ledger_extent import read_extent, read_ledger, round_query
from gpusteward.analyzer.reports.ledger_sums.period_totals import (
    RowSelection,
    only_scope,
    select_usage_rows,
    to_integer,
)
from gpusteward.analyzer.reports.report import GroupDetail, GroupDetails, GroupWorkload
from gpusteward.analyzer.reports.report_query import ReportQuery, ReportScope

_TIMES = ("active_ms", "idle_ms", "unknown_ms", "ineffective_ms")


@dataclass(slots=True)
class _Found:
    """One group while its rows are read: time by step, and workloads in order of waste."""

    times: dict[int, list[int]] = field(default_factory=dict)
    workloads: list[GroupWorkload] = field(default_factory=list)

    def add(self, at_ms: int, row: RowMapping) -> None:
        step = self.times.setdefault(at_ms, [0] * len(_TIMES))
        for index, name in enumerate(_TIMES):
            step[index] += int(row[name] or 0)

    @property
    def order(self) -> tuple[int, int]:
        """The most waste first."""
        return -sum(each.idle_cost_micros or 0 for each in self.workloads), -sum(
            each[1] for each in self.times.values()
        )


def read_group_details(
    engine: Engine, query: ReportQuery, *, teams: Mapping[str, str] | None = None, now_ms: int | None = None
) -> GroupDetails:
    """Takes as long as the database: never on an event loop. Raises SourceError when the ledger cannot be read."""
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    with read_ledger(engine) as connection:
        return _read_details(connection, query, teams or {}, now_ms=now_ms)


def _read_details(connection: Connection, query: ReportQuery, teams: Mapping[str, str], *, now_ms: int) -> GroupDetails:
    extent = read_extent(connection)
    step_ms, period = extent.choose_step(extent.divide(*round_query(query, now_ms=now_ms)))
    grouping = make_grouping(query.by, teams, dialect=connection.dialect.name)
    has_costs = read_currencies(connection).are_comparable(period)
    found: dict[GroupKey, _Found] = {}
    if grouping.columns:
        for selection in select_usage_rows(period):
            for row in connection.execute(_select_times(selection, grouping, step_ms, query.scope)).mappings():
                found.setdefault(_key_of(row, grouping), _Found()).add(int(row["at_ms"]), row)
        _read_workloads(connection, period, grouping, query=query, found=found, has_costs=has_costs)
    steps = sorted({at_ms for each in found.values() for at_ms in each.times})
    ordered = sorted(found.items(), key=lambda item: (item[1].order, item[0]))[: query.rows]
    return GroupDetails(step_ms, steps, [_make_detail(key, each, steps, grouping) for key, each in ordered])


def _make_detail(key: GroupKey, found: _Found, steps: Sequence[int], grouping: Grouping) -> GroupDetail:
    empty = [0] * len(_TIMES)
    rows = [found.times.get(at_ms, empty) for at_ms in steps]
    return GroupDetail(
        **grouping.name_group(key),
        active_gpu_ms=[row[0] for row in rows],
        idle_gpu_ms=[row[1] for row in rows],
        unknown_gpu_ms=[row[2] for row in rows],
        ineffective_gpu_ms=[row[3] for row in rows],
        workloads=found.workloads,
    )


def _key_of(row: RowMapping, grouping: Grouping) -> GroupKey:
    return grouping.find_key(tuple(row[f"key_{index}"] for index in range(len(grouping.columns))))


def _name_keys(grouping: Grouping) -> list[Any]:
    """The columns of the grouping under names that no other column has."""
    return [column.label(f"key_{index}") for index, column in enumerate(grouping.columns)]


def _select_times(selection: RowSelection, grouping: Grouping, step_ms: int, scope: ReportScope) -> Select[Any]:
    table, at = selection.table, time_column(selection.table)
    keys, step = _name_keys(grouping), (at - at % step_ms).label("at_ms")
    sums = [to_integer(func.sum(table.c[name])).label(name) for name in _TIMES]
    joined = table.join(allocations, allocations.c.id == table.c.allocation_id)
    query = select(*keys, step, *sums).select_from(joined).where(selection.condition)
    return only_scope(query, scope).group_by(*grouping.columns, step)


def _read_workloads(
    connection: Connection,
    period: Period,
    grouping: Grouping,
    *,
    query: ReportQuery,
    found: Mapping[GroupKey, _Found],
    has_costs: bool,
) -> None:
    """Adds the workloads of each group in order of waste, at most `top` of them."""
    parts: dict[tuple[GroupKey, tuple[str, ...]], list[RowMapping]] = {}
    for selection in select_usage_rows(period):
        statement = _select_workloads(selection, grouping, query.scope, has_costs=has_costs)
        for row in connection.execute(statement).mappings():
            workload = tuple(row[f"workload_{name}"] for name in WORKLOAD)
            parts.setdefault((_key_of(row, grouping), workload), []).append(row)
    made = [(key, _make_workload(workload, rows, has_costs=has_costs)) for (key, workload), rows in parts.items()]
    made.sort(key=lambda item: (-(item[1].idle_cost_micros or 0), -item[1].idle_gpu_ms, item[1].name))
    for key, each in made:
        if key in found and len(found[key].workloads) < query.top:
            found[key].workloads.append(each)


def _select_workloads(
    selection: RowSelection, grouping: Grouping, scope: ReportScope, *, has_costs: bool
) -> Select[Any]:
    table = selection.table
    workload = [allocations.c[name] for name in WORKLOAD]
    cost = to_integer(func.sum(table.c[COSTS[1]])) if has_costs else literal(0)
    joined = table.join(allocations, allocations.c.id == table.c.allocation_id)
    query = (
        select(
            *_name_keys(grouping),
            *(column.label(f"workload_{column.name}") for column in workload),
            to_integer(func.sum(table.c.idle_ms)).label("idle_ms"),
            cost.label("idle_cost"),
            func.min(allocations.c.user_name).label("user_name"),
            func.max(allocations.c.user_name).label("last_user_name"),
        )
        .select_from(joined)
        .where(selection.condition, table.c.idle_ms > 0)
    )
    return only_scope(query, scope).group_by(*grouping.columns, *workload)


def _make_workload(workload: tuple[str, ...], rows: Sequence[RowMapping], *, has_costs: bool) -> GroupWorkload:
    names = dict(zip(WORKLOAD, workload, strict=True))
    users = {row[name] for row in rows for name in ("user_name", "last_user_name")}
    return GroupWorkload(
        kind=names["owner_kind"],
        namespace=names["namespace"],
        name=names["owner_name"],
        cluster=names["cluster"],
        user=users.pop() if len(users) == 1 else "",
        idle_gpu_ms=sum(int(row["idle_ms"] or 0) for row in rows),
        idle_cost_micros=sum(int(row["idle_cost"] or 0) for row in rows) if has_costs else None,
    )
