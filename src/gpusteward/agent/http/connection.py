"""One client connection, and reads from it with a deadline and a size limit.

The limits keep a client that sends its request byte by byte from occupying a connection.
"""

import io
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class Connection:
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


class RequestTooLargeError(OSError):
    """The client sent more bytes than allowed for a request."""


class RequestStream(io.RawIOBase):
    """The raw stream below a buffered reader; `allow` sets the time and size limits of the next reads."""

    def __init__(self, client_socket: socket.socket) -> None:
        self._socket = client_socket
        self._deadline = 0.0
        self._bytes_left = 0

    def allow(self, *, seconds: float, size: int) -> None:
        self._deadline = time.monotonic() + seconds
        self._bytes_left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Read what has arrived into the buffer; 0 at the end of the stream.

        Raises TimeoutError past the deadline, RequestTooLargeError past the size.
        """
        seconds_left = self._deadline - time.monotonic()
        if seconds_left <= 0:
            raise TimeoutError("the request took too long")
        if self._bytes_left <= 0:
            raise RequestTooLargeError("the request is too large")
        self._socket.settimeout(seconds_left)
        count = self._socket.recv_into(buffer)
        self._bytes_left -= count
        return count
