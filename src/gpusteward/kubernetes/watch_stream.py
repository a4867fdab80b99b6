"""The lines of an answer that does not end: each of bounded length, and stoppable while a read blocks."""

import contextlib
import socket
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from types import TracebackType

from gpusteward.core.errors import SourceError

LONGEST_LINE_BYTES = 8 << 20  # etcd keeps no object over 1.5 MiB; escaped as JSON it can grow
_READ_BYTES = 65536


class LineStream:
    """Lines as they arrive, without their line end. A line cut short by the end of the stream is dropped.

    Belongs to one thread (`with`, iterate); `interrupt` may be called from any other.
    """

    def __init__(self, connection: socket.socket, response: HTTPResponse, *, silence_seconds: float) -> None:
        """`silence_seconds`: how long a read waits before the other side counts as gone."""
        self._connection = connection
        self._response = response
        connection.settimeout(silence_seconds)

    def __enter__(self) -> "LineStream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._response.close()
        self._connection.close()

    def __iter__(self) -> Iterator[bytes]:
        """Yields lines until the server ends the stream. Raises SourceError if it breaks or misbehaves."""
        rest = b""
        while chunk := self._read():
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines
            if len(rest) > LONGEST_LINE_BYTES:
                raise SourceError(f"the API server sent a line longer than {LONGEST_LINE_BYTES >> 20} MiB")

    def interrupt(self) -> None:
        """Wake a blocked read: the stream ends. Safe at any time, from any thread."""
        with contextlib.suppress(OSError):  # already closed, or the other side was faster
            # The plain socket's own method: the TLS one would take the session away under the reader.
            socket.socket.shutdown(self._connection, socket.SHUT_RDWR)

    def _read(self) -> bytes:
        try:
            return self._response.read1(_READ_BYTES)
        except (OSError, HTTPException) as error:
            reason = "it fell silent" if isinstance(error, TimeoutError) else error or type(error).__name__
            raise SourceError(f"the watch broke off: {reason}") from error


def detect_dead_peers(connection: socket.socket) -> None:
    """Let the kernel probe a quiet connection: a load balancer that vanished sends no farewell."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
