"""`gpusteward top`: watch a cluster or one machine in the terminal."""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gpusteward.cli import flags
from gpusteward.cli.api.workloads import check_namespaces
from gpusteward.cli.json_access import Row
from gpusteward.cli.output import words
from gpusteward.cli.output.tables import Column, write_rows
from gpusteward.cli.output.verdict_texts import describe_result_time, describe_time, warn_stale
from gpusteward.cli.program import EXIT_OK, describe_exits, is_plugin, require_libraries
from gpusteward.cli.top.agent_source import AgentSource
from gpusteward.cli.top.cluster_source import ClusterSource
from gpusteward.cli.top.columns import View, ViewColumn, sorts_of
from gpusteward.cli.top.item_source import MAX_ROWS, ItemList, ItemSource, ListRequest
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.messages import Language

if TYPE_CHECKING:
    from gpusteward.cli.top.app import TopApp


BLANK = " "  # in the line of sums; an empty text would be a dash
SORTS: Mapping[str, str] = {
    "cost": "-idle_cost",
    "rate": "-idle_cost_per_hour",
    "gpus": "-idle_gpus",
    "since": "idle_since",
    "name": "namespace",
}
"""The words of `gpusteward idle --sort`, as orders of the API."""
INTERNAL_KEYS = frozenset(("key", "at", "order", "namespaces", "workloads_held", "shows_cluster"))


def build_parser() -> flags.FlagParser:
    parser = flags.FlagParser(
        prog="gpusteward top",
        description="Watch GPUs, workloads and tenants of a cluster."
        if is_plugin()
        else "Watch GPUs, workloads and tenants of a cluster (--server) or of one machine (--agent).",
        epilog=describe_exits("top") + "\n\nPress ? for the keys.",
    )
    default = "default workloads" if is_plugin() else "default workloads; with --agent gpus"
    parser.add_argument("--view", choices=[view.value for view in View], help=f"first view ({default})")
    parser.add_argument(
        "--refresh", type=flags.read_seconds, default=5.0, metavar="SECONDS", help="refresh interval (default 5)"
    )
    parser.add_argument(
        "--output",
        "-o",
        choices=(flags.OUTPUTS[0], flags.WIDE, *flags.OUTPUTS[1:]),
        help="print the view once and exit; table without a terminal",
    )
    parser.add_argument(
        "--sort",
        metavar="ORDER",
        help="first order: cost, rate, gpus, since, name or a column; --sort=-COLUMN: descending",
    )
    parser.add_argument("--namespace", "-n", default="", metavar="NAME", help="only this namespace")
    flags.add_cluster_flag(parser)
    flags.add_language_flag(parser)
    flags.add_server_flags(parser)
    if is_plugin():
        parser.set_defaults(agent=None)
        return parser
    parser.add_argument(
        "--agent",
        nargs="?",
        const="",
        metavar="URL",
        help=f"watch one machine: address of its agent (default {flags.AGENT})",
    )
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, and SourceError if a view to print cannot be read."""
    options = build_parser().parse(arguments)
    if _prints_once(options):
        return _print_once(options)
    app = make_app(options)
    app.run()
    return app.return_code or EXIT_OK


def make_app(options: argparse.Namespace) -> "TopApp":
    """Raises MissingLibraryError if Textual is not installed, ConfigurationError for invalid flags."""
    with require_libraries():
        from gpusteward.cli.top.app import TopApp
    language = flags.language_of(options)
    source, request = _choose_source(options, language)
    return TopApp(source, request, language=language, refresh_seconds=options.refresh)


def _choose_source(options: argparse.Namespace, language: Language) -> tuple[ItemSource, ListRequest]:
    """The source, and the first request to it."""
    if options.agent is None:
        view, client = View(options.view or View.WORKLOADS), flags.make_analyzer_client(options)
        if options.namespace:
            check_namespaces(client, [options.namespace])
        waits = _prints_once(options)
        source: ItemSource = ClusterSource(client, language, options.cluster or (), waits_for_costs=waits)
    else:
        if options.server:
            raise ConfigurationError("--agent (one machine) and --server (a cluster) cannot be used together")
        view = View(options.view or View.GPUS)
        source = AgentSource(flags.make_agent_client(options), language)
    return source, ListRequest(view, _choose_sort(options, view, source), namespace=options.namespace)


def _prints_once(options: argparse.Namespace) -> bool:
    return bool(options.output) or not (sys.stdout.isatty() and sys.stdin.isatty())


def _choose_sort(options: argparse.Namespace, view: View, source: ItemSource) -> str:
    """Raises ConfigurationError."""
    if not options.sort:
        return source.first_sorts[view]
    known = sorts_of(source.columns[view])
    chosen: str = SORTS.get(options.sort, options.sort)
    if chosen.removeprefix("-") not in known:
        names = [name for name, sort in SORTS.items() if sort.removeprefix("-") in known]
        raise ConfigurationError(f"--sort: {options.sort!r} is not one of {', '.join([*names, *known])}")
    return chosen


def _print_once(options: argparse.Namespace) -> int:
    """For scripts, and without a terminal."""
    language = flags.language_of(options)
    source, request = _choose_source(options, language)
    listing = source.read(replace(request, rows=MAX_ROWS))
    is_wide = options.output == flags.WIDE
    shown = [column for column in source.columns[request.view] if is_wide or not column.is_wide]
    rows = [{**item, **{_key(column): column.write(item, language) for column in shown}} for item in listing.items]
    columns = [
        Column(_key(column), column.title, to_right=column.to_right, is_flexible=column.share > 1) for column in shown
    ]
    formatted = {column.key for column in columns}
    keys = [key for key in (rows[0] if rows else ()) if key not in formatted | INTERNAL_KEYS]
    output = "table" if is_wide else options.output or "table"
    total = _sum_up(listing.items, shown, language) if 0 < len(rows) == listing.total else None
    write_rows(rows, columns, keys=keys, output=output, language=language, total=total)
    if output == "table":
        print(_describe_time(listing, language))
    else:
        warn_stale(listing.stamp, language)
    if len(rows) < listing.total:
        note = words.FIRST_ROWS.text(language, shown=len(rows), total=listing.total)
        print(f"gpusteward: {note}", file=sys.stderr)
    return EXIT_OK


def _describe_time(listing: ItemList, language: Language) -> str:
    """An agent has a time and no results."""
    if listing.stamp or listing.at is None:
        return describe_result_time(listing.stamp, language)
    return describe_time(listing.at, language, now=time.time())


def _sum_up(items: Sequence[Row], columns: Sequence[ViewColumn], language: Language) -> Mapping[str, str] | None:
    """The line below the table, where the view has sums."""
    if not any(column.total for column in columns):
        return None
    count = words.ALL_ROWS.text(language, total=len(items))
    sums = {_key(column): column.total(items) if column.total else BLANK for column in columns}
    return {**sums, _key(columns[0]): count}


def _key(column: ViewColumn) -> str:
    """Different from all keys of the item."""
    return f"shown {column.title.en}"
