"""What holds for every command: its flags, its help, and exit code 2 for invalid input."""

from collections.abc import Iterator

import pytest

from gpusteward.cli.commands.completion import list_commands
from gpusteward.cli.main import COMMANDS, main
from gpusteward.core.messages import LANGUAGES
from tests.analyzer.api.server import Api

SPECS = {each.name: each for each in list_commands()}
ARGUMENTS = {
    "explain": ["x"],
    "reclaim": ["status"],
    "snooze": ["x", "--end"],
    "completion": ["bash"],
    "help": ["idle"],
}
"""What a command requires besides its flags."""


def list_invalid() -> Iterator[list[str]]:
    for name, spec in SPECS.items():
        given = [name, *ARGUMENTS.get(name, [])]
        yield [*given, "--no-such-flag"]
        yield [*given, "one", "argument", "too", "many"]
        for flag in spec.flags:
            if flag.choices:
                yield [*given, flag.names[0], "no-such-value"]
            if flag.takes_value:
                yield [*given, flag.names[0]]


@pytest.mark.parametrize("words", list(list_invalid()), ids=" ".join)
def test_invalid_input_is_one_line_and_exit_code_2(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("gpusteward: ")


@pytest.mark.parametrize(
    "words",
    [
        ["report", "--since", "soon"],
        ["report", "--until", "2026-13-01"],
        ["report", "--output-file", "/no/such/folder/x"],
        ["idle", "--longer-than", "-1h"],
        ["top", "--refresh", "0"],
        ["explain", "a/b/c/d/e"],
        ["demo", "--seed", "x"],
        ["help", "no-such-command"],
        ["no-such-command"],
        [],
    ],
    ids=" ".join,
)
def test_invalid_values_exit_with_2(words: list[str], analyzer: Api, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GPUSTEWARD_SERVER", analyzer.url)
    assert main(words) == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_help_describes_it(command: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["help", command])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: gpusteward {command}")


def test_help_alone_lists_all_commands(capsys: pytest.CaptureFixture[str]):
    assert main(["help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n  {name} " in printed for name in COMMANDS)
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"agent"}))
def test_it_takes_the_language_by_the_same_name(command: str):
    """The agent takes dcgm-exporter's flags; its errors follow the locale."""
    choices = [flag.choices for flag in SPECS[command].flags if "--language" in flag.names]
    assert choices == [LANGUAGES]


@pytest.mark.parametrize(
    ("command", "flags"), [("demo", {"--config", "--prometheus-url"}), ("up", {"--prometheus-url"})]
)
def test_it_has_no_flags_that_it_does_not_use(command: str, flags: set[str]):
    assert not {name for flag in SPECS[command].flags for name in flag.names} & flags
