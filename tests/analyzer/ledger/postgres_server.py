"""A real PostgreSQL on a free loopback port, with its data in its own folder.

with running_postgres(folder) as server: ...   # server.url, server.stop(), server.start()
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import OperationalError

from tests.agent.test_agent_process import free_port
from tests.conftest import TEMPORARY_ROOT, give_up

START_SECONDS = 30.0
QUICK = ("-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", "max_connections=20", "-c", "unix_socket_directories=")


def find_postgres(program: str) -> str:
    """On the path, or where Debian puts it."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"))
    found = shutil.which(program) if not places else str(places[-1])
    if found is None:
        give_up(f"{program} is not installed; `make components` installs it")
    return str(found)


@dataclass
class RunningPostgres:
    """A server with an empty database."""

    data: Path
    port: int
    process: subprocess.Popen | None = field(default=None)

    @property
    def url(self) -> str:
        return f"postgresql://steward:s3cret@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        command = [find_postgres("postgres"), "-D", str(self.data), "-p", str(self.port), "-h", "127.0.0.1", *QUICK]
        self.process = subprocess.Popen(
            _as_unprivileged_user(command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._wait_until_ready()

    def stop(self) -> None:
        """At once, with open connections."""
        if self.process is not None:
            self._engine.dispose()
            self.process.send_signal(2)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(20)
            self.process = None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It keeps its connections and does not respond, like a server whose disk hangs."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        pids = [self.process.pid, *map(int, children)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def empty(self) -> None:
        """Delete everything: the next test gets an empty database."""
        self._run("DROP SCHEMA public CASCADE; CREATE SCHEMA public")

    @contextmanager
    def another_database(self, name: str) -> Iterator[str]:
        """The address of a new database, which `empty` leaves alone."""
        self._run(f"CREATE DATABASE {name}")
        yield self.url.removesuffix("postgres") + name
        self._run(f"DROP DATABASE {name} WITH (FORCE)")

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            assert self.process is not None
            assert self.process.poll() is None, "postgres has ended"
            try:
                return self._run("SELECT 1")
            except OperationalError:
                assert time.monotonic() < deadline, "postgres is not ready"
                time.sleep(0.05)

    def _run(self, statement: str) -> None:
        with self._engine.begin() as connection:
            connection.execute(text(statement))

    @cached_property
    def _engine(self) -> Engine:
        """Kept open: a connection costs as much as emptying the database."""
        url = self.url.replace("postgresql:", "postgresql+psycopg:")
        return create_engine(url, isolation_level="AUTOCOMMIT", pool_pre_ping=True)


@contextmanager
def running_postgres() -> Iterator[RunningPostgres]:
    """In its own folder beside pytest's folders, which its unprivileged user could not access."""
    program = find_postgres("initdb")
    with tempfile.TemporaryDirectory(prefix="gpusteward-postgres-", dir=os.environ.get(TEMPORARY_ROOT)) as made:
        folder = Path(made)
        _hand_over(folder)
        secret = folder / "password"
        secret.write_text("s3cret")
        _hand_over(secret)
        command = [program, "-D", str(folder / "data"), "-U", "steward", "--pwfile", str(secret), "-A", "scram-sha-256"]
        made_data = subprocess.run(
            _as_unprivileged_user([*command, "--no-sync", "-E", "UTF8", "--locale=C"]),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert made_data.returncode == 0, made_data.stderr
        server = RunningPostgres(folder / "data", free_port())
        try:
            server.start()
            yield server
        finally:
            server.stop()


def _as_unprivileged_user(command: Sequence[str]) -> list[str]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return list(command)
    user = pwd.getpwnam("nobody")
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--", *command]


def _hand_over(path: Path) -> None:
    if os.geteuid() == 0:
        user = pwd.getpwnam("nobody")
        os.chown(path, user.pw_uid, user.pw_gid)
