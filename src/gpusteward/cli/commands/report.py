"""`gpusteward report`: GPU-hours and cost, from a running analyzer or directly from a ledger."""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from gpusteward.analyzer.reports.render.csv_text import render_csv
from gpusteward.analyzer.reports.render.focus_csv import write_focus
from gpusteward.analyzer.reports.render.html_page import render_html
from gpusteward.analyzer.reports.render.json_text import read_report, render_json
from gpusteward.analyzer.reports.report import Report
from gpusteward.analyzer.reports.report_query import (
    GROUPINGS,
    ReportQuery,
    check_grouping,
    find_label,
    parse_time_range,
)
from gpusteward.cli import flags
from gpusteward.cli.output.report_table import print_report
from gpusteward.cli.output.terminal_text import escape_controls
from gpusteward.cli.program import EXIT_OK, is_plugin, require_libraries
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.messages import Language
from gpusteward.messages.errors.os_errors import explain_os_error

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from gpusteward.analyzer.settings.settings import Settings

FORMATS = ("table", "csv", "json", "html", "focus")
TABLE_ROWS, FILE_ROWS = 30, 1000
_PATH = "/api/v1/reports"


class _Groupings(tuple[str, ...]):
    """The possible values of --by: these, and labels."""

    def __contains__(self, by: object) -> bool:
        return super().__contains__(by) or bool(find_label(str(by)))


def build_parser() -> flags.FlagParser:
    parser = flags.make_parser(
        "report", "Report GPU-hours and cost: allocated, used and idle, the trend, and what needs fewer GPUs."
    )
    parser.add_argument(
        "--since", default="7d", metavar="TIME", help="start: 24h, 7d, 4w before --until, or a date (default 7d)"
    )
    parser.add_argument("--until", metavar="TIME", help="end: a duration before now, or a date (default now)")
    parser.add_argument(
        "--by",
        choices=_Groupings(GROUPINGS),
        default="namespace",
        metavar="GROUPING",
        help=f"group by {', '.join(GROUPINGS)} or label:KEY (default namespace)",
    )
    flags.add_namespace_flag(parser)
    flags.add_cluster_flag(parser)
    count = flags.integer_between(1, 1000)
    parser.add_argument(
        "--top", type=count, default=10, metavar="N", help="number of idle workloads and of findings (default 10)"
    )
    parser.add_argument(
        "--rows", type=count, metavar="N", help=f"number of groups (default {TABLE_ROWS} in a table, else {FILE_ROWS})"
    )
    parser.add_argument(
        "--format",
        "--output",
        "-o",
        choices=FORMATS,
        default="table",
        help="output format (default table); focus: charges with the columns of FOCUS",
    )
    parser.add_argument("--output-file", metavar="PATH", help="write to this file instead of standard output")
    _add_ledger_flags(parser)
    flags.add_language_flag(parser)
    flags.add_server_flags(parser)
    return parser


