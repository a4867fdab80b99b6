"""Reads from a socket under a deadline and a size limit: a client that drips bytes must not keep its slot."""

import io
import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class RequestTooLargeError(OSError):
    """The client sent more than a request may hold."""


class RequestStream(io.RawIOBase):
    """The raw side of a buffered reader; `allow` says how long and how much the next reads may take."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._deadline = 0.0
        self._bytes_left = 0

    def allow(self, *, seconds: float, size: int) -> None:
        self._deadline = time.monotonic() + seconds
        self._bytes_left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Fill the buffer with what has arrived; 0 at the end.

        Raises TimeoutError past the deadline, RequestTooLargeError past the size.
        """
        seconds_left = self._deadline - time.monotonic()
        if seconds_left <= 0:
            raise TimeoutError("the request took too long")
        if self._bytes_left <= 0:
            raise RequestTooLargeError("the request is too large")
        self._connection.settimeout(seconds_left)
        count = self._connection.recv_into(buffer)
        self._bytes_left -= count
        return count
