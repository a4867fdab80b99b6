"""`gpusteward demo`: the whole product on simulated nodes."""

from collections.abc import Sequence

from gpusteward.cli.serve import explain_missing
from gpusteward.core.errors import ConfigurationError

MOST_NODES = 200


def run(arguments: Sequence[str]) -> int:
    """Serve a cluster that does not exist until Ctrl-C. Raises ConfigurationError for what a person can mend."""
    try:
        from gpusteward.analyzer.app import leave_threads_behind
        from gpusteward.analyzer.settings import flags
        from gpusteward.local.demo import Plan, run_demo
    except ModuleNotFoundError as error:
        raise explain_missing(error, "agent,analyzer") from error
    parser = flags.FlagParser(prog="gpusteward demo", description="Show the whole product on GPUs that do not exist.")
    parser.add_argument("--nodes", type=int, default=Plan.nodes, help=f"how many nodes, 1 to {MOST_NODES} (default 40)")
    parser.add_argument("--seed", type=int, default=Plan.seed, help="another number is another cluster (default 7)")
    flags.add_settings_flags(parser)
    given = parser.parse(arguments)
    if not 1 <= given.nodes <= MOST_NODES:
        raise ConfigurationError(f"--nodes {given.nodes}: choose 1 to {MOST_NODES}")
    code = run_demo(Plan(given.nodes, given.seed), flags.flags_from(given))
    leave_threads_behind()
    return code
