"""`server.address` -> a listening socket, or a sentence that mends it; and how uvicorn serves on it."""

import socket

import uvicorn
from fastapi import FastAPI

from gpusteward.analyzer.settings.settings import ServerSettings
from gpusteward.core.errors import ConfigurationError

BACKLOG = 512
MOST_CONNECTIONS = 1024
REQUESTS_GRACE_SECONDS = 2


def open_socket(settings: ServerSettings) -> socket.socket:
    """Raises ConfigurationError when the address cannot be listened on."""
    try:
        listening = _listen(*settings.listen)
        # Connections inherit it. Without it the end of an answer waits 40 ms for the acknowledgement of its beginning.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigurationError(
            f"--address {settings.address!r}: cannot listen there: {reason}; choose another with --address HOST:PORT"
        ) from error
    return listening


def _listen(host: str, port: int) -> socket.socket:
    if not host and socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
    family = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)[0][0]  # noqa: S104 - as asked for
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


def configure_server(api: FastAPI) -> uvicorn.Config:
    return uvicorn.Config(
        api,
        log_config=None,
        access_log=False,
        proxy_headers=False,  # a header must not say who the peer is
        server_header=False,
        ws="none",
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=REQUESTS_GRACE_SECONDS,
    )
