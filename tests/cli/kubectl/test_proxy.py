"""`kubectl proxy`, which the plugin starts for as long as a command runs."""

import os
import signal
import stat
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpusteward.cli.kubectl.main import main
from gpusteward.cli.kubectl.proxy import run_proxy
from gpusteward.core.errors import ConfigurationError
from tests.cli.kubectl.fake_kubectl import START, UNREACHABLE, write_kubectl
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_without_kubectl_one_line_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["idle"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "kubectl is not on the PATH" in line
    assert "--server URL" in line


def test_an_error_of_kubectl_is_one_line(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = "import sys; sys.exit('Warning: x\\nerror: error loading config file \"a\": yaml: line 1: \\x1b[31m')"
    write_kubectl(path, program)
    assert main(["idle"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith('gpusteward: kubectl: error loading config file "a": yaml: line 1: ')
    assert "\x1b" not in line


def test_an_unreachable_api_server_is_reported(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_kubectl(path, UNREACHABLE)
    assert main(["idle"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("gpusteward: cannot connect to the API server of the kubeconfig (dial tcp: lost); check")


def test_never_listens_where_somebody_else_could_connect(path: Path) -> None:
    pid = path / "pid"
    write_kubectl(path, f"{START}\nimport os\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\nlistener.accept()")
    with ExitStack() as command:
        socket_path = command.enter_context(run_proxy(["--context=prod"]))
        folder = socket_path.parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_ISSOCK(socket_path.stat().st_mode)
        wait_until(lambda: pid.exists() and bool(pid.read_text()), seconds=20)
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_a_command_that_is_terminated_leaves_nothing(path: Path) -> None:
    write_kubectl(path, f"{START}\nlistener.accept()")
    program = (
        "from gpusteward.cli.kubectl.proxy import run_proxy\nwith run_proxy([]) as at: print(at, flush=True), input()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as command:
        assert command.stdout is not None
        folder = Path(command.stdout.readline().decode().strip()).parent
        assert folder.is_dir()
        command.terminate()
        assert command.wait(20) == 128 + signal.SIGTERM
    assert not folder.exists()


def test_flags_are_passed_on(path: Path) -> None:
    write_kubectl(path, "import sys; sys.exit(' '.join(sys.argv[3:]))")
    with (
        pytest.raises(ConfigurationError, match=r"--append-server-path --context=prod --as=ann"),
        run_proxy(["--context=prod", "--as=ann"]),
    ):
        pass


def test_questions_of_credential_plugins_are_shown_and_the_log_is_not(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = "E1119 02:10:34.360227   32628 proxy_server.go:147] Error while proxying request"
    printed = f"print({log!r}, file=sys.stderr)\nprint('Code: ', end='', file=sys.stderr, flush=True)"
    write_kubectl(path, f"{START}\n{printed}\nlistener.accept()")
    with run_proxy([]):
        seen = ""

        def has_question() -> bool:
            nonlocal seen
            seen += capfd.readouterr().err
            return "Code: " in seen

        wait_until(has_question, seconds=20)
    assert "proxying" not in seen
