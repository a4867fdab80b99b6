"""Inserts many rows, given as named columns, and combines them with existing rows of the same primary key; adds to rows
that exist.

SQLite takes rows one after another, PostgreSQL whole columns as arrays. The SQL consists of names of our own tables
only; all values are parameters.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Column, Connection, Float, Table, Text, TextClause, text

Columns = Mapping[str, Sequence[Any]]
"""Values by column name, all of the same length."""
Rules = Mapping[str, str]
"""How a column of an existing row changes, by column name; `ADD` where there is no rule."""
_RuleItems = tuple[tuple[str, str], ...]
"""The same, as the key of a cache."""

ADD = "{table}.{name} + excluded.{name}"
ADD_KNOWN = "coalesce({table}.{name} + excluded.{name}, {table}.{name}, excluded.{name})"
LARGER = (
    "CASE WHEN {table}.{name} IS NULL OR excluded.{name} > {table}.{name} THEN excluded.{name} ELSE {table}.{name} END"
)
NEWER = "coalesce(excluded.{name}, {table}.{name})"
REPLACE = "excluded.{name}"
KEEP = "{table}.{name}"

USAGE_RULES: Rules = {
    "energy_mj": ADD_KNOWN,
    "tokens": ADD_KNOWN,
    "core_peak": LARGER,
    "memory_peak_bytes": LARGER,
    "memory_total_bytes": NEWER,
}
FLEET_RULES: Rules = {}

_UPSERT = "INSERT INTO {table} ({names}) {values} ON CONFLICT ({keys}) DO UPDATE SET {changes}"
_SELECT_ARRAYS = "SELECT * FROM unnest({arrays})"
_SELECT_HOUR = "SELECT {values} FROM {table} WHERE hour_ms = :hour_ms"


def upsert(connection: Connection, table: Table, columns: Columns, rules: Rules) -> None:
    """Raises ValueError unless `columns` has exactly the columns of the table."""
    names = _names(table)
    if columns.keys() != set(names):
        raise ValueError(f"columns of {table.name}: expected {sorted(names)}, not {sorted(columns)}")
    ordered = [columns[name] for name in names]
    if not len(ordered[0]):
        return
    takes_arrays = connection.dialect.name == "postgresql"
    values = tuple(map(list, ordered)) if takes_arrays else list(zip(*ordered, strict=True))
    connection.exec_driver_sql(_make_insert(table, tuple(rules.items()), takes_arrays=takes_arrays), values)


def add_to_rows(connection: Connection, table: Table, columns: Columns) -> None:
    """Add to rows that exist. An upsert cannot take from a row: what it would insert must fit the constraints too.

    `columns`: the primary key, and what is added to other columns. PostgreSQL changes a row only once per statement.
    """
    keys = tuple(column.name for column in table.primary_key.columns)
    names = (*(name for name in columns if name not in keys), *keys)
    takes_arrays = connection.dialect.name == "postgresql"
    ordered = [columns[name] for name in names]
    if not len(ordered[0]):
        return
    values = tuple(map(list, ordered)) if takes_arrays else list(zip(*ordered, strict=True))
    connection.exec_driver_sql(_make_update(table, names, takes_arrays=takes_arrays), values)


def add_hour_to_day(connection: Connection, hourly: Table, daily: Table, *, hour_ms: int, day_ms: int) -> None:
    """Add every row of an hour to the row of its day."""
    connection.execute(_insert_hour(hourly, daily), {"hour_ms": hour_ms, "day_ms": day_ms})


@cache
def _make_insert(table: Table, rules: _RuleItems, *, takes_arrays: bool) -> str:
    arrays = ", ".join(f"%s::{_type_of(column)}[]" for column in table.columns)
    row = ", ".join("?" * len(table.columns))
    values = _SELECT_ARRAYS.format(arrays=arrays) if takes_arrays else f"VALUES ({row})"
    return _make_statement(table, values, dict(rules))


@cache
def _make_update(table: Table, names: Sequence[str], *, takes_arrays: bool) -> str:
    keys = [column.name for column in table.primary_key.columns]
    added = [name for name in names if name not in keys]
    if not takes_arrays:
        changes = ", ".join(f"{name} = {name} + ?" for name in added)
        return f"UPDATE {table.name} SET {changes} WHERE {' AND '.join(f'{key} = ?' for key in keys)}"  # noqa: S608
    changes = ", ".join(f"{name} = {table.name}.{name} + given.{name}" for name in added)
    arrays = ", ".join(f"%s::{_type_of(table.c[name])}[]" for name in names)
    is_same = " AND ".join(f"{table.name}.{key} = given.{key}" for key in keys)
    return f"UPDATE {table.name} SET {changes} FROM unnest({arrays}) AS given({', '.join(names)}) WHERE {is_same}"  # noqa: S608


@cache
def _insert_hour(hourly: Table, daily: Table) -> TextClause:
    values = ", ".join(":day_ms" if name == "day_ms" else name for name in _names(daily))
    return text(_make_statement(daily, _SELECT_HOUR.format(values=values, table=hourly.name), USAGE_RULES))


def _make_statement(table: Table, values: str, rules: Rules) -> str:
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


@cache
def _names(table: Table) -> Sequence[str]:
    return [column.name for column in table.columns]


def _type_of(column: Column[Any]) -> str:
    if isinstance(column.type, Text):
        return "text"
    return "double precision" if isinstance(column.type, Float) else "bigint"
