"""Which analyzer owns a SQLite ledger: the one that holds a lock on a file beside it.

A Deployment may run two analyzers on one volume for a while: a change of its replicas scales the old pods first. Both
would record, and send every notice twice. The lock ends with its process, however that ends, so that nothing has to be
cleaned up; it is a POSIX lock, which NFS has too.
"""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy import make_url

from gpusteward.analyzer.ledger.db_engine import OWNER_ONLY
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.logs import Log

log = Log(__name__)


class FileOwner:
    """`take` until it returns True; the lock is held until `release` or the end of the process."""

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
