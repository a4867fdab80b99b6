"""Completion scripts, run by the shells."""

import os
import pty
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpusteward.cli.commands.completion import list_commands
from gpusteward.cli.main import COMMANDS, main

BASH = """
source {script}
COMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 )); _gpusteward; printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(params=["bash", "zsh", "fish"])
def shell(request: pytest.FixtureRequest, component: Callable[[str], str]) -> str:
    component(request.param)
    return str(request.param)


@pytest.fixture
def script(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", shell]) == 0
    path = tmp_path / f"gpusteward.{shell}"
    path.write_text(capsys.readouterr().out)
    return path


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def complete(shell: str, script: Path, line: str) -> list[str]:
    """The completions of the shell at the end of a line."""
    if shell == "bash":
        words = " ".join(f"'{word}'" for word in line.split(" "))
        return run("bash", "--norc", "-c", BASH.format(script=script, words=words)).split()
    if shell == "fish":
        offered = run("fish", "--no-config", "-c", f"source {script}; complete -C '{line}'")
        return [row.partition("\t")[0] for row in offered.splitlines()]
    return complete_in_zsh(script, line)


def complete_in_zsh(script: Path, line: str) -> list[str]:
    """zsh completes only at a prompt: its own functions that collect the offers are replaced by ones that print."""
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    program = f"""
    _describe() {{ local name=$argv[-1]; print -l -- ${{(P)name%%:*}} }}
    _arguments() {{
        local spec flag choices
        for spec in "$@"; do
            flag=${{${{spec#\\*}}%%\\[*}}
            choices=${{spec##*:}}
            if [[ $words[CURRENT-1] == $flag && $choices == \\(*\\) ]]; then
                print -l -- ${{=${{choices[2,-2]}}}}
                return
            fi
            [[ $spec == 1:* ]] && print -l -- ${{=${{choices[2,-2]}}}}
        done
        for spec in "$@"; do print -r -- ${{${{spec#\\*}}%%\\[*}}; done
    }}
    compdef() {{ : }}
    source {script}
    words=({quoted}); CURRENT=${{#words}}
    _gpusteward
    """
    offered = run("zsh", "-f", "-c", program).split()
    return [word for word in offered if word.startswith(words[-1])]


def test_the_shell_completes_every_command(shell: str, script: Path) -> None:
    assert set(complete(shell, script, "gpusteward ")) >= set(COMMANDS)


def test_the_shell_completes_a_command(shell: str, script: Path) -> None:
    assert complete(shell, script, "gpusteward exp") == ["explain"]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("gpusteward idle --longer", "--longer-than"),
        ("gpusteward doctor --kubelet", "--kubelet-socket"),
        ("gpusteward agent --collect", "--collectors"),
        ("gpusteward serve --prom", "--prometheus-url"),
        ("gpusteward settings --tokens", "--tokens-file"),
    ],
)
def test_the_shell_completes_the_flags_of_a_command(shell: str, script: Path, line: str, wanted: str) -> None:
    assert wanted in complete(shell, script, line)


def test_the_shell_completes_the_values_of_a_flag(shell: str, script: Path) -> None:
    assert sorted(complete(shell, script, "gpusteward idle --output ")) == ["csv", "json", "table", "wide"]


def test_the_shell_completes_the_names_of_shells(shell: str, script: Path) -> None:
    assert complete(shell, script, "gpusteward completion fi")[:1] == ["fish"]


def test_the_shell_completes_the_command_to_describe(shell: str, script: Path) -> None:
    assert complete(shell, script, "gpusteward help exp")[:1] == ["explain"]


def test_zsh_completes_a_word_at_its_prompt(
    component: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    component("zsh")
    assert main(["completion", "zsh"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    typed = f"autoload -U compinit; compinit -u -D; source {tmp_path}/script; PROMPT=; echo begun\n"
    with at_prompt("zsh", "-f", "-i") as (master, read_until):
        os.write(master, typed.encode())
        read_until(b"\nbegun")
        os.write(master, b"gpusteward exp\t\x01echo did: \n")  # Tab, then to the beginning of the line
        read_until(b"\ndid: gpusteward explain")


@contextmanager
def at_prompt(*command: str) -> Iterator[tuple[int, Callable[[bytes], None]]]:
    """A shell in its own terminal."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env={**os.environ, "TERM": "dumb"}, start_new_session=True
    )
    os.close(slave)
    seen = b""

    def read_until(wanted: bytes) -> None:
        nonlocal seen
        deadline = time.monotonic() + 20
        while wanted not in seen.replace(b"\r", b""):
            assert time.monotonic() < deadline, seen
            if select.select([master], [], [], 0.1)[0]:
                seen += os.read(master, 65536)

    try:
        yield master, read_until
    finally:
        process.kill()
        process.wait(10)
        os.close(master)


def test_an_unknown_shell_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "shell: 'tcsh' is not one of" in capsys.readouterr().err


def test_every_command_has_its_flags_completed() -> None:
    commands = {each.name: each for each in list_commands()}
    for name in ("agent", "serve", "top", "idle", "explain", "ps", "doctor", "settings"):
        assert "--help" in {flag for one in commands[name].flags for flag in one.names}, name


def test_every_command_that_prints_has_the_output_flag() -> None:
    commands = {each.name: each for each in list_commands()}
    for name in ("top", "idle", "explain", "ps", "doctor", "settings"):
        choices = [flag.choices for flag in commands[name].flags if "--output" in flag.names]
        assert [{"table", "json", "csv"} <= {*each} for each in choices] == [True], name
