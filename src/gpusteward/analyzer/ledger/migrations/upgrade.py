"""Upgrades the tables to the schema of this program. Alembic is loaded only for a ledger with an older schema."""

from pathlib import Path

from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, column, inspect, select, table, text

from gpusteward.analyzer.ledger.db_engine import with_write_lock
from gpusteward.analyzer.ledger.schema import METADATA
from gpusteward.core.errors import SourceError
from gpusteward.logs import Log
from gpusteward.messages.errors import ledger_errors

log = Log(__name__)

HEAD = "0010"
"""The schema version that this program writes. Known without alembic."""
VERSION_TABLE = "alembic_version"
_FOLDER = Path(__file__).parent
_LOCK_NUMBER = 4_770_837_001  # arbitrary, but the same in every gpusteward


def upgrade(engine: Engine) -> None:
    """In one transaction. Raises SourceError for a ledger of a newer program, SQLAlchemyError if the upgrade fails."""
    with engine.connect() as connection:
        if read_version(connection) == HEAD:
            return
    with with_write_lock(engine).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _LOCK_NUMBER})
        version = read_version(connection)
        if version is None:
            _create_tables(connection)
        elif version != HEAD:
            run_migrations(connection, version)
            log.info("ledger_upgraded", before=version, now=HEAD)


def read_version(connection: Connection) -> str | None:
    """The schema version; None for an empty database."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    version: str | None = connection.execute(select(column("version_num")).select_from(table(VERSION_TABLE))).scalar()
    return version


def _create_tables(connection: Connection) -> None:
    """The result of all migrations without running them; a test compares the two."""
    METADATA.create_all(connection, checkfirst=False)
    version = Table(VERSION_TABLE, MetaData(), Column("version_num", String(32), primary_key=True))
    version.create(connection)
    connection.execute(version.insert(), {"version_num": HEAD})
    log.info("ledger_created", version=HEAD)


def run_migrations(connection: Connection, version: str | None) -> None:
    """From this version to HEAD. Raises SourceError for a version that this program does not know."""
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if version is not None and version not in known:
        raise SourceError(ledger_errors.NEWER_SCHEMA, version=version, supported=HEAD)
    command.upgrade(config, HEAD)
