"""A table of settings -> flags, environment variables and their values. Which settings there are: table.py.

A flag wins over the environment, the environment over the default. Flags may be written as Go programs take
them too (`-collectors=x`, `-k=true`), because the arguments of a dcgm-exporter must work unchanged.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple, NoReturn, TypeVar

from gpusteward import __version__
from gpusteward.agent.settings.values import parse_switch
from gpusteward.core.did_you_mean import suggest
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.settings import (
    VARIABLE_PREFIX,
    InvalidSettingError,
    Origin,
    Source,
    explain_argparse,
    find_variable,
)

_Value = TypeVar("_Value")


class FlagGroup(Enum):
    """Where the name of a setting comes from."""

    OURS = "gpusteward"
    COMPATIBLE = "as in dcgm-exporter"
    ALIAS = "as in dcgm-exporter: another spelling, or always on"
    IGNORED = "accepted and ignored"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table: how a value is written, read and explained."""

    name: str  # the attribute it sets; empty: it sets nothing
    flags: tuple[str, ...]  # the long one first
    environment: tuple[str, ...]  # the first one that is set counts
    parse: Callable[[str], object]
    about: str
    group: FlagGroup
    switch: bool = False  # the bare flag means true
    separator: str = ""  # not empty: the flag may be given several times
    default_text: str = ""  # for people; empty: there is none


class Ignored(NamedTuple):
    """A flag, a variable or a key of the configuration file that was given and has no effect here."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class GivenValues:
    """The values that were given, parsed, by attribute; and what is ignored."""

    values: dict[str, Any]
    ignored: tuple[Ignored, ...]


def setting(
    default: _Value,
    flags: str,
    *,
    parse: Callable[[str], object] = parse_switch,
    about: str,
    group: FlagGroup = FlagGroup.OURS,
    environment: str = "",
    separator: str = "",
    default_text: str = "",
) -> _Value:
    """A dataclass field that is a row of the table, by default a switch; flags are separated by blanks.

    `--some-flag` is the variable `GPUSTEWARD_SOME_FLAG` too, and as in dcgm-exporter also `DCGM_EXPORTER_SOME_FLAG`,
    unless `environment` names another one.
    """
    names = tuple(flags.split())
    if group is not FlagGroup.OURS:
        environment = environment or find_dcgm_variable(names[0])
    row = Setting(
        name="",
        flags=names,
        environment=(_name_variable(VARIABLE_PREFIX, names[0]), *environment.split()),
        parse=parse,
        about=about,
        group=group,
        switch=parse is parse_switch,
        separator=separator,
        default_text=default_text or _show(default),
    )
    return field(default=default, metadata={"row": row})


def _name_variable(prefix: str, flag: str) -> str:
    return prefix + flag.removeprefix("--").replace("-", "_").upper()


def find_dcgm_variable(flag: str) -> str:
    """dcgm-exporter's variable for most of its flags."""
    return _name_variable("DCGM_EXPORTER_", flag)


def row_of(each: Field[Any]) -> Setting:
    """The row that such a field is."""
    row: Setting = each.metadata["row"]
    return replace(row, name=each.name)


def _show(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, float):
        return f"{default:g}"
    if isinstance(default, tuple) and not hasattr(default, "_fields"):
        return ",".join(map(str, default))
    return "" if default is None else str(default)


def read_given(table: Sequence[Setting], arguments: Sequence[str], environ: Mapping[str, str]) -> GivenValues:
    """Read flags and environment against the table.

    Raises ConfigurationError for an unknown flag and for an invalid value; exits after `--help` and `--version`.
    """
    flags = parse_flags(table, arguments)
    values: dict[str, Any] = {}
    ignored: list[Ignored] = []

    def take(row: Setting, text: str, *, origin: Origin) -> None:
        value = _parse(row, text, origin=origin)
        if row.group is FlagGroup.IGNORED:
            ignored.append(Ignored(origin.place, row.about))
        elif row.name:
            values[row.name] = value

    for row in table:
        flag = row.flags[0]
        if flag in flags:
            if row.name in values:
                raise ConfigurationError(f"{flag} and another flag set the same value: keep one of them")
            take(row, flags[flag], origin=Origin(Source.FLAG, flag))
    for row in table:
        variable = find_variable(row.environment, environ)
        if variable is not None and row.flags[0] not in flags and row.name not in values:
            take(row, environ[variable], origin=Origin(Source.ENVIRONMENT, variable))
    return GivenValues(values, tuple(ignored))


