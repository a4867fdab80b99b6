"""Which of several analyzers writes to a ledger. On PostgreSQL it is the leader, which holds a lease, a row that it
renews (`Leadership`); of a SQLite file it is the one that holds a lock (`FileOwner`).

A replica is a reader while another one holds the lease. When the leader ends, it gives the lease up; when it is killed
or hangs, the lease expires after `LedgerSettings.lease_seconds`. All times are those of the database: the clocks of the
replicas do not matter.

While the database does not respond, every replica keeps its role: nothing can be written or sent without it, and the
leader goes on buffering. `holds_lease` is stricter and false then. When the database is back, the lease may have
expired: a reader gives its leader the time of a whole lease to renew it, because the leader has the buffered cycles.

A SQLite file, or no ledger at all, has no lease: its only analyzer is the leader.

The analyzers may be those of different clusters. Only the leader records, so the others must say that their clusters
are not recorded: a second row has the leader's cluster, together with its name, so that it counts for no other leader.
"""

import fcntl
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from sqlalchemy import Connection, Engine, make_url, text
from sqlalchemy.exc import SQLAlchemyError

from gpusteward.analyzer.ledger.database.db_engine import OWNER_ONLY, describe_error
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.core.errors import SourceError
from gpusteward.logs import Log

log = Log(__name__)

Role = Literal["leader", "reader"]
RENEWALS_PER_LEASE = 3
STOP_SECONDS = 1.0
CLUSTER_RETRY_SECONDS = 60.0
_NOW = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"
_RENEW = text(
    f"INSERT INTO leases (name, holder, until_ms) VALUES ('writer', :holder, {_NOW} + :duration_ms) "  # noqa: S608
    "ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until_ms = excluded.until_ms "
    f"WHERE leases.holder = excluded.holder OR (:may_take AND leases.until_ms <= {_NOW}) RETURNING holder"
)
_READ = text("SELECT name, holder FROM leases WHERE name IN ('writer', 'cluster')")
_NAME_CLUSTER = text(
    "INSERT INTO leases (name, holder, until_ms) VALUES ('cluster', :named, 0) "
    "ON CONFLICT (name) DO UPDATE SET holder = excluded.holder"
)
_RELEASE = text("DELETE FROM leases WHERE name = 'writer' AND holder = :holder")


def make_holder() -> str:
    """A name for this process: the pod's name, and what tells it from its predecessor in the same pod."""
    return f"{socket.gethostname()}/{os.getpid()}-{os.urandom(3).hex()}"


