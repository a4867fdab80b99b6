"""`gpusteward ledger`: moves a ledger from SQLite to PostgreSQL, or deletes what a wrong clock has recorded."""

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from gpusteward.analyzer.reports.render.quantities import moment
from gpusteward.cli.commands.serve import build_settings_parser
from gpusteward.cli.flags import FlagParser
from gpusteward.cli.output.tables import show_progress
from gpusteward.cli.program import EXIT_OK, require_libraries
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.logs import configure_logs
from gpusteward.messages.errors import ledger_errors

if TYPE_CHECKING:
    from sqlalchemy import Engine


def build_parser() -> FlagParser:
    """Raises ModuleNotFoundError if the analyzer's libraries are missing."""
    parser = build_settings_parser(
        "ledger",
        "copy: from an SQLite file to the empty PostgreSQL of ledger.url (GPUSTEWARD_LEDGER__URL). A copy that was "
        "interrupted continues; at the end all sums are compared. delete-after: delete what was recorded after a time, "
        "where the clock was wrong. The analyzer must be stopped.",
        without=("--address", "--tokens-file", "--web-config-file"),
    )
    parser.add_argument(
        "action",
        choices=["copy", "delete-after"],
        help="copy: from SQLite to PostgreSQL; delete-after: delete what was recorded after TIME",
    )
    parser.add_argument(
        "time",
        nargs="?",
        metavar="TIME",
        help="delete-after: such as 2026-11-01T08:00Z or 2h (ago); the hour in which it is stays",
    )
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="PATH",
        help="the SQLite file (default: gpusteward.db in ledger.directory)",
    )
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, SourceError."""
    with require_libraries():
        options = build_parser().parse(arguments)

        from pydantic import SecretStr
        from sqlalchemy.exc import SQLAlchemyError

        from gpusteward.analyzer.ledger.database.clock import IN_USE
        from gpusteward.analyzer.ledger.database.db_engine import describe_error, open_engine
        from gpusteward.analyzer.ledger.database.leadership import FileOwner
        from gpusteward.analyzer.settings.file import SettingsFile
        from gpusteward.analyzer.settings.flags import flags_from
    configure_logs(level="warning", as_json=False)
    is_copy = options.action == "copy"
    if is_copy != (options.time is None):
        raise ConfigurationError("delete-after needs a TIME, and copy has none")
    settings = SettingsFile(flags_from(options), os.environ, directory=Path.cwd()).settings.ledger
    given = f"sqlite:///{options.source}" if options.source else "" if is_copy else settings.url.get_secret_value()
    source = settings.model_copy(update={"url": SecretStr(given), "enabled": True})
    with FileOwner(source) as owner, ExitStack() as opened:
        target = open_engine(settings.locate())
        opened.callback(target.dispose)
        if is_copy and target.dialect.name != "postgresql":
            raise ConfigurationError(ledger_errors.COPY_NOT_POSTGRESQL)
        reading = open_engine(source.locate())
        opened.callback(reading.dispose)
        path = Path(reading.url.database or "")
        if reading.dialect.name == "sqlite" and not path.is_file():
            raise ConfigurationError(ledger_errors.COPY_NO_FILE, path=path)
        if not owner.take():
            raise SourceError(ledger_errors.COPY_SOURCE_IN_USE if is_copy else IN_USE)
        try:
            if is_copy:
                _copy(reading, target)
            else:
                _delete(reading, options.time)
        except SQLAlchemyError as error:
            raise SourceError(ledger_errors.NOT_WRITABLE, reason=describe_error(error)) from error
    return EXIT_OK


def _copy(source: "Engine", target: "Engine") -> None:
    from gpusteward.analyzer.ledger.database.copy import copy_ledger

    with show_progress("copying the ledger", without_terminal="copying the ledger ...") as advance:
        rows = copy_ledger(source, target, advance)
    usage = rows["usage_hourly"] + rows["usage_daily"]
    print(f"done; the sums are equal; rows: {sum(rows.values())}, of them hours and days of allocations: {usage}")


def _delete(ledger: "Engine", after: str) -> None:
    from gpusteward.analyzer.ledger.database.clock import delete_after
    from gpusteward.analyzer.reports.report_query import parse_time

    begin_ms, rows = delete_after(ledger, parse_time(after, before_ms=time.time_ns() // 1_000_000))
    print(f"deleted {rows} hours and days of allocations and nodes, from {moment(begin_ms)} UTC on")
