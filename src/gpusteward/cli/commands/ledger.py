"""`gpusteward ledger copy`: moves a ledger from SQLite to PostgreSQL."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from gpusteward.cli.commands.serve import build_settings_parser
from gpusteward.cli.exit_codes import EXIT_OK
from gpusteward.cli.flags import FlagParser, language_of
from gpusteward.cli.libraries import require_libraries
from gpusteward.cli.output.console import show_progress
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.logs import configure_logs
from gpusteward.messages.cli import ledger as messages
from gpusteward.messages.errors import ledger_errors


def build_parser() -> FlagParser:
    """Raises ModuleNotFoundError if the analyzer's libraries are missing."""
    parser = build_settings_parser(
        "ledger",
        "Copy a ledger from an SQLite file to the empty PostgreSQL of ledger.url (GPUSTEWARD_LEDGER__URL). The "
        "analyzer must be stopped. A copy that was interrupted continues; at the end all sums are compared.",
        without=("--address", "--tokens-file", "--web-config-file"),
    )
    parser.add_argument("action", choices=["copy"], help="copy: from SQLite to PostgreSQL")
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

        from gpusteward.analyzer.ledger.copy import copy_ledger
        from gpusteward.analyzer.ledger.db_engine import describe_error, open_engine
        from gpusteward.analyzer.ledger.file_owner import FileOwner
        from gpusteward.analyzer.settings.file import SettingsFile
        from gpusteward.analyzer.settings.flags import flags_from
    configure_logs(level="warning", as_json=False)
    language = language_of(options)
    settings = SettingsFile(flags_from(options), os.environ, directory=Path.cwd()).settings.ledger
    given = f"sqlite:///{options.source}" if options.source else ""
    source = settings.model_copy(update={"url": SecretStr(given), "enabled": True})
    with FileOwner(source) as owner, ExitStack() as opened:
        target = open_engine(settings.locate())
        opened.callback(target.dispose)
        if target.dialect.name != "postgresql":
            raise ConfigurationError(ledger_errors.COPY_NOT_POSTGRESQL)
        reading = open_engine(source.locate())
        opened.callback(reading.dispose)
        path = Path(reading.url.database or "")
        if not path.is_file():
            raise ConfigurationError(ledger_errors.COPY_NO_FILE, path=path)
        if not owner.take():
            raise SourceError(ledger_errors.COPY_SOURCE_IN_USE)
        waiting = messages.WITHOUT_TERMINAL.text(language)
        with show_progress(messages.TITLE.text(language), without_terminal=waiting) as advance:
            try:
                rows = copy_ledger(reading, target, advance)
            except SQLAlchemyError as error:
                raise SourceError(ledger_errors.NOT_WRITABLE, reason=describe_error(error)) from error
    usage = rows["usage_hourly"] + rows["usage_daily"]
    print(messages.DONE.text(language, rows=sum(rows.values()), usage=usage))
    return EXIT_OK
