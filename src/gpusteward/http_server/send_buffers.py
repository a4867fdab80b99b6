"""How much of a response the kernel takes before the client has read it."""

import socket

SEND_BUFFER_BYTES = 64 * 1024
"""Linux doubles it. Without a limit it grows to 4 MB for a client that does not read: a thousand of them take more
memory than the container has, and copying their responses into it takes seconds in which nobody else is served."""


def limit_send_buffer(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
