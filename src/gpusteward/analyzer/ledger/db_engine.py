"""The only place that knows how SQLite and PostgreSQL are opened."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, SQLAlchemyError, StatementError
from sqlalchemy.pool import ConnectionPoolEntry

from gpusteward.core.errors import ConfigurationError

PRAGMAS = (
    "journal_mode = WAL",  # who reads never waits for who writes
    "synchronous = NORMAL",  # a killed process loses nothing; a power cut may cost the last commits, never half of one
    "busy_timeout = 5000",
    "cache_size = -2000",  # KiB: the pages of an hour of 50,000 allocations are touched in order, once
    "journal_size_limit = 67108864",
    "temp_store = MEMORY",
)
_POSTGRES = {
    "application_name": "gpusteward",
    "connect_timeout": 5,
    "tcp_user_timeout": 20_000,  # a host that vanished is noticed
    "keepalives_idle": 30,
    "options": "-c statement_timeout=120000 -c lock_timeout=30000",
}
_WRITES = "gpusteward_writes"


def open_engine(url: str) -> Engine:
    """Nothing is connected yet. Raises ConfigurationError for a URL that cannot be used, without repeating it."""
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            return _open_sqlite(url)
        return _open_postgres(parsed)
    except (ArgumentError, ValueError, ImportError) as error:
        raise ConfigurationError(
            f"ledger.url cannot be used ({type(error).__name__}); write sqlite:///PATH "
            "or postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        ) from None


def with_write_lock(engine: Engine) -> Engine:
    """The same database for who is going to write: SQLite then waits for its lock at the start of a transaction,
    where waiting helps, and not in the middle, where it fails."""
    return engine.execution_options(**{_WRITES: True})


def make_folder(engine: Engine) -> None:
    """Of the SQLite file. Raises OSError."""
    if engine.dialect.name == "sqlite" and engine.url.database:
        Path(engine.url.database).parent.mkdir(parents=True, exist_ok=True)


def has_vanished(engine: Engine) -> bool:
    """Whether somebody removed the SQLite file: open connections would go on writing into nothing."""
    return engine.dialect.name == "sqlite" and not Path(engine.url.database or "").exists()


def show_url(engine: Engine) -> str:
    """Without parameters: `?password=` is one of them."""
    return engine.url.set(query={}).render_as_string(hide_password=True)


def describe_error(error: Exception) -> str:
    """In one line and without what was to be written: it may be of any size, and it is nobody's business."""
    if isinstance(error, SQLAlchemyError):
        cause = getattr(error, "orig", None) or error
        told = getattr(getattr(cause, "diag", None), "message_primary", None) or cause  # its details are the row itself
        return f"{type(cause).__name__}: {' '.join(str(told).split())[:300]}"
    return f"{type(error).__name__}: {error}"


def is_data_error(error: Exception) -> bool:
    """Whether what was to be written is at fault, and not the database: it would be refused for ever."""
    if isinstance(error, DBAPIError):
        return isinstance(error, (DataError, IntegrityError)) and not error.connection_invalidated
    # What a driver cannot even put into words: a number of more than 64 bits, half a character.
    return isinstance(error, (StatementError, ValueError, TypeError, ArithmeticError))


def _open_postgres(url: URL) -> Engine:
    engine = create_engine(url, pool_pre_ping=True, pool_size=4, max_overflow=4, connect_args=_POSTGRES)
    event.listen(engine, "do_connect", _connect)
    return engine


def _connect(_dialect: Any, _entry: Any, arguments: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
    from gpusteward.analyzer.ledger.postgres import BoundedConnection  # loads the driver

    return BoundedConnection.connect(*arguments, **parameters)


def _open_sqlite(url: str) -> Engine:
    engine = create_engine(url)
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _prepare(connection: Any, _: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # the driver begins nothing by itself; see _begin
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get(_WRITES) else "BEGIN")
