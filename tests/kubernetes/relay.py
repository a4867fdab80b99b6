"""Connections to a real server that a test can cut."""

import contextlib
import socket
import threading
from collections.abc import Iterator


class Relay:
    """Forwards TCP connections to a server at the same address on another port. Bytes are not looked at."""

    def __init__(self, address: str, port: int) -> None:
        self._target = (address, port)
        self._sockets: set[socket.socket] = set()
        self.port = 0
        self._listen()

    def __enter__(self) -> "Relay":
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def cut(self) -> None:
        """Reset all connections."""
        for each in list(self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        """Connections are cut, and refused until the end of the block."""
        self._close()
        yield
        self._listen()

    def _listen(self) -> None:
        self._listener = socket.create_server((self._target[0], self.port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(self._target)
                self._sockets |= {client, server}
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._forward, args=ends, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._sockets.discard(source)
        source.close()