def _add_ledger_flags(parser: flags.FlagParser) -> None:
    if is_plugin():
        parser.set_defaults(ledger=None, config=None)
        return
    parser.add_argument(
        "--ledger",
        nargs="?",
        const="",
        metavar="URL",
        help="read a ledger directly: a SQLite file or a database URL (default: ledger.url of the settings)",
    )
    parser.add_argument("--config", metavar="PATH", help="with --ledger: settings file with ledger.url and prices")


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, and SourceError if the analyzer or the ledger cannot be read."""
    options = build_parser().parse(arguments)
    if options.format == "focus":
        pieces = _read_charges(options)
        first = next(pieces)  # the file is created with the first piece: not if there is none because of an error
        with _open_output(options.output_file) as out:
            out.writelines(chain([first], pieces))
        return EXIT_OK
    report = _read_from_server(options) if options.ledger is None else _read_from_ledger(options)
    _write(report, options, language=flags.language_of(options))
    return EXIT_OK


def _read_from_server(options: argparse.Namespace) -> Report:
    query = [("by", options.by), ("top", str(options.top)), ("rows", str(_row_limit(options)))]
    client = flags.make_analyzer_client(options)
    try:
        return read_report(client.read(_PATH, [*_list_period(options), *query, ("format", "json")]))
    except ValueError as error:
        raise SourceError(
            f"the report of {client.url} cannot be read; check that the analyzer and this command have the same version"
        ) from error


def _list_period(options: argparse.Namespace) -> list[tuple[str, str]]:
    """What is covered, as parameters of the request."""
    query = [("since", options.since)]
    query += [("until", options.until)] if options.until else []
    query += [("cluster", name) for name in options.cluster or ()]
    return query + [("namespace", name) for name in options.namespace or ()]


def _read_from_ledger(options: argparse.Namespace) -> Report:
    query = _make_query(options)
    with _open_ledger(options) as (engine, settings):
        from gpusteward.analyzer.reports.make_report import make_report

        check_grouping(query.by, settings.ledger.labels)
        return make_report(engine, query, prices=settings.prices, teams=settings.reports.teams)


def _read_charges(options: argparse.Namespace) -> Iterator[str]:
    """The FOCUS export, of a running analyzer or a ledger."""
    if options.ledger is None:
        yield flags.make_analyzer_client(options).read_text(_PATH, [*_list_period(options), ("format", "focus")])
        return
    query = _make_query(options)
    with _open_ledger(options) as (engine, settings):
        from gpusteward.analyzer.reports.focus import read_charges

        yield from write_focus(read_charges(engine, query, prices=settings.prices, teams=settings.reports.teams))


@contextmanager
def _open_ledger(options: argparse.Namespace) -> "Iterator[tuple[Engine, Settings]]":
    """Loads the analyzer's libraries."""
    with require_libraries():
        from gpusteward.analyzer.ledger.database.db_engine import open_engine
        from gpusteward.analyzer.settings.file import SettingsFile
        from gpusteward.analyzer.settings.flags import Flags
    chosen = Flags(Path(options.config) if options.config else None)
    settings = SettingsFile(chosen, os.environ, directory=Path.cwd()).settings
    engine = open_engine(_locate(options.ledger, settings))
    try:
        yield engine, settings
    finally:
        engine.dispose()


def _make_query(options: argparse.Namespace) -> ReportQuery:
    try:
        since_ms, until_ms = parse_time_range(options.since, options.until, now_ms=time.time_ns() // 1_000_000)
    except ConfigurationError as error:
        raise ConfigurationError(f"--since, --until: {error}") from None
    return ReportQuery(
        since_ms,
        until_ms,
        options.by,
        tuple(options.namespace or ()),
        options.top,
        _row_limit(options),
        clusters=tuple(options.cluster or ()),
    )


def _locate(text: str, settings: "Settings") -> str:
    """The URL of the ledger. Raises ConfigurationError for a missing SQLite file, which would be created empty."""
    from pydantic import SecretStr, ValidationError

    from gpusteward.analyzer.settings.ledger import LedgerSettings

    url = f"sqlite:///{text}" if text and "://" not in text else text
    try:
        located = LedgerSettings(url=SecretStr(url)).locate() if url else settings.ledger.locate()
    except ValidationError:
        raise ConfigurationError(
            "--ledger is not the address of a database: write a path, sqlite:///PATH or "
            "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        ) from None
    file = Path(located.removeprefix("sqlite:///"))
    if located.startswith("sqlite:") and not file.is_file():
        raise ConfigurationError(f"there is no ledger at {file}; `gpusteward serve` creates one")
    return located


def _row_limit(options: argparse.Namespace) -> int:
    return int(options.rows or (TABLE_ROWS if options.format == "table" else FILE_ROWS))


def _write(report: Report, options: argparse.Namespace, *, language: Language) -> None:
    with _open_output(options.output_file) as out:
        if options.format == "table":
            print_report(report, language, out)
        elif options.format == "html":
            out.write(render_html(report, language))
        elif options.format == "csv":
            out.write(render_csv(report))
        elif options.output_file:
            out.write(render_json(report, indent=2))
        else:
            print(escape_controls(render_json(report, indent=2)))


@contextmanager
def _open_output(name: str | None) -> Iterator[TextIO]:
    """The file, else standard output."""
    if not name:
        yield sys.stdout
        return
    path = Path(name)
    try:
        with path.open("w", encoding="utf-8", newline="", errors="replace") as out:
            yield out
    except OSError as error:
        raise ConfigurationError(f"--output-file {path}: {explain_os_error(error)}") from error
