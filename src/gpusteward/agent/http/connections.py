"""The connections of the server: what is known of each, which one yields to others, how many may read /metrics."""

import socket
import threading
import time
from collections.abc import Iterable
from contextlib import suppress


class ClientConnection:
    """An open connection, shared by its own thread and the accepting thread."""

    def __init__(self, client_socket: socket.socket, client: str) -> None:
        self.socket = client_socket
        self.client = client
        self.waiting_since: float | None = time.monotonic()  # None while a complete request is processed
        self.served_since = self.waiting_since  # since when it is processed

    def shut_down(self) -> None:
        """Shut the socket down; pending reads and writes end."""
        with suppress(OSError):
            # Not SSLSocket.shutdown: it would first turn the socket into one that writes unencrypted.
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)


SLOW_SECONDS = 5.0  # pages are ready-made: whoever takes longer to read one yields to those who wait


def find_yielding(connections: Iterable[ClientConnection]) -> ClientConnection | None:
    """The one that has waited longest for a request, else the one that reads its response for longest; None: all are
    served."""
    candidates = list(connections)
    if waiting := [(each.waiting_since, id(each), each) for each in candidates if each.waiting_since is not None]:
        return min(waiting)[2]
    slowest = min(candidates, key=lambda each: each.served_since, default=None)
    is_slow = slowest is not None and time.monotonic() - slowest.served_since >= SLOW_SECONDS
    return slowest if is_slow else None


RESERVED_SCRAPES = 4


class ScrapeSlots:
    """How many clients may read /metrics at the same moment; one address at most half of them. An address that has
    none, or one that is about to end, gets one of a few more: a Prometheus beside clients that read slowly."""

    def __init__(self, most: int) -> None:
        self._most, self._most_of_client = most, max(1, most // 2)
        self._taken: set[ClientConnection] = set()
        self._lock = threading.Lock()

    def acquire(self, connection: ClientConnection) -> bool:
        with self._lock:
            own = [each for each in self._taken if each.client == connection.client]
            if len(own) < self._most_of_client and len(self._taken) < self._most + (
                RESERVED_SCRAPES if len(own) < 2 else 0
            ):
                self._taken.add(connection)
                return True
            slow = find_yielding(own if len(own) >= self._most_of_client else self._taken)
            if slow is None:
                return False
            self._taken.remove(slow)
            self._taken.add(connection)
        slow.shut_down()
        return True

    def release(self, connection: ClientConnection) -> None:
        with self._lock:
            self._taken.discard(connection)
