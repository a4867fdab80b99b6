"""Sums over a period, computed by the database.

The rows of a period are added up once per allocation into a temporary table; every further query reads that table. The
transaction of the report reads one state of the ledger and removes the temporary tables when it ends.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Column as TableColumn
from sqlalchemy import (
    ColumnElement,
    Connection,
    MetaData,
    RowMapping,
    Select,
    Table,
    case,
    cast,
    func,
    insert,
    literal,
    or_,
    select,
    tuple_,
)

from gpusteward.analyzer.ledger.database.periods import Period
from gpusteward.analyzer.ledger.database.schema import Number, allocations, time_column, usage_daily, usage_hourly
from gpusteward.analyzer.reports.ledger_sums.amounts import MONEY, SUMMED, UNPRICED
from gpusteward.analyzer.reports.ledger_sums.grouping import WORKLOAD
from gpusteward.analyzer.reports.report_query import ALL, ClusterNamespace, ReportScope
from gpusteward.core.node.gpus import Share

PEAKS = ("core_peak", "memory_peak_bytes", "memory_total_bytes")
UNMEASURED = "unmeasured_ms"
_WORKLOAD = [allocations.c[name] for name in WORKLOAD]

Query = TypeVar("Query", bound="Select[*tuple[Any, ...]]")


class RowSelection(NamedTuple):
    """Rows of one table."""

    table: Table
    condition: ColumnElement[bool]


def _make_table(name: str, *columns: str) -> Table:
    types = {each: usage_hourly.c[each].type for each in PEAKS}
    made = (TableColumn(each, types.get(each, Number)) for each in ("allocation_id", *columns))
    return Table(name, MetaData(), *made, prefixes=["TEMPORARY"])


TOTALS = _make_table("report_totals", *SUMMED, UNPRICED, UNMEASURED, *PEAKS)
PREVIOUS_TOTALS = _make_table("report_previous_totals", "allocated_ms", "idle_ms", "idle_cost", UNPRICED)
"""Only what is compared of the previous period: every column of a row costs time."""


class PeriodTotals:
    """A period, summed per allocation."""

    def __init__(
        self,
        connection: Connection,
        table: Table,
        *,
        period: Period,
        scope: ReportScope = ALL,
        has_costs: bool = True,
    ) -> None:
        """`table`: one of the two above, each once per transaction. Without costs nothing has a price. Raises
        SQLAlchemyError."""
        self._connection = connection
        self._scope = scope
        self._table = table
        table.create(connection, checkfirst=False)
        for selection in select_usage_rows(period):
            connection.execute(_insert_sums(table, selection, has_costs=has_costs))

    def sum_by(self, *keys: ColumnElement[str]) -> Select[Any]:
        """One row per group, or a single one without keys: sums by name, and the number of allocations."""
        totals = self._table.c
        sums = [to_integer(func.sum(totals[name])).label(name) for name in (*SUMMED, UNPRICED) if name in totals]
        count = func.count(totals.allocation_id.distinct()).label("allocations")
        return self.select(*keys, *sums, count).group_by(*keys)

    def select(self, *columns: ColumnElement[Any]) -> Select[Any]:
        """Columns of the totals and of their allocations."""
        joined = self._table.join(allocations, allocations.c.id == self._table.c.allocation_id)
        return only_scope(select(*columns).select_from(joined), self._scope)

    def read(self, statement: Select[Any]) -> Sequence[RowMapping]:
        return self._connection.execute(statement).mappings().all()

    def read_total(self) -> RowMapping:
        return self._connection.execute(self.sum_by()).mappings().one()

    def read_groups(self, keys: Sequence[ColumnElement[str]], *, limit: int | None) -> Sequence[RowMapping]:
        """Groups with the highest idle cost first."""
        return self.read(_order_by_waste(self.sum_by(*keys), keys).limit(limit))

    def count_groups(self, keys: Sequence[ColumnElement[str]]) -> int:
        groups = self.select(*keys).group_by(*keys).subquery()
        return int(self._connection.execute(select(func.count()).select_from(groups)).scalar_one())

    def read_wasters(self, *, limit: int) -> Sequence[RowMapping]:
        """Workloads with idle time."""
        device = allocations.c.gpu_uuid + "/" + allocations.c.gpu_instance
        statement = self.sum_by(*_WORKLOAD).add_columns(
            func.min(allocations.c.user_name).label("user_name"),
            func.count(allocations.c.user_name.distinct()).label("users"),
            func.min(allocations.c.model).label("model"),
            func.count(allocations.c.model.distinct()).label("models"),
            func.count(device.distinct()).label("gpus"),
        )
        return self.read(_order_by_waste(statement.having(func.sum(self._table.c.idle_ms) > 0), _WORKLOAD).limit(limit))

    def read_whole_gpu_workloads(self, *, max_core_ratio: float) -> Sequence[RowMapping]:
        """By workload and model: containers that hold exactly one GPU, a whole one, with some activity but never more
        than this."""
        totals = self._table.c
        keys = [*_WORKLOAD, allocations.c.model]
        statement = self.select(
            *keys,
            *(to_integer(func.sum(totals[name])).label(name) for name in (*SUMMED, UNMEASURED)),
            *(func.max(totals[name]).label(name) for name in PEAKS),
            func.count(allocations.c.gpu_uuid.distinct()).label("gpus"),
        )
        is_candidate = (func.sum(totals.active_ms) > 0) & (func.max(totals.core_peak) <= max_core_ratio)
        is_whole = allocations.c.share.in_(("", Share.EXCLUSIVE.value)) & (allocations.c.gpu_instance == "")
        return self.read(statement.where(is_whole, _is_only_gpu(self._table)).group_by(*keys).having(is_candidate))


def select_usage_rows(period: Period) -> Sequence[RowSelection]:
    """The usage rows of a period."""
    return select_rows(period, hourly=usage_hourly, daily=usage_daily)


def select_rows(period: Period, *, hourly: Table, daily: Table) -> Sequence[RowSelection]:
    spans = [(hourly, span) for span in period.hourly]
    if period.daily.begin_ms < period.daily.end_ms:
        spans.append((daily, period.daily))
    return [
        RowSelection(table, (time_column(table) >= span.begin_ms) & (time_column(table) < span.end_ms))
        for table, span in spans
    ]


def only_scope(statement: Query, scope: ReportScope) -> Query:
    if scope.visible is not None:
        statement = statement.where(is_visible(scope.visible))
    if scope.namespaces:
        statement = statement.where(allocations.c.namespace.in_(scope.namespaces))
    return statement.where(allocations.c.cluster.in_(scope.clusters)) if scope.clusters else statement


def is_visible(visible: Sequence[ClusterNamespace]) -> ColumnElement[bool]:
    return tuple_(allocations.c.cluster, allocations.c.namespace).in_(visible)


def to_integer(amount: ColumnElement[Any]) -> ColumnElement[Any]:
    """PostgreSQL returns sums of big integers as decimals."""
    return cast(amount, Number)


def _insert_sums(totals: Table, selection: RowSelection, *, has_costs: bool) -> Any:
    table = selection.table
    names = [column.name for column in totals.c if column.name != "allocation_id"]
    sums = select(table.c.allocation_id, *(_sum_column(table, name, has_costs=has_costs) for name in names))
    query = sums.where(selection.condition).group_by(table.c.allocation_id)
    return insert(totals).from_select(["allocation_id", *names], query)


def _sum_column(table: Table, name: str, *, has_costs: bool) -> ColumnElement[Any]:
    """One column of the totals, over many rows of the ledger."""
    if not has_costs and name in MONEY:
        return literal(0, Number)
    if not has_costs and name == UNPRICED:
        return func.sum(table.c.allocated_ms)
    if name in PEAKS:
        return func.max(table.c[name])
    if name == UNPRICED:
        return func.sum(unpriced_time(table))
    if name == UNMEASURED:
        return func.sum(case((_has_no_peak(table), table.c.allocated_ms), else_=table.c.unknown_ms))
    return func.sum(table.c[name])


def unpriced_time(table: Table) -> ColumnElement[int]:
    """The allocated time of a row for which nothing was charged: without a price, or with a discount of 100 percent."""
    is_free = (table.c.active_cost == 0) & (table.c.idle_cost == 0) & (table.c.unknown_cost == 0)
    return case((is_free, table.c.allocated_ms), else_=0)


def _has_no_peak(table: Table) -> ColumnElement[bool]:
    return or_(table.c.core_peak.is_(None), table.c.memory_peak_bytes.is_(None))


def _is_only_gpu(totals: Table) -> ColumnElement[bool]:
    """The allocation of a container with one GPU in this period."""
    names = ("cluster", "namespace", "pod", "pod_uid", "container")
    single = (
        select(func.min(allocations.c.id))
        .select_from(totals.join(allocations, allocations.c.id == totals.c.allocation_id))
        .group_by(*(allocations.c[name] for name in names))
        .having(func.count(allocations.c.id.distinct()) == 1)
    )
    return allocations.c.id.in_(single)


def _order_by_waste(statement: Select[Any], keys: Sequence[ColumnElement[str]]) -> Select[Any]:
    sums = statement.subquery()
    order = (sums.c.idle_cost.desc(), sums.c.idle_ms.desc(), sums.c.allocated_ms.desc())
    return select(sums).order_by(*order, *(sums.c[key.name] for key in keys))
