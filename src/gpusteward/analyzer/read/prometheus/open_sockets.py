"""The sockets behind the HTTP client, so that a read which hangs can be ended from another thread."""

import contextlib
import socket
import threading
from collections.abc import Mapping
from typing import Any

_NEW_STREAM = ("connection.connect_tcp.complete", "connection.start_tls.complete")


class OpenSockets:
    """Closing a client does not wake who waits for an answer; shutting the socket down does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []

    def note(self, event: str, info: Mapping[str, Any]) -> None:
        """A trace of the HTTP client."""
        if event not in _NEW_STREAM:
            return
        found = info["return_value"].get_extra_info("socket")
        with self._lock:
            self._sockets = [one for one in self._sockets if one.fileno() >= 0]
            if isinstance(found, socket.socket):
                self._sockets.append(found)

    def hang_up(self) -> None:
        with self._lock:
            for one in self._sockets:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            self._sockets.clear()
