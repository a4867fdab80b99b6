"""Brings the tables to the version of this program. Alembic is loaded only for books of an older one."""

from pathlib import Path

from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, column, inspect, select, table, text

from gpusteward.analyzer.ledger.db_engine import with_write_lock
from gpusteward.analyzer.ledger.schema import METADATA
from gpusteward.core.errors import SourceError
from gpusteward.logs import Log

log = Log(__name__)

HEAD = "0002"
"""The schema version that this program writes. Known without alembic, which is loaded only to run migrations."""
VERSION_TABLE = "alembic_version"
_FOLDER = Path(__file__).parent
_LOCK_NUMBER = 4_770_837_001  # any number, as long as every gpusteward has the same


def upgrade(engine: Engine) -> None:
    """All of it or nothing. Raises SourceError for books of a newer program, SQLAlchemyError when it cannot be done."""
    with engine.connect() as connection:
        if read_version(connection) == HEAD:
            return
    with with_write_lock(engine).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _LOCK_NUMBER})
        version = read_version(connection)
        if version is None:
            _create(connection)
        elif version != HEAD:
            take_steps(connection, version)
            log.info("ledger_upgraded", before=version, now=HEAD)


def read_version(connection: Connection) -> str | None:
    """None where there are no books yet."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    version: str | None = connection.execute(select(column("version_num")).select_from(table(VERSION_TABLE))).scalar()
    return version


def _create(connection: Connection) -> None:
    """What all steps together make, without taking them; a test compares the two."""
    METADATA.create_all(connection, checkfirst=False)
    version = Table(VERSION_TABLE, MetaData(), Column("version_num", String(32), primary_key=True))
    version.create(connection)
    connection.execute(version.insert(), {"version_num": HEAD})
    log.info("ledger_created", version=HEAD)


def take_steps(connection: Connection, version: str | None) -> None:
    """From this version to that of today. Raises SourceError for a version this program does not know."""
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    config.attributes["connection"] = connection
    known = {step.revision for step in ScriptDirectory.from_config(config).walk_revisions()}
    if version is not None and version not in known:
        raise SourceError(
            f"the books are of version {version}, this gpusteward knows up to {HEAD}: a newer one wrote them; "
            "use that one, or another database (ledger.url)"
        )
    command.upgrade(config, HEAD)
