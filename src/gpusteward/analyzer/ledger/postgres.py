"""Connections to PostgreSQL that end. Its own time limit ends a slow statement; a server that is frozen, or whose disk
hangs, keeps no limit, and whoever waits for it would wait for ever: the cycle, and with it every verdict."""

from typing import Any, TypeVar

from psycopg import Connection, OperationalError
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus

LONGEST_WAIT_SECONDS = 130.0
"""Longer than the server's own limit for a statement (`engines.py`): it speaks first if it can."""
_LOOK_SECONDS = 0.1
Answer = TypeVar("Answer")


class BoundedConnection(Connection[Any]):
    """What is not answered in time fails, and the connection with it: an answer may still come, to another question."""

    def wait(self, gen: PQGen[Answer], interval: float = _LOOK_SECONDS, timeout: float | None = None) -> Answer:
        """Raises OperationalError."""
        try:
            return super().wait(gen, interval, LONGEST_WAIT_SECONDS if timeout is None else timeout)
        except OperationalError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.close()
            raise
