"""`gpusteward top`: watch a cluster or one machine in the terminal."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gpusteward.cli.exit_codes import EXIT_OK, describe_exits
from gpusteward.cli.extras import require_extra
from gpusteward.cli.flags import (
    AGENT,
    OUTPUTS,
    FlagParser,
    add_language_flag,
    add_server_flags,
    language_of,
    make_agent_client,
    make_analyzer_client,
    read_seconds,
)
from gpusteward.cli.output.formats import Column, write_rows
from gpusteward.cli.top.cluster_source import ClusterSource
from gpusteward.cli.top.node_source import NodeSource
from gpusteward.cli.top.source_protocol import MAX_ROWS, Item, ListRequest, Source, View
from gpusteward.cli.top.views import CLUSTER, FIRST_NODE_SORTS, FIRST_SORTS, NODE, ViewColumn
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.messages import Language
from gpusteward.messages import top as messages

if TYPE_CHECKING:
    from gpusteward.cli.top.app import TopApp

INTERNAL_KEYS = frozenset(("key", "at", "order", "namespaces", "workloads_held"))


def build_parser() -> FlagParser:
    parser = FlagParser(
        prog="gpusteward top",
        description="Watch GPUs, workloads and tenants of a cluster (--server) or of one machine (--agent).",
        epilog=describe_exits("top") + "\n\nPress ? for the keys.",
    )
    parser.add_argument(
        "--view", choices=[view.value for view in View], help="first view (default workloads; with --agent gpus)"
    )
    parser.add_argument(
        "--refresh", type=read_seconds, default=5.0, metavar="SECONDS", help="refresh interval (default 5)"
    )
    parser.add_argument(
        "--output", "-o", choices=OUTPUTS, help="print the view once and exit; table without a terminal"
    )
    add_language_flag(parser)
    add_server_flags(parser)
    parser.add_argument(
        "--agent", nargs="?", const="", metavar="URL", help=f"watch one machine: address of its agent (default {AGENT})"
    )
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, and SourceError if a view to print cannot be read."""
    options = build_parser().parse(arguments)
    if options.output or not (sys.stdout.isatty() and sys.stdin.isatty()):
        return _print_once(options)
    app = make_app(options)
    app.run()
    return app.return_code or EXIT_OK


def make_app(options: argparse.Namespace) -> "TopApp":
    """Raises MissingLibraryError if Textual is not installed, ConfigurationError for invalid flags."""
    with require_extra("cli"):
        from gpusteward.cli.top.app import TopApp
    language = language_of(options)
    choice = _choose_source(options, language)
    return TopApp(
        choice.source,
        choice.columns,
        first_sorts=choice.sorts,
        language=language,
        refresh_seconds=options.refresh,
        view=choice.view,
    )


class _SourceChoice(NamedTuple):
    """The source, with its columns and sort orders."""

    source: Source
    columns: Mapping[View, Sequence[ViewColumn]]
    sorts: Mapping[View, str]
    view: View


def _choose_source(options: argparse.Namespace, language: Language) -> _SourceChoice:
    if options.agent is None:
        view = View(options.view or View.WORKLOADS)
        return _SourceChoice(ClusterSource(make_analyzer_client(options), language), CLUSTER, FIRST_SORTS, view)
    if options.server:
        raise ConfigurationError(messages.AGENT_OR_SERVER)
    view = View(options.view or View.GPUS)
    return _SourceChoice(NodeSource(make_agent_client(options), language), NODE, FIRST_NODE_SORTS, view)


def _print_once(options: argparse.Namespace) -> int:
    """For scripts, and without a terminal."""
    language = language_of(options)
    source, view_columns, sorts, view = _choose_source(options, language)
    listing = source.read(ListRequest(view, sorts[view], rows=MAX_ROWS))
    shown = view_columns[view]
    rows = [{**item, **_format(item, shown, language)} for item in listing.items]
    columns = [
        Column(_key(column), column.title, to_right=column.to_right, is_flexible=column.share > 1) for column in shown
    ]
    formatted = {column.key for column in columns}
    keys = [key for key in (rows[0] if rows else ()) if key not in formatted | INTERNAL_KEYS]
    write_rows(rows, columns, keys=keys, output=options.output or "table", language=language)
    if len(rows) < listing.total:
        note = messages.FIRST_ROWS.text(language, shown=len(rows), total=listing.total)
        print(f"gpusteward: {note}", file=sys.stderr)
    return EXIT_OK


def _format(item: Item, columns: Sequence[ViewColumn], language: Language) -> Mapping[str, str]:
    return {_key(column): column.write(item, language) for column in columns}


def _key(column: ViewColumn) -> str:
    """Different from all keys of the item."""
    return f"shown {column.title.en}"
