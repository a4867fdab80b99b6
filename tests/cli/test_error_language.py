"""Errors of settings and commands are English, also with `--language zh` or a Chinese locale; details that the analyzer
gives are in the language of the request."""

import re
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpusteward.analyzer.settings.settings import ServerSettings, Settings
from gpusteward.cli.main import main
from tests.agent.test_agent_process import free_port
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import Api, running_api

CHINESE = re.compile("[\u4e00-\u9fff]")
ENGLISH = re.compile(r"[a-z]+ [a-z]+")
ENGLISH_SENTENCE = re.compile(r"(?:[a-z]+ ){3,}[a-z]+")


def read_error(capsys: pytest.CaptureFixture[str], arguments: Sequence[str], *, code: int) -> str:
    """The only line on standard error."""
    assert main([*arguments]) == code
    (line,) = capsys.readouterr().err.splitlines()
    return line.removeprefix("gpusteward: ")


def assert_english(line: str) -> None:
    """Never half of it in another language."""
    assert not CHINESE.search(line), line
    assert ENGLISH.search(line), line


def assert_chinese(line: str) -> None:
    assert CHINESE.search(line), line
    assert not ENGLISH_SENTENCE.search(line), line


@pytest.mark.parametrize(
    "arguments",
    [
        ("idle", "--longer-than", "soon"),
        ("idle", "--output", "xml"),
        ("idle", "--outptu", "json"),
        ("idle", "--xyzzy"),
        ("idle", "extra"),
        ("idle", "--timeout", "never"),
        ("idle", "--exit-code=1"),
        ("idle", "--server", "ftp://host"),
        ("idle", "--token-file", "/missing"),
        ("explain",),
        ("explain", "a/b/c/d/e"),
        ("report", "--rows", "0"),
        ("report", "--ledger", "/missing.db"),
        ("report", "--ledger", "/missing.db", "--since", "soon"),
        ("report", "--ledger", "mysql://host/db"),
        ("top", "--agent", "a:1", "--server", "b:1", "--output", "json"),
    ],
    ids=" ".join,
)
def test_usage_errors_are_english(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert_english(read_error(capsys, (*arguments, "--language", "zh"), code=2))


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", "--set", "scheduler.interval=soon"),
        ("serve", "--set", "judge.activity.coverage=2"),
        ("serve", "--set", "server.anonymous_reads=sometimes"),
        ("serve", "--set", "ai.enabled=perhaps"),
        ("serve", "--set", "prices.currency=dollar"),
        ("serve", "--set", "prometheus.url=ftp://host"),
        ("serve", "--set", "prometheus.query_condition={a"),
        ("serve", "--set", "ledger.url=mysql://host"),
        ("serve", "--set", "control.enabled=true"),
        ("serve", "--set", "thresholds.ilde=1"),
        ("serve", "--set", "xyzzy=1"),
        ("serve", "--set", "xyzzy"),
        ("serve", "--address", "here"),
        ("serve", "--config", "/missing.yaml"),
        ("settings", "--interval", "0"),
        ("demo", "--set", "prometheus.url=http://host"),
        ("up", "--set", "prometheus.url=http://host"),
    ],
    ids=" ".join,
)
def test_errors_of_settings_are_english(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert_english(read_error(capsys, (*arguments, "--language", "zh"), code=2))


@pytest.mark.parametrize(
    "text",
    [
        "scheduler: [1]",
        "- a",
        "scheduler:\n  interval: 0",
        "notify:\n  quiet_hours: no",
        'notify: {namespaces: {"*": x}}',
        "a: {",
    ],
)
def test_errors_of_the_settings_file_are_english_and_name_the_line(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text(text)
    line = read_error(capsys, ("serve", "--config", str(tmp_path / "config.yaml"), "--language", "zh"), code=2)
    assert_english(line)
    assert re.search(r"config\.yaml line \d", line), line


@pytest.mark.parametrize(
    "arguments",
    [
        ("--interval", "9999"),
        ("--source", "nvlm"),
        ("--debug=perhaps",),
        ("--address", "here"),
        ("--address",),
        ("--web-read-timeout", "0"),
        ("--collect-interval", "30"),
        ("--interval", "5", "--collect-interval", "5000"),
        ("--configmap-data", "x"),
        ("--adress", ":1"),
        ("extra",),
        ("--source", "simulated", "--devices", "q"),
        ("--source", "simulated", "--collectors", "/missing"),
        ("--source", "simulated", "--web-config-file", "/missing"),
        ("--source", "simulated", "--address", "192.0.2.1:0"),
    ],
    ids=" ".join,
)
def test_errors_of_the_agents_flags_are_english(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert main(["agent", "--log-level", "error", *arguments]) == 2
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()), "programs started later would ignore signals"
    assert_english(capsys.readouterr().err.splitlines()[-1])


def test_an_unknown_command_is_reported_with_the_nearest(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert read_error(capsys, ("idel",), code=2) == "unknown command 'idel'; did you mean 'idle'?"


@pytest.mark.parametrize("arguments", [("idle", "--server"), ("ps", "--agent"), ("explain", "x", "--server")])
def test_a_refused_connection_is_reported(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    line = read_error(capsys, (*arguments, f"127.0.0.1:{free_port()}", "--language=zh"), code=1)
    assert "connection refused" in line
    assert_english(line)


def test_a_timeout_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        arguments = ("idle", "--server", url, "--timeout", "0.2", "--language", "zh")
        assert_english(read_error(capsys, arguments, code=1))


def test_a_missing_token_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    server = ServerSettings(anonymous_reads="never", tokens="viewer: right-token-of-a-viewer")
    (tmp_path / "token").write_text("wrong-token")
    with running_api(small_result(), settings=Settings(server=server)) as api:
        arguments = ("idle", "--server", api.url, "--language", "zh")
        assert_english(read_error(capsys, arguments, code=1))
        assert_english(read_error(capsys, (*arguments, "--token-file", str(tmp_path / "token")), code=1))


def test_an_unknown_workload_is_reported(analyzer: Api, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("explain", "chat/servr", "--server", analyzer.url, "--language", "zh")
    assert_english(read_error(capsys, arguments, code=1))


def test_the_error_detail_of_the_analyzer_is_requested_in_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    with running_api(None) as api:
        assert_chinese(read_error(capsys, ("idle", "--server", api.url, "--language", "zh"), code=1))
