"""`gpusteward help [COMMAND]`: the commands, or the flags of one of them."""

from collections.abc import Sequence

from gpusteward.cli.flags import FlagParser, add_language_flag, make_parser
from gpusteward.cli.program import EXIT_OK


def build_parser() -> FlagParser:
    from gpusteward.cli.main import list_commands

    parser = make_parser(
        "help", "Describe a command, as `gpusteward COMMAND --help` does; without one, list all commands."
    )
    add_language_flag(parser)
    parser.add_argument(
        "command", nargs="?", metavar="COMMAND", choices=sorted(list_commands()), help="command to describe"
    )
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError for an unknown command, SystemExit after its help."""
    from gpusteward.cli.main import describe_commands, run_command

    options = build_parser().parse(arguments)
    if not options.command:
        print(describe_commands())
        return EXIT_OK
    return run_command(options.command, ["--help"])
