"""`gpusteward completion SHELL`: print a script that completes commands, flags and their values."""

import argparse
from collections.abc import Callable, Sequence
from importlib import import_module

from gpusteward.cli.exit_codes import EXIT_OK, describe_exits
from gpusteward.cli.flags import FlagParser, add_language_flag
from gpusteward.cli.output.completion_scripts import WRITERS, CommandSpec, FlagSpec

USAGE = """How to use it:
  bash   source <(gpusteward completion bash)     # in ~/.bashrc
  zsh    source <(gpusteward completion zsh)      # in ~/.zshrc, after compinit
  fish   gpusteward completion fish | source      # in ~/.config/fish/config.fish
"""


def build_parser() -> FlagParser:
    parser = FlagParser(
        prog="gpusteward completion",
        description="Print a script that completes gpusteward's commands, flags and values.",
        epilog=f"{USAGE}\n{describe_exits('completion')}",
    )
    add_language_flag(parser)
    parser.add_argument("shell", choices=sorted(WRITERS), help="shell to write the script for")
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError."""
    options = build_parser().parse(arguments)
    print(WRITERS[options.shell](list_commands()), end="")
    return EXIT_OK


def list_commands() -> list[CommandSpec]:
    """Every command with its flags and values."""
    from gpusteward.cli import main

    return [describe_command(name, each.about, module=each.module) for name, each in main.list_commands().items()]


def describe_command(name: str, about: str, *, module: str) -> CommandSpec:
    """A command whose libraries are not installed has no flags to complete."""
    try:
        parser = _build_parser(name, module)
    except ModuleNotFoundError:
        return CommandSpec(name, about, (), ())
    flags = [_describe_flag(action) for action in parser._actions if action.option_strings]
    values = [str(choice) for action in parser._actions if not action.option_strings for choice in action.choices or ()]
    return CommandSpec(name, about, tuple(flags), tuple(values))


def _build_parser(name: str, module: str) -> argparse.ArgumentParser:
    """The agent's parser is made from its table of settings; the others are in the module of the command."""
    if name == "agent":
        from gpusteward.agent.settings.flags import build_parser as build_agent_parser
        from gpusteward.agent.settings.table import SETTINGS

        return build_agent_parser(SETTINGS)
    build: Callable[[], FlagParser] = import_module(module).build_parser
    return build()


def _describe_flag(action: argparse.Action) -> FlagSpec:
    about = (action.help or "").replace("%%", "%").splitlines()[0] if action.help else ""
    return FlagSpec(
        tuple(action.option_strings),
        "show this help" if action.dest == "help" else about,
        takes_value=action.nargs not in (0, "?"),
        choices=tuple(str(choice) for choice in action.choices or ()),
        is_path=_is_path(action),
    )


def _is_path(action: argparse.Action) -> bool:
    metavar = str(action.metavar or "")
    return metavar == "PATH" or metavar.endswith(("_FILE", "_SOCKET", "PROC"))
