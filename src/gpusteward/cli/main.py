"""`gpusteward COMMAND ...`: runs the command and prints errors as one line."""

import atexit
import gc
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType

from gpusteward import __version__
from gpusteward.cli.program import (
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_PIPE,
    EXIT_USAGE,
    PLUGIN_COMMANDS,
    is_plugin,
    name_program,
)
from gpusteward.core.did_you_mean import suggest
from gpusteward.core.errors import ConfigurationError, SourceError

COMMANDS: Mapping[str, str] = {
    "agent": "export the GPU metrics of this node, attributed to pods, on /metrics",
    "serve": "run the analyzer: verdicts on the GPUs of a cluster, served over HTTP",
    "up": "run agent and analyzer on this machine's GPUs, without Kubernetes or Prometheus",
    "demo": "run the analyzer on simulated nodes with three weeks of history",
    "top": "watch GPUs, workloads and tenants in the terminal",
    "idle": "list workloads that hold GPUs without using them",
    "explain": "show the verdict on a workload with its reasons and evidence",
    "plan": "show what reclaim would do now, with every guard and its answer",
    "replay": "show what a policy would have released in the past, and what would have been regretted",
    "policies": "show the policies of reclaim, or print an example",
    "lend": "show how many idle GPUs can be lent for how long",
    "actions": "list what reclaim planned, did, refused and put back",
    "restore": "put back what reclaim changed",
    "reclaim": "show the state of reclaim, stop all its actions, or allow them again",
    "snooze": "send no notices about a workload and do not touch it for some time",
    "ps": "list the processes on this machine's GPUs with their pods",
    "doctor": "check prerequisites and suggest fixes",
    "report": "report GPU-hours and cost: allocated, used and idle",
    "backfill": "add idle spells of the past to the ledger, from the engine's history",
    "ledger": "copy a ledger from SQLite to PostgreSQL",
    "mcp": "answer questions of an assistant, which starts this command (MCP)",
    "settings": "print the analyzer's effective settings and where each comes from",
    "completion": "print a completion script for bash, zsh or fish",
    "help": "describe a command",
}
"""Each is a module of `cli.commands`; with its line in `--help`."""


atexit.register(gc.freeze)  # the end of the process need not search for garbage: a fifth of a start of the analyzer


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. An error is one line on standard error."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe, as `head` does. Python's own flush at exit must not fail either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE
    except (ConfigurationError, SourceError) as error:
        print(f"gpusteward: {error}", file=sys.stderr)
        return EXIT_USAGE if isinstance(error, ConfigurationError) else EXIT_FAILURE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return code


def _dispatch(arguments: list[str]) -> int:
    word, commands = arguments[0] if arguments else "", list_commands()
    if word in commands:
        return run_command(word, arguments[1:])
    if word in ("--version", "-V", "version"):
        print(f"{name_program()} {__version__}")
        return EXIT_OK
    if word in ("--help", "-h"):
        print(describe_commands())
        return EXIT_OK
    if not word:
        print(describe_commands(), file=sys.stderr)
        return EXIT_USAGE
    suggestion = suggest(word, [*commands, "--help", "--version"]) or f"; {name_program()} --help lists the commands"
    raise ConfigurationError(f"unknown {'flag' if word.startswith('-') else 'command'} {word!r}{suggestion}")


def list_commands() -> Mapping[str, str]:
    """Those of the program that was started."""
    return {name: COMMANDS[name] for name in PLUGIN_COMMANDS} if is_plugin() else COMMANDS


def run_command(name: str, arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, SourceError, and SystemExit after `--help`."""
    return int(import_command(name).run(arguments))


def import_command(name: str) -> ModuleType:
    return import_module(f"gpusteward.cli.commands.{name}")


def describe_commands() -> str:
    """What `gpusteward --help` prints."""
    program = name_program()
    return "\n".join(
        [
            f"usage: {program} COMMAND [flags]",
            "",
            "Shows who holds each GPU of a Kubernetes cluster, how well it is used, and what idle GPUs cost.",
            "",
            "commands:",
            *(f"  {name:<10} {about}" for name, about in list_commands().items()),
            "",
            f"{program} help COMMAND describes a command; {program} --version prints the version.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
