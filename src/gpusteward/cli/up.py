"""`gpusteward up`: the whole product on the GPUs of this machine."""

from collections.abc import Sequence

from gpusteward.cli.serve import explain_missing


def run(arguments: Sequence[str]) -> int:
    """Serve until Ctrl-C. Raises SourceError without a GPU, ConfigurationError for what a person can mend."""
    try:
        from gpusteward.analyzer.app import leave_threads_behind
        from gpusteward.analyzer.settings import flags
        from gpusteward.local.up import run_up
    except ModuleNotFoundError as error:
        raise explain_missing(error, "agent,analyzer") from error
    parser = flags.FlagParser(prog="gpusteward up", description="Watch and judge the GPUs of this machine.")
    flags.add_settings_flags(parser)
    code = run_up(flags.flags_from(parser.parse(arguments)))
    leave_threads_behind()
    return code