def _parse(row: Setting, text: str, *, origin: Origin) -> object:
    try:
        return row.parse(text)
    except InvalidSettingError as error:
        where = "" if origin.source is Source.FLAG else f" ({origin})"
        raise ConfigurationError(f"{row.flags[0]}: {text!r}{where}: {error.problem}") from error


def parse_flags(table: Sequence[Setting], arguments: Sequence[str]) -> dict[str, str]:
    """Long flag -> the text given for it."""
    known = {flag for row in table for flag in row.flags}
    parser = build_parser(table)
    namespace, unknown = parser.parse_known_args([_spell(argument, known) for argument in arguments])
    if unknown:
        raise _explain_unknown(unknown[0], known)
    separators = {row.flags[0]: row.separator for row in table}
    given: dict[str, str | list[str]] = vars(namespace)
    return {flag: text if isinstance(text, str) else separators[flag].join(text) for flag, text in given.items()}


def _spell(argument: str, known: Iterable[str]) -> str:
    """Go takes one dash or two before any flag."""
    flag, equals, value = argument.partition("=")
    if argument.startswith("-"):
        for spelled in ("--" + flag.lstrip("-"), "-" + flag.lstrip("-")):
            if spelled in known:
                return f"{spelled}{equals}{value}"
    return argument


def _explain_unknown(argument: str, known: Iterable[str]) -> ConfigurationError:
    if not argument.startswith("-"):
        return ConfigurationError(f"unexpected argument {argument!r}: settings are flags, see --help")
    flag = argument.partition("=")[0]
    suggestion = suggest(flag, known) or "; --help lists all flags"
    return ConfigurationError(f"unknown flag {flag!r}{suggestion}")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """`argument --flag: problem`. Raises ConfigurationError."""
        flag, _, problem = message.removeprefix("argument ").partition(": ")
        raise ConfigurationError(f"{flag}: {explain_argparse(problem)}")


def build_parser(table: Sequence[Setting]) -> argparse.ArgumentParser:
    """An argparse parser for the table: what `--help` prints."""
    parser = _Parser(
        prog="gpusteward agent",
        usage="gpusteward agent [flags]",
        description="Find out which process of which pod uses which GPU of this node, and serve it on /metrics.",
        epilog="A flag wins over the environment. Every flag has a variable: --some-flag is GPUSTEWARD_SOME_FLAG.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--version", "-v", action="version", version=f"gpusteward {__version__}")
    for group in FlagGroup:
        section = parser.add_argument_group(group.value)
        for row in table:
            if row.group is group:
                _add_row(section, row)
    return parser


def _add_row(section: "argparse._ArgumentGroup", row: Setting) -> None:
    default = f" (default {row.default_text})" if row.default_text else ""
    variables = f" [{', '.join(row.environment)}]" if row.environment else ""
    help_text = f"{row.about}{default}{variables}".replace("%", "%%")
    metavar = row.flags[0].removeprefix("--").replace("-", "_").upper()
    if row.switch:
        section.add_argument(
            *row.flags, dest=row.flags[0], nargs="?", const="true", metavar="true|false", help=help_text
        )
    elif row.separator:
        section.add_argument(*row.flags, dest=row.flags[0], action="append", metavar=metavar, help=help_text)
    else:
        section.add_argument(*row.flags, dest=row.flags[0], metavar=metavar, help=help_text)
