"""Sums over a period of the books, made by the database.

The rows of a period are added up once per allocation into a temporary table, the sheet; every question is then asked of
the sheet. The transaction of the report sees one state of the books, and its end throws the sheets away.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

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
)

from gpusteward.analyzer.ledger.periods import Period
from gpusteward.analyzer.ledger.schema import Number, allocations, usage_daily, usage_hourly
from gpusteward.analyzer.reports.amounts import ADDED, COSTS, UNPRICED
from gpusteward.analyzer.reports.report import By
from gpusteward.core.allocations import Share

PEAKS = ("core_peak", "memory_peak_bytes", "memory_total_bytes")
UNSEEN = "unseen_ms"

Question = TypeVar("Question", bound="Select[*tuple[Any, ...]]")
Rows = Sequence[tuple[Table, ColumnElement[bool]]]
"""Tables, and which of their rows."""

KEYS: Mapping[By, tuple[str, ...]] = {
    "namespace": ("namespace",),
    "owner": ("owner_kind", "namespace", "owner_name"),
    "model": ("model",),
    "node": ("node",),
    "user": ("user_name",),
}
"""Which columns of an allocation make up a group."""


def _make_table(name: str, *amounts: str) -> Table:
    kinds = {each: usage_hourly.c[each].type for each in PEAKS}
    columns = (TableColumn(each, kinds.get(each, Number)) for each in ("allocation_id", *amounts))
    return Table(name, MetaData(), *columns, prefixes=["TEMPORARY"])


SHEET = _make_table("report_sheet", *ADDED, UNPRICED, UNSEEN, *PEAKS)
SHEET_BEFORE = _make_table("report_sheet_before", "allocated_ms", "idle_ms", "idle_cost", UNPRICED)
"""Of the period before only what is compared: every column of a row costs time."""


class Sheet:
    """A period, added up per allocation."""

    def __init__(
        self,
        connection: Connection,
        table: Table,
        *,
        period: Period,
        namespaces: Sequence[str] = (),
        has_money: bool = True,
    ) -> None:
        """`table`: one of those above, each once a transaction. Without money nothing has a price. Raises
        SQLAlchemyError."""
        self._connection = connection
        self._namespaces = tuple(namespaces)
        self._table = table
        table.create(connection, checkfirst=False)
        for rows in choose_rows(period):
            connection.execute(_add_up(table, rows, has_money=has_money))

    def sum_up(self, *keys: str) -> Select[Any]:
        """One row a key, or one in all: the amounts by name, and how many allocations."""
        table = self._table.c
        columns = [allocations.c[key] for key in keys]
        amounts = [whole(func.sum(table[name])).label(name) for name in (*ADDED, UNPRICED) if name in table]
        counted = func.count(table.allocation_id.distinct()).label("allocations")
        return self.choose(*columns, *amounts, counted).group_by(*columns)

    def choose(self, *columns: ColumnElement[Any]) -> Select[Any]:
        """Columns of the sheet and of its allocations."""
        joined = self._table.join(allocations, allocations.c.id == self._table.c.allocation_id)
        return within(select(*columns).select_from(joined), self._namespaces)

    def read(self, statement: Select[Any]) -> Sequence[RowMapping]:
        return self._connection.execute(statement).mappings().all()

    def read_total(self) -> RowMapping:
        return self._connection.execute(self.sum_up()).mappings().one()

    def read_first(self) -> int | None:
        """When the oldest of its allocations was first seen."""
        return self._connection.execute(self.choose(func.min(allocations.c.first_ms))).scalar()

    def read_groups(self, by: By, *, limit: int | None) -> Sequence[RowMapping]:
        """Those with the dearest idle time first."""
        return self.read(_worst_first(self.sum_up(*KEYS[by]), KEYS[by]).limit(limit))

    def count_groups(self, by: By) -> int:
        keys = [allocations.c[key] for key in KEYS[by]]
        groups = self.choose(*keys).group_by(*keys).subquery()
        return int(self._connection.execute(select(func.count()).select_from(groups)).scalar_one())

    def read_wasters(self, *, limit: int) -> Sequence[RowMapping]:
        """Workloads with idle time."""
        keys = KEYS["owner"]
        device = allocations.c.gpu_uuid + "/" + allocations.c.gpu_instance
        statement = self.sum_up(*keys).add_columns(
            func.min(allocations.c.user_name).label("user_name"),
            func.count(allocations.c.user_name.distinct()).label("users"),
            func.min(allocations.c.model).label("model"),
            func.count(allocations.c.model.distinct()).label("models"),
            func.count(device.distinct()).label("gpus"),
        )
        return self.read(_worst_first(statement.having(func.sum(self._table.c.idle_ms) > 0), keys).limit(limit))

    def read_holders(self, *, most_core_ratio: float) -> Sequence[RowMapping]:
        """Workloads by model that worked, but never harder than this, of the containers that hold exactly one GPU, and
        that one whole."""
        table = self._table.c
        keys = [allocations.c[key] for key in (*KEYS["owner"], "model")]
        statement = self.choose(
            *keys,
            *(whole(func.sum(table[name])).label(name) for name in (*ADDED, UNSEEN)),
            *(func.max(table[name]).label(name) for name in PEAKS),
            func.count(allocations.c.gpu_uuid.distinct()).label("gpus"),
        )
        fits = (func.sum(table.active_ms) > 0) & (func.max(table.core_peak) <= most_core_ratio)
        is_whole = allocations.c.share.in_(("", Share.EXCLUSIVE.value)) & (allocations.c.gpu_instance == "")
        return self.read(statement.where(is_whole, _is_lone(self._table)).group_by(*keys).having(fits))


def choose_rows(period: Period) -> Rows:
    """Which rows of which tables make up a period."""
    parts = [(usage_hourly, usage_hourly.c.hour_ms, each) for each in period.hourly]
    if period.daily[0] < period.daily[1]:
        parts.append((usage_daily, usage_daily.c.day_ms, period.daily))
    return [(table, (moment >= since) & (moment < until)) for table, moment, (since, until) in parts]


def within(statement: Question, namespaces: Sequence[str]) -> Question:
    return statement.where(allocations.c.namespace.in_(namespaces)) if namespaces else statement


def whole(amount: ColumnElement[Any]) -> ColumnElement[Any]:
    """PostgreSQL adds up big integers to decimals."""
    return cast(amount, Number)


def _add_up(sheet: Table, rows: tuple[Table, ColumnElement[bool]], *, has_money: bool) -> Any:
    table, chosen = rows
    names = [column.name for column in sheet.c][1:]
    sums = select(table.c.allocation_id, *(_summed(table, name, has_money=has_money) for name in names))
    question = sums.where(chosen).group_by(table.c.allocation_id)
    return insert(sheet).from_select(["allocation_id", *names], question)


def _summed(table: Table, name: str, *, has_money: bool) -> ColumnElement[Any]:
    """One column of a sheet, over many rows of the books."""
    if not has_money and name in COSTS:
        return literal(0, Number)
    if not has_money and name == UNPRICED:
        return func.sum(table.c.allocated_ms)
    if name in PEAKS:
        return func.max(table.c[name])
    if name == UNPRICED:
        return func.sum(case((_is_free(table), table.c.allocated_ms), else_=0))
    if name == UNSEEN:
        return func.sum(case((_has_no_peak(table), table.c.allocated_ms), else_=table.c.unknown_ms))
    return func.sum(table.c[name])


def _is_free(table: Table) -> ColumnElement[bool]:
    """Nothing was charged: there was no price, or all of it was waived."""
    return (table.c.active_cost == 0) & (table.c.idle_cost == 0) & (table.c.unknown_cost == 0)


def _has_no_peak(table: Table) -> ColumnElement[bool]:
    return or_(table.c.core_peak.is_(None), table.c.memory_peak_bytes.is_(None))


def _is_lone(sheet: Table) -> ColumnElement[bool]:
    """Of a container with one GPU in this period."""
    names = ("namespace", "pod", "pod_uid", "container")
    held = (
        select(func.min(allocations.c.id))
        .select_from(sheet.join(allocations, allocations.c.id == sheet.c.allocation_id))
        .group_by(*(allocations.c[name] for name in names))
        .having(func.count(allocations.c.id.distinct()) == 1)
    )
    return allocations.c.id.in_(held)


def _worst_first(statement: Select[Any], keys: Sequence[str]) -> Select[Any]:
    named = statement.subquery()
    ranks = (named.c.idle_cost.desc(), named.c.idle_ms.desc(), named.c.allocated_ms.desc())
    return select(named).order_by(*ranks, *(named.c[key] for key in keys))
