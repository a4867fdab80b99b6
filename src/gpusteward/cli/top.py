"""`gpusteward top`: watch a cluster, or one machine, in the terminal."""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpusteward.cli.exits import EXIT_OK, describe_exits
from gpusteward.cli.flags import (
    OUTPUTS,
    FlagParser,
    add_agent_flags,
    add_language_flag,
    add_server_flags,
    language_of,
    open_agent,
    open_server,
    read_seconds,
)
from gpusteward.cli.languages import Language
from gpusteward.cli.outputs import Column, write_rows
from gpusteward.cli.screen.asking import MOST_ROWS, Asked, Source, View
from gpusteward.cli.screen.cluster import ClusterSource
from gpusteward.cli.screen.node import NodeSource
from gpusteward.cli.screen.views import CLUSTER, FIRST_NODE_SORTS, FIRST_SORTS, NODE, Cell
from gpusteward.core.errors import ConfigurationError

if TYPE_CHECKING:
    from gpusteward.cli.screen.app import TopApp


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
    add_agent_flags(parser)
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
        from gpusteward.cli.screen.app import TopApp
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("gpusteward"):
            raise
        missing = (error.name or "").partition(".")[0]
        raise ConfigurationError(
            f"the screen needs {missing!r}, which is not installed: pip install 'gpusteward[cli]'"
        ) from error
    language = language_of(given)
    is_node = bool(given.agent)
    return TopApp(
        _open_source(given, language),
        NODE if is_node else CLUSTER,
        first_sorts=FIRST_NODE_SORTS if is_node else FIRST_SORTS,
        language=language,
        refresh_seconds=given.refresh,
        view=View(given.view) if given.view else View.GPUS if is_node else View.WORKLOADS,
    )


def _open_source(given: argparse.Namespace, language: Language) -> Source:
    if given.agent and given.server:
        raise ConfigurationError("--agent shows one machine, --server a cluster: give one of them")
    return NodeSource(open_agent(given), language) if given.agent else ClusterSource(open_server(given), language)


def _print_once(given: argparse.Namespace) -> int:
    """For scripts, and for those without a terminal."""
    language, output = language_of(given), given.output or "table"
    view = View(given.view or (View.GPUS if given.agent else View.WORKLOADS))
    cells = (NODE if given.agent else CLUSTER)[view]
    sort = (FIRST_NODE_SORTS if given.agent else FIRST_SORTS)[view]
    found = _open_source(given, language).read(Asked(view, sort, rows=MOST_ROWS))
    rows = [{**item, **_write(item, cells, language)} for item in found.items]
    keys = [key for key in (rows[0] if rows else ()) if not key.startswith("cell ") and key not in PRIVATE]
    write_rows(rows, [_column(cell) for cell in cells], keys=keys, output=output, language=language)
    if len(rows) < found.total:
        print(f"gpusteward: the first {len(rows)} of {found.total} rows; narrow the choice", file=sys.stderr)
    return EXIT_OK


PRIVATE = frozenset(("key", "at", "order", "namespaces", "workloads_held"))


def _write(item: object, cells: Sequence[Cell], language: Language) -> dict[str, str]:
    assert isinstance(item, dict)
    return {f"cell {cell.title.en}": cell.write(item, language) for cell in cells}


def _column(cell: Cell) -> Column:
    return Column(f"cell {cell.title.en}", cell.title, to_right=cell.to_right)
