"""The version of the tables: they are created in an empty database, and a ledger of any other version is refused.

There is one version so far. The first change of the tables after a release brings its upgrade with it, here.
"""

from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, inspect, select, text

from gpusteward.analyzer.ledger.database.db_engine import with_write_lock
from gpusteward.analyzer.ledger.database.schema import METADATA
from gpusteward.core.errors import SourceError
from gpusteward.logs import Log
from gpusteward.messages.errors import ledger_errors

log = Log(__name__)

SCHEMA_VERSION = "0014"
_VERSION = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
"""Named as Alembic names it, which can take over when there is something to upgrade."""
_LOCK_NUMBER = 4_770_837_001  # arbitrary, but the same in every gpusteward


def create_tables(engine: Engine) -> None:
    """In one transaction, unless they are there. Raises SourceError for another version, SQLAlchemyError."""
    with engine.connect() as connection:
        if has_tables(connection):
            return
    with with_write_lock(engine).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _LOCK_NUMBER})
        if not has_tables(connection):
            METADATA.create_all(connection, checkfirst=False)
            _VERSION.create(connection)
            connection.execute(_VERSION.insert(), {"version_num": SCHEMA_VERSION})
            log.info("ledger_created", version=SCHEMA_VERSION)


def has_tables(connection: Connection) -> bool:
    """False for an empty database. Raises SourceError for a ledger of another version."""
    if not inspect(connection).has_table(_VERSION.name):
        return False
    version = connection.execute(select(_VERSION.c.version_num)).scalar()
    if version != SCHEMA_VERSION:
        raise SourceError(ledger_errors.OTHER_SCHEMA, version=version or "-", supported=SCHEMA_VERSION)
    return True
