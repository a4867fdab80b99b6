"""`gpusteward top`: watch a cluster, or one machine, in the terminal."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gpusteward.cli.exit_codes import EXIT_OK, describe_exits
from gpusteward.cli.flags import (
    AGENT,
    OUTPUTS,
    FlagParser,
    add_language_flag,
    add_server_flags,
    language_of,
    open_agent,
    open_server,
    read_seconds,
)
from gpusteward.cli.output.formats import Column, write_rows
from gpusteward.cli.top.cluster_source import ClusterSource
from gpusteward.cli.top.node_source import NodeSource
from gpusteward.cli.top.source_protocol import MOST_ROWS, Asked, Item, Source, View
from gpusteward.cli.top.views import CLUSTER, FIRST_NODE_SORTS, FIRST_SORTS, NODE, Cell
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.messages import Language

if TYPE_CHECKING:
    from gpusteward.cli.top.app import TopApp

PRIVATE = frozenset(("key", "at", "order", "namespaces", "workloads_held"))


def build_parser() -> FlagParser:
    parser = FlagParser(
        prog="gpusteward top",
        description="Watch GPUs, workloads and tenants: of a cluster (--server), or of one machine (--agent).",
        epilog=describe_exits("top") + "\n\nKeys: press ? in the screen.",
    )
    parser.add_argument("--view", choices=[view.value for view in View], help="where to begin (default workloads)")
    parser.add_argument(
        "--refresh", type=read_seconds, default=5.0, metavar="SECONDS", help="how often to read again (5)"
    )
    parser.add_argument(
        "--output", "-o", choices=OUTPUTS, help="print the view once instead; the default where there is no terminal"
    )
    add_language_flag(parser)
    add_server_flags(parser)
    parser.add_argument(
        "--agent", nargs="?", const="", metavar="URL", help=f"one machine instead: its agent (default {AGENT})"
    )
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, and SourceError where nobody answers a question to be printed."""
    given = build_parser().parse(arguments)
    if given.output or not (sys.stdout.isatty() and sys.stdin.isatty()):
        return _print_once(given)
    app = make_app(given)
    app.run()
    return app.return_code or EXIT_OK


def make_app(given: argparse.Namespace) -> "TopApp":
    """Raises ConfigurationError where Textual is not installed."""
    try:
        from gpusteward.cli.top.app import TopApp
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("gpusteward"):
            raise
        missing = (error.name or "").partition(".")[0]
        raise ConfigurationError(
            f"the screen needs {missing!r}, which is not installed: pip install 'gpusteward[cli]'"
        ) from error
    language = language_of(given)
    scene = _set_scene(given, language)
    return TopApp(
        scene.source,
        scene.cells,
        first_sorts=scene.sorts,
        language=language,
        refresh_seconds=given.refresh,
        view=scene.view,
    )


class _Scene(NamedTuple):
    """Who is asked, and what is shown of it."""

    source: Source
    cells: Mapping[View, Sequence[Cell]]
    sorts: Mapping[View, str]
    view: View


def _set_scene(given: argparse.Namespace, language: Language) -> _Scene:
    if given.agent is None:
        view = View(given.view or View.WORKLOADS)
        return _Scene(ClusterSource(open_server(given), language), CLUSTER, FIRST_SORTS, view)
    if given.server:
        raise ConfigurationError("--agent shows one machine, --server a cluster: give one of them")
    view = View(given.view or View.GPUS)
    return _Scene(NodeSource(open_agent(given), language), NODE, FIRST_NODE_SORTS, view)


def _print_once(given: argparse.Namespace) -> int:
    """For scripts, and for those without a terminal."""
    language = language_of(given)
    source, cells, sorts, view = _set_scene(given, language)
    found = source.read(Asked(view, sorts[view], rows=MOST_ROWS))
    rows = [{**item, **_write(item, cells[view], language)} for item in found.items]
    columns = [
        Column(_key(cell), cell.title, to_right=cell.to_right, is_flexible=cell.share > 1) for cell in cells[view]
    ]
    shown = {column.key for column in columns}
    keys = [key for key in (rows[0] if rows else ()) if key not in shown | PRIVATE]
    write_rows(rows, columns, keys=keys, output=given.output or "table", language=language)
    if len(rows) < found.total:
        print(f"gpusteward: these are the first {len(rows)} of {found.total} rows", file=sys.stderr)
    return EXIT_OK


def _write(item: Item, cells: Sequence[Cell], language: Language) -> Mapping[str, str]:
    return {_key(cell): cell.write(item, language) for cell in cells}


def _key(cell: Cell) -> str:
    """Beside the keys of the item, whose values it shows."""
    return f"shown {cell.title.en}"
