"""A SQLite ledger has one analyzer at a time; a second one says so, is alive, not ready, and waits."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusteward.analyzer.ledger.database.leadership import FileOwner
from gpusteward.analyzer.settings.ledger import LedgerSettings
from tests.agent.test_agent_process import free_port
from tests.analyzer.serve_process import COMMAND, RunningServe, running_serve

pytestmark = pytest.mark.slow


@pytest.fixture
def first(tmp_path: Path) -> Iterator[RunningServe]:
    with running_serve(tmp_path, "--set=kubernetes.owners=never", env={}) as server:
        yield server


@pytest.fixture
def second(tmp_path: Path, first: RunningServe) -> Iterator[RunningServe]:
    """Another process with the same ledger, which has no address in its log yet."""
    log, port = tmp_path / "second.log", free_port()
    with log.open("w") as out:
        command = [*COMMAND, f"--address=127.0.0.1:{port}", "--set=kubernetes.owners=never"]
        environment = {"XDG_DATA_HOME": str(tmp_path)}
        process = subprocess.Popen(command, cwd=tmp_path, stdout=out, stderr=out, text=True, env=environment)
    server = RunningServe(f"http://127.0.0.1:{port}", process, log)
    try:
        server.wait_for(lambda it: it.get("/livez").status == 200)
        yield server
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(20)


def test_a_second_analyzer_is_alive_and_not_ready_until_the_first_has_been_killed(
    first: RunningServe, second: RunningServe, tmp_path: Path
):
    (lock,) = tmp_path.rglob("*.db.lock")
    for path, status in (("/livez", 200), ("/readyz", 503), ("/metrics", 503), ("/api/v1/health", 503)):
        answer = second.get(path)
        assert answer.status == status
        assert f"another analyzer has the ledger ({lock})" in answer.body.decode()
    assert re.search(r"ledger_in_use.*waiting until the other analyzer has ended", second.log.read_text())
    assert "analyzer_started" not in second.log.read_text()
    first.process.kill()
    second.wait_for(lambda it: it.get("/readyz").status == 200)
    assert "analyzer_started" in second.log.read_text()


def test_one_that_waits_stops_at_once_and_leaves_the_ledger_to_the_first(first: RunningServe, second: RunningServe):
    assert second.stop() < 5
    assert second.process.returncode == 0
    first.wait_for(lambda it: it.get("/readyz").status == 200)


def test_what_is_no_file_or_cannot_be_locked_is_not_waited_for(tmp_path: Path):
    (tmp_path / "file").write_text("")
    for url in ("postgresql://u:p@h/d", "sqlite:///:memory:", f"sqlite:///{tmp_path}/file/below/x.db"):
        with FileOwner(LedgerSettings.model_validate({"url": url})) as owner:
            assert owner.take()
    with FileOwner(LedgerSettings(enabled=False)) as owner:
        assert owner.take()
