"""Where `gpusteward doctor` finds the address and credentials of Prometheus: as `gpusteward serve` does."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusteward.analyzer.settings import file
from gpusteward.cli.doctor import engine
from gpusteward.cli.main import main
from tests.analyzer.sources.faulty_engine import FaultyEngine, fails, faulty

SECRET = "s3cret-never-to-be-seen"
NAMES = b'{"status":"success","data":[]}'


@pytest.fixture
def server() -> Iterator[FaultyEngine]:
    """Responds like an empty Prometheus."""
    with faulty("http://127.0.0.1:9") as one:
        one.fault = fails("", status=200, body=NAMES)
        yield one


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("GPUSTEWARD_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def diagnose(capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, str]:
    """The result of the check of Prometheus; the output contains no secret."""
    main(["doctor", "-o", "json", "--server", "127.0.0.1:1", "--agent", "127.0.0.1:1", *flags])
    printed = capsys.readouterr()
    assert SECRET not in printed.out + printed.err
    return next(row for row in json.loads(printed.out) if row["check"] == "prometheus")


def write(path: Path, url: str, *more: str) -> Path:
    path.write_text("\n".join(["prometheus:", f"  url: {url}", *(f"  {line}" for line in more)]))
    return path


def test_the_address_is_read_from_the_given_file(
    server: FaultyEngine, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(folder / "site.yaml", server.url)
    found = diagnose(capsys, "--config", str(path))
    assert (found["status"], found["finding"]) == ("ok", f"{server.url} responds; the address comes from {path} line 2")


def test_the_file_is_found_where_serve_finds_it(
    server: FaultyEngine, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (engine.CONFIG_VARIABLE, engine.DEFAULT_FILE) == (file.CONFIG_VARIABLE, file.DEFAULT_FILE)
    write(folder / "config.yaml", server.url)
    assert diagnose(capsys)["finding"].endswith("the address comes from config.yaml line 2")
    write(folder / "other.yaml", server.url)
    monkeypatch.setenv("GPUSTEWARD_CONFIG", "other.yaml")
    assert diagnose(capsys)["finding"].endswith("the address comes from other.yaml line 2")


def test_the_environment_wins_over_the_file_and_a_flag_over_both(
    server: FaultyEngine, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(folder / "config.yaml", "http://127.0.0.1:1")
    monkeypatch.setenv("PROM_URL", server.url)
    assert diagnose(capsys)["finding"].endswith("the address comes from PROM_URL")
    monkeypatch.setenv("PROM_URL", "http://127.0.0.1:1")
    flags = ("--prometheus-url", server.url, "--config", str(path))
    assert diagnose(capsys, *flags)["finding"].endswith("the address comes from --prometheus-url")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["username: me", f"password: {SECRET}"], "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()),
        ([f"bearer_token: {SECRET}"], f"Bearer {SECRET}"),
        (["bearer_token_file: token"], f"Bearer {SECRET}"),
    ],
)
def test_the_credentials_of_the_settings_are_sent_and_never_shown(
    lines: list[str], expected: str, server: FaultyEngine, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "token").write_text(SECRET)
    path = write(folder / "site.yaml", server.url, *lines, "headers:", "  X-Scope-OrgID: team-a")
    assert diagnose(capsys, "--config", str(path))["status"] == "ok"
    assert {seen["Authorization"] for seen in server.headers_seen} == {expected}
    assert {seen["X-Scope-OrgID"] for seen in server.headers_seen} == {"team-a"}


def test_credentials_of_a_default_file_are_not_sent_to_the_address_of_the_flag(
    server: FaultyEngine, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder / "config.yaml", "http://127.0.0.1:1", f"bearer_token: {SECRET}")
    assert diagnose(capsys, "--prometheus-url", server.url)["status"] == "ok"
    assert all("Authorization" not in seen for seen in server.headers_seen)


def test_rejected_credentials_are_reported_with_their_settings(
    server: FaultyEngine, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.fault = fails("", status=401, body=b"no")
    path = write(folder / "site.yaml", server.url, f"bearer_token: {SECRET}")
    found = diagnose(capsys, "--config", str(path))
    assert found["status"] == "fail"
    assert "check prometheus.username, password, bearer_token and headers" in found["finding"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("prometheus: 5", "expected keys with values, found a single value"),
        ("prometheus:\n  url: ftp://x", "prometheus.url"),
        ("prometheus:\n  url: http://x\n  bearer_token_file: none", "cannot read prometheus.bearer_token_file none"),
        ("prometheus:\n  url: https://x\n  ca_file: none", "cannot use the CA file none"),
        (f'prometheus:\n  url: http://x\n  headers:\n    X-Key: "{SECRET}\\n"', "'X-Key'"),
        (f'prometheus:\n  url: http://x\n  bearer_token: "{SECRET}文"', "'Authorization'"),
    ],
)
def test_invalid_settings_are_reported(
    text: str, reason: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "config.yaml").write_text(text)
    found = diagnose(capsys, "--config", "config.yaml")
    assert found["status"] == "fail"
    assert found["finding"].startswith("the settings of the analyzer are invalid: ")
    assert reason in found["finding"]
    assert "gpusteward settings" in found["mend"]
    assert diagnose(capsys)["status"] == "warn", "not given by flag or variable: it may belong to another program"


def test_a_missing_file_is_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    found = diagnose(capsys, "--config", "none.yaml")
    assert found["status"] == "fail"
    assert "none.yaml" in found["finding"]


def test_settings_without_prometheus_are_skipped(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "config.yaml").write_text("scrape:\n  targets: [node-7]\n")
    found = diagnose(capsys)
    assert found["status"] == "skip"
    assert "prometheus.url" in found["mend"]


@pytest.mark.parametrize(("is_given", "status"), [(True, "fail"), (False, "warn")])
def test_missing_libraries_are_reported_with_the_extra_that_installs_them(
    is_given: bool, status: str, folder: Path
) -> None:
    path = write(folder / "config.yaml", "http://127.0.0.1:1")
    found = diagnose_without_libraries(*(("--config", str(path)) if is_given else ()))
    assert found["status"] == status
    assert "pip install gpusteward" in found["finding"]


def test_flag_and_environment_work_without_libraries(server: FaultyEngine, folder: Path) -> None:
    write(folder / "config.yaml", "http://127.0.0.1:1")
    assert diagnose_without_libraries("--prometheus-url", server.url)["status"] == "ok"
    assert diagnose_without_libraries(PROM_URL=server.url)["finding"].endswith("the address comes from PROM_URL")


def diagnose_without_libraries(*flags: str, **variables: str) -> dict[str, str]:
    program = (
        "import sys\n"
        "for name in ('pydantic', 'numpy', 'yaml'):\n"
        "    sys.modules[name] = None\n"
        "from gpusteward.cli.main import main\n"
        "main(['doctor', '-o', 'json', *sys.argv[1:]])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *flags],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return next(row for row in json.loads(done.stdout) if row["check"] == "prometheus")
