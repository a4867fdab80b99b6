"""Read access to the ledger: one consistent state of it, and errors that say why it cannot be read."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, select
from sqlalchemy.exc import SQLAlchemyError

from gpusteward.analyzer.ledger.db_engine import describe_error
from gpusteward.analyzer.ledger.schema import allocations
from gpusteward.analyzer.ledger.schema_version import has_tables
from gpusteward.core.errors import SourceError
from gpusteward.messages.errors import ledger_errors


@contextmanager
def read_ledger(engine: Engine) -> Iterator[Connection]:
    """Temporary tables are rolled back at the end. Raises SourceError, also for errors inside the block."""
    isolated = {"isolation_level": "REPEATABLE READ"} if engine.dialect.name == "postgresql" else {}
    try:
        with engine.connect().execution_options(**isolated) as connection:
            has_tables(connection)  # refuses another version
            yield connection
            connection.rollback()
    except SQLAlchemyError as error:
        raise SourceError(ledger_errors.NOT_READABLE, reason=describe_error(error)) from error


def read_namespaces(engine: Engine) -> list[tuple[str, str]]:
    """Every cluster and namespace in the ledger. Raises SourceError."""
    with read_ledger(engine) as connection:
        found = connection.execute(select(allocations.c.cluster, allocations.c.namespace).distinct())
        return [(row.cluster, row.namespace) for row in found]
