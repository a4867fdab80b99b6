"""`gpusteward demo`: agent and analyzer on simulated nodes."""

from collections.abc import Sequence

from gpusteward.cli.commands import demo_load
from gpusteward.cli.commands.serve import build_settings_parser
from gpusteward.cli.flags import FlagParser, integer_between, language_of
from gpusteward.cli.libraries import require_libraries
from gpusteward.cli.output.console import show_progress
from gpusteward.messages.cli import local as messages
from gpusteward.process_exit import exit_without_threads

NODES, MAX_NODES = 40, 200
SEED = 7
LOAD = "load"


def build_parser() -> FlagParser:
    parser = build_settings_parser(
        "demo",
        "Run the analyzer on simulated GPU nodes with three weeks of history.",
        without=("--config", "--prometheus-url"),
    )
    parser.add_argument(
        "--nodes",
        type=integer_between(1, MAX_NODES),
        default=NODES,
        help=f"number of nodes, 1 to {MAX_NODES} (default {NODES})",
    )
    parser.add_argument(
        "--seed", type=int, default=SEED, help=f"seed of the simulation: each one is another cluster (default {SEED})"
    )
    parser.add_argument(
        "action", nargs="?", choices=(LOAD,), help="start a load in the running demo: gpusteward demo load --help"
    )
    return parser


def run(arguments: Sequence[str]) -> int:
    """Serve a simulated cluster until Ctrl-C. Raises ConfigurationError."""
    if arguments[:1] == [LOAD]:
        return demo_load.run(arguments[1:])
    with require_libraries():
        from gpusteward.analyzer.settings.flags import flags_from
        from gpusteward.local.demo_settings import prepare_demo
    options = build_parser().parse(arguments)
    language = language_of(options)
    title = messages.SIMULATING_HISTORY.text(language)
    with prepare_demo(flags_from(options), language) as setup:
        with require_libraries():
            from gpusteward.local.demo import run_demo
        progress = show_progress(title, without_terminal=f"{title} ...")
        code = run_demo(setup, nodes=options.nodes, seed=options.seed, language=language, show_progress=progress)
    exit_without_threads(code)
    return code
