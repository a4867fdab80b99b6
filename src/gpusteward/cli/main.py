"""`gpusteward COMMAND ...`: finds the command and turns mistakes into one line."""

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import NamedTuple

from gpusteward import __version__
from gpusteward.cli.exit_codes import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_PIPE, EXIT_USAGE
from gpusteward.core.did_you_mean import suggest
from gpusteward.core.errors import ConfigurationError, SourceError


class Command(NamedTuple):
    """Where a command lives, and what `--help` says of it."""

    module: str
    about: str


COMMANDS: Mapping[str, Command] = {
    "agent": Command("gpusteward.cli.commands.agent", "serve what this node's GPUs do, and for whom, on /metrics"),
    "serve": Command("gpusteward.cli.commands.serve", "judge the GPUs of a cluster, and serve the result over HTTP"),
    "up": Command(
        "gpusteward.cli.commands.up", "all of it on the GPUs of this machine, without Kubernetes or Prometheus"
    ),
    "demo": Command("gpusteward.cli.commands.demo", "all of it on simulated nodes, with three weeks of history"),
    "top": Command("gpusteward.cli.commands.top", "watch GPUs, workloads and tenants in the terminal"),
    "idle": Command("gpusteward.cli.commands.idle", "list who holds GPUs without using them, and since when"),
    "explain": Command(
        "gpusteward.cli.commands.explain", "tell the verdict of one workload, why, and on what evidence"
    ),
    "ps": Command("gpusteward.cli.commands.ps", "list the processes on this machine's GPUs with their pods"),
    "doctor": Command("gpusteward.cli.commands.doctor", "check what gpusteward stands on, and say how to mend it"),
    "report": Command("gpusteward.cli.commands.report", "GPU-hours and money: who held, used and wasted how much"),
    "settings": Command(
        "gpusteward.cli.commands.settings", "print the analyzer's effective settings and where each comes from"
    ),
    "completion": Command("gpusteward.cli.commands.completion", "print a completion script for bash, zsh or fish"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; what went wrong is one line on standard error."""
    try:
        code = _dispatch(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read it has seen enough, as `head` does. Python's own last flush must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE
    except ConfigurationError as error:
        print(f"gpusteward: {error}", file=sys.stderr)
        return EXIT_USAGE
    except SourceError as error:
        print(f"gpusteward: {error}", file=sys.stderr)
        return EXIT_FAILURE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return code


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
