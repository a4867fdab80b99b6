"""Exit codes: one table for the commands, their --help and the reference page."""

from typing import NamedTuple

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_FOUND = 3
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as in shells
EXIT_PIPE = 141  # 128 + SIGPIPE


class Exit(NamedTuple):
    """When a command exits with a code; an empty command means all of them."""

    code: int
    command: str
    when: str


EXITS = (
    Exit(EXIT_OK, "", "success"),
    *(Exit(EXIT_OK, each, "stopped by Ctrl-C or SIGTERM while serving") for each in ("serve", "demo", "up")),
    Exit(EXIT_FAILURE, "", "a server, device or file is missing or failed; one line on standard error says which"),
    Exit(EXIT_FAILURE, "explain", "no workload with this name holds or held a GPU"),
    Exit(EXIT_FAILURE, "snooze", "no workload with this name holds a GPU or is snoozed, or the token may not do this"),
    Exit(EXIT_FAILURE, "backfill", "the engine failed many times in a row; the next run continues there"),
    Exit(EXIT_FAILURE, "doctor", "a check failed"),
    Exit(EXIT_FAILURE, "up", "the agent exited"),
    Exit(EXIT_USAGE, "", "a flag, variable or file is invalid; one line on standard error says which"),
    *(Exit(EXIT_USAGE, each, "several workloads have this name") for each in ("explain", "snooze")),
    Exit(EXIT_FOUND, "idle", "with --exit-code: at least one workload is listed"),
    Exit(EXIT_INTERRUPTED, "", "interrupted by Ctrl-C"),
    Exit(EXIT_PIPE, "", "broken pipe, as with `| head`"),
)


def describe_exits(command: str) -> str:
    """The section about exit codes in the help of a command."""
    lines = [f"  {each.code:<4} {each.when}" for each in EXITS if each.command in ("", command)]
    return "\n".join(["exit codes:", *lines])
