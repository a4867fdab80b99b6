"""Limits of both servers: how long a header may be that is interpreted here, and how much of a response the kernel
takes before the client has read it.

Headers are checked before anything reads them; what nobody reads may be longer, up to the limit of the whole head.
"""

import socket
from collections.abc import Iterable

SEND_BUFFER_BYTES = 64 * 1024
"""Linux doubles it. Without a limit it grows to 4 MB for a client that does not read: a thousand of them take more
memory than the container has, and copying their responses into it takes seconds in which nobody else is served."""
LONGEST_HEADER = 1000
"""Characters. Browsers and scrapers send up to about 400."""
LONGEST_CREDENTIALS = 8 * 1024
"""Characters: a token that lists the groups of a person is that long."""

CREDENTIALS = frozenset({"authorization", "x-gpusteward-authorization"})
INTERPRETED = frozenset(
    {
        *("accept", "accept-encoding", "accept-language", "if-none-match"),
        *("connection", "content-length", "content-type", "expect", "transfer-encoding", "upgrade"),
        *("host", "origin", "referer", "sec-fetch-site", "x-gpusteward-csrf"),
        *("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"),
    }
)


def find_long_header(headers: Iterable[tuple[str, str]]) -> str:
    """The name of a header that is too long; empty: there is none. `headers`: names in lower case."""
    for name, value in headers:
        longest = LONGEST_CREDENTIALS if name in CREDENTIALS else LONGEST_HEADER
        if len(value) > longest and (name in INTERPRETED or name in CREDENTIALS):
            return name
    return ""


def limit_send_buffer(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
