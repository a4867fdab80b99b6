"""Copies a ledger from SQLite to PostgreSQL, in batches by primary key, so that an interrupted copy is continued.

Each table is read in the order of its primary key and written with ON CONFLICT DO NOTHING, one transaction per batch;
a second run goes on after the largest key that the target has. `progress` comes last, in one transaction with the
comparison of the sums: a target that has it is whole, or is another ledger, which is not mixed with this one. Leases
are not copied: they belong to processes.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlalchemy import Column, Connection, Engine, Row, Table, func, select, text, tuple_
from sqlalchemy.dialects.postgresql import insert

from gpusteward.analyzer.ledger.database.db_engine import with_write_lock
from gpusteward.analyzer.ledger.database.schema import METADATA, leases, progress
from gpusteward.analyzer.ledger.database.schema_version import create_tables, has_tables
from gpusteward.core.errors import SourceError
from gpusteward.messages.errors import ledger_errors

BATCH_ROWS = 2000
AMOUNTS = (
    *("allocated_ms", "active_ms", "idle_ms", "unknown_ms", "active_cost", "idle_cost", "unknown_cost"),
    *("ineffective_ms", "ineffective_cost"),
    *("energy_mj", "energy_ms", "score_ms_sum", "scored_ms", "tokens", "served_ms", "served_cost"),
    *("gpu_ms", "known_ms", "held_ms"),
)
CHANGING = ("at_ms", "last_ms", "updated_ms", "ended_ms", "idle_until_ms", "until_ms", "next_ms", "attempts", "is_off")
"""Columns that differ where a row was copied and then changed: an analyzer ran before the copy was continued."""
MODULUS = 1_000_003  # sums of times would not fit into 64 bits
TABLES: Sequence[Table] = [each for each in METADATA.sorted_tables if each is not leases]


def copy_ledger(source: Engine, target: Engine, advance: Callable[[int, int], None]) -> dict[str, int]:
    """The rows of each table in the target. `advance` is called with the rows so far and in all. Raises SourceError
    for a ledger of another version, a target with another ledger, or sums that differ; SQLAlchemyError."""
    create_tables(target)
    with source.connect() as reading:
        if not has_tables(reading):
            raise SourceError(ledger_errors.COPY_EMPTY)
        with target.connect() as connection:
            if connection.execute(select(func.count()).select_from(progress)).scalar():
                if _sum_up(connection) == _sum_up(reading):
                    return _count(reading)  # a second run after the end
                raise SourceError(ledger_errors.COPY_TARGET_IN_USE)
        total, done = sum(_count(reading).values()), 0
        for table in (each for each in TABLES if each is not progress):
            for rows in _batches(reading, target, table):
                with with_write_lock(target).begin() as writing:
                    writing.execute(insert(table).on_conflict_do_nothing(), [row._asdict() for row in rows])
                done += len(rows)
                advance(done, total)
        with with_write_lock(target).begin() as writing:
            _set_sequences(writing)
            rows = reading.execute(select(progress)).all()
            if rows:
                writing.execute(insert(progress), [row._asdict() for row in rows])
            if _sum_up(writing) != _sum_up(reading):
                raise SourceError(ledger_errors.COPY_DIFFERS)
        advance(done + len(rows), total)
        return _count(reading)


def _batches(reading: Connection, target: Engine, table: Table) -> Iterator[Sequence[Row[Any]]]:
    keys: list[Column[Any]] = list(table.primary_key.columns)
    with target.connect() as connection:
        query = select(*keys).order_by(*(key.desc() for key in keys)).limit(1)
        # Texts are ordered by the locale in PostgreSQL and by bytes in SQLite: such tables are small and begin anew.
        is_numeric = all(key.type.python_type is int for key in keys)
        found = connection.execute(query).first() if is_numeric else None
    last: tuple[Any, ...] | None = None if found is None else tuple(found)
    while True:
        rows = select(table).order_by(*keys).limit(BATCH_ROWS)
        if last is not None:
            rows = rows.where(tuple_(*keys) > tuple_(*last))
        batch = reading.execute(rows).all()
        if not batch:
            return
        yield batch
        last = tuple(batch[-1]._mapping[key] for key in keys)


def _count(connection: Connection) -> dict[str, int]:
    return {table.name: connection.execute(select(func.count()).select_from(table)).scalar() or 0 for table in TABLES}


def _sum_up(connection: Connection) -> dict[str, list[int]]:
    """The number of rows of every table, the sums of all amounts, and sums that change with times and states: whole
    numbers, exact in both databases."""
    sums = {}
    for table in TABLES:
        amounts = [func.coalesce(func.sum(table.c[name]), 0) for name in AMOUNTS if name in table.c]
        changing = [func.coalesce(func.sum(table.c[name] % MODULUS), 0) for name in CHANGING if name in table.c]
        row = connection.execute(select(func.count(), *amounts, *changing).select_from(table)).one()
        sums[table.name] = [int(value) for value in row]
    return sums


def _set_sequences(connection: Connection) -> None:
    """Rows were copied with their ids: the next one that the database chooses must be larger."""
    for table in TABLES:
        name = f"pg_get_serial_sequence('{table.name}', 'id')"
        if "id" in table.c and connection.execute(text(f"SELECT {name}")).scalar():
            largest = f"GREATEST((SELECT MAX(id) FROM {table.name}), 1)"  # noqa: S608
            connection.execute(text(f"SELECT setval({name}, {largest})"))
