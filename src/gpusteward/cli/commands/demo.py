"""`gpusteward demo`: the whole product on simulated nodes."""

from collections.abc import Sequence

from gpusteward.cli.extras import build_settings_parser, needing
from gpusteward.cli.flags import FlagParser
from gpusteward.cli.output.console import show_progress
from gpusteward.core.errors import ConfigurationError

NODES, MOST_NODES = 40, 200
SEED = 7
PAST = "making up three weeks of history"


def build_parser() -> FlagParser:
    parser = build_settings_parser("demo", "Show the whole product on GPUs that do not exist.")
    parser.add_argument("--nodes", type=int, default=NODES, help=f"how many nodes, 1 to {MOST_NODES} (default {NODES})")
    parser.add_argument("--seed", type=int, default=SEED, help=f"another number is another cluster (default {SEED})")
    return parser


def run(arguments: Sequence[str]) -> int:
    """Serve a cluster that does not exist until Ctrl-C. Raises ConfigurationError for what a person can mend."""
    with needing("agent,analyzer"):
        from gpusteward.analyzer.serve import exit_without_threads
        from gpusteward.analyzer.settings.flags import flags_from
        from gpusteward.local.demo import run_demo
    given = build_parser().parse(arguments)
    if not 1 <= given.nodes <= MOST_NODES:
        raise ConfigurationError(f"--nodes {given.nodes}: choose 1 to {MOST_NODES}")
    past = show_progress(PAST, otherwise=f"{PAST} ...")
    code = run_demo(flags_from(given), nodes=given.nodes, seed=given.seed, show_progress=past)
    exit_without_threads()
    return code
