"""`gpusteward COMMAND ...`: finds the command and turns mistakes into one line."""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import NamedTuple

from gpusteward import __version__
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.nearest import suggest

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130  # as shells count: 128 + SIGINT


class Command(NamedTuple):
    """Where a command lives, and what `--help` says of it."""

    module: str
    about: str


COMMANDS: Mapping[str, Command] = {
    "agent": Command("gpusteward.cli.agent", "serve what this node's GPUs do, and for whom, on /metrics"),
    "serve": Command("gpusteward.cli.serve", "judge the GPUs of a cluster, and serve the result over HTTP"),
    "settings": Command("gpusteward.cli.settings", "print the analyzer's effective settings and where each comes from"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; what went wrong is one line on standard error."""
    try:
        return _dispatch(list(sys.argv[1:] if argv is None else argv))
    except ConfigurationError as error:
        print(f"gpusteward: {error}", file=sys.stderr)
        return EXIT_USAGE
    except SourceError as error:
        print(f"gpusteward: {error}", file=sys.stderr)
        return EXIT_FAILURE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _dispatch(arguments: list[str]) -> int:
    word = arguments[0] if arguments else ""
    if word in COMMANDS:
        run = import_module(COMMANDS[word].module).run
        return int(run(arguments[1:]))
    if word in ("--version", "-V", "version"):
        print(f"gpusteward {__version__}")
        return 0
    if word in ("--help", "-h", "help"):
        print(_help())
        return 0
    if not word:
        print(_help(), file=sys.stderr)
        return EXIT_USAGE
    kind = "flag" if word.startswith("-") else "command"
    near = suggest(word, [*COMMANDS, "--help", "--version"])
    raise ConfigurationError(f"unknown {kind} {word!r}{near or '; gpusteward --help lists what there is'}")


def _help() -> str:
    lines = [f"  {name:<10} {command.about}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: gpusteward COMMAND [flags]",
            "",
            "Who holds each GPU of a Kubernetes cluster, how well it is used, and what the waste costs.",
            "",
            "commands:",
            *lines,
            "",
            "gpusteward COMMAND --help explains a command; gpusteward --version tells the version.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
