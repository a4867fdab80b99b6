"""The plugin as a command line: its commands, flags, help and completion."""

import re
from pathlib import Path

import pytest

from gpusteward.cli.kubectl.main import complete, main, move_leading_flags
from gpusteward.cli.main import main as run_gpusteward
from gpusteward.cli.program import PLUGIN_COMMANDS
from tests.cli.kubectl.fake_kubectl import write_kubectl

ANSWERED = ("--server", "--agent", "--ledger", "--ca-file", "--config")
"""By the kubeconfig."""


@pytest.mark.parametrize("command", PLUGIN_COMMANDS)
def test_help_names_the_plugin(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    printed = capsys.readouterr().out
    assert printed.startswith(f"usage: kubectl gpusteward {command}")
    assert not [flag for flag in ANSWERED if flag in printed]
    assert command == "help" or all(flag in printed for flag in ("--context", "--kubeconfig", "--analyzer"))


def test_only_commands_that_read_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("usage: kubectl gpusteward COMMAND")
    assert re.findall(r"^  (\w+)", printed, re.MULTILINE) == list(PLUGIN_COMMANDS)
    assert main(["serve"]) == 2
    assert "kubectl gpusteward --help lists the commands" in capsys.readouterr().err


def test_the_other_program_stays_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert run_gpusteward(["idle", "--context", "prod"]) == 2
    assert "unknown flag '--context'" in capsys.readouterr().err


def test_ps_needs_a_node(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ps"]) == 2
    assert "--node NODE" in capsys.readouterr().err


def test_flags_of_kubectl_may_come_first() -> None:
    words = ["--context", "prod", "-n=vision", "idle", "-o", "json"]
    assert move_leading_flags(words) == ["idle", "--context", "prod", "-n=vision", "-o", "json"]
    assert move_leading_flags(["--help"]) == ["--help"]


@pytest.mark.parametrize(
    ("words", "offers"),
    [
        (["ex"], "explain :4"),
        (["idle", "--sort", "g"], "gpus :4"),
        (["idle", "--kubeconfig", "FILE", "--context", ""], "prod test :4"),
        (["idle", "--kubeconfig", ""], ":0"),
        (["nothing", ""], ":0"),
    ],
)
def test_completion(
    words: list[str],
    offers: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_kubectl(tmp_path, 'print("test")\nprint("prod")')
    monkeypatch.setenv("PATH", str(tmp_path))
    assert complete(words) == 0
    assert " ".join(capsys.readouterr().out.split()) == offers
