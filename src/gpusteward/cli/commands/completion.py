"""`gpusteward completion SHELL`: print a script that completes commands, flags and their values."""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

from gpusteward.cli.flags import FlagParser, add_language_flag
from gpusteward.cli.program import EXIT_OK, describe_exits

GLOBAL_FLAGS = ("--help", "--version")


@dataclass(frozen=True, slots=True)
class FlagSpec:
    """A flag of a command."""

    names: tuple[str, ...]
    about: str
    takes_value: bool
    choices: tuple[str, ...] = ()
    is_path: bool = False


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """A command with its flags, and the values of its argument."""

    name: str
    about: str
    flags: tuple[FlagSpec, ...]
    values: tuple[str, ...]


def write_bash(commands: Sequence[CommandSpec]) -> str:
    names = " ".join((*(each.name for each in commands), *GLOBAL_FLAGS))
    offered = {
        each.name: [*each.values, *(name for flag in each.flags for name in flag.names if name.startswith("--"))]
        for each in commands
    }
    words = "".join(f"        {name}) words={quote(' '.join(each))} ;;\n" for name, each in offered.items())
    return f"""# gpusteward completion for bash
_gpusteward() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" command="${{COMP_WORDS[1]}}"
    local values="" words="" paths=""
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W {quote(names)} -- "$current")
        return
    fi
    case "$command:$previous" in
{"".join(_bash_values(commands))}    esac
    if [ -n "$paths" ]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        return
    fi
    if [ -n "$values" ]; then
        mapfile -t COMPREPLY < <(compgen -W "$values" -- "$current")
        return
    fi
    case "$command" in
{words}    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -o default -F _gpusteward gpusteward
"""


def _bash_values(commands: Sequence[CommandSpec]) -> Iterator[str]:
    for command in commands:
        for flag in command.flags:
            pattern = "|".join(f"{command.name}:{name}" for name in flag.names)
            if flag.choices:
                yield f"        {pattern}) values={quote(' '.join(flag.choices))} ;;\n"
            elif flag.is_path:
                yield f"        {pattern}) paths=1 ;;\n"


def write_zsh(commands: Sequence[CommandSpec]) -> str:
    listed = "\n".join(f"        {quote(f'{each.name}:{each.about}')}" for each in commands)
    return f"""#compdef gpusteward
# gpusteward completion for zsh
_gpusteward() {{
    local -a commands
    commands=(
{listed}
    )
    if (( CURRENT == 2 )); then
        _describe -t commands command commands
        return
    fi
    local name="$words[2]"
    shift words
    (( CURRENT-- ))
    case "$name" in
{"".join(_zsh_cases(commands))}    esac
}}
compdef _gpusteward gpusteward
"""


def _zsh_cases(commands: Sequence[CommandSpec]) -> Iterator[str]:
    for command in commands:
        specs = [spec for flag in command.flags for spec in _zsh_flag(flag)]
        if command.values:
            specs.append(f"1:value:({' '.join(command.values)})")
        lines = " \\\n            ".join(quote(spec) for spec in specs)
        yield f"        {command.name})\n            _arguments {lines}\n            ;;\n" if specs else ""


def _zsh_flag(flag: FlagSpec) -> Iterator[str]:
    about = flag.about.translate(str.maketrans("[]:\\", "()  "))
    value = ""
    if flag.takes_value:
        action = f"({' '.join(flag.choices)})" if flag.choices else "_files" if flag.is_path else " "
        value = f":value:{action}"
    for name in flag.names:
        yield f"*{name}[{about}]{value}"


def write_fish(commands: Sequence[CommandSpec]) -> str:
    lines = ["# gpusteward completion for fish", "complete -c gpusteward -f"]
    lines += [
        f"complete -c gpusteward -n __fish_use_subcommand -a {each.name} -d {_fish(each.about)}" for each in commands
    ]
    for command in commands:
        seen = f"complete -c gpusteward -n '__fish_seen_subcommand_from {command.name}'"
        lines += [f"{seen} {_fish_flag(flag)}" for flag in command.flags]
        lines += [f"{seen} -a {_fish(' '.join(command.values))}"] if command.values else []
    return "\n".join(lines) + "\n"


def _fish_flag(flag: FlagSpec) -> str:
    parts = [_fish_name(name) for name in flag.names]
    if flag.takes_value:
        parts.append("-r -F" if flag.is_path else "-x")
    if flag.choices:
        parts.append(f"-a {_fish(' '.join(flag.choices))}")
    return " ".join([*parts, f"-d {_fish(flag.about)}"])


def _fish_name(name: str) -> str:
    if name.startswith("--"):
        return f"-l {name[2:]}"
    return f"-s {name[1:]}" if len(name) == 2 else f"-o {name[1:]}"


def _fish(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


WRITERS: Mapping[str, Callable[[Sequence[CommandSpec]], str]] = {
    "bash": write_bash,
    "zsh": write_zsh,
    "fish": write_fish,
}


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

    return [describe_command(name, about) for name, about in main.list_commands().items()]


def describe_command(name: str, about: str) -> CommandSpec:
    """A command whose libraries are not installed has no flags to complete."""
    try:
        parser = _build_parser(name)
    except ModuleNotFoundError:
        return CommandSpec(name, about, (), ())
    flags = [_describe_flag(action) for action in parser._actions if action.option_strings]
    values = [str(choice) for action in parser._actions if not action.option_strings for choice in action.choices or ()]
    return CommandSpec(name, about, tuple(flags), tuple(values))


def _build_parser(name: str) -> argparse.ArgumentParser:
    """The agent's parser is made from its table of settings; the others are in the module of the command."""
    from gpusteward.cli.main import import_command

    if name == "agent":
        from gpusteward.agent.settings.flags import build_parser as build_agent_parser
        from gpusteward.agent.settings.table import SETTINGS

        return build_agent_parser(SETTINGS)
    build: Callable[[], FlagParser] = import_command(name).build_parser
    return build()


def _describe_flag(action: argparse.Action) -> FlagSpec:
    about = (action.help or "").replace("%%", "%").splitlines()[0] if action.help else ""
    metavar = str(action.metavar or "")
    return FlagSpec(
        tuple(action.option_strings),
        "show this help" if action.dest == "help" else about,
        takes_value=action.nargs not in (0, "?"),
        choices=tuple(str(choice) for choice in action.choices or ()),
        is_path=metavar == "PATH" or metavar.endswith(("_FILE", "_SOCKET", "PROC")),
    )
