"""The command line: dispatch to commands, and errors as one line."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpusteward import __version__
from gpusteward.cli.main import COMMANDS, main
from gpusteward.cli.program import EXITS


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"gpusteward {__version__}\n"


def test_help_lists_every_command_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "  agent      export the GPU metrics of this node" in capsys.readouterr().out


def test_without_a_command_the_help_is_shown_as_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "commands:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("agnet", "gpusteward: unknown command 'agnet'; did you mean 'agent'?\n"),
        ("--verison", "gpusteward: unknown flag '--verison'; did you mean '--version'?\n"),
        ("xyzzy", "gpusteward: unknown command 'xyzzy'; gpusteward --help lists the commands\n"),
    ],
)
def test_an_unknown_command_is_reported_with_the_nearest_one(
    word: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word]) == 2
    assert capsys.readouterr().err == expected


def test_an_invalid_flag_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agent", "--interval", "never"]) == 2
    assert capsys.readouterr().err == "gpusteward: --interval: 'never': write a number of seconds from 0.5 to 600\n"


def test_the_installed_command_works_as_a_program() -> None:
    command = Path(sys.executable).with_name("gpusteward")
    done = subprocess.run([command, "agent", "--adress", ":1"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr == "gpusteward: unknown flag '--adress'; did you mean '--address'?\n"
    assert "Traceback" not in done.stdout + done.stderr


def test_a_missing_library_is_reported_with_the_extra_that_installs_it(tmp_path: Path) -> None:
    (tmp_path / "blocker.py").write_text(
        "import sys\n"
        "class Blocker:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'pynvml' or name == 'gpusteward.agent.app':\n"
        "            raise ModuleNotFoundError(\"No module named 'pynvml'\", name='pynvml')\n"
        "sys.meta_path.insert(0, Blocker())\n"
    )
    program = "import blocker, sys; from gpusteward.cli.main import main; sys.exit(main(['agent', '-p', 'f']))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    warning, message = done.stderr.splitlines()
    assert 'WARNING setting_ignored name=--cpu-devices reason="CPUs are not read."' in warning
    assert message == "gpusteward: 'pynvml' is not installed: pip install gpusteward"


def test_an_invalid_flag_is_reported_without_loading_the_agents_libraries() -> None:
    program = (
        "import sys; from gpusteward.cli.main import main; main(['agent', '--oops'])\n"
        "heavy = {'pynvml', 'hpack', 'msgspec', 'yaml', 'bcrypt', 'http.server'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_the_agent_loads_only_what_every_node_needs() -> None:
    """What costs memory on each node: event loops, protobuf, web frameworks, and what only some settings need. TLS is
    loaded with the HTTP client and server of the standard library, and every node in a cluster needs it."""
    program = (
        "import sys, gpusteward.cli.main, gpusteward.cli.commands.agent, gpusteward.agent.app\n"
        "heavy = {'asyncio', 'google.protobuf', 'h2', 'yaml', 'bcrypt', 'hashlib', 'numpy', 'gpusteward.simulate'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"agent"}))
def test_the_help_of_a_command_lists_its_exit_codes(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    expected = {each.when for each in EXITS if each.command in ("", command)}
    assert {each.when for each in EXITS if each.when in printed} == expected


@pytest.mark.parametrize("command", ["top", "idle", "explain", "ps", "doctor", "completion"])
def test_an_unknown_flag_is_one_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = {"explain": ["x"], "completion": ["bash"]}.get(command, [])
    assert main([command, *words, "--langage", "en"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("gpusteward: unknown flag '--langage'")
    assert printed.count("\n") == 1
