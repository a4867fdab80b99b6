"""`gpusteward report`: GPU-hours and money, from a running analyzer or straight from a ledger."""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from gpusteward.analyzer.reports.render.csv_text import render_csv
from gpusteward.analyzer.reports.render.html_page import render_html
from gpusteward.analyzer.reports.render.json_text import read_report, render_json
from gpusteward.analyzer.reports.report import By, Report, ReportQuery, parse_time_range
from gpusteward.cli.exit_codes import EXIT_OK, describe_exits
from gpusteward.cli.flags import FlagParser, add_language_flag, add_server_flags, language_of, open_server
from gpusteward.cli.output.report_table import print_report
from gpusteward.cli.output.terminal_text import escape_unfit
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.messages import Language

if TYPE_CHECKING:
    from gpusteward.analyzer.settings.settings import Settings

FORMATS = ("table", "csv", "json", "html")
TABLE_ROWS, FILE_ROWS = 30, 1000


def build_parser() -> FlagParser:
    parser = FlagParser(
        prog="gpusteward report",
        description="GPU-hours and money: who held, used and wasted how much, what changed, who would do with less.",
        epilog=describe_exits("report"),
    )
    parser.add_argument("--since", default="7d", metavar="TIME", help="24h, 7d, 4w before --until, or a date (7d)")
    parser.add_argument("--until", metavar="TIME", help="in the same way (now)")
    parser.add_argument("--by", choices=get_args(By), default="namespace", help="what a row is about (namespace)")
    parser.add_argument("--namespace", "-n", action="append", metavar="NAME", help="only these; may be repeated")
    parser.add_argument("--top", type=_read_count, default=10, metavar="N", help="so many wasters and findings (10)")
    parser.add_argument(
        "--rows", type=_read_count, metavar="N", help=f"so many groups (table {TABLE_ROWS}, else {FILE_ROWS})"
    )
    parser.add_argument(
        "--format", "--output", "-o", choices=FORMATS, default="table", help="how it is written (table)"
    )
    parser.add_argument("--output-file", metavar="PATH", help="write there instead of to standard output")
    parser.add_argument(
        "--ledger",
        nargs="?",
        const="",
        metavar="URL",
        help="read this ledger itself: a SQLite file or a database URL; without one, that of the settings",
    )
    parser.add_argument("--config", metavar="PATH", help="with --ledger: settings file with ledger and prices")
    add_language_flag(parser)
    add_server_flags(parser)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, and SourceError where neither an analyzer nor a ledger answers."""
    given = build_parser().parse(arguments)
    report = _read_from_server(given) if given.ledger is None else _read_from_ledger(given)
    _write(report, given, language=language_of(given))
    return EXIT_OK


def _read_from_server(given: argparse.Namespace) -> Report:
    query = [("since", given.since), ("by", given.by), ("top", str(given.top)), ("rows", str(_rows(given)))]
    query += [("until", given.until)] if given.until else []
    query += [("namespace", name) for name in given.namespace or ()]
    client = open_server(given)
    try:
        return read_report(client.read("/api/v1/reports", [*query, ("format", "json")]))
    except ValueError as error:
        raise SourceError(f"{client.url} does not answer as an analyzer of this version does") from error


def _read_from_ledger(given: argparse.Namespace) -> Report:
    """The libraries of the analyzer are loaded only now."""
    query = _make_query(given)
    try:
        from gpusteward.analyzer.ledger.db_engine import open_engine
        from gpusteward.analyzer.reports.make_report import make_report
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("gpusteward"):
            raise
        raise ConfigurationError(
            f"--ledger needs {error.name!r}, which is not installed: pip install 'gpusteward[analyzer]'"
        ) from error
    settings = _read_settings(given)
    engine = open_engine(_locate(given.ledger, settings))
    try:
        return make_report(engine, query, prices=settings.prices)
    finally:
        engine.dispose()


def _make_query(given: argparse.Namespace) -> ReportQuery:
    try:
        since_ms, until_ms = parse_time_range(given.since, given.until, now_ms=time.time_ns() // 1_000_000)
    except ValueError as error:
        raise ConfigurationError(f"--since, --until: {error}") from None
    return ReportQuery(since_ms, until_ms, given.by, tuple(given.namespace or ()), given.top, _rows(given))


def _read_settings(given: argparse.Namespace) -> "Settings":
    from gpusteward.analyzer.settings.file import SettingsFile
    from gpusteward.analyzer.settings.flags import Flags

    flags = Flags(Path(given.config) if given.config else None)
    return SettingsFile(flags, os.environ, directory=Path.cwd()).settings


def _locate(told: str, settings: "Settings") -> str:
    """The URL of the ledger. A SQLite file that is not there would be made anew, and be empty."""
    from pydantic import SecretStr, ValidationError

    from gpusteward.analyzer.settings.ledger import LedgerSettings

    url = f"sqlite:///{told}" if told and "://" not in told else told
    try:
        located = LedgerSettings(url=SecretStr(url)).locate() if url else settings.ledger.locate()
    except ValidationError:
        raise ConfigurationError(
            "--ledger is no database: write a path, sqlite:///PATH or postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        ) from None
    file = Path(located.removeprefix("sqlite:///"))
    if located.startswith("sqlite:") and not file.is_file():
        raise ConfigurationError(f"there is no ledger at {file}; `gpusteward serve` makes one")
    return located


def _rows(given: argparse.Namespace) -> int:
    return int(given.rows or (TABLE_ROWS if given.format == "table" else FILE_ROWS))


def _write(report: Report, given: argparse.Namespace, *, language: Language) -> None:
    if not given.output_file:
        _print(report, given.format, language)
        return
    path = Path(given.output_file)
    try:
        with path.open("w", encoding="utf-8", newline="", errors="replace") as out:
            if given.format == "table":
                print_report(report, language, out)
            else:
                out.write(_render(report, given.format, language))
    except OSError as error:
        raise ConfigurationError(f"--output-file {path}: {error.strerror}") from error


def _print(report: Report, form: str, language: Language) -> None:
    if form == "table":
        print_report(report, language, sys.stdout)
    elif form == "json":
        print(escape_unfit(_render(report, form, language)))
    else:
        sys.stdout.write(_render(report, form, language))


def _render(report: Report, form: str, language: Language) -> str:
    if form == "html":
        return render_html(report, language)
    return render_csv(report) if form == "csv" else render_json(report, indent=2)


def _read_count(text: str) -> int:
    """Raises what argparse turns into a line."""
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 1000")
    return int(text)
