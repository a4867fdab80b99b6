"""`kubectl gpusteward COMMAND ...`: kubectl runs the program `kubectl-gpusteward` that it finds on the PATH; for
completion, `kubectl_complete-gpusteward`."""

import sys
from collections.abc import Iterator, Sequence

from gpusteward.cli.commands.completion import CommandSpec, list_commands
from gpusteward.cli.kubectl.proxy import list_contexts
from gpusteward.cli.main import main as run_main
from gpusteward.cli.program import EXIT_OK, start_as_plugin

LEADING_FLAGS = ("--context", "--kubeconfig", "--namespace", "-n", "--as", "--as-group", "--analyzer", "--language")
NO_FILES, FILES = 4, 0
"""What kubectl's completion does where nothing is offered: nothing, or names of files."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    with start_as_plugin():
        return run_main(move_leading_flags(sys.argv[1:] if argv is None else argv))


def move_leading_flags(arguments: Sequence[str]) -> list[str]:
    """Flags of kubectl may stand before the command: `kubectl gpusteward --context prod idle`."""
    leading, rest = [], list(arguments)
    while rest and rest[0].partition("=")[0] in LEADING_FLAGS:
        count = 1 if "=" in rest[0] else 2
        leading += rest[:count]
        del rest[:count]
    return [*rest[:1], *leading, *rest[1:]]


def complete(argv: Sequence[str] | None = None) -> int:
    """Print what the last word could be, in the format of kubectl's completion: a line each, then a directive."""
    words = list(sys.argv[1:] if argv is None else argv) or [""]
    with start_as_plugin():
        commands = {each.name: each for each in list_commands()}
        offers = list(commands) if len(words) == 1 else []
        if words[:-1] and words[0] in commands:
            offers = list(_list_values(commands[words[0]], words[-2], words))
    for offer in offers:
        if offer.startswith(words[-1]):
            print(offer)
    print(f":{NO_FILES if offers else FILES}")
    return EXIT_OK


def _list_values(command: CommandSpec, previous: str, words: Sequence[str]) -> Iterator[str]:
    flag = next((each for each in command.flags if previous in each.names), None)
    if flag is None or not flag.takes_value:
        yield from command.values
        yield from (name for each in command.flags for name in each.names if name.startswith("--"))
    elif previous == "--context":
        given = next((words[i + 1] for i, word in enumerate(words[:-1]) if word == "--kubeconfig"), None)
        yield from list_contexts(given)
    else:
        yield from flag.choices


if __name__ == "__main__":
    sys.exit(main())
