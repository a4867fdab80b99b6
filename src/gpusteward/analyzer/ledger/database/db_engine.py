"""Opens SQLite and PostgreSQL, and classifies their errors. No other module depends on the kind of database."""

import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, SQLAlchemyError, StatementError
from sqlalchemy.pool import ConnectionPoolEntry

from gpusteward.core.errors import ConfigurationError
from gpusteward.messages.errors import ledger_errors

PRAGMAS = (
    "journal_mode = WAL",  # readers never wait for the writer
    "synchronous = NORMAL",  # a killed process loses nothing; a power failure may lose whole commits, never parts
    "busy_timeout = 5000",
    "cache_size = -2000",  # KiB: the pages of an hour of 50,000 allocations are read in order, once
    "journal_size_limit = 67108864",
    "temp_store = MEMORY",
)
OWNER_ONLY = 0o600
POSTGRES_OPTIONS = {
    "application_name": "gpusteward",
    "connect_timeout": 5,
    "tcp_user_timeout": 20_000,  # detects a host that has disappeared
    "keepalives_idle": 30,
    "options": "-c statement_timeout=120000 -c lock_timeout=30000",
}
MAX_WAIT_SECONDS = 130.0
"""For one statement on PostgreSQL. Longer than `statement_timeout`, so that the server reports first if it can."""
_POLL_SECONDS = 0.1
_MAX_IDLE_MS = 30_000
"""A writer that stops in the middle of a transaction holds locks that its successor needs: the server ends it."""
_WRITE_OPTION = "gpusteward_writes"


def open_engine(url: str) -> Engine:
    """Does not connect yet. Raises ConfigurationError for a URL that cannot be used, without repeating the URL."""
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            return _open_sqlite(url)
        return _open_postgres(parsed)
    except (ArgumentError, ValueError, ImportError) as error:
        raise ConfigurationError(ledger_errors.INVALID_URL, reason=type(error).__name__) from None


def with_write_lock(engine: Engine) -> Engine:
    """The same database for writers: SQLite then takes its write lock when a transaction begins, where it can wait,
    instead of at the first write, where it would fail."""
    return engine.execution_options(**{_WRITE_OPTION: True})


def make_folder(engine: Engine) -> None:
    """Create the folder of the SQLite file. Raises OSError."""
    if engine.dialect.name == "sqlite" and engine.url.database:
        Path(engine.url.database).parent.mkdir(parents=True, exist_ok=True)


def is_file_missing(engine: Engine) -> bool:
    """Whether the SQLite file was removed: open connections would continue to write to the deleted file."""
    return engine.dialect.name == "sqlite" and not Path(engine.url.database or "").exists()


def show_url(engine: Engine) -> str:
    """Without password and without parameters, since `?password=` is one of them."""
    return engine.url.set(query={}).render_as_string(hide_password=True)


def describe_error(error: Exception) -> str:
    """One line, without the values of the statement: they may be large, and confidential."""
    if isinstance(error, SQLAlchemyError):
        cause = getattr(error, "orig", None) or error
        message = getattr(getattr(cause, "diag", None), "message_primary", None) or cause  # its detail has the row
        return f"{type(cause).__name__}: {' '.join(str(message).split())[:300]}"
    return f"{type(error).__name__}: {error}"


def is_data_error(error: Exception) -> bool:
    """Whether the values are the cause and not the database: every further attempt would fail too."""
    if isinstance(error, DBAPIError):
        return isinstance(error, (DataError, IntegrityError)) and not error.connection_invalidated
    # Values that a driver cannot encode: an integer of more than 64 bits, half of a surrogate pair.
    return isinstance(error, (StatementError, ValueError, TypeError, ArithmeticError))


def _open_postgres(url: URL) -> Engine:
    engine = create_engine(url, pool_pre_ping=True, pool_size=4, max_overflow=4, connect_args=POSTGRES_OPTIONS)
    event.listen(engine, "do_connect", _connect_postgres)
    event.listen(engine, "begin", _begin_postgres)
    return engine


def _begin_postgres(connection: Connection) -> None:
    if connection.get_execution_options().get(_WRITE_OPTION):
        connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = {_MAX_IDLE_MS}")


def _connect_postgres(_dialect: Any, _entry: Any, arguments: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
    return _load_bounded_connection().connect(*arguments, **parameters)


@cache
def _load_bounded_connection() -> Any:
    """Imports psycopg, which is needed only for PostgreSQL."""
    from psycopg import Connection as PsycopgConnection
    from psycopg import OperationalError
    from psycopg.pq import TransactionStatus

    class BoundedConnection(PsycopgConnection[Any]):
        """Closes itself when a statement takes too long. A frozen server does not enforce its own `statement_timeout`;
        without this limit the cycle would wait forever."""

        def wait(self, gen: Any, interval: float = _POLL_SECONDS, timeout: float | None = None) -> Any:
            """Raises OperationalError."""
            try:
                return super().wait(gen, interval, MAX_WAIT_SECONDS if timeout is None else timeout)
            except OperationalError:
                if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                    self.close()
                raise

    return BoundedConnection


def _open_sqlite(url: str) -> Engine:
    engine = create_engine(url)
    event.listen(engine, "do_connect", _protect_file)
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _protect_file(_dialect: Any, _entry: Any, arguments: Sequence[Any], _parameters: Mapping[str, Any]) -> None:
    """Only the owner may read the file, before it has any content; SQLite gives its other files the same mode."""
    path = str(arguments[0])
    if path in ("", ":memory:") or path.startswith("file:"):
        return
    with suppress(OSError):  # SQLite reports what matters
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, OWNER_ONLY))
    for file in (Path(path), Path(f"{path}-wal"), Path(f"{path}-shm")):
        with suppress(OSError):  # missing, or of another user
            mode = stat.S_IMODE(file.stat().st_mode)
            if mode & 0o077:
                file.chmod(mode & 0o700)


def _configure_sqlite(connection: Any, _: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # the driver begins no transactions by itself; see _begin_sqlite
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    is_writer = connection.get_execution_options().get(_WRITE_OPTION)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writer else "BEGIN")
