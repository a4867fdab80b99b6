"""Exit codes: one table, for the commands, their --help and the reference page."""

from typing import NamedTuple

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_FOUND = 3
EXIT_INTERRUPTED = 130  # as shells count: 128 + SIGINT
EXIT_PIPE = 141  # 128 + SIGPIPE


class Exit(NamedTuple):
    """When a command ends with a code; without a command: any of them."""

    code: int
    command: str
    when: str


EXITS = (
    Exit(EXIT_OK, "", "it did what was asked"),
    *(Exit(EXIT_OK, each, "Ctrl-C or SIGTERM ended it while it served") for each in ("serve", "demo", "up")),
    Exit(EXIT_FAILURE, "", "something outside did not answer, or is not there; one line on standard error says what"),
    Exit(EXIT_FAILURE, "explain", "no workload of that name holds a GPU"),
    Exit(EXIT_FAILURE, "doctor", "a check failed"),
    Exit(EXIT_FAILURE, "up", "its agent ended by itself"),
    Exit(EXIT_USAGE, "", "a flag, a variable or a file cannot be used; one line on standard error says which"),
    Exit(EXIT_USAGE, "explain", "several workloads are called so"),
    Exit(EXIT_FOUND, "idle", "with --exit-code: there are idle or suspicious workloads"),
    Exit(EXIT_INTERRUPTED, "", "interrupted with Ctrl-C"),
    Exit(EXIT_PIPE, "", "whoever read its output went away, as `| head` does"),
)


def describe_exits(command: str) -> str:
    """What `--help` says about the exit codes of a command."""
    lines = [f"  {each.code:<4} {each.when}" for each in EXITS if each.command in ("", command)]
    return "\n".join(["exit codes:", *lines])