class Leadership:
    """Safe to use from any thread. `on_change` is called by the thread that renews."""

    def __init__(self, engine: Engine | None, *, lease_seconds: float, holder: str = "") -> None:
        """`engine` is the ledger's; None without a ledger."""
        self.holder = holder or make_holder()
        self.leader = self.holder
        self.leader_cluster = ""  # uid of its cluster; empty: not known
        self.error = ""
        self.read_cluster_uid: Callable[[], str] = lambda: ""  # of this analyzer's cluster; may raise SourceError
        self.on_change: Callable[[], None] = lambda: None
        self.may_lead: Callable[[], bool] = lambda: True  # false: this process cannot do a leader's work
        self._lease_seconds = lease_seconds
        is_shared = engine is not None and engine.dialect.name == "postgresql"
        # A statement that commits itself leaves no lock behind when this process stops at any point.
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT") if engine and is_shared else None
        self._lock = threading.Lock()
        self._valid_until = 0.0  # monotonic, as the next one
        self._responding_since: float | None = None  # the database; None: it does not
        self._cluster = ""  # uid of the own one; empty: not known
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leadership", daemon=True)
        # An API server that does not respond must not delay the renewal.
        self._cluster_thread = threading.Thread(target=self._read_cluster, name="cluster-uid", daemon=True)

    @property
    def role(self) -> Role:
        return "leader" if self.leader == self.holder else "reader"

    @property
    def is_leader(self) -> bool:
        """Whether this replica writes. True until it is known that another one does."""
        return self.role == "leader"

    @property
    def holds_lease(self) -> bool:
        """Whether no other replica can be the leader at this moment."""
        return self._engine is None or (self.is_leader and time.monotonic() < self._valid_until)

    @property
    def foreign_cluster(self) -> str:
        """The cluster that is recorded instead of this analyzer's; empty: none, or that is not known."""
        is_foreign = not self.is_leader and self._cluster and self.leader_cluster not in ("", self._cluster)
        return self.leader_cluster if is_foreign else ""

    def start(self) -> None:
        if self._engine is not None:
            self.renew()
            self._thread.start()
            self._cluster_thread.start()

    def renew(self) -> bool:
        """Take the lease if it is free, or renew it; whether this replica is the leader. Never raises."""
        if self._engine is None:
            return True
        with self._lock:
            started, before = time.monotonic(), self.leader
            try:
                self.leader = self._give_up() if self._stopping.is_set() or not self.may_lead() else self._ask()
                self._set_error("")
            except SQLAlchemyError as error:
                self._set_error(describe_error(error))
                self._responding_since = None
                return self.is_leader
            if self.is_leader:
                self._valid_until = started + self._lease_seconds
            has_changed = self.leader != before
            is_leader = self.is_leader
        if has_changed:
            log.info("leader_changed", leader=self.leader, role=self.role)
            self.on_change()
        return is_leader

    def stop(self) -> None:
        """Give the lease up, so that another replica need not wait until it expires."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def describe(self) -> dict[str, Any]:
        """For /api/v1/health."""
        return {"name": self.holder, "role": self.role, "leader": self.leader, "error": self.error}

    def _run(self) -> None:
        while not self._stopping.wait(self._lease_seconds / RENEWALS_PER_LEASE):
            self.renew()
        self.renew()  # gives it up

    def _read_cluster(self) -> None:
        while True:
            try:
                self._cluster = self.read_cluster_uid()
            except SourceError as error:
                log.debug("cluster_unknown", reason=error)
            else:
                return
            if self._stopping.wait(CLUSTER_RETRY_SECONDS):
                return

    def _ask(self) -> str:
        """The leader, which is this replica if the lease was free."""
        now = time.monotonic()
        self._responding_since = now if self._responding_since is None else self._responding_since
        may_take = now - self._responding_since >= self._lease_seconds
        values = {"holder": self.holder, "duration_ms": round(self._lease_seconds * 1000), "may_take": may_take}
        assert self._engine is not None
        with self._engine.connect() as connection:
            if connection.execute(_RENEW, values).scalar() is None:
                return self._read_leader(connection)
            if self._cluster and (self.leader, self.leader_cluster) != (self.holder, self._cluster):
                connection.execute(_NAME_CLUSTER, {"named": f"{self.holder}@{self._cluster}"})
                self.leader_cluster = self._cluster
            return self.holder

    def _read_leader(self, connection: Connection) -> str:
        rows: dict[str, str] = {row.name: row.holder for row in connection.execute(_READ)}
        leader, (named, _, cluster) = rows.get("writer", ""), rows.get("cluster", "").rpartition("@")
        self.leader_cluster = cluster if named == leader else ""
        return leader

    def _give_up(self) -> str:
        """The leader, which is never this replica."""
        assert self._engine is not None
        with self._engine.connect() as connection:
            connection.execute(_RELEASE, {"holder": self.holder})
            return self._read_leader(connection)

    def _set_error(self, error: str) -> None:
        if error and not self.error:
            log.warning("lease_not_renewed", reason=error, role=self.role)
        self.error = error


class FileOwner:
    """Which analyzer owns a SQLite ledger: the one that holds a lock on a file beside it. `take` until it returns True;
    the lock is held until `release` or the end of the process.

    A Deployment may run two analyzers on one volume for a while: a change of its replicas scales the old pods first.
    Both would record, and send every notice twice. The lock ends with its process, however that ends, so that nothing
    has to be cleaned up; it is a POSIX lock, which NFS has too.
    """

    def __init__(self, settings: LedgerSettings) -> None:
        """PostgreSQL has a lease instead, and a file in memory nobody else."""
        url = make_url(settings.locate()) if settings.enabled else None
        is_file = url is not None and url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:")
        self.path = Path(f"{url.database}.lock") if url is not None and is_file else None
        self._file: int | None = None

    def take(self) -> bool:
        """Whether no other process owns the file. A place where nothing can be locked is owned by whoever asks: the
        ledger itself reports what is wrong there."""
        if self.path is None or self._file is not None:
            return True
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
        except OSError as error:
            log.warning("ledger_not_locked", path=self.path, reason=error)
            return True
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # POSIX allows both for a lock that another process has
            os.close(file)
            return False
        except OSError as error:
            os.close(file)
            log.warning("ledger_not_locked", path=self.path, reason=error)
            return True
        self._file = file
        return True

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()
