"""A TCP server on the loopback that sends prepared bytes, and records what it received."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gpusteward.http.connections import TimedSocket

Respond = Callable[[socket.socket, bytes], None]


@contextmanager
def receiving(data: bytes) -> Iterator[TimedSocket]:
    """A connection on which these bytes arrive, and then its end."""
    near, far = socket.socketpair()
    with near, far:
        far.sendall(data)
        far.shutdown(socket.SHUT_WR)
        yield TimedSocket(near, time.monotonic() + 60)


def response(body: bytes = b"", *headers: str, status: str = "200 OK", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {size}", *headers, "", ""]).encode() + body


class Server:
    """Serves one connection after the other. `respond` gets the connection and the head of each request."""

    def __init__(self, respond: Respond, tls: ssl.SSLContext | None) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self.stopping = threading.Event()
        self.closed_one = threading.Event()  # a connection was closed by the server
        self._respond = respond
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self.stopping.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _serve(self) -> None:
        while not self.stopping.is_set():
            try:
                connection, _ = self._listener.accept()
                self.connections += 1
                if self._tls is not None:
                    connection = self._tls.wrap_socket(connection, server_side=True)
                with connection:
                    self._serve_connection(connection)
                self.closed_one.set()
            except OSError:
                continue

    def _serve_connection(self, connection: socket.socket) -> None:
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
            if b"\r\n\r\n" in received:
                self.requests.append(received)
                self._respond(connection, received)
                received = b""


@contextmanager
def serving(respond: Respond | bytes, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    prepared = respond
    server = Server(
        (lambda connection, _: connection.sendall(prepared)) if isinstance(prepared, bytes) else prepared, tls
    )
    try:
        yield server
    finally:
        server.stop()
