"""Many rows at once, added to what is there: SQLite takes rows one after another, PostgreSQL whole columns.

The texts are put together from the names of our own tables; what comes from outside only ever travels as a parameter.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Column, Connection, Float, Table, Text

from gpusteward.analyzer.ledger.periods import floor_day

Columns = Sequence[Sequence[Any]]

ADD = "{table}.{name} + excluded.{name}"
ADD_KNOWN = "coalesce({table}.{name} + excluded.{name}, {table}.{name}, excluded.{name})"
LARGER = (
    "CASE WHEN {table}.{name} IS NULL OR excluded.{name} > {table}.{name} THEN excluded.{name} ELSE {table}.{name} END"
)
NEWER = "coalesce(excluded.{name}, {table}.{name})"
REPLACE = "excluded.{name}"
KEEP = "{table}.{name}"

USAGE_RULES = {
    "energy_mj": ADD_KNOWN,
    "core_peak": LARGER,
    "memory_peak_bytes": LARGER,
    "memory_total_bytes": NEWER,
}

_UPSERT = "INSERT INTO {table} ({names}) {values} ON CONFLICT ({keys}) DO UPDATE SET {changes}"
_OF_ARRAYS = "SELECT * FROM unnest({arrays})"
_OF_ONE_HOUR = "SELECT {columns} FROM {table} WHERE {moment} = {hour}"


def add_rows(connection: Connection, table: Table, columns: Columns, rules: Mapping[str, str]) -> None:
    """Insert, or join with the row of the same key by the rule of each column; `ADD` where there is none.

    `columns` are those of the table in its order.
    """
    if not columns or not len(columns[0]):
        return
    if connection.dialect.name == "postgresql":
        arrays = ", ".join(f"%s::{_type_of(column)}[]" for column in table.columns)
        values = _OF_ARRAYS.format(arrays=arrays)
        connection.exec_driver_sql(_insert(table, values, rules), tuple(map(list, columns)))
    else:
        values = f"VALUES ({', '.join('?' * len(table.columns))})"
        connection.exec_driver_sql(_insert(table, values, rules), list(zip(*columns, strict=True)))


def add_hour_to_day(connection: Connection, hourly: Table, daily: Table, hour_ms: int) -> None:
    """Every row of an hour becomes part of its day."""
    moment, *others = _names(hourly)
    columns = ", ".join([str(floor_day(hour_ms)), *others])
    values = _OF_ONE_HOUR.format(columns=columns, table=hourly.name, moment=moment, hour=hour_ms)
    connection.exec_driver_sql(_insert(daily, values, USAGE_RULES))


def _insert(table: Table, values: str, rules: Mapping[str, str]) -> str:
    keys = [column.name for column in table.primary_key.columns]
    changes = [
        f"{name} = {rules.get(name, ADD).format(table=table.name, name=name)}"
        for name in _names(table)
        if name not in keys
    ]
    return _UPSERT.format(
        table=table.name,
        names=", ".join(_names(table)),
        values=values,
        keys=", ".join(keys),
        changes=", ".join(changes),
    )


def _names(table: Table) -> list[str]:
    return [column.name for column in table.columns]


def _type_of(column: Column[Any]) -> str:
    if isinstance(column.type, Text):
        return "text"
    return "double precision" if isinstance(column.type, Float) else "bigint"
